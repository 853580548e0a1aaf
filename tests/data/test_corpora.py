"""Passages: deterministic, distinct, whole, of one split; sources say what they are; no network is a sentence and not a wait."""

import hashlib
import itertools
import re
import socket
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


def test_choice_is_the_same_in_every_version_and_process():
    found = passages("packaged", 32)
    assert found.sha256 == hashlib.sha256("\0".join(found.texts).encode()).hexdigest()
    assert found.texts[0].startswith("LONDON, Tuesday - Robusta coffee futures rose")


def test_headings_and_empty_lines_are_no_paragraphs(tmp_path):
    path = tmp_path / "wiki.test.raw"
    path.write_bytes("\ufeff".encode() + "\r\n".join([*(row.strip("\n") for row in ROWS), " a = b . "]).encode())
    assert set(passages(str(path), 3, length=1).texts) == PARAGRAPHS | {"a = b ."}


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


def test_joined_texts_are_whole_passages_and_share_no_document(tmp_path):
    articles = {number: [f"paragraph {number} {part} " + "x" * 40 for part in range(number % 3 + 1)] for number in range(12)}
    lines = [line for number, texts in articles.items() for line in (f"= Title {number} =", *texts)]
    path = tmp_path / "articles.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    found = passages(path, 4, length=100, seed=3, join=True)
    assert all(len(text) >= 100 for text in found.texts)
    used = [[int(part.split()[1]) for part in text.split("\n\n")] for text in found.texts]
    homes = [set(numbers) for numbers in used]
    assert sum(map(len, homes)) == len(set.union(*homes))  # no two texts share a document
    for text in found.texts:  # each part is a whole passage, and the last one was needed
        parts = text.split("\n\n")
        assert all(part in itertools.chain(*articles.values()) for part in parts)
        assert len("\n\n".join(parts[:-1])) < 100
    assert [numbers[0] for numbers in used] == list(found.documents)
    assert passages(path, 2, length=100, seed=3, join=True).texts == found.texts[:2]
    with pytest.raises(SinkjaxError, match=r"12 texts of length 100.*12 documents.*make only [4-9]"):
        passages(path, 12, length=100, seed=3, join=True)
