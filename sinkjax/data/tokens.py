"""A corpus as a memory-mapped file of token ids, made once, with its provenance. This module does not import JAX.

A folder contains `tokens.bin` (the ids, one after the other, little-endian uint16, or uint32 for a larger vocabulary),
`corpus.json` (the card: settings, source, counts, hashes, versions) and the tokenizer, as in a Hugging Face folder. Its name has
the hash of the settings and of all local files that determine the ids, so another corpus has another folder. It is written under
another name and then renamed, so an existing folder is complete. Opening the file verifies its sha256, once per process.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib.metadata import version
from itertools import chain, groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import filelock
import numpy as np

from sinkjax.checkpoints.tokenizer import TOKENIZER, Tokenizer, read_json, write_folder_tokenizer
from sinkjax.checkpoints.tokenizer_files import read_folder_tokenizer
from sinkjax.config_files import documents as config_documents
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import attempt
from sinkjax.data import sources, vocabulary
from sinkjax.data.config import BPE, Corpus
from sinkjax.errors import SinkjaxError, one_of
from sinkjax.version import __version__

FORMAT = 1  # version of the folder
CARD, IDS = "corpus.json", "tokens.bin"
SECTIONS = 8  # validation uses the last tokens of each section, so that it covers the whole corpus

Say = Callable[[str], None]
Split = Literal["train", "validation"]


@dataclass(frozen=True, eq=False)
class Tokens:
    """A token file. folder: its folder. card: its `corpus.json`. ids: uint16 or uint32 [count], memory-mapped."""

    folder: Path
    card: Mapping[str, Any] = field(repr=False)
    ids: np.ndarray = field(repr=False)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that made the ids."""
        tokenizer = read_folder_tokenizer(self.folder, {})
        if tokenizer is None:
            raise SinkjaxError(f"{self.folder} has lost its tokenizer; delete it to rebuild it")
        changed = hashlib.sha256((self.folder / TOKENIZER).read_bytes()).hexdigest() != self.card["tokenizer"]["sha256"]
        refuse(changed, _damaged(self.folder / TOKENIZER))
        return tokenizer

    @property
    def vocab_size(self) -> int:
        """The tokenizer's size, which is the minimum vocabulary of a model."""
        return int(self.card["tokenizer"]["vocab_size"])

    def spans(self, split: Split) -> list[tuple[int, int]]:
        """Return the ranges (start, stop) of `ids` in a split, ascending; the splits are disjoint."""
        one_of("split", split, ("train", "validation"))
        return spans(len(self.ids), self.card["corpus"]["validation"])[split]


def spans(count: int, validation: float) -> dict[str, list[tuple[int, int]]]:
    """Split `count` tokens: the last share `validation` of each of `SECTIONS` equal sections is for validation."""
    sections = SECTIONS if validation else 1
    edges = [count * section // sections for section in range(sections + 1)]
    cuts = [stop - round((stop - start) * validation) for start, stop in pairwise(edges)]
    return {"train": list(zip(edges, cuts, strict=False)), "validation": list(zip(cuts, edges[1:], strict=True))}


def folder_for(corpus: Corpus, root: Path) -> Path:
    """Return the folder under `root` for a corpus.

    Settings, local files, local tokenizers and versions of the packaged text that differ have different folders. Errors: as for
    `sources.identify`, but the hub is not asked.
    """
    settings = _settings(corpus)
    if sources.kind(corpus) != "hub":
        identity = sources.identify(corpus)
        settings |= {"sha256": identity.get("sha256") or identity["files"]}
    if corpus.tokenizer != BPE and Path(corpus.tokenizer).expanduser().exists():
        settings |= {"tokenizer_sha256": vocabulary.sha256(vocabulary.existing(corpus.tokenizer))}
    slug = re.sub(r"[^a-z0-9]+", "-", str(settings["text"]).lower()).strip("-")[-40:]
    return root / f"{slug}-{hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:10]}"


def prepare(corpus: Corpus, root: Path, say: Say = lambda line: None) -> Tokens:
    """Open or make the token file of a corpus under `root`; one process makes it while others wait.

    say: called with a line of text before each slow step. Once the file exists, the hub is not asked again. Errors: the source is
    missing, empty or not text; the folder cannot be written, or has changed.
    """
    folder = folder_for(corpus, root)
    if (folder / CARD).is_file():
        return open_tokens(folder)
    scratch = folder.with_name(f".{folder.name}.new")
    with attempt("write", folder):
        root.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder.with_name(f".{folder.name}.lock")), ExitStack() as made:
            if not (folder / CARD).is_file():  # no other process has made it in the meantime
                shutil.rmtree(scratch, ignore_errors=True)
                scratch.mkdir()
                made.callback(shutil.rmtree, scratch, ignore_errors=True)
                _make(corpus, scratch, say)
                scratch.rename(folder)
    return open_tokens(folder)


def open_tokens(folder: Path) -> Tokens:
    """Open an existing token file; its source is not needed. Errors: there is none, or it was changed."""
    refuse(not (folder / CARD).is_file(), f"{folder} is not a corpus: it holds no {CARD}")
    card = read_json(folder / CARD)
    refuse(card.get("format") != FORMAT, f"{folder} was made by another version of sinkjax; delete it to rebuild it")
    path = folder / IDS
    try:
        dtype, count = np.dtype(card["tokens"]["dtype"]).newbyteorder("<"), card["tokens"]["count"]
        stat, sha256 = path.stat(), card["tokens"]["sha256"]
        sound = stat.st_size == count * dtype.itemsize and _sha256(path, stat.st_mtime_ns, stat.st_ctime_ns) == sha256
        refuse(not sound, _damaged(path))
        return Tokens(folder, card, np.memmap(path, dtype, mode="r", shape=(count,)))
    except (KeyError, TypeError):
        raise SinkjaxError(_damaged(folder / CARD)) from None
    except OSError as error:
        raise SinkjaxError(f"cannot read {path}: {error.strerror}; delete {folder} to rebuild it") from error


@lru_cache
def _sha256(path: Path, *times: int) -> str:
    """Return the digest of a file that was modified and changed at these times, computed once per process."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _damaged(path: Path) -> str:
    return f"{path} has changed since it was written; delete {path.parent} to rebuild it"


def _make(corpus: Corpus, folder: Path, say: Say) -> None:
    """Write a corpus into an empty folder."""
    identity, nothing = sources.identify(corpus), f"{corpus.text} holds no text"

    def documents() -> Iterator[tuple[str, str]]:
        return vocabulary.beginning(sources.documents(corpus, identity), corpus.limit)

    if corpus.tokenizer == BPE:
        say(f"training a tokenizer of {corpus.vocabulary:,} tokens on {corpus.text}")
        rest = (text for _, text in documents())
        first = next(rest, "")
        refuse(not first, nothing)
        tokenizer = vocabulary.train_bpe((piece.text for piece in vocabulary.cut(chain([first], rest))), corpus.vocabulary)
    else:
        tokenizer = vocabulary.existing(corpus.tokenizer)
    say(f"writing {corpus.text} as tokens")
    write_folder_tokenizer(tokenizer, folder)
    size = vocabulary.size(tokenizer)
    dtype = np.dtype(np.uint16 if size <= 1 << 16 else np.uint32)
    before, after = _separators(corpus, tokenizer)
    backend = vocabulary.encoder(tokenizer)
    text, ids, total, domains = hashlib.sha256(), hashlib.sha256(), Counter[str](), dict[str, int]()
    with (folder / IDS).open("wb") as file:
        for domain, group_of in groupby(documents(), key=itemgetter(0)):
            domains[domain] = total["tokens"]
            for group in vocabulary.groups(vocabulary.cut(text for _, text in group_of)):
                encoded = backend.encode_batch_fast([piece.text for piece in group], add_special_tokens=False)
                for piece, encoding in zip(group, encoded, strict=True):
                    array = np.array([*before * piece.first, *encoding.ids, *after * piece.last], dtype.newbyteorder("<"))
                    utf8 = piece.text.encode()
                    text.update(utf8 + b"\0" * piece.last)
                    ids.update(array.data)
                    file.write(array.data)
                    total.update(documents=piece.last, bytes=len(utf8), tokens=len(array))
    refuse(not total["bytes"], nothing)
    card = {
        "format": FORMAT,
        "corpus": _settings(corpus),
        "source": identity,
        "text": {"documents": total["documents"], "bytes": total["bytes"], "sha256": text.hexdigest()},
        "tokens": {"count": total["tokens"], "dtype": dtype.name, "sha256": ids.hexdigest()},
        "domains": domains,
        "tokenizer": {"vocab_size": size, "bos": tokenizer.bos, "eos": tokenizer.eos, "sha256": vocabulary.sha256(tokenizer)},
        "split": f"validation: the last {corpus.validation:g} of the tokens of each of {SECTIONS} equal sections",
        "versions": {"sinkjax": __version__} | {name: version(name) for name in ("tokenizers", "datasets", "numpy")},
    }
    (folder / CARD).write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _settings(corpus: Corpus) -> dict[str, Any]:
    """Return the fields of a corpus, with local sources by name, because their location does not matter."""
    settings = config_documents.stated(corpus)
    for name, reserved in (("text", "packaged"), ("tokenizer", BPE)):
        path = Path(settings[name]).expanduser()
        if settings[name] != reserved and (path.exists() or path.is_absolute() or path.parts[0] == ".."):
            settings[name] = path.resolve().name
    return settings


def _separators(corpus: Corpus, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Return the ids before and after each document."""
    token = {"bos": tokenizer.bos, "eos": tokenizer.eos, "none": 0}[corpus.separator]
    if token is None:
        raise SinkjaxError(f"separator is {corpus.separator!r}, but the tokenizer {corpus.tokenizer} names no such token")
    return [token] * (corpus.separator == "bos"), [token] * (corpus.separator == "eos")
