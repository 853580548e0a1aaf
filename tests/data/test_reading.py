"""One reader for every command: the same documents from every format; what is not a text is refused with its name."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from sinkjax.data.config import Corpus
from sinkjax.data.corpora import first_paragraph, passages
from sinkjax.data.reading import documents_of, files_of, one_text, plain_text
from sinkjax.data.tokens import prepare
from sinkjax.errors import SinkjaxError

TEXTS = ['The "boat" of pier 1, late.', "Nobody\u2028on the quay knew.", "É: it came with the tide."]
MARK = b"\xef\xbb\xbf"


def arrow(column: list[str]) -> bytes:
    import pyarrow

    sink = pyarrow.BufferOutputStream()
    table = pyarrow.table({"n": [1, 2, 3], "body": column})
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def parquet(column: list[str]) -> bytes:
    file = io.BytesIO()
    datasets.Dataset.from_dict({"n": [1, 2, 3], "body": column}).to_parquet(file)
    return file.getvalue()


def rows(separator: str) -> Callable[[list[str]], bytes]:
    quoted = '"{}"'.format
    return lambda column: "\r\n".join(
        [f"n{separator}body", *(f"{n}{separator}{quoted(text.replace(chr(34), chr(34) * 2))}" for n, text in enumerate(column))]
    ).encode()


def records(column: list[str]) -> list[dict[str, Any]]:
    return [{"n": n, "body": text} for n, text in enumerate(column)]


FORMATS: dict[str, Callable[[list[str]], bytes]] = {
    "a.jsonl": lambda column: "\n".join(json.dumps(one, ensure_ascii=False) for one in records(column)).encode(),
    "marked.jsonl": lambda column: MARK + "\r\n\r\n".join(map(json.dumps, records(column))).encode(),
    "list.json": lambda column: json.dumps(records(column), indent=2).encode(),
    "lines.json": lambda column: "\n".join(map(json.dumps, records(column))).encode(),
    "a.csv": rows(","),
    "marked.CSV": lambda column: MARK + rows(",")(column),
    "a.tsv": rows("\t"),
    "a.parquet": parquet,
    "a.arrow": arrow,
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_of_records_gives_the_same_documents(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(FORMATS[name](TEXTS))
    assert [*documents_of(path, "body")] == TEXTS
    assert one_text(path, "body") == "".join(f"{text}\n" for text in TEXTS)
    with pytest.raises(SinkjaxError, match=f"{name} .*'text': .*'body'; --field"):
        next(documents_of(path))
    if path.suffix not in (".parquet", ".arrow"):
        packed = path.with_name(f"{name}.gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        assert [*documents_of(packed, "body")] == TEXTS


def test_half_a_character_in_a_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "whole \\ud83d\\ude00"}\n{"text": "half \\ud83d of it"}\n')
    found = documents_of(path)
    assert next(found) == "whole \N{GRINNING FACE}"
    with pytest.raises(SinkjaxError, match=r"a\.jsonl: .*'text' of record 1 .*position 5"):
        next(found)


def test_a_plain_text_is_a_file_lines_or_articles(tmp_path: Path) -> None:
    path = tmp_path / "wiki.tokens"
    path.write_bytes(MARK + b" = One = \r\n\r\nFirst.\r\n = = Part = = \r\nSecond.\n = Two = \nThird.")
    assert plain_text(path) == " = One = \n\nFirst.\n = = Part = = \nSecond.\n = Two = \nThird."
    assert [*documents_of(path)] == [*documents_of(path, division="file")] == [plain_text(path)]
    assert [*documents_of(path, division="line")] == [line for line in plain_text(path).split("\n") if line]
    assert [*documents_of(path, division="article")] == [
        " = One = \n\nFirst.\n = = Part = = \nSecond.", " = Two = \nThird."
    ]  # fmt: skip
    packed = tmp_path / "wiki.txt.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert plain_text(packed) == plain_text(path)
    chosen = {how: {*passages(path, 3, length=1, division=how).documents} for how in ("auto", "file", "line", "article")}
    assert chosen == {"auto": {0, 1}, "file": {0}, "line": {0, 1, 2}, "article": {0, 1}}


def test_passages_of_records_are_those_of_the_lines_and_training_reads_the_same(tmp_path: Path) -> None:
    lines = [f"The boat of pier {n} was late, and nobody knew why." for n in range(40)]
    (tmp_path / "a.txt").write_bytes(MARK + "\n".join(lines).encode())
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"id": n, "text": line}) for n, line in enumerate(lines)))
    for join in (False, True):
        plain, found = (
            passages(tmp_path / name, 5, split="confirm", length=20, seed=2, join=join) for name in ("a.txt", "a.jsonl")
        )
        assert (found.texts, found.sha256, found.documents) == (plain.texts, plain.sha256, plain.documents)
    assert first_paragraph(tmp_path / "a.jsonl") == first_paragraph(tmp_path / "a.txt") == lines[0]
    settings: dict[str, Any] = {"vocabulary": 300, "separator": "eos"}
    corpus = Corpus(text=str(tmp_path / "a.txt"), documents="line", **settings)
    by_line = prepare(corpus, tmp_path / "lines")
    by_record = prepare(Corpus(text=str(tmp_path / "a.jsonl"), **settings), tmp_path / "records")
    assert by_line.ids.tolist() == by_record.ids.tolist()
    assert "documents" not in by_record.card["corpus"]  # at its default, so that earlier token files stay valid


def test_a_folder_has_one_kind_of_file(tmp_path: Path) -> None:
    for name in ("b.txt", "sub/a.txt.gz", "README.md", ".hidden/c.txt", "notes.html"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(gzip.compress(b"packed") if name.endswith("gz") else b"plain")
    assert [*files_of(tmp_path)] == ["b.txt", "sub/a.txt.gz"]
    assert one_text(tmp_path) == "plain\npacked\n"
    (tmp_path / "c.csv").write_text("text\nx\n")
    with pytest.raises(SinkjaxError, match=r"mixes .*c\.csv"):
        files_of(tmp_path)


def test_a_folder_of_datasets_is_read_without_its_description(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"text": TEXTS}).save_to_disk(tmp_path / "saved")
    (file,) = files_of(tmp_path / "saved").values()
    assert [*documents_of(file)] == TEXTS


REFUSED: dict[str, tuple[bytes, list[str]]] = {
    "latin.txt": (b"Caf\xe9", ["not UTF-8", "byte 3"]),
    "wide.txt": ("Wide".encode("utf-16"), ["UTF-16"]),
    "binary.dat": (b"ab\0\1", ["not text", "NUL"]),
    "paper.txt": (b"%PDF-1.7\n", ["PDF"]),
    "table.csv": (b"PAR1\x15\x04", ["parquet"]),
    "records.txt": (b'{"id": 1, "text": "a"}\n', ["JSON", ".jsonl"]),
    "cut.txt.gz": (gzip.compress(b"a" * 1000)[:-9], ["cut.txt.gz"]),
    "list.jsonl": (b'["a"]', ["record 0", "object"]),
    "none.jsonl": (b'{"text": "a"}\n{"text": null}', ["'text' of record 1", "null"]),
    "loose.csv": (b"n,text\n1,one, two\n", ["line 2", "3 columns", "quotes"]),
    "open.csv": (b'n,text\n1,"one\n', ["open.csv", "end of data"]),
    "not.parquet": (b"text", ["not.parquet"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_such_a_text_is_refused_by_name(tmp_path: Path, name: str) -> None:
    content, words = REFUSED[name]
    path = tmp_path / name
    path.write_bytes(content)
    for read in (lambda: [*documents_of(path)], lambda: passages(path, 1, length=1)):
        with pytest.raises(SinkjaxError) as error:
            read()
        assert name in str(error.value)
        assert all(word in str(error.value) for word in words)
