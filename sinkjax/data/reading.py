"""The one reader of local texts, for every command: plain text, files of records, either of them with .gz, and folders.

A plain text (.txt, .md, .raw, or any other file that is text) is one document, or is divided by lines or WikiText's articles.
Each record of a file of records (.jsonl, .ndjson, .json, .csv, .tsv, .parquet, .arrow) is a document: the text in one of its
fields. A byte order mark is not part of a text. This module does not import JAX.
"""

from __future__ import annotations

import csv
import glob
import gzip
import io
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, cast

from sinkjax.checkpoints.signatures import READ, refuse_other
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import MOST_TEXT, regular
from sinkjax.errors import LONGEST, SinkjaxError, one_of
from sinkjax.runtime import extras

Division = Literal["auto", "file", "line", "article"]
DIVISIONS: tuple[Division, ...] = ("auto", "file", "line", "article")
ARTICLE = re.compile(r"= (?!= ).* =")  # a heading of level 1
PLAIN = (".txt", ".md", ".raw")
GZIP = ".gz"
KINDS = {  # suffix -> kind of file; a folder has one kind
    **dict.fromkeys(PLAIN, "plain"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "json"),
    **{f".{name}": name for name in ("csv", "tsv", "parquet", "arrow")},
}
DESCRIBING = ("dataset_info.json", "state.json")  # beside the files of a data set that `datasets` saved
MOST_GROWTH = 100  # maximum growth of a text when it is decompressed, as a factor
MOST_RECORD = 1 << 28  # maximum characters of a line or a cell
HALF = re.compile(r"[\ud800-\udfff]")  # a lone surrogate
JSON = re.compile(r'\s*\[?\s*\{\s*("[^"\n]*"\s*:|\})')  # the beginning of a record, or of a list of them


def files_of(path: Path) -> dict[str, Path]:
    """Map the names of a file, or of a folder's texts at any depth, to their paths, sorted by name.

    A folder's files are of one kind; where there are .txt files, .md and .raw ones (such as a README.md) are left out, and hidden
    ones always are. Errors: no such file or text; several kinds.
    """
    if not path.is_dir():
        regular(path)
        return {path.name: path}
    below = {file.relative_to(path).as_posix(): file for file in path.rglob("*") if suffix_of(file) in KINDS and file.is_file()}
    hidden = {name for name, file in below.items() if re.search(r"(^|/)\.", name) or file.name in DESCRIBING}
    files = {name: below[name] for name in sorted(below.keys() - hidden)}
    refuse(not files, f"the folder {path} holds no text: none of {', '.join(sorted(KINDS))}")
    kinds = {kind_of(file): name for name, file in files.items()}
    refuse(len(kinds) > 1, f"the folder {path} mixes {' and '.join(sorted(kinds.values()))}; keep one kind of file there")
    first = [suffix for suffix in PLAIN if any(suffix_of(file) == suffix for file in files.values())][:1]
    return {name: file for name, file in files.items() if not first or suffix_of(file) in first}


def suffix_of(path: Path) -> str:
    """Return a file's suffix in lower case, without .gz."""
    return Path(path.name.lower().removesuffix(GZIP)).suffix


def kind_of(path: Path) -> str:
    """Return the kind of a file by its suffix; any unknown one is "plain"."""
    return KINDS.get(suffix_of(path), "plain")


def documents_of(path: Path, field: str = "text", division: Division = "auto") -> Iterator[str]:
    """Yield the documents of a file: each record's field, or the parts of a plain text ("auto": the file).

    Errors: not readable as what its suffix says; not UTF-8; JSON in a plain text; no such field, or no text in it; "article" for
    a text without headings.
    """
    one_of("documents", division, DIVISIONS)
    if (kind := kind_of(path)) == "plain":
        yield from divided(plain_text(path), division, path)
        return
    reader = {"json": _json, "csv": _table, "tsv": _table}.get(kind, _columns)
    regular(path)
    with described(path):
        for number, record in enumerate(reader(path, field)):
            yield text_of(record, field, number, path)


def text_of(record: Any, field: str, number: int, source: object) -> str:
    """Return the text in a field of a record of `source`, a file or a data set.

    Errors: no such field; no text in it; half a character (a lone surrogate), which no tokenizer can encode.
    """
    what = f"{source}: the field {field!r} of record {number}"
    if isinstance(record, dict) and isinstance(text := record.get(field), str):
        half = HALF.search(text)  # an escape in JSON
        refuse(half is not None, f"{what} holds half a character, {half and half[0]!r}, at position {half and half.start()}")
        return text
    shown = json.dumps(record, default=str)[:60]
    refuse(not isinstance(record, dict), f"{source}: record {number} must be an object with fields, not {shown}")
    names = ", ".join(repr(key) for key, value in record.items() if isinstance(value, str))
    has = f"it has text in {names}; --field names one of them" if names else "none of its fields has text"
    refuse(field not in record, f"{source} has no field {field!r}: {has}")
    raise SinkjaxError(f"{what} must be a text, not {json.dumps(record[field], default=str)[:60]}")


def one_text(path: Path, field: str = "text") -> str:
    """Return a plain text as it is, or the documents of records and folders as one text, each ended by a line break."""
    files = files_of(path)
    for file in files.values():
        regular(file, MOST_TEXT)
    if path.is_file() and kind_of(path) == "plain":
        return plain_text(path)
    return "".join(f"{text}\n" for file in files.values() for text in documents_of(file, field))


def plain_text(path: Path) -> str:
    """Read a plain text, with "\\n" as its line breaks. Errors: as for `documents_of`."""
    regular(path)
    with described(path):
        text = _bytes(path).decode("utf-8-sig")
        place, records = text.find("\0"), bool(JSON.match(text, 0, 4096))
        refuse(place >= 0, f"{path} is not text: character {place} is NUL, as in binary files and in UTF-16")
        refuse(records, f"{path} holds JSON, whose keys and quotes would be read as text: name it .jsonl or .json")
        return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def divided(text: str, division: Division, what: object) -> list[str]:
    """Divide a plain text: "line" gives its lines that are not empty, "article" starts at each heading of level 1."""
    if division == "line":
        return [line for line in text.split("\n") if line.strip()]
    if division != "article":
        return [text]
    found = articles(text)
    refuse(len(found) == 1, f"{what} has no articles, which begin with a line like = Title =: choose documents line or file")
    return [article for article in found if article.strip()]


def articles(text: str) -> list[str]:
    """Split a text before each heading of level 1 as in WikiText, = Title =; the first part is what precedes all of them."""
    parts: list[list[str]] = [[]]
    for line in text.split("\n"):
        if ARTICLE.fullmatch(line.strip()):
            parts.append([])
        parts[-1].append(line)
    return ["\n".join(lines) for lines in parts]


def _json(path: Path, field: str) -> Iterator[Any]:
    """Yield the entries of a list, a single object, or the objects of a file with one a line."""
    if suffix_of(path) == ".json":
        text = _bytes(path).decode("utf-8-sig")
        with suppress(json.JSONDecodeError):  # it may have one object a line
            whole = json.loads(text)
            yield from whole if isinstance(whole, list) else [whole]
            return
        lines: Iterable[str] = text.split("\n")
    else:
        lines = _lines(path)
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield json.loads(line)
            except json.JSONDecodeError as error:
                raise SinkjaxError(f"line {number} of {path} is not JSON: {error.msg} (column {error.pos + 1})") from None


def _table(path: Path, field: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a .csv or .tsv file by the names in its first one."""
    csv.field_size_limit(MOST_RECORD)
    rows = csv.reader(_lines(path, newline=""), delimiter="\t" if suffix_of(path) == ".tsv" else ",", strict=True)
    header = next(rows, [])
    refuse(header.count(field) > 1, f"{path} has several columns {field!r}")
    for row in rows:
        if row:
            where = f"line {rows.line_num} of {path} has {len(row)} columns, and its header {len(header)}"
            refuse(len(row) != len(header), f"{where}: put quotes around texts with separators")
            yield dict(zip(header, row, strict=True))


def _columns(path: Path, field: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a .parquet or .arrow file with the one field, or with all if there is no such field."""
    extras.require(f"reading {path}", "train", "datasets")
    import datasets

    kind = kind_of(path)
    rows = datasets.load_dataset(kind, data_files=glob.escape(str(path)), split="train", streaming=True)
    yield from rows.select_columns([field]) if field in (rows.column_names or ()) else rows


@contextmanager
def described(what: object) -> Iterator[None]:
    """Turn the errors of networks, parsers and decompression into a sentence that names the file or data set."""
    try:
        yield
    except SinkjaxError:
        raise
    except UnicodeDecodeError as error:
        raise SinkjaxError(f"{what} is not UTF-8 text: byte {error.start} does not decode; convert it to UTF-8") from None
    except RecursionError:
        raise SinkjaxError(f"{what} is nested too deeply") from None
    except Exception as error:  # they fail in many ways
        reason = (str(error).strip().splitlines() or [""])[0][:LONGEST]
        raise SinkjaxError(f"cannot read {what}: {type(error).__name__}: {reason}") from None


def _opened(path: Path) -> io.BufferedIOBase:
    return cast(io.BufferedIOBase, gzip.open(path) if path.name.lower().endswith(GZIP) else path.open("rb"))


def _bytes(path: Path) -> bytes:
    """Read a whole file. Errors: a compressed one grows more than any text does."""
    most = max(MOST_TEXT, MOST_GROWTH * path.stat().st_size)
    with _opened(path) as file:
        raw = file.read(most + 1)
    refuse(len(raw) > most, f"{path} unpacks to more than {most:,} bytes")
    refuse_other(raw[:READ], path, "a text")
    return raw


def _lines(path: Path, newline: str | None = None) -> Iterator[str]:
    """Yield the lines of a file of records, with their ends."""
    with _opened(path) as raw:
        refuse_other(cast(Any, raw).peek(READ)[:READ], path, "a text")
        file = io.TextIOWrapper(cast(io.BufferedReader, raw), "utf-8-sig", newline=newline)
        while line := file.readline(MOST_RECORD):
            refuse(len(line) == MOST_RECORD, f"{path} has a line of more than {MOST_RECORD:,} characters")
            yield line
