"""Sources of a corpus: identification, and iteration over documents. This module does not import JAX."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import user_path
from sinkjax.data import reading
from sinkjax.data.config import Corpus
from sinkjax.data.corpora import PACKAGED, packaged_documents, with_genres
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.runtime import extras


def kind(corpus: Corpus) -> Literal["packaged", "local", "hub"]:
    """Return what `corpus.text` names; an existing path takes precedence over a hub id. Errors: nothing has that name."""
    from sinkjax.checkpoints.hub import HUB_ID

    path = user_path(corpus.text)
    if corpus.text in PACKAGED:
        return "packaged"
    if path.exists():
        return "local"
    if HUB_ID.fullmatch(corpus.text) and reading.suffix_of(path) not in reading.KINDS:
        return "hub"
    raise unknown("text of a corpus", corpus.text, PACKAGED, ", a hub id owner/name, or an existing path")


def identify(corpus: Corpus) -> dict[str, Any]:
    """Fingerprint a source: the sha256 of local files, or the commit of a data set on the hub.

    Errors: missing or unreadable files; files of several kinds; a data set that the Hub does not provide.
    """
    source = kind(corpus)
    if source == "hub":
        return {"kind": source, "repository": corpus.text, "commit": _commit(corpus)}
    local = corpus.subset is not None or corpus.revision is not None
    refuse(local, f"subset and revision are for data sets on the hub, and {corpus.text!r} is not one here")
    if source == "packaged":
        text = "\0".join(packaged_documents(corpus.text))
        return {"kind": source, "text": PACKAGED[corpus.text], "sha256": hashlib.sha256(text.encode()).hexdigest()}
    root = user_path(corpus.text).resolve()
    files, name = reading.files_of(root), root.name
    return {"kind": source, "name": name, "files": {file: _digest(path) for file, path in files.items()}}


def documents(corpus: Corpus, identity: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the documents in order, each as (domain, text): rows of a data set or a file of records, or text files.

    A domain is a folder directly below a folder of texts, or a genre of the packaged text; anything else is in the domain "". A
    domain's documents are contiguous.

    identity: from `identify`. Errors: as for `identify`; text that is not UTF-8; a column that is missing or not text.
    """
    if identity["kind"] == "packaged":
        yield from with_genres(corpus.text)
    elif identity["kind"] == "hub":
        yield from (("", text) for text in _rows(corpus, str(identity["commit"])))
    else:
        files = reading.files_of(user_path(corpus.text).resolve())
        for name in sorted(files, key=lambda name: "/" in name):  # stable: files below no folder come first
            domain = name.partition("/")[0] if "/" in name else ""
            yield from ((domain, text) for text in reading.documents_of(files[name], corpus.column, corpus.documents))


def _rows(corpus: Corpus, commit: str) -> Iterator[str]:
    """Yield the text of each row of a data set on the hub at a commit."""
    extras.require(f"reading {corpus.text}", "train", "datasets")
    import datasets

    options: dict[str, Any] = {"path": corpus.text, "name": corpus.subset, "revision": commit}
    with reading.described(corpus.text):
        for number, row in enumerate(datasets.load_dataset(**options, split=corpus.split, streaming=True)):
            yield reading.text_of(row, corpus.column, number, corpus.text)


def _digest(path: Path) -> dict[str, Any]:
    """Return the size and sha256 of a file."""
    with reading.described(path), path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _commit(corpus: Corpus) -> str:
    """Return the commit that a data set's revision currently refers to."""
    extras.require(f"the data set {corpus.text}", "hub", "huggingface_hub")
    from huggingface_hub import HfApi

    try:
        return str(HfApi().dataset_info(corpus.text, revision=corpus.revision).sha)
    except Exception as error:  # network libraries raise many kinds of errors; each means that the data set is not available
        at = f" at revision {corpus.revision}" if corpus.revision else ""
        why = f"the hub gives no data set of that name{at} ({type(error).__name__})"
        raise SinkjaxError(f"there is no file or folder {corpus.text}, and {why}") from None
