"""Checksums of a folder's files, in a file beside them: damage is found before anything is used."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Collection
from pathlib import Path

from sinkjax.config_files.files import read_text, write
from sinkjax.config_files.locations import NotAFile, open_file
from sinkjax.errors import SinkjaxError

SUMS = "sinkjax-checksums.json"  # {file: [bytes, CRC-32]}
PIECE = 1 << 20  # bytes read at a time


def write_checksums(folder: Path, but: Collection[str] = (), durable: bool = False) -> None:
    """Write the checksums of all files below a folder, except those of `but`. durable: as for `write`.

    Errors: no space; a file cannot be read.
    """
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    sums = {name: _measured(path) for name, path in files.items() if name not in (SUMS, *but)}
    write(folder / SUMS, json.dumps(sums, indent=1) + "\n", durable)


def damage(folder: Path, names: Collection[str] | None = None) -> str | None:
    """Compare a folder's files with their checksums, all or those of `names`: "" if all agree, None without checksums.

    Returns what has changed, as text. A file that has more bytes than were written is not read.
    """
    if not os.path.lexists(folder / SUMS):
        return None
    try:
        wanted = json.loads(read_text(folder / SUMS))
        for name, (size, crc) in wanted.items():
            if (names is None or name in names) and (fault := _fault(folder / name, size, crc)):
                return f"{name} {fault}"
    except (SinkjaxError, ValueError, TypeError, AttributeError):
        return f"{SUMS} has changed since it was written"
    return ""


def _fault(path: Path, size: int, crc: int) -> str:
    try:
        return "" if [size, crc] == _measured(path, size) else "has changed since it was written"
    except FileNotFoundError:
        return "is missing"
    except (NotAFile, IsADirectoryError, NotADirectoryError):
        return "has changed since it was written"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _measured(path: Path, most: int | None = None) -> list[int]:
    """Return a file's bytes and checksum. most: maximum bytes; a larger file is not read. Errors: OSError."""
    size = crc = 0
    with open_file(path, most) as stream:
        while piece := stream.read(PIECE):
            size, crc = size + len(piece), zlib.crc32(piece, crc)
    return [size, crc]
