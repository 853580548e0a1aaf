"""Temporary names, each locked by the process that uses it, so that what a killed process left is recognised and removed."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

LEFT = re.compile(r"\.(.+)\.[0-9a-f]{8}\.(?:new|old)", re.DOTALL)
FOLDERS = "sinkjax-held-"  # prefix of temporary folders; earlier versions, which do not lock theirs, have another
NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM)


@contextlib.contextmanager
def named_after(path: Path, folder: Path | None = None, make: Callable[[Path], object] = Path.touch) -> Iterator[Path]:
    """Make a temporary file (or, with Path.mkdir, a folder) for `path`, held until the end; it is removed if it still exists.

    folder: where, by default next to `path`; there, leftovers of `path` are removed first. Errors: OSError.
    """
    if folder is None:
        sweep(path.parent, path.name)
    with contextlib.ExitStack() as held:
        while True:
            begun = (folder or path.parent) / f".{path.name}.{secrets.token_hex(4)}.new"
            make(begun)
            if _hold(begun, held):
                break
        try:
            yield begun
        finally:
            _remove(begun)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder among the system's temporary ones, removed at the end, or by the next process after a kill."""
    root = Path(tempfile.gettempdir())
    for left in root.glob(f"{FOLDERS}*"):
        _remove_unheld(left)
    with contextlib.ExitStack() as held:
        while not _hold(folder := Path(tempfile.mkdtemp(prefix=FOLDERS)), held):
            pass
        try:
            yield folder
        finally:
            _remove(folder)


def sweep(folder: Path, name: str) -> None:
    """Remove temporary files and folders that killed processes left for `name` in a folder, where the file system has locks."""
    with contextlib.suppress(OSError):
        for entry in [*os.scandir(folder)]:
            leftover = LEFT.fullmatch(entry.name)
            if leftover and leftover[1] == name and (entry.name.endswith(".new") or (folder / name).exists()):
                _remove_unheld(Path(entry.path))


def exchange(first: Path, second: Path) -> bool:
    """Exchange two names in one step. Returns whether the system and the file system can. Errors: OSError."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        names = os.fsencode(first), os.fsencode(second)
        if sys.platform == "darwin":
            failed = library.renamex_np(*names, ctypes.c_uint(2))  # RENAME_SWAP
        else:
            here = -100  # AT_FDCWD
            failed = library.renameat2(here, names[0], here, names[1], ctypes.c_uint(2))  # RENAME_EXCHANGE
    except (AttributeError, TypeError):  # a C library without it, or Windows
        return False
    if failed and (code := ctypes.get_errno()) not in NO_EXCHANGE:
        raise OSError(code, os.strerror(code))
    return not failed


def _hold(path: Path, held: contextlib.ExitStack) -> bool:
    """Lock a new path until `held` closes. Returns False if a sweep was faster, which then removes the path."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except PermissionError:  # Windows opens no folders
        return True
    if _lock(descriptor) is not False and path.exists():
        held.callback(os.close, descriptor)
        return True
    os.close(descriptor)
    return False


def _lock(descriptor: int) -> bool | None:
    """Lock an open file or folder. Returns False if another process or thread has it, None if there are no locks."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def _remove_unheld(path: Path) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        try:
            if _lock(descriptor):
                _remove(path)
        finally:
            os.close(descriptor)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
