"""Unpack a zip that somebody sent: files and folders below one new folder, or nothing at all."""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from sinkjax.config_files import temporary
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import CONFIG_FILE, attempt
from sinkjax.errors import SinkjaxError, short

SUFFIX = ".zip"
# Limits on what an archive states and on what is read from it. A store's chunks are compressed already; tables shrink to a tenth.
LARGEST, MOST_ENTRIES, RATIO = 50_000_000_000, 500_000, 100
ALWAYS = 100_000_000  # bytes that an archive of any size may unpack to
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
    exists = folder.exists() or folder.is_symlink()
    refuse(exists, f"{folder} already exists; use it (sinkjax report {folder}), or move it out of the way of {archive}")
    try:
        with attempt("write", folder), temporary.named_after(folder, make=Path.mkdir) as scratch:
            with zipfile.ZipFile(archive) as packed:
                entries = {_name(entry, archive): entry for entry in packed.infolist()}
                inner = _checked(archive, packed, entries)
                packed.extractall(scratch)  # of each entry at most the bytes that it states
            for name, entry in entries.items():
                if not entry.is_dir() and (scratch / name).stat().st_size < entry.file_size:
                    raise zipfile.BadZipFile(f"{entry.filename} has fewer bytes than it states")
            (top, *_) = {name.parts[0] for name in entries}
            alone = inner.parts == (top,) and all(name.parts[0] == top for name in entries)
            (scratch / top if alone else scratch).rename(folder)  # a zip of the folder itself, or of its content
            return folder if alone else folder / inner
    except SinkjaxError:
        raise
    except WRONG as error:
        raise SinkjaxError(f"{archive} is not a complete zip file: {str(error) or type(error).__name__}") from None


def _name(entry: zipfile.ZipInfo, archive: Path) -> PurePosixPath:
    """Return the path of an entry in the folder. Errors: it is outside, or the entry is neither a file nor a folder."""
    name = PurePosixPath(entry.filename)
    outside = not name.parts or name.is_absolute() or ".." in name.parts or ":" in name.parts[0]
    odd = bool({*entry.orig_filename} & {"\\", "\0"})
    refuse(outside or odd, f"{archive} has an entry whose name is outside of its folder: {short(entry.orig_filename)}")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    other = kind not in (0, stat.S_IFREG, stat.S_IFDIR)
    refuse(other, f"{archive} has an entry that is a link or a device: {short(entry.filename)}")
    return name


def _checked(archive: Path, packed: zipfile.ZipFile, entries: dict[PurePosixPath, zipfile.ZipInfo]) -> PurePosixPath:
    """Return the path of the results in an archive, after checks of all that it states. Errors: see `unpack`."""
    stated = packed.infolist()
    refuse(len(stated) > MOST_ENTRIES, f"{archive} has {len(stated):,} entries, but the limit is {MOST_ENTRIES:,}")
    refuse(len(entries) < len(stated), f"{archive} has entries of the same name")
    size = sum(entry.file_size for entry in stated)
    most = min(LARGEST, max(ALWAYS, RATIO * archive.stat().st_size))
    refuse(size > most, f"{archive} would unpack to {size:,} bytes, but the limit for its size is {most:,}")
    configs = [name for name, entry in entries.items() if name.name == CONFIG_FILE and not entry.is_dir()]
    refuse(not configs, f"{archive} contains no results: it has no {CONFIG_FILE}")
    return min(configs, key=lambda name: (len(name.parts), str(name))).parent
