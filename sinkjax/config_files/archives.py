"""Unpack a zip that somebody sent: files and folders below one new folder, or nothing at all."""

from __future__ import annotations

import secrets
import shutil
import stat
import struct
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from sinkjax.config_files.files import CONFIG_FILE, cannot_write
from sinkjax.errors import SinkjaxError, short

SUFFIX = ".zip"
# Limits on what an archive states and on what is read from it. A store's chunks are compressed already; tables shrink to a tenth.
LARGEST, MOST_ENTRIES, RATIO = 50_000_000_000, 500_000, 100
ALWAYS = 100_000_000  # bytes that an archive of any size may unpack to
DIRECTORY = 64_000_000  # maximum bytes of the list of entries, which is read at once
BLOCK = 1 << 20
END, LONGER = b"PK\x05\x06", b"PK\x06\x06"  # of the records behind the entries; the second has 64-bit numbers
WRONG = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError, OverflowError)


def unpack(archive: Path) -> Path:
    """Unpack the results of a run into a folder next to the archive, with its name without the suffix.

    They are unpacked under another name, which becomes the folder's once everything is there. A damaged archive leaves nothing.

    Args:
        archive: A zip of one folder that contains config.yaml, or of its content.

    Returns:
        The folder of the results.

    Raises:
        SinkjaxError: The archive is not a zip, is damaged, or contains no results. An entry has a name outside of the folder or
            one of its own twice, or is a link or a device. It would unpack to too many bytes or entries. The folder already
            exists; no permission or space.
    """
    folder = archive.with_suffix("")
    if folder.exists() or folder.is_symlink():
        raise SinkjaxError(f"{folder} already exists; use it (sinkjax report {folder}), or move it out of the way of {archive}")
    scratch = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.new")
    try:
        with archive.open("rb") as file:
            if _directory_bytes(file) > DIRECTORY:
                raise SinkjaxError(f"{archive} lists more entries than a run has")
        with zipfile.ZipFile(archive) as packed:
            entries = {_name(entry, archive): entry for entry in packed.infolist()}
            inner = _checked(archive, packed, entries)
            scratch.mkdir()
            for name, entry in entries.items():
                _extract(packed, entry, scratch / name)
        top = next(iter({name.parts[0] for name in entries}))
        alone = inner.parts == (top,) and all(name.parts[0] == top for name in entries)
        (scratch / top if alone else scratch).rename(folder)  # a zip of the folder itself, or of its content
        return folder if alone else folder / inner
    except WRONG as error:
        if isinstance(error, SinkjaxError):
            raise
        raise SinkjaxError(f"{archive} is not a complete zip file: {str(error) or type(error).__name__}") from None
    except OSError as error:
        raise cannot_write(folder, error) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _directory_bytes(file: BinaryIO) -> int:
    """Return the bytes of a zip's list of entries, as stated at its end; 0 if that is not found."""
    file.seek(0, 2)
    file.seek(max(0, file.tell() - (1 << 16) - 200))
    tail = file.read()
    place = tail.rfind(END)
    if place < 0 or len(tail) < place + 22:
        return 0
    size: int = struct.unpack_from("<I", tail, place + 12)[0]
    longer = tail.rfind(LONGER, 0, place)
    return max(size, *struct.unpack_from("<Q", tail, longer + 40)) if longer >= 0 else size


def _name(entry: zipfile.ZipInfo, archive: Path) -> PurePosixPath:
    """Return the path of an entry in the folder. Errors: it is outside, or the entry is neither a file nor a folder."""
    name = PurePosixPath(entry.filename)
    if (
        not name.parts
        or name.is_absolute()
        or ".." in name.parts
        or ":" in name.parts[0]
        or {*entry.orig_filename} & {"\\", "\0"}
    ):
        raise SinkjaxError(f"{archive} has an entry whose name is outside of its folder: {short(entry.orig_filename)}")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise SinkjaxError(f"{archive} has an entry that is a link or a device: {short(entry.filename)}")
    return name


def _checked(archive: Path, packed: zipfile.ZipFile, entries: dict[PurePosixPath, zipfile.ZipInfo]) -> PurePosixPath:
    """Return the path of the results in an archive, after checks of all that it states. Errors: see `unpack`."""
    stated = packed.infolist()
    if len(stated) > MOST_ENTRIES:
        raise SinkjaxError(f"{archive} has {len(stated):,} entries, but the limit is {MOST_ENTRIES:,}")
    if len(entries) < len(stated):
        raise SinkjaxError(f"{archive} has entries of the same name")
    size = sum(entry.file_size for entry in stated)
    most = min(LARGEST, max(ALWAYS, RATIO * archive.stat().st_size))
    if size > most:
        raise SinkjaxError(f"{archive} would unpack to {size:,} bytes, but the limit for its size is {most:,}")
    found = [name for name, entry in entries.items() if name.name == CONFIG_FILE and not entry.is_dir()]
    if not found:
        raise SinkjaxError(f"{archive} contains no results: it has no {CONFIG_FILE}")
    return min(found, key=lambda name: (len(name.parts), str(name))).parent


def _extract(packed: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path) -> None:
    """Write one entry, of at most the bytes that it states."""
    if entry.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    left = entry.file_size
    with packed.open(entry) as source, path.open("xb") as target:
        while block := source.read(BLOCK):
            if (left := left - len(block)) < 0:
                raise zipfile.BadZipFile(f"{entry.filename} has more bytes than it states")
            target.write(block)
    if left:
        raise zipfile.BadZipFile(f"{entry.filename} has fewer bytes than it states")
