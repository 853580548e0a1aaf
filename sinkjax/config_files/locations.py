"""Storage locations for results: a folder, or a prefix in an object store that fsspec supports (`s3://`, `gs://`, ...).

Objects are written atomically; nothing is renamed, and there are no locks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias
from urllib.parse import unquote, urlsplit

from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError, Unavailable

LIBRARIES = ("aiobotocore", "aiohttp", "azure", "botocore", "gcsfs", "google", "s3fs")  # libraries whose errors are not OSErrors


MOST_READ = 1_000_000_000  # maximum bytes of a file that is read at once, where its reader knows no smaller number


class NotAFile(OSError):
    """A path is a pipe or a device, or has more bytes than it may have."""


class NoAnswer(Exception):
    """An object store did not respond; this says nothing about its content."""


Location: TypeAlias = Any  # a `pathlib.Path`, or a `upath.UPath`, which for an object store only shares its methods


def location(out: Any) -> Location:
    """Return a path, or a URL's location in an object store. Errors: the protocol is unknown, or its library is not installed."""
    protocol = url_protocol(out)
    if protocol is None:
        return Path(out)
    if protocol in ("file", "local"):
        where = urlsplit(str(out))
        here = where.netloc in ("", "localhost")
        refuse(not here, f"{out} is on another machine; a folder on this one is file:///FOLDER")
        return Path(unquote(where.path))
    path_like = isinstance(out, Path)  # it has turned the URL into "s3:/bucket"
    refuse(path_like, f"give {protocol}:// as text: a Path takes it for a folder with a colon in its name")
    try:
        from upath import UPath
    except ModuleNotFoundError as error:
        needed = f"a store at {protocol}:// needs {error.name}, which is not installed"
        raise SinkjaxError(f"{needed}: pip install 'sinkjax[remote]'") from None
    try:
        path: Location = UPath(str(out), **{**getattr(out, "storage_options", {}), "use_listings_cache": False})
        path.fs.invalidate_cache()  # creates the connection object, which imports its library
    except (ImportError, OSError, TypeError, ValueError) as error:
        raise SinkjaxError(f"cannot use {protocol}://: {_words(error)}") from None
    return path


@contextlib.contextmanager
def reached(path: Location) -> Iterator[None]:
    """Turn errors of an object store and its library, such as a wrong key, into one sentence."""
    try:
        yield
    except Exception as error:
        library = type(error).__module__.partition(".")[0]
        of_disk = isinstance(error, OSError) and error.filename is not None  # the local file's error names it
        of_store = (isinstance(error, OSError | NotImplementedError | NoAnswer) and not of_disk) or library in LIBRARIES
        if not is_remote(path) or not of_store:
            raise
        raise Unavailable(f"cannot use {path}: {_words(error)}") from error


@contextlib.contextmanager
def usable(path: Location) -> Iterator[None]:
    """Turn errors of a disk into one sentence; those of an object store pass."""
    try:
        yield
    except OSError as error:
        if is_remote(path):
            raise
        raise SinkjaxError(f"cannot use {error.filename or path}: {error.strerror or error}") from None


def url_protocol(out: Any) -> str | None:
    """Return the part of a URL before "://", or None for a local path."""
    scheme, slash, _ = str(out).partition(":/")
    return scheme if slash and len(scheme) > 1 and "/" not in scheme else None


def is_remote(path: Location) -> bool:
    """Return whether a path is in an object store."""
    return not isinstance(path, Path)


@contextlib.contextmanager
def open_file(file: Path, most: int | None = None) -> Iterator[BinaryIO]:
    """Open a file of at most `most` bytes. Errors: OSError, of which NotAFile says that it is none, or larger."""
    # the path may be a pipe whose other end nobody opens
    with open(file, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise NotAFile(errno.EINVAL, "it is a pipe or a device", str(file))
        if most is not None and status.st_size > most:
            raise NotAFile(errno.EFBIG, f"it has {status.st_size:,} bytes, and at most {most:,} are expected", str(file))
        yield stream


def read_bytes(file: Location, most: int = MOST_READ) -> bytes:
    """Read a file, or an object in one request, because an object opened as a file fails if it is replaced meanwhile.

    most: maximum size of a file; a larger one is refused before it is read. Errors: OSError from a disk, of which NotAFile says
    that nothing was read; FileNotFoundError or NoAnswer from an object store.
    """
    if not is_remote(file):
        with open_file(file, most) as stream:
            return stream.read(os.fstat(stream.fileno()).st_size)
    try:
        content: bytes = file.fs.cat_file(file.path)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise NoAnswer(_words(error)) from error
    return content


def listed(folder: Location) -> list[str]:
    """The names of what lies directly in a folder, or of all objects below a prefix, relative to it; none if it does not exist.

    Objects that represent empty folders, as made by web consoles, are omitted.
    """
    with contextlib.suppress(FileNotFoundError):  # also if another process removes it in this moment
        if not is_remote(folder):
            return [entry.name for entry in folder.iterdir()]
        root = folder.path.rstrip("/") + "/"
        names = (name.partition(root)[2] for name in folder.fs.find(folder.path))
        return [name for name in names if name and not name.endswith("/")]
    return []


def create(file: Location, content: bytes) -> bool:
    """Write an object unless it exists: of several writers, one succeeds. Returns whether it was this one."""
    try:
        file.fs.pipe_file(file.path, content, mode="create")
    except FileExistsError:
        return False
    except OSError as error:
        if "ConditionalRequestConflict" in str(error):  # S3 is deleting it at this moment
            return False
        raise
    return True


def delete(file: Location) -> None:
    """Remove a file or an object, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        file.fs.rm_file(file.path) if is_remote(file) else file.unlink()


def remove(folder: Location) -> None:
    """Remove a folder, or all objects below a prefix, if any exist."""
    if not is_remote(folder):
        shutil.rmtree(folder, ignore_errors=True)
    elif folder.exists():
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            folder.fs.rm(folder.path, recursive=True)


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
