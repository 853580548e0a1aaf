"""Passages of natural text: WikiText-2 if it can be had, a file of the user's, or prose that ships with the library.

A text is read as one paragraph a line. Empty lines and headings in WikiText's form ( = Title = ) are not paragraphs.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path

from sinkjax.errors import SinkjaxError, unknown

SOURCES = ("auto", "wikitext", "packaged")
REPOSITORY, CONFIGURATION, SPLIT = "Salesforce/wikitext", "wikitext-2-raw-v1", "test"
WIKITEXT = f"WikiText-2 raw ({REPOSITORY}, {CONFIGURATION}, split {SPLIT})"
PACKAGED = "packaged excerpt of public-domain prose (eight novels in English, 1813 to 1897)"
PATIENCE_SECONDS = 2.0


@dataclass(frozen=True)
class Passages:
    """Texts and where they come from.

    texts: whole paragraphs, in the order of their choice. source: one line that says which text was used, and why it was, if
    another was preferred. sha256: of the texts, to be stored with every result.
    """

    texts: tuple[str, ...]
    source: str
    sha256: str


def passages(
    source: str | Path = "auto", count: int = 32, *, length: int = 400, size: Callable[[str], int] = len, seed: int = 0
) -> Passages:
    """`count` distinct paragraphs that are long enough, each from its beginning to its end.

    source: "auto" (WikiText-2 if it can be had, else the packaged prose; the result says which), "wikitext", "packaged", or the
    path of a UTF-8 text with one paragraph a line. size: what `length` counts; characters unless given, tokens with
    size=lambda text: len(tokenizer.encode(text)). seed: which paragraphs. A paragraph's turn depends on (seed, its text) alone,
    so that the first passages are the same whatever `count` is.
    Errors: a source that does not exist, cannot be had, or is not UTF-8; fewer than `count` paragraphs of that size.
    """
    for name, number in (("count", count), ("length", length)):
        if number < 1:
            raise SinkjaxError(f"{name} must be at least 1, not {number}")
    lines, description = _read(source)
    shuffled = sorted(set(_paragraphs(lines)), key=lambda text: _digest([str(seed), text]))
    if not shuffled:
        raise SinkjaxError(f"{description} has no paragraphs, only headings and empty lines at most")
    texts = tuple(islice((text for text in shuffled if size(text) >= length), count))
    if len(texts) < count:
        raise SinkjaxError(
            f"{count} passages of length {length} or more were asked for, but only {len(texts)} of the {len(shuffled)}"
            f" paragraphs (one a line) are as long in {description}"
        )
    return Passages(texts, description, _digest(texts))


def _read(source: str | Path) -> tuple[Iterable[str], str]:
    """The lines of a source and its description."""
    if source == "packaged":
        return _packaged(), PACKAGED
    if source == "wikitext":
        return _wikitext(), WIKITEXT
    if source == "auto":
        try:
            return _wikitext(), WIKITEXT
        except SinkjaxError as reason:
            return _packaged(), f"{PACKAGED}, because {reason}"
    path = Path(source)
    if not path.is_file():
        raise unknown("text source", str(source), SOURCES, ", or the path of a file, and there is no such file")
    try:
        return path.read_text(encoding="utf-8-sig").split("\n"), f"file {path.name}"
    except UnicodeDecodeError as error:
        raise SinkjaxError(f"{path} is not UTF-8: byte {error.start} does not decode") from None
    except OSError as error:
        raise SinkjaxError(f"{path} cannot be read: {error.strerror}") from None


def _paragraphs(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        text = line.strip()
        if text and not (text.startswith("= ") and text.endswith(" =")):
            yield text


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def packaged_documents() -> list[str]:
    """The packaged prose as documents, one a novel: its paragraphs, an empty line between two."""
    novels: list[list[str]] = []
    for line in _packaged():
        if line.startswith(" = "):
            novels.append([])
        elif line:
            novels[-1].append(line)
    return ["\n\n".join(novel) + "\n" for novel in novels if novel]


def _packaged() -> list[str]:
    return files("sinkjax").joinpath("data", "assets", "prose.txt").read_text(encoding="utf-8").split("\n")


def _wikitext() -> list[str]:
    """WikiText-2's lines from the cache of `datasets`, or from the hub if that answers. Errors: neither has it."""
    import datasets

    with _quiet("datasets", "huggingface_hub"):
        with suppress(Exception):  # an empty or broken cache: ask the hub
            return _cached_wikitext()
        if not _hub_answers():
            raise SinkjaxError("WikiText-2 is not in the cache of datasets and the hub does not answer")
        try:
            return datasets.load_dataset(REPOSITORY, CONFIGURATION, split=SPLIT)["text"][:]
        except Exception as error:  # a hub fails in as many ways as there are networks
            raise SinkjaxError(f"WikiText-2 could not be loaded from the hub ({type(error).__name__})") from error


def _cached_wikitext() -> list[str]:
    from datasets.packaged_modules.cache.cache import Cache

    builder = Cache(repo_id=REPOSITORY, dataset_name="wikitext", config_name=CONFIGURATION, version="auto", hash="auto")
    return builder.as_dataset(split=SPLIT)["text"][:]


def _hub_answers() -> bool:
    """Whether one request comes back within PATIENCE_SECONDS; in a thread, as looking up a name has no timeout of its own."""
    from huggingface_hub import constants, get_session

    statuses: list[int] = []

    def ask() -> None:
        with suppress(Exception):  # every failure means the same: no answer
            statuses.append(get_session().head(constants.ENDPOINT, timeout=PATIENCE_SECONDS).status_code)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    return any(status < 500 for status in statuses)


@contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Loggers silenced, as their warnings about retries would drown the one sentence that says what was used."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
