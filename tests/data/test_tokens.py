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
from sinkjax.data.corpora import packaged_documents, packaged_genres
from sinkjax.data.tokens import folder_for, open_tokens, prepare, spans
from sinkjax.errors import SinkjaxError

SMALL = 300  # tokens of a vocabulary that takes no time


@pytest.fixture(scope="module")
def packaged(tmp_path_factory):
    return prepare(Corpus(vocabulary=SMALL), tmp_path_factory.mktemp("corpora") / "packaged")


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


def test_the_card_says_what_the_file_was_made_of(packaged):
    card = json.loads((packaged.folder / "corpus.json").read_text())
    assert card["text"] == {"documents": 168, "bytes": 184082, "sha256": card["text"]["sha256"]}
    assert card["tokens"]["count"] == len(packaged.ids)
    assert card["tokenizer"] | {"sha256": ""} == {"vocab_size": SMALL, "bos": 0, "eos": 1, "sha256": ""}
    assert {"sinkjax", "tokenizers", "datasets", "numpy"} == set(card["versions"])
    assert (packaged.vocab_size, packaged.bos, packaged.sha256) == (SMALL, 0, card["tokens"]["sha256"])


def test_the_domains_of_the_packaged_text_are_its_genres(packaged):
    assert list(packaged.domains) == list(packaged_genres())
    encode = packaged.tokenizer.encode
    lengths = [sum(len(encode(text)) for text in texts) for texts in packaged_genres().values()]
    assert list(packaged.domains.values()) == [0, *np.cumsum(lengths[:-1])]


def test_the_domains_of_a_folder_are_the_folders_below_it(tmp_path):
    for name, text in {"law/a.txt": "one two", "law/deep/b.txt": "three", "top.txt": "four", "poems/c.txt": "five"}.items():
        (tmp_path / "texts" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / name).write_text(text)
    found = prepare(Corpus(text=str(tmp_path / "texts"), vocabulary=258, limit=17), tmp_path / "corpus")
    assert found.domains == {"": 0, "law": 4, "poems": 16}
    assert found.tokenizer.decode(found.ids) == "fourone twothreef"


def test_the_same_corpus_gives_the_same_bytes_and_is_not_made_twice(packaged, tmp_path, monkeypatch):
    again = prepare(Corpus(vocabulary=SMALL), tmp_path / "again")
    assert again.sha256 == packaged.sha256
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


def test_the_file_does_not_depend_on_how_much_is_encoded_at_once(stories, tmp_path, monkeypatch):
    made = prepare(local(stories, separator="bos"), tmp_path / "c")
    monkeypatch.setattr(vocabulary, "PIECE", 40)
    monkeypatch.setattr(vocabulary, "GROUP", 90)
    cut = prepare(local(stories, separator="bos"), tmp_path / "d")
    assert (cut.ids == 0).sum() == 2
    assert cut.card["text"] == made.card["text"]
    assert cut.tokenizer.decode(cut.ids) == made.tokenizer.decode(made.ids)


def test_a_bos_before_each_document(stories, tmp_path):
    made = prepare(local(stories, separator="bos"), tmp_path / "c")
    assert made.ids[0] == 0
    assert (made.ids == 0).sum() == 2


def test_a_limit_takes_the_first_bytes(stories, tmp_path):
    made = prepare(local(stories, limit=80), tmp_path / "c")
    whole = "A kitchen on the island. Rain.\nThere used to be a hook.\n" + (stories / "b.txt").read_text(encoding="utf-8")
    assert made.card["text"]["bytes"] == 80
    assert made.tokenizer.decode(made.ids).encode() == whole.encode()[:80]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_files_of_records_have_a_document_in_each_row(tmp_path, suffix):
    rows = datasets.Dataset.from_dict({"body": ["one fish two fish", "red fish blue fish"], "n": [1, 2]})
    getattr(rows, f"to_{'json' if suffix == 'jsonl' else suffix}")(tmp_path / f"rows.{suffix}")
    path = tmp_path / f"rows.{suffix}"
    made = prepare(Corpus(text=str(path), column="body", vocabulary=258, separator="eos"), tmp_path / "c")
    assert made.tokenizer.decode(made.ids) == "one fish two fish<|eos|>red fish blue fish<|eos|>"
    refused("'text': .*'body'.*--field", Corpus(text=str(path), vocabulary=258), tmp_path / "d")


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


def test_a_hub_that_does_not_answer_is_one_sentence(tmp_path):
    refused("owner/name, .*hub", Corpus(text="owner/name"), tmp_path / "c")


def test_the_tokenizer_of_a_model(smollm2_unread, tmp_path):
    text = packaged_documents()[0]
    made = prepare(Corpus(tokenizer="smollm2-135m", limit=len(text.encode())), tmp_path / "c")
    assert made.ids.tolist() == smollm2_unread.tokenizer.encode(text) == made.tokenizer.encode(text)
    assert (made.vocab_size, made.bos, made.tokenizer.bos) == (49152, 1, 1)


def test_ids_beyond_16_bits_are_kept(stories, tmp_path, monkeypatch):
    monkeypatch.setattr(vocabulary, "size", lambda _: 70_000)
    made = prepare(local(stories), tmp_path / "c")
    assert made.ids.dtype == np.uint32
    assert made.tokenizer.decode(made.ids).startswith("A kitchen on")


def test_a_tokenizer_folder_that_changed_is_named(packaged, stories, tmp_path):
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    write_folder_tokenizer(packaged.tokenizer, folder)
    corpus = dataclasses.replace(local(stories), tokenizer=str(folder))
    made = prepare(corpus, tmp_path / "c")
    assert made.ids.tolist() == prepare(corpus, tmp_path / "c").ids.tolist()
    write_folder_tokenizer(vocabulary.train_bpe(packaged_documents(), 280), folder)
    refused("tokenizer changed since", corpus, tmp_path / "c")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda folder: (folder / "b.txt").write_text("Father took the hook out."), r"^b\.txt changed since"),
        (lambda folder: (folder / "c.txt").write_text("new"), r"^c\.txt changed since"),
        (lambda folder: (folder / "a.txt").unlink(), r"^a\.txt changed since"),
    ],
)
def test_a_changed_source_is_refused_by_name(stories, tmp_path, change, named):
    prepare(local(stories), tmp_path / "c")
    change(stories)
    refused(named, local(stories), tmp_path / "c")


def test_other_settings_are_refused_by_name(stories, tmp_path):
    prepare(local(stories), tmp_path / "c")
    refused("separator .*'none' .*'eos'", local(stories, separator="eos"), tmp_path / "c")


def test_a_source_that_is_gone_is_named(stories, tmp_path):
    made = prepare(local(stories), tmp_path / "c")
    stories.rename(tmp_path / "elsewhere")
    refused("unknown text of a corpus", local(stories), tmp_path / "c")
    assert open_tokens(tmp_path / "c").sha256 == made.sha256


def test_a_file_that_lost_its_end_is_refused(stories, tmp_path):
    folder = prepare(local(stories), tmp_path / "c").folder
    os.truncate(folder / "tokens.bin", 10)
    refused(r"tokens.bin has 10 bytes and not \d+", local(stories), folder)


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
        refused(rf"^{folder}/tokens.bin has changed .*delete {folder} ", local(stories), folder)
    flip(folder / "tokens.bin", keep_times)
    assert prepare(local(stories), folder).ids.tolist()  # it is again as it was


def test_a_changed_tokenizer_of_a_corpus_is_named(stories, tmp_path):
    folder = prepare(local(stories), tmp_path / "c").folder
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    (folder / "tokenizer.json").write_text(text.replace('"version"', ' "version"'), encoding="utf-8")
    with pytest.raises(SinkjaxError, match=r"tokenizer\.json has changed"):
        _ = open_tokens(folder).tokenizer


def test_a_token_file_is_summed_once_and_again_only_when_it_changed(stories, tmp_path, monkeypatch):
    folder, summed = prepare(local(stories), tmp_path / "c").folder, []
    monkeypatch.setattr(tokens, "_sum", lambda path, *state, original=tokens._sum: summed.append(path) or original(path, *state))
    open_tokens(folder)
    assert summed == []  # by another process either: the sum is stored
    os.utime(folder / "tokens.bin")
    open_tokens(folder)
    open_tokens(folder)
    assert summed == [folder / "tokens.bin"]
    (folder / "tokens.checked.json").write_text("{")
    assert open_tokens(folder).ids.tolist()


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
    assert (tmp_path / ".c.new" / "tokens.bin").stat().st_size
    assert not (tmp_path / "c").exists()
    made = prepare(local(stories), tmp_path / "c")
    assert made.tokenizer.decode(made.ids).startswith("A kitchen on")
    assert not (tmp_path / ".c.new").exists()


def test_of_two_processes_one_makes_it_and_the_other_waits(tmp_path):
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from sinkjax.data.config import Corpus
        from sinkjax.data.tokens import prepare
        print(prepare(Corpus(vocabulary=300), Path(sys.argv[1]), say=print).sha256)
    """)
    command = [sys.executable, "-c", script, str(tmp_path / "c")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    out = [process.communicate()[0].split("\n") for process in running]
    assert sorted(len(lines) for lines in out) == [2, 4]  # a hash; two steps and a hash
    assert out[0][-2] == out[1][-2]


def test_folders_differ_with_settings_and_content_and_not_with_the_place(packaged, stories, tmp_path):
    root, copy = tmp_path / "root", tmp_path / "copy" / "stories"
    shutil.copytree(stories, copy)
    assert folder_for(local(stories), root) == folder_for(local(copy), root)
    (copy / "a.txt").write_text("Another text of the same name.")
    assert folder_for(local(stories), root) != folder_for(local(copy), root)
    found = set()
    for number, tokenizer in enumerate((packaged.tokenizer, vocabulary.train_bpe(packaged_documents(), 280))):
        folder = tmp_path / str(number) / "tokenizer"
        folder.mkdir(parents=True)
        write_folder_tokenizer(tokenizer, folder)
        found.add(folder_for(dataclasses.replace(local(stories), tokenizer=str(folder)), root))
    assert len(found) == 2
    assert folder_for(local(stories), root) != folder_for(local(stories, limit=5), root)
    assert folder_for(local(stories), root).name.startswith("stories-")


@pytest.mark.parametrize(
    ("content", "fields", "message"),
    [
        ({"a.txt": b""}, {}, "texts holds no text"),
        ({"a.txt": b""}, {"tokenizer": "smollm2-135m"}, "texts holds no text"),
        ({"a.txt": b"fine", "b.txt": b"Caf\xe9"}, {}, r"b\.txt is not UTF-8"),
        ({"a.pdf": b""}, {}, "no text: .*.arrow, .csv"),
        ({"a.txt": b"x", "b.csv": b"text\nx\n"}, {}, r"mixes a\.txt and b\.csv"),
        ({"a.txt": b"x"}, {"revision": "main"}, "subset and revision "),
        ({"a.txt": b"x"}, {"vocabulary": 5000}, "vocabulary .*at most 258 .* 5000"),
    ],
)
def test_a_wrong_source_is_refused_in_one_sentence(tmp_path, content, fields, message):
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, raw in content.items():
        (folder / name).write_bytes(raw)
    corpus = dataclasses.replace(Corpus(text=str(folder), vocabulary=259), **fields)
    refused(message, corpus, tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_wrong_names_and_places_are_refused(packaged, stories, tmp_path):
    refused("'packagd' .*'packaged'", Corpus(text="packagd"), tmp_path / "c")
    refused("other than a corpus", Corpus(), stories)
    refused(r"tokens\.bin is not (UTF-8 )?text", Corpus(text=str(packaged.folder / "tokens.bin")), tmp_path / "c")
    with pytest.raises(SinkjaxError, match=r"no corpus\.json"):
        open_tokens(stories)


@given(st.integers(0, 5000), st.sampled_from([0.0, 0.01, 0.1, 0.5]))
def test_every_token_is_in_one_split(count, share):
    found = sorted(span for split in spans(count, share).values() for span in split)
    assert [token for start, stop in found for token in range(start, stop)] == list(range(count))
    held = sum(stop - start for start, stop in spans(count, share)["validation"])
    assert abs(held - share * count) <= 8


def test_reading_tokens_loads_neither_jax_nor_hugging_face(packaged):
    script = (
        "import sys; from pathlib import Path; from sinkjax.data.tokens import open_tokens; import sinkjax.data.batches;"
        f"open_tokens(Path({str(packaged.folder)!r})).ids.sum();"
        "print([m for m in ('jax', 'grain', 'datasets', 'tokenizers', 'transformers') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip() == "[]"
