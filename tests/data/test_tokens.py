"""Token files: the text as it is, made once and whole, refused by name when something differs; splits that share no token."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap

import datasets
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinkjax.checkpoints.tokenizer import write_folder_tokenizer
from sinkjax.data import sources, tokens, vocabulary
from sinkjax.data.config import Corpus
from sinkjax.data.corpora import packaged_documents
from sinkjax.data.tokens import folder_for, open_tokens, prepare, spans
from sinkjax.errors import SinkjaxError

SMALL = 300  # tokens of a vocabulary that takes no time


@pytest.fixture(scope="module")
def packaged(tmp_path_factory):
    return prepare(Corpus(vocabulary=SMALL), tmp_path_factory.mktemp("corpora"))


@pytest.fixture
def stories(tmp_path):
    """A folder of texts: one with a byte order mark and Windows line breaks, one that writes a special token out."""
    folder = tmp_path / "stories"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"\xef\xbb\xbfA kitchen on the island. Rain.\r\nThere used to be a hook.\r\n")
    second = 'They sent for <|bos|>Ness. Ça va?\n\n\n"How deep?" he asked--never mind. 🐋 '
    (folder / "b.txt").write_text(20 * second, encoding="utf-8")
    (folder / "empty.txt").write_text("")
    return folder


def local(folder, **fields):
    return Corpus(text=str(folder), vocabulary=270, **fields)


def refused(message, *args):
    with pytest.raises(SinkjaxError, match=message) as caught:
        prepare(*args)
    assert "\n" not in str(caught.value)


def test_the_ids_are_those_of_the_whole_text(packaged):
    ids = [token for text in packaged_documents() for token in packaged.tokenizer.encode(text)]
    assert packaged.ids.tolist() == ids
    assert packaged.ids.dtype == np.uint16
    assert packaged.tokenizer.decode(packaged.ids) == "".join(packaged_documents())


def test_the_domains_of_a_folder_are_the_folders_below_it(tmp_path):
    for name, text in {"law/a.txt": "one two", "law/deep/b.txt": "three", "top.txt": "four", "poems/c.txt": "five"}.items():
        (tmp_path / "texts" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / name).write_text(text)
    found = prepare(Corpus(text=str(tmp_path / "texts"), vocabulary=258, limit=17), tmp_path / "root")
    assert found.card["domains"] == {"": 0, "law": 4, "poems": 16}
    assert found.tokenizer.decode(found.ids) == "fourone twothreef"


def test_the_same_corpus_gives_the_same_bytes_and_is_not_made_twice(packaged, tmp_path, monkeypatch):
    again = prepare(Corpus(vocabulary=SMALL), tmp_path / "again")
    assert again.card == packaged.card
    monkeypatch.setattr(tokens, "_make", None)
    assert prepare(Corpus(vocabulary=SMALL), tmp_path / "again").ids.tolist() == again.ids.tolist()


def test_local_files_in_the_order_of_their_names_each_a_document(stories, tmp_path):
    made = prepare(local(stories, separator="eos"), tmp_path / "c")
    ends = np.flatnonzero(made.ids == 1)
    assert len(ends) == 2  # the empty file is no document
    first, second = made.ids[: ends[0]], made.ids[ends[0] + 1 : ends[1]]
    assert made.tokenizer.decode(first) == "A kitchen on the island. Rain.\nThere used to be a hook.\n"
    assert made.tokenizer.decode(second) == (stories / "b.txt").read_text(encoding="utf-8")
    assert (made.ids == 0).sum() == 0  # a written <|bos|> is text
    assert str(tmp_path) not in (made.folder / "corpus.json").read_text()


@pytest.mark.parametrize(("separator", "token"), [("bos", 0), ("eos", 1)])
def test_the_file_does_not_depend_on_how_much_is_encoded_at_once(stories, tmp_path, monkeypatch, separator, token):
    made = prepare(local(stories, separator=separator), tmp_path / "c")
    monkeypatch.setattr(vocabulary, "PIECE", 40)
    monkeypatch.setattr(vocabulary, "GROUP", 90)
    cut = prepare(local(stories, separator=separator), tmp_path / "d")
    assert (cut.ids == token).sum() == 2
    assert cut.card["text"] == made.card["text"]
    assert cut.tokenizer.decode(cut.ids) == made.tokenizer.decode(made.ids)


def test_a_data_set_on_the_hub_is_streamed_at_the_commit_that_is_stored(tmp_path, monkeypatch):
    asked = []

    def load_dataset(**options):
        asked.append(options)
        return iter([{"text": "some text of the hub"}, {"text": "and more of it"}])

    monkeypatch.setattr(sources, "_commit", lambda _: "0a1b")
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    corpus = Corpus(text="owner/name", subset="raw", split="test", vocabulary=260)
    made = prepare(corpus, tmp_path / "c")
    assert made.card["source"] == {"kind": "hub", "repository": "owner/name", "commit": "0a1b"}
    expected = {"path": "owner/name", "name": "raw", "revision": "0a1b", "split": "test", "streaming": True}
    assert asked == [expected, expected]  # once for the tokenizer, once for the tokens
    monkeypatch.setattr(sources, "_commit", None)  # a file that is there needs no network
    assert prepare(corpus, tmp_path / "c").ids.tolist() == made.ids.tolist()


def test_a_changed_source_is_read_again(stories, tmp_path):
    for name, text in (("b.txt", "Father took the hook out."), ("c.txt", "new"), ("a.txt", None)):
        before = prepare(local(stories), tmp_path / "c")
        (stories / name).write_text(text) if text else (stories / name).unlink()
        after = prepare(local(stories), tmp_path / "c")
        assert after.folder != before.folder
        whole = "".join((stories / name).read_text("utf-8-sig") for name in after.card["source"]["files"])
        assert after.tokenizer.decode(after.ids) == whole


def flip(path, keep_times=False):
    """Change one bit in the middle of a file."""
    before, raw = path.stat(), bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    if keep_times:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("keep_times", [False, True])
def test_a_changed_token_file_is_named(stories, tmp_path, keep_times):
    folder = prepare(local(stories), tmp_path / "c").folder
    flip(folder / "tokens.bin", keep_times)
    for _ in range(2):
        refused(rf"^{folder}/tokens.bin has changed .*delete {folder} ", local(stories), tmp_path / "c")
    os.truncate(folder / "tokens.bin", 10)
    refused("tokens.bin has changed", local(stories), tmp_path / "c")


@pytest.mark.parametrize("card", [{}, {"tokens": {}}, {"tokens": {"dtype": "x", "count": 1, "sha256": ""}}, {"tokens": [1]}])
def test_a_damaged_card_is_named(stories, tmp_path, card):
    folder = prepare(local(stories), tmp_path / "c").folder
    (folder / "corpus.json").write_text(json.dumps({"format": 1, **card}))
    with pytest.raises(SinkjaxError, match=r"corpus\.json has changed"):
        open_tokens(folder)


def test_a_kill_leaves_nothing_that_counts(stories, tmp_path):
    script = textwrap.dedent("""
        import os, signal, sys
        from pathlib import Path
        from sinkjax.data import vocabulary
        from sinkjax.data.config import Corpus
        from sinkjax.data.tokens import prepare
        vocabulary.sha256 = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # the last thing before the card is written
        prepare(Corpus(text=sys.argv[1], vocabulary=270), Path(sys.argv[2]))
    """)
    done = subprocess.run([sys.executable, "-c", script, str(stories), str(tmp_path / "c")], capture_output=True)
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.glob("c/.*.new/tokens.bin")
    assert left.stat().st_size
    assert not [*tmp_path.glob("c/[!.]*")]
    made = prepare(local(stories), tmp_path / "c")
    assert made.tokenizer.decode(made.ids).startswith("A kitchen on")
    assert not left.parent.exists()


def test_folders_differ_with_settings_and_content_and_not_with_the_place(packaged, stories, tmp_path):
    root, copy = tmp_path / "root", tmp_path / "copy" / "stories"
    shutil.copytree(stories, copy)
    assert folder_for(local(stories), root) == folder_for(local(copy), root)
    (copy / "a.txt").write_text("Another text of the same name.")
    (tmp_path / "tokenizer").mkdir()
    write_folder_tokenizer(packaged.tokenizer, tmp_path / "tokenizer")
    of_folder = dataclasses.replace(local(stories), tokenizer=str(tmp_path / "tokenizer"))
    folders = {folder_for(corpus, root) for corpus in (local(stories), local(copy), local(stories, limit=5), of_folder)}
    assert len(folders) == 4


@pytest.mark.parametrize(
    ("content", "fields", "message"),
    [
        ({"a.txt": b""}, {"tokenizer": "smollm2-135m"}, "texts holds no text"),
        ({"a.txt": b"fine", "b.txt": b"Caf\xe9"}, {}, r"b\.txt is not UTF-8"),
        ({"a.txt": b"x"}, {"revision": "main"}, "subset and revision "),
        ({"a.txt": b"x"}, {"vocabulary": 5000}, "vocabulary .*at most 258 .* 5000"),
    ],
)
def test_a_wrong_source_is_refused_by_name(tmp_path, content, fields, message):
    (tmp_path / "texts").mkdir()
    for name, raw in content.items():
        (tmp_path / "texts" / name).write_bytes(raw)
    refused(message, dataclasses.replace(Corpus(text=str(tmp_path / "texts"), vocabulary=259), **fields), tmp_path / "c")
    assert not [*tmp_path.glob("c/[!.]*"), *tmp_path.glob("c/.*.new")]


@given(st.integers(0, 5000), st.sampled_from([0.0, 0.01, 0.1, 0.5]))
def test_every_token_is_in_one_split(count, share):
    found = sorted(span for split in spans(count, share).values() for span in split)
    assert [token for start, stop in found for token in range(start, stop)] == list(range(count))
    held = sum(stop - start for start, stop in spans(count, share)["validation"])
    assert abs(held - share * count) <= 8
