"""Storage locations for results: a folder, or a prefix in an object store that fsspec supports (`s3://`, `gs://`, ...).

An object is written whole or not at all; nothing is renamed, and there are no locks.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit
from urllib.request import url2pathname

from sinkjax.errors import SinkjaxError, Unavailable
from sinkjax.runtime import extras

LIBRARIES = ("aiobotocore", "aiohttp", "azure", "botocore", "gcsfs", "google", "s3fs")  # whose errors are not OSErrors


class NoAnswer(Exception):
    """An object store did not answer, which says nothing about its content."""


Place: TypeAlias = Any  # a `pathlib.Path`, or a `upath.UPath`, which for an object store only has its methods


def place(out: Any) -> Place:
    """A path, or the place in an object store of a URL. Errors: the library of a protocol is not installed; no such one."""
    protocol = url_protocol(out)
    if protocol is None:
        return Path(out)
    if protocol in ("file", "local"):
        where = urlsplit(str(out))
        if where.netloc not in ("", "localhost"):
            raise SinkjaxError(f"{out} is on another machine; a folder on this one is file:///FOLDER")
        return Path(url2pathname(where.path))
    if isinstance(out, Path):  # which has made "s3:/bucket" of it
        raise SinkjaxError(f"give {protocol}:// as text: a Path takes it for a folder with a colon in its name")
    extras.require(f"a store at {protocol}://", "remote")
    from upath import UPath

    try:
        path: Place = UPath(str(out), **{**getattr(out, "storage_options", {}), "use_listings_cache": False})
        path.fs.invalidate_cache()  # makes the connection's object, and so imports its library
    except (ImportError, OSError, TypeError, ValueError) as error:
        raise SinkjaxError(f"cannot use {protocol}://: {_words(error)}") from None
    return path


@contextlib.contextmanager
def reached(path: Place) -> Iterator[None]:
    """Turn errors of an object store and its library, such as for a wrong key, into one sentence."""
    try:
        yield
    except Exception as error:
        library = type(error).__module__.partition(".")[0]
        of_disk = isinstance(error, OSError) and error.filename is not None  # which names the file of this machine
        of_store = (isinstance(error, OSError | NotImplementedError | NoAnswer) and not of_disk) or library in LIBRARIES
        if not is_remote(path) or not of_store:
            raise
        raise Unavailable(f"cannot use {path}: {_words(error)}") from error


def url_protocol(out: Any) -> str | None:
    """What stands before "://" of a URL; None for a path of this machine."""
    scheme, found, _ = str(out).partition(":/")
    return scheme if found and len(scheme) > 1 and "/" not in scheme else None


def is_remote(path: Place) -> bool:
    """Whether a path is one of an object store."""
    return not isinstance(path, Path)


def read_bytes(file: Place) -> bytes:
    """A file, or an object as it is now: opened as a file, one that is replaced in this moment would be an error.

    Errors: OSError of a disk; of an object store FileNotFoundError, or NoAnswer.
    """
    if not is_remote(file):
        at_once = getattr(os, "O_NONBLOCK", 0)  # somebody may have put a pipe in its place, whose other end nobody opens
        with open(file, "rb", opener=lambda name, flags: os.open(name, flags | at_once)) as stream:
            return stream.read()
    try:
        found: bytes = file.fs.cat_file(file.path)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise NoAnswer(_words(error)) from error
    return found


def listed(folder: Place) -> list[str]:
    """The names of what lies directly in a folder, or of all objects below a prefix, relative to it; none if it does not exist.

    An object that stands for an empty folder, as consoles make it, is left out.
    """
    with contextlib.suppress(FileNotFoundError):  # also if another process removes it in this moment
        if not is_remote(folder):
            return [entry.name for entry in folder.iterdir()]
        root = folder.path.rstrip("/") + "/"
        found = (name.partition(root)[2] for name in folder.fs.find(folder.path))
        return [name for name in found if name and not name.endswith("/")]
    return []


def create(file: Place, content: bytes) -> bool:
    """Write an object unless there is one: of several writers one succeeds. Returns whether it was this one."""
    try:
        file.fs.pipe_file(file.path, content, mode="create")
    except FileExistsError:
        return False
    except OSError as error:
        if "ConditionalRequestConflict" in str(error):  # S3 is just deleting it
            return False
        raise
    return True


def delete(file: Place) -> None:
    """Remove a file, or an object, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        file.fs.rm_file(file.path) if is_remote(file) else file.unlink()


def remove(folder: Place) -> None:
    """Remove a folder, or all objects below a prefix, if there is anything."""
    if not is_remote(folder):
        shutil.rmtree(folder, ignore_errors=True)
    elif folder.exists():
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            folder.fs.rm(folder.path, recursive=True)


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
