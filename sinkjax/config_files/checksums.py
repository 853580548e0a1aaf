"""Checksums of a folder's files, in a file beside them: damage is found before anything is used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from pathlib import Path

from sinkjax.config_files.files import read_text, write
from sinkjax.config_files.places import NotAFile, open_file
from sinkjax.errors import SinkjaxError

SUMS = "sinkjax-checksums.json"  # {file: [bytes, sha256]}


def write_checksums(folder: Path, but: Collection[str] = (), durable: bool = False) -> None:
    """Write the checksums of all files below a folder, except those of `but`. durable: as for `write`.

    Errors: no space; a file cannot be read.
    """
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    found = {name: [path.stat().st_size, _digest(path)] for name, path in files.items() if name not in (SUMS, *but)}
    write(folder / SUMS, json.dumps(found, indent=1) + "\n", durable)


def damage(folder: Path, names: Collection[str] | None = None) -> str | None:
    """Compare a folder's files with their checksums, all or those of `names`: "" if all agree, None without checksums.

    Returns what has changed, as text. A file that has more bytes than were written is not read.
    """
    if not (folder / SUMS).is_file():
        return None
    try:
        wanted = json.loads(read_text(folder / SUMS))
        for name, (size, digest) in wanted.items():
            if (names is None or name in names) and (fault := _fault(folder / name, size, digest)):
                return f"{name} {fault}"
    except (SinkjaxError, ValueError, TypeError, AttributeError):
        return f"{SUMS} has changed since it was written"
    return ""


def _fault(path: Path, size: int, digest: str) -> str:
    try:
        return "" if _digest(path, size) == digest else "has changed since it was written"
    except FileNotFoundError:
        return "is missing"
    except (NotAFile, IsADirectoryError, NotADirectoryError):
        return "has changed since it was written"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _digest(path: Path, size: int | None = None) -> str:
    """Compute a file's sha256. size: its size; another one is not read. Errors: OSError."""
    with open_file(path, size) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
