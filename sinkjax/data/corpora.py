"""Passages of natural text: WikiText-2 if available, a user's text, or documents that ship with the library.

A text is a list of documents, each in one of two splits: the studies' rules were chosen on "explore", and verdicts are made on
"confirm". A packaged document is one passage, with its line breaks; the first of each genre and every second one after it are in
"explore". Any other text is read as one paragraph per line, without empty lines or headings in WikiText's form ( = Title = ), and
its documents are split by their sha256. Unless it is chosen, documents are the records of files of records, WikiText's articles,
each below a level-1 heading, or the files of a folder; in a single file without such headings, each line is a document.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Literal

from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import MOST_TEXT, regular, user_path
from sinkjax.data import reading
from sinkjax.data.reading import Division
from sinkjax.errors import SinkjaxError, one_of, short, unknown
from sinkjax.runtime import extras

Split = Literal["explore", "confirm", "all"]
SPLITS: tuple[Split, ...] = ("explore", "confirm", "all")
Choice = Literal["auto", "explore", "confirm", "all"]
REPOSITORY, CONFIGURATION, PORTION = "Salesforce/wikitext", "wikitext-2-raw-v1", "test"
WIKITEXT = f"WikiText-2 raw ({REPOSITORY}, {CONFIGURATION}, split {PORTION})"
PACKAGED = {  # name -> description; the documents are in the folder of that name
    "packaged": "packaged text (168 synthetic documents in 12 genres, written for sinkjax)",
    "chats": "packaged chats (120 synthetic conversations of a user and an assistant, written for sinkjax)",
}
SOURCES = ("auto", "wikitext", *PACKAGED)
PATIENCE_SECONDS = 2.0
BLANK_LINE = "\n\n"


@dataclass(frozen=True)
class Passages:
    """Texts and their sources.

    texts: whole paragraphs or packaged documents, in the order of their choice. documents: index of each text's document in the
    source. genres: each text's genre, "" if the source has none. source: one line on the text that was used, and the reason
    if it was not the preferred one. sha256: the texts' hash, to be stored with every result.
    """

    texts: tuple[str, ...]
    documents: tuple[int, ...]
    genres: tuple[str, ...]
    source: str
    sha256: str


def chosen_split(source: str | Path, split: Choice) -> Split:
    """Return the split that "auto" stands for: all of one's own text, and of any other the half that verdicts are made on."""
    if split != "auto":
        return split
    return "confirm" if source in SOURCES else "all"


@dataclass(frozen=True)
class Document:
    """The passages of a document, its half of the text, and its genre, if any."""

    passages: tuple[str, ...]
    split: Split
    genre: str = ""


def passages(
    source: str | Path = "auto",
    count: int = 32,
    *,
    split: Split = "all",
    length: int = 400,
    size: Callable[[str], int] = len,
    seed: int = 0,
    field: str = "text",
    division: Division = "auto",
    join: bool = False,
) -> Passages:
    """Choose `count` distinct passages that are long enough, each complete.

    Every document provides one passage before any provides a second. The choice and the order depend only on (seed, text), so the
    first passages are the same for any `count`.

    Args:
        source: "auto" (WikiText-2 if available, else the packaged documents; the result says which), "wikitext", "packaged",
            "chats", or the path of a text, a file of records or a folder of one of these (see `reading`), with one paragraph per
            line.
        count: Number of passages, at least 1.
        split: The half of the documents, or "all" for both.
        length: Lower bound on `size`.
        size: Measures a text for `length`; by default in characters. For tokens, use size=lambda text:
            len(tokenizer.encode(text)).
        seed: Seed of the choice of passages.
        field: The field of records that has the text.
        division: What is a document in a plain text: "file", "line", "article", or "auto" (see the top of this module).
        join: Whether passages are joined by blank lines until a text is long enough (see `_joined`).

    Returns:
        The passages, with their documents and genres.

    Raises:
        SinkjaxError: The source does not exist, is not available, or is not UTF-8; the split is unknown; it has fewer than
            `count` passages of that size.
    """
    documents, description = checked(source, count, split, length, field, division)
    every, ordered = homes(documents, split), _joined if join else _in_turn
    chosen = list(islice(ordered(documents, split, seed, lambda text: size(text) >= length), count))
    if len(chosen) < count:
        longest = sorted(map(size, every), reverse=True)[count - 1 : count] if not join else []  # that so many passages have
        raise SinkjaxError(_few(count, length, split, description, len(chosen), every, longest, join))
    description += ", documents joined" * join
    texts, numbers = tuple(text for text, _ in chosen), tuple(number for _, number in chosen)
    return Passages(texts, numbers, tuple(documents[number].genre for number in numbers), description, _digest(texts))


def _joined(documents: Sequence[Document], split: Split, seed: int, fits: Callable[[str], bool]) -> Iterator[tuple[str, int]]:
    """Yield texts of whole passages with blank lines between them, each with the number of its first document.

    A text starts with its own document and continues with the next when that one ends. Once the text is long enough, the rest of
    its last document is not used, so no two texts share a document. The order depends only on (seed, text).
    """
    numbers = {document.passages: number for number, document in enumerate(documents) if split in (document.split, "all")}
    first, parts = 0, list[str]()
    for paragraphs in sorted(numbers, key=lambda paragraphs: _digest([str(seed), *paragraphs])):
        first = first if parts else numbers[paragraphs]
        for text in paragraphs:
            parts.append(text)
            if fits(BLANK_LINE.join(parts)):
                yield BLANK_LINE.join(parts), first
                parts = []
                break


def _few(
    count: int, length: int, split: Split, description: str, enough: int, every: dict[str, int], longest: list[int], join: bool
) -> str:
    """Return the error, with the options that help, for a text in which only `enough` passages are long enough.

    every: all passages of the split, with their documents. longest: the largest length of which there are `count`, if any.
    """
    sources, what = len(set(every.values())), "texts" if join else "passages"
    joined = f"has {sources} documents, which joined make only {enough}"
    held = joined if join else f"has only {enough} ({len(every)} with the shorter ones, from {sources} documents)"
    shorter = [f"--length {longest[0]}" if longest else "a smaller --length"] * (len(every) > enough)
    ways = [f"--prompts {enough}"] * (enough > 0) + shorter + ["--split all"] * (split != "all")
    wanted, advice = f"{count} {what} of length {length}", f"choose {' or '.join(ways)}" if ways else "add to it"
    return f"{wanted} or more were asked for, but the split {split!r} of {description} {held}: {advice}"


def homes(documents: Sequence[Document], split: Split) -> dict[str, int]:
    """Map each passage of a split to the number of the first document that has it."""
    first: dict[str, int] = {}
    for number, document in enumerate(documents):
        for text in document.passages:
            first.setdefault(text, number)
    return {text: number for text, number in first.items() if split in (documents[number].split, "all")}


def first_paragraph(source: str | Path, field: str = "text") -> str:
    """Return the first paragraph of a local text. Errors: as for `passages`."""
    texts = (text for file in reading.files_of(user_path(source)).values() for text in reading.documents_of(file, field))
    first = next((paragraph for text in texts for paragraph in _paragraphs(text)), "")
    refuse(not first, f"{source} has no paragraphs, only headings and empty lines at most")
    return first


def checked(
    source: str | Path, count: int, split: Split, length: int, field: str, division: Division
) -> tuple[list[Document], str]:
    """Read a source's documents and description. Errors: an invalid count, length or split; no paragraphs."""
    for name, number in (("count", count), ("length", length)):
        refuse(type(number) is not int or number < 1, f"{name} must be an integer of at least 1, not {short(number)}")
    one_of("split", split, SPLITS)
    documents, description = _read(source, field, division)
    refuse(not documents, f"{description} has no paragraphs, only headings and empty lines at most")
    return documents, description


def _in_turn(documents: Sequence[Document], split: Split, seed: int, fits: Callable[[str], bool]) -> Iterator[tuple[str, int]]:
    """Yield the passages that fit, with their documents, in rounds of at most one per document.

    Each round is in the order of the hashes of (seed, text).
    """
    waiting = sorted(homes(documents, split).items(), key=lambda passage: _digest([str(seed), passage[0]]))
    while waiting:
        given, later = set[int](), list[tuple[str, int]]()
        for text, number in waiting:
            if number in given:
                later.append((text, number))
            elif fits(text):
                given.add(number)
                yield text, number
        waiting = later


def _read(source: str | Path, field: str, division: Division) -> tuple[list[Document], str]:
    """The documents of a source and its description."""
    if source in PACKAGED:
        return _packaged(str(source)), PACKAGED[str(source)]
    if source in ("wikitext", "auto"):
        try:
            return _documents(_articles("\n".join(_wikitext()))), WIKITEXT
        except SinkjaxError as reason:
            if source == "wikitext":
                raise
            return _packaged("packaged"), f"{PACKAGED['packaged']}, because {reason}"
    path = user_path(source)
    if not path.exists():
        refuse(len(path.parts) > 1 or bool(path.suffix), f"there is no file or folder {source}")
        raise unknown("text source", str(source), SOURCES, ", or the path of an existing file or folder")
    files = reading.files_of(path)
    for file in files.values():
        regular(file, MOST_TEXT)
    description = f"folder {path.name} ({len(files)} files)" if path.is_dir() else f"file {path.name}"
    if path.is_file() and division == "auto" and reading.kind_of(path) == "plain":
        return _documents(_articles(reading.plain_text(path))), description
    return _documents(text for file in files.values() for text in reading.documents_of(file, field, division)), description


def _articles(text: str) -> Iterable[str]:
    """Split a text in WikiText's form into articles; without headings, into its distinct paragraphs."""
    articles = reading.articles(text)
    return articles if len(articles) > 1 else dict.fromkeys(_paragraphs(text))


def _documents(texts: Iterable[str]) -> list[Document]:
    """Return the texts that have paragraphs as documents.

    A document's split is the lowest bit of the first byte of the sha256 of its paragraphs, one per line.
    """
    every = [paragraphs for text in texts if (paragraphs := _paragraphs(text))]
    bits = [hashlib.sha256("\n".join(paragraphs).encode()).digest()[0] & 1 for paragraphs in every]
    return [Document(tuple(paragraphs), SPLITS[bit]) for paragraphs, bit in zip(every, bits, strict=True)]


def _paragraphs(text: str) -> list[str]:
    """Return the lines of a text without white space around them, headings and empty lines."""
    lines = [line.strip() for line in text.split("\n")]
    return [line for line in lines if line and not (line.startswith("= ") and line.endswith(" ="))]


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def packaged_documents(name: str = "packaged") -> list[str]:
    """Return the documents of a packaged text, genre by genre, each ending with a line break."""
    return [text for _, text in with_genres(name)]


def with_genres(name: str = "packaged") -> list[tuple[str, str]]:
    """Return the documents of a packaged text, genre by genre, as (genre, text), each ending with a line break."""
    return [(document.genre, document.passages[0] + "\n") for document in _packaged(name)]


def _packaged(name: str) -> list[Document]:
    """Read the file of every genre of a packaged text, sorted by name; in each, a line "%% name" precedes a document."""
    folder = resources.files("sinkjax").joinpath("data", "assets", name)
    documents = []
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        _, *parts = re.split(r"^%% .*$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        genre = file.name.removesuffix(".txt")
        documents += [Document((text.strip("\n"),), SPLITS[k % 2], genre) for k, text in enumerate(parts)]
    return documents


def _wikitext() -> list[str]:
    """Load WikiText-2's lines from the cache of `datasets`, or from the Hub if it responds. Errors: neither has it."""
    extras.require("WikiText-2", "train", "datasets")
    import datasets

    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # warnings about retries would drown out the sentence about the source
    try:
        with suppress(Exception):  # an empty or broken cache: try the Hub
            from datasets.packaged_modules.cache.cache import Cache

            cache = Cache(repo_id=REPOSITORY, dataset_name="wikitext", config_name=CONFIGURATION, version="auto", hash="auto")
            return cache.as_dataset(split=PORTION)["text"][:]
        refuse(not hub_answers(), "WikiText-2 is not in the cache of datasets and the hub does not answer")
        return datasets.load_dataset(REPOSITORY, CONFIGURATION, split=PORTION)["text"][:]
    except SinkjaxError:
        raise
    except Exception as error:  # network access can fail in many ways
        raise SinkjaxError(f"WikiText-2 could not be loaded from the hub ({type(error).__name__})") from error
    finally:
        logging.disable(disabled)


def hub_answers() -> bool:
    """Return whether a request succeeds within PATIENCE_SECONDS, in a thread because name lookup has no timeout."""
    from huggingface_hub import constants, get_session

    statuses: list[int] = []

    def ask() -> None:
        with suppress(Exception):  # any failure means that there is no response
            statuses.append(get_session().head(constants.ENDPOINT, timeout=PATIENCE_SECONDS).status_code)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    return any(status < 500 for status in statuses)
