"""Where a store lies: a folder, or a prefix of an object store that fsspec reaches (`s3://`, `gs://`, `memory://`, ...).

An object is written whole or not at all, but nothing is renamed, and there are no locks: see `Leases` in claims.py.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from sinkjax import extras
from sinkjax.errors import SinkjaxError

LIBRARIES = ("aiobotocore", "aiohttp", "azure", "botocore", "gcsfs", "google", "s3fs")  # whose errors are no OSError

Place: TypeAlias = Any  # a `pathlib.Path`, or a `upath.UPath`, which is none for an object store but has its methods


def place(out: Any) -> Place:
    """A path as it is, or that of an object store for a URL. Errors: the library of a protocol is not installed; no such one."""
    protocol = url_protocol(out)
    if protocol is None:
        return Path(out)
    if protocol == "file":
        return Path(str(out).removeprefix("file://"))
    if isinstance(out, Path):  # which has made "s3:/bucket" of it
        raise SinkjaxError(f"give {protocol}:// as text: a Path takes it for a folder with a colon in its name")
    extras.require(f"a store at {protocol}://", "remote")
    from upath import UPath

    try:
        path: Place = out if isinstance(out, UPath) else UPath(str(out), use_listings_cache=False)
        path.fs.invalidate_cache()  # makes the connection's object, and so imports what it needs
    except (ImportError, ValueError) as error:
        raise SinkjaxError(f"cannot use {protocol}://: {' '.join(str(error).split())}") from None
    return path


@contextlib.contextmanager
def reached(path: Place) -> Iterator[None]:
    """Turn what an object store and its library raise, such as for a wrong key, into one sentence."""
    try:
        yield
    except Exception as error:
        library = type(error).__module__.partition(".")[0]
        told = isinstance(error, OSError | NotImplementedError) or library in LIBRARIES
        if not is_remote(path) or not told:
            raise
        raise SinkjaxError(f"cannot use {path}: {' '.join(str(error).split())[:200] or type(error).__name__}") from error


def url_protocol(out: Any) -> str | None:
    """What stands before "://" of a URL; None for a path of this machine."""
    scheme, found, _ = str(out).partition(":/")
    return scheme if found and len(scheme) > 1 and "/" not in scheme else None


def is_remote(path: Place) -> bool:
    """Whether a path is one of an object store."""
    return not isinstance(path, Path)


def create(file: Place, content: bytes) -> bool:
    """Write an object unless there is one: of several writers one succeeds. Returns whether it was this one."""
    try:
        file.fs.pipe_file(file.path, content, mode="create")
    except FileExistsError:
        return False
    return True


def upload(folder: Path, to: Place) -> None:
    """Copy all files of a folder into an object store."""
    for file in folder.rglob("*"):
        if file.is_file():
            (to / file.relative_to(folder).as_posix()).write_bytes(file.read_bytes())


def remove(folder: Place) -> None:
    """Remove a folder, or all objects below a prefix, if there is anything."""
    if is_remote(folder):
        if folder.exists():
            folder.fs.rm(folder.path, recursive=True)
    else:
        shutil.rmtree(folder, ignore_errors=True)
