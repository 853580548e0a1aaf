"""Passages: deterministic, distinct, whole, of one split; sources say what they are; no network is a sentence and not a wait."""

import hashlib
import itertools
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter

import datasets
import pytest
from datasets.arrow_writer import ArrowWriter
from hypothesis import given
from hypothesis import strategies as st

from sinkjax.data import corpora
from sinkjax.data.corpora import SPLITS, packaged_documents, passages
from sinkjax.errors import SinkjaxError

ROWS = [
    "",
    " = Strand Bridge = \n",
    "",
    " It was half @-@ closed . \n",
    " = = Detour = = \n",
    " Then it was mended . \n",
    " It was half @-@ closed . \n",
]
PARAGRAPHS = {"It was half @-@ closed .", "Then it was mended ."}


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


@pytest.fixture(scope="module")
def articles(tmp_path_factory):
    """Six articles in WikiText's form; number k has k + 1 paragraphs, of one to k + 1 words."""
    lines = []
    for k in range(6):
        lines += [f" = Village {k} = ", *(" ".join([f"village{k}"] * (n + 1)) for n in range(k + 1)), " = = Notes = = "]
    path = tmp_path_factory.mktemp("articles") / "wiki.raw"
    path.write_text("\n".join(lines))
    return path


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 5), st.integers(1, 180), st.sampled_from(SPLITS))
def test_first_passages_do_not_depend_on_how_many_are_asked_for(few, more, seed, length, split):
    few, more = sorted((few, more))
    short, long = (passages("packaged", count, split=split, length=length, size=words, seed=seed) for count in (few, more))
    assert (long.texts[:few], long.documents[:few], long.genres[:few]) == (short.texts, short.documents, short.genres)
    assert len(set(long.texts)) == more
    assert min(map(words, long.texts)) >= length


@pytest.mark.parametrize("seed", range(4))
def test_every_document_gives_a_passage_before_any_gives_a_second(articles, seed):
    found = [passages(articles, count, length=1, seed=seed) for count in (4, 21)]
    short, whole = found
    assert whole.texts[:4] == short.texts
    bounds = itertools.pairwise([0, 6, 11, 15, 18, 20, 21])
    rounds = [sorted(whole.documents[start:end]) for start, end in bounds]
    assert rounds == [list(range(first, 6)) for first in range(6)]
    assert all(text.split()[0] == f"village{number}" for text, number in zip(whole.texts, whole.documents, strict=True))


def test_a_document_whose_first_passages_are_too_short_gives_a_longer_one(articles):
    found = passages(articles, 9, length=3, size=words)
    assert sorted(found.documents[:4]) == [2, 3, 4, 5]
    assert sorted(found.documents[4:7]) == [3, 4, 5]


def test_the_packaged_documents_are_whole_and_every_other_one_of_a_genre_is_in_explore():
    everything = [document.strip() for document in packaged_documents()]
    assert len(everything) == 168
    found = {split: passages("packaged", 84, split=split) for split in ("explore", "confirm")}
    for split, odd in (("explore", 0), ("confirm", 1)):
        assert {number % 14 % 2 for number in found[split].documents} == {odd}
        assert set(Counter(found[split].genres).values()) == {7}
        pairs = zip(found[split].texts, found[split].documents, strict=True)
        assert all(text.strip() == everything[number] for text, number in pairs)
    genres = dict(zip(found["confirm"].documents, found["confirm"].genres, strict=True))
    assert [genres[number] for number in sorted(genres)] == sorted(found["confirm"].genres)
    assert len(set(genres.values())) == 12


def test_the_packaged_chats_are_whole_conversations_that_end_with_an_answer():
    found = passages("chats", 120, length=1)
    assert found.source.startswith("packaged chats (120 ")
    assert set(found.texts) == {text.rstrip("\n") for text in packaged_documents("chats")}
    for text in found.texts:
        turns = [line.partition(":")[0] for line in text.split("\n") if line.startswith(("User: ", "Assistant: "))]
        assert turns == ["User", "Assistant"] * (len(turns) // 2), text


def test_the_packaged_documents_keep_their_line_breaks_and_none_of_the_marks_between_them():
    texts = passages("packaged", 168).texts
    assert sum("\n" in text for text in texts) > 150
    assert any(text.startswith("    ") for text in texts)  # a listing is indented from its first line on
    assert not any(line.startswith("%%") for text in texts for line in text.split("\n"))
    assert all(150 <= words(text) <= 230 for text in texts)
    assert sum(len(text.encode()) for text in packaged_documents()) < 256 * 1024


def test_splits_of_other_texts_are_halves_that_depend_on_the_text_of_each_document_alone(tmp_path):
    lines = [f"Paragraph number {i} of the file." for i in range(200)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    (tmp_path / "b.txt").write_text("\n".join(["One more.", *reversed(lines[:50])]))
    ours = {split: {line for line in lines if bit(line) == odd} for split, odd in (("explore", 0), ("confirm", 1))}
    assert min(map(len, ours.values())) > 70
    for split, texts in ours.items():
        assert set(passages(tmp_path / "a.txt", len(texts), split=split, length=1).texts) == texts
        there = texts & set(lines[:50])
        assert set(passages(tmp_path / "b.txt", len(there), split=split, length=12).texts) == there


def bit(text):
    return hashlib.sha256(text.encode()).digest()[0] & 1


def test_an_article_is_in_one_split_as_a_whole(articles):
    texts = [[" ".join([f"village{k}"] * (n + 1)) for n in range(k + 1)] for k in range(6)]
    for split, odd in (("explore", 0), ("confirm", 1)):
        numbers = [k for k in range(6) if bit("\n".join(texts[k])) == odd]
        assert 0 < len(numbers) < 6
        held = [text for number in numbers for text in texts[number]]
        assert sorted(passages(articles, len(held), split=split, length=1).texts) == sorted(held)
        with pytest.raises(SinkjaxError, match=f"has only {len(held)} "):
            passages(articles, len(held) + 1, split=split, length=1)


def test_each_file_of_a_folder_is_a_document(tmp_path):
    for k in range(3):
        (tmp_path / f"{k}.txt").write_text(f"File {k}, first paragraph.\n\n = A heading = \nFile {k}, second paragraph.\n")
    (tmp_path / "3.txt").write_text("\n")
    (tmp_path / "notes.md").write_text("No text of this corpus.")
    found = passages(tmp_path, 6, length=1)
    assert found.source == f"folder {tmp_path.name} (4 files)"
    assert [sorted(found.documents[start : start + 3]) for start in (0, 3)] == [[0, 1, 2]] * 2
    assert all(f"File {number}, " in text for text, number in zip(found.texts, found.documents, strict=True))
    assert set(found.genres) == {""}


def test_a_paragraph_of_two_documents_belongs_to_the_first(tmp_path):
    for k in range(2):
        (tmp_path / f"{k}.txt").write_text(f"The same paragraph.\nParagraph of file {k}.")
    found = passages(tmp_path, 3, length=1)
    assert dict(zip(found.texts, found.documents, strict=True))["The same paragraph."] == 0


def test_other_seeds_choose_other_passages_and_the_same_seed_the_same():
    assert passages("packaged", seed=1) == passages("packaged", seed=1)
    assert len(set(passages("packaged", seed=1).texts) & set(passages("packaged", seed=2).texts)) < 16  # of 32, by chance 6


def test_choice_is_the_same_in_every_version_and_process():
    found = passages("packaged", 32)
    assert found.sha256 == hashlib.sha256("\0".join(found.texts).encode()).hexdigest()
    assert found.texts[0].startswith("LONDON, Tuesday - Robusta coffee futures rose")


def test_order_comes_from_the_text_and_not_from_its_place(tmp_path):
    lines = [f"Paragraph number {i} of the file." for i in range(40)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    (tmp_path / "b.txt").write_text("\n\n".join([*reversed(lines), lines[3]]))
    a, b = (passages(tmp_path / name, 40, length=5) for name in ("a.txt", "b.txt"))
    assert a.texts == b.texts
    assert (a.sha256, a.source) == (b.sha256, "file a.txt")


def test_headings_and_empty_lines_are_no_paragraphs(tmp_path):
    path = tmp_path / "wiki.test.raw"
    path.write_bytes("\ufeff".encode() + "\r\n".join([*(row.strip("\n") for row in ROWS), " a = b . "]).encode())
    assert set(passages(str(path), 3, length=1).texts) == PARAGRAPHS | {"a = b ."}


def test_a_folder_without_texts_is_refused(tmp_path):
    with pytest.raises(SinkjaxError, match=r"no text: .*\.txt"):
        passages(tmp_path, 1)


def test_only_a_line_break_ends_a_paragraph(tmp_path):
    (tmp_path / "odd.txt").write_text("One sentence.\u2028Another one.\x0cA third.", encoding="utf-8")
    assert passages(tmp_path / "odd.txt", 1, length=1).texts == ("One sentence.\u2028Another one.\x0cA third.",)


@pytest.mark.parametrize("source", ["auto", "wikitext"])
def test_wikitext_comes_from_the_cache_without_a_network(tmp_path, no_network, source, capfd, caplog):
    write_cache(tmp_path / "cache")
    found = passages(source, 2, length=1)
    assert set(found.texts) == PARAGRAPHS
    assert "(Salesforce/wikitext, wikitext-2-raw-v1, split test)" in found.source
    assert (capfd.readouterr(), caplog.records) == (("", ""), [])


def test_without_a_network_the_packaged_text_is_used_quickly_silently_and_said_so(no_network, capfd, caplog):
    start = time.monotonic()
    found = passages("auto", 4)
    assert time.monotonic() - start < 30
    assert found.texts == passages("packaged", 4).texts
    assert re.search("^packaged text .*168 .*WikiText-2 .*hub", found.source)
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
    assert time.monotonic() - start < 30


def test_hub_that_answers_is_asked(no_cache, monkeypatch):
    monkeypatch.setattr(corpora, "hub_answers", lambda: True)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: datasets.Dataset.from_dict({"text": ROWS}))
    assert len(passages("auto", 2, length=1).texts) == 2


def test_hub_that_fails_is_named_in_the_source(no_cache, monkeypatch):
    def broken(*_, **__):
        raise ConnectionError("many lines\nof advice")

    monkeypatch.setattr(corpora, "hub_answers", lambda: True)
    monkeypatch.setattr(datasets, "load_dataset", broken)
    assert "(ConnectionError)" in passages("auto", 2).source


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
        (None, ["there is no file or folder", "missing.txt"]),
        (b"", ["file.txt", "no paragraphs"]),
        (b" = Only = \n\n = Headings = \n", ["no paragraphs"]),
        (b"Caf\xe9 au lait.", ["file.txt", "not UTF-8", "byte 3"]),
        (b"A short one.\nA second one.\n", ["3 passages", "the split 'all' of file file.txt has only 2 (2 with"]),
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
        ({"source": "packaged", "split": "confrim"}, ["split 'confrim'", "'confirm'", "explore"]),
        ({"source": "packaged", "count": 85, "split": "confirm"}, ["85 passages", "the split 'confirm' of packaged", "only 84"]),
        (
            {"source": "packaged", "count": 5, "length": 10**6},
            ["5 passages", "only 0 (168 with the shorter ones, from 168 documents)"],
        ),
    ],
)
def test_wrong_argument_is_refused_in_one_sentence(arguments, expected):
    with pytest.raises(SinkjaxError) as error:
        passages(**arguments)
    assert all(word in str(error.value) for word in expected)


def test_too_short_passages_are_refused_with_the_length_that_enough_of_them_have(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("a\nbb\ncccc\ndddddddd\n")
    with pytest.raises(SinkjaxError, match=r"only 1 \(4 .*--prompts 1 or --length 2"):
        passages(path, 3, length=8)
    assert len(passages(path, 3, length=2).texts) == 3
    with pytest.raises(SinkjaxError, match="a smaller --length"):
        passages(path, 5, length=8)


def test_joined_texts_are_whole_passages_and_share_no_document(tmp_path):
    articles = {number: [f"paragraph {number} {part} " + "x" * 40 for part in range(number % 3 + 1)] for number in range(12)}
    lines = [line for number, texts in articles.items() for line in (f"= Title {number} =", *texts)]
    path = tmp_path / "articles.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    found = corpora.joined(path, 4, length=100, seed=3)
    assert all(len(text) >= 100 for text in found.texts)
    used = [[int(part.split()[1]) for part in text.split("\n\n")] for text in found.texts]
    homes = [set(numbers) for numbers in used]
    assert sum(map(len, homes)) == len(set.union(*homes))  # no two texts share a document
    for text in found.texts:  # each part is a whole passage, and the last one was needed
        parts = text.split("\n\n")
        assert all(part in itertools.chain(*articles.values()) for part in parts)
        assert len("\n\n".join(parts[:-1])) < 100
    assert [numbers[0] for numbers in used] == list(found.documents)
    assert corpora.joined(path, 2, length=100, seed=3).texts == found.texts[:2]
    with pytest.raises(SinkjaxError, match=r"12 texts of length 100.*12 documents.*make only [4-9]"):
        corpora.joined(path, 12, length=100, seed=3)
