"""Passages: deterministic, distinct, whole; every source says what it is; no network is a sentence and not a wait."""

import hashlib
import socket
import subprocess
import sys
import threading
import time
from importlib.resources import files

import datasets
import pytest
from datasets.arrow_writer import ArrowWriter
from hypothesis import given
from hypothesis import strategies as st

from sinkjax.data import corpora
from sinkjax.data.corpora import passages
from sinkjax.errors import SinkjaxError

ROWS = [
    "",
    " = Robert Boulter = \n",
    "",
    " He @-@ acted . \n",
    " = = Career = = \n",
    " Then he directed . \n",
    " He @-@ acted . \n",
]


@pytest.fixture
def no_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def no_network(no_cache, monkeypatch):
    def unresolved(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unresolved)


def words(text):
    return len(text.split())


def write_cache(root):
    """ROWS as `datasets` leaves WikiText-2 in its cache."""
    folder = root / "Salesforce___wikitext" / "wikitext-2-raw-v1" / "0.0.0" / "0a1b"
    folder.mkdir(parents=True)
    features = datasets.Features({"text": datasets.Value("string")})
    with ArrowWriter(path=str(folder / "wikitext-test.arrow"), features=features) as writer:
        for row in ROWS:
            writer.write({"text": row})
        examples, size = writer.finalize()
    datasets.DatasetInfo(
        features=features,
        config_name="wikitext-2-raw-v1",
        dataset_name="wikitext",
        version="0.0.0",
        splits={"test": {"name": "test", "num_bytes": size, "num_examples": examples, "dataset_name": "wikitext"}},
    ).write_to_directory(str(folder))


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 5), st.integers(1, 120))
def test_first_passages_do_not_depend_on_how_many_are_asked_for(few, more, seed, length):
    few, more = sorted((few, more))
    short, long = (passages("packaged", count, length=length, size=words, seed=seed).texts for count in (few, more))
    assert long[:few] == short
    assert len(set(long)) == more
    assert min(map(words, long)) >= length


def test_other_seeds_choose_other_passages_and_the_same_seed_the_same():
    assert passages("packaged", seed=1) == passages("packaged", seed=1)
    assert len(set(passages("packaged", seed=1).texts) & set(passages("packaged", seed=2).texts)) < 16


def test_choice_is_the_same_in_every_version_and_process():
    found = passages("packaged", 32)
    assert found.sha256 == hashlib.sha256("\0".join(found.texts).encode()).hexdigest()
    assert found.texts[0].startswith("Joe was evidently made uncomfortable by what he supposed")


def test_order_comes_from_the_text_and_not_from_its_place(tmp_path):
    lines = [f"Paragraph number {i} of the file." for i in range(40)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    (tmp_path / "b.txt").write_text("\n\n".join([*reversed(lines), lines[3]]))
    a, b = (passages(tmp_path / name, 40, length=5) for name in ("a.txt", "b.txt"))
    assert a.texts == b.texts
    assert (a.sha256, a.source) == (b.sha256, "file a.txt")


def test_paragraphs_of_the_packaged_prose_are_whole_and_long_enough_for_64_tokens():
    texts = passages("packaged", 250, length=350).texts
    raw = files("sinkjax").joinpath("data", "assets", "prose.txt").read_text(encoding="utf-8")
    assert set(texts) <= set(raw.split("\n"))
    assert all(text[0].isupper() or text[0] in "“\"'‘" for text in texts)
    assert all(text.rstrip("”\"'’")[-1] in ".!?" for text in texts)
    assert not any("=" in text for text in texts)
    assert len(raw.encode()) < 256 * 1024


def test_headings_and_empty_lines_are_no_paragraphs(tmp_path):
    path = tmp_path / "wiki.test.raw"
    path.write_bytes("\ufeff".encode() + "\r\n".join([*(row.strip("\n") for row in ROWS), " a = b . "]).encode())
    assert set(passages(str(path), 3, length=1).texts) == {"He @-@ acted .", "Then he directed .", "a = b ."}


def test_only_a_line_break_ends_a_paragraph(tmp_path):
    (tmp_path / "odd.txt").write_text("One sentence.\u2028Another one.\x0cA third.", encoding="utf-8")
    assert passages(tmp_path / "odd.txt", 1, length=1).texts == ("One sentence.\u2028Another one.\x0cA third.",)


@pytest.mark.parametrize("source", ["auto", "wikitext"])
def test_wikitext_comes_from_the_cache_without_a_network(tmp_path, no_network, source, capfd, caplog):
    write_cache(tmp_path / "cache")
    found = passages(source, 2, length=1)
    assert set(found.texts) == {"He @-@ acted .", "Then he directed ."}
    assert found.source == "WikiText-2 raw (Salesforce/wikitext, wikitext-2-raw-v1, split test)"
    assert (capfd.readouterr(), caplog.records) == (("", ""), [])


def test_without_a_network_prose_is_used_quickly_silently_and_said_so(no_network, capfd, caplog):
    start = time.monotonic()
    found = passages("auto", 4)
    assert time.monotonic() - start < 3
    assert found.texts == passages("packaged", 4).texts
    assert found.source.startswith("packaged excerpt of public-domain prose")
    assert found.source.endswith("because WikiText-2 is not in the cache of datasets and the hub does not answer")
    assert (capfd.readouterr(), caplog.records) == (("", ""), [])


def test_network_that_hangs_is_not_waited_for(no_cache, monkeypatch):
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(60) or [])
    monkeypatch.setattr(corpora, "PATIENCE_SECONDS", 0.3)
    start = time.monotonic()
    try:
        assert passages("auto", 1).source.startswith("packaged")
    finally:
        over.set()
    assert time.monotonic() - start < 3


def test_hub_that_answers_is_asked(no_cache, monkeypatch):
    monkeypatch.setattr(corpora, "_hub_answers", lambda: True)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.Dataset.from_dict({"text": ROWS}))
    assert len(passages("auto", 2, length=1).texts) == 2


def test_hub_that_fails_is_named_in_the_source(no_cache, monkeypatch):
    def broken(*_, **__):
        raise ConnectionError("many lines\nof advice")

    monkeypatch.setattr(corpora, "_hub_answers", lambda: True)
    monkeypatch.setattr(datasets, "load_dataset", broken)
    assert "could not be loaded from the hub (ConnectionError)" in passages("auto", 2).source


def test_levels_of_loggers_are_put_back(no_network):
    import logging

    before = [logging.getLogger(name).level for name in ("datasets", "huggingface_hub")]
    passages("auto", 1)
    assert [logging.getLogger(name).level for name in ("datasets", "huggingface_hub")] == before


def test_wikitext_that_was_demanded_is_never_replaced(no_network):
    with pytest.raises(SinkjaxError, match="hub does not answer"):
        passages("wikitext", 1)


def test_own_text_imports_nothing_heavy():
    script = (
        "import sys; from sinkjax.data.corpora import passages; passages('packaged', 2);"
        "print([m for m in ('datasets', 'huggingface_hub', 'transformers', 'torch') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, ["missing.txt", "no such file"]),
        (b"", ["file.txt", "no paragraphs"]),
        (b" = Only = \n\n = Headings = \n", ["no paragraphs"]),
        (b"Caf\xe9 au lait.", ["file.txt", "not UTF-8", "byte 3"]),
        (b"A short one.\nA second one.\n", ["3 passages", "only 2 of the 2"]),
    ],
)
def test_bad_file_is_refused_in_one_sentence(tmp_path, content, expected):
    path = tmp_path / ("missing.txt" if content is None else "file.txt")
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SinkjaxError) as error:
        passages(path, 3, length=1)
    assert all(word in str(error.value) for word in expected)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"source": "wikitxt"}, ["'wikitxt'", "'wikitext'", "packaged"]),
        ({"source": "packaged", "count": 0}, ["count", "0"]),
        ({"source": "packaged", "length": -1}, ["length", "-1"]),
        ({"source": "packaged", "count": 5, "length": 10**6}, ["5 passages", "only 0 of the 253"]),
    ],
)
def test_wrong_argument_is_refused_in_one_sentence(arguments, expected):
    with pytest.raises(SinkjaxError) as error:
        passages(**arguments)
    assert all(word in str(error.value) for word in expected)
