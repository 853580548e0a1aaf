"""Temporary names, each locked by the process that uses it, so that what a killed process left is recognised and removed."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
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


def named_after(
    path: Path, folder: Path | None = None, make: Callable[[Path], object] = Path.touch
) -> contextlib.AbstractContextManager[Path]:
    """Make a temporary file (or, with Path.mkdir, a folder) for `path`, held until the end; it is removed if it still exists.

    folder: where, by default next to `path`; there, leftovers of `path` are removed first. Errors: OSError.
    """
    if folder is None:
        sweep(path.parent, path.name)

    def begin() -> Path:
        begun = (folder or path.parent) / f".{path.name}.{secrets.token_hex(4)}.new"
        make(begun)
        return begun

    return _held(begin)


def temporary_folder() -> contextlib.AbstractContextManager[Path]:
    """Make a folder among the system's temporary ones, removed at the end, or by the next process after a kill."""
    for left in Path(tempfile.gettempdir()).glob(f"{FOLDERS}*"):
        _remove_unheld(left)
    return _held(lambda: Path(tempfile.mkdtemp(prefix=FOLDERS)))


@contextlib.contextmanager
def _held(make: Callable[[], Path]) -> Iterator[Path]:
    """Make a path and lock it; it is removed at the end if it still exists."""
    with contextlib.ExitStack() as held:
        while _hold(path := make(), held) is False:  # a sweep was faster, and removes it
            pass
        held.callback(_remove, path)
        yield path


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
    except AttributeError:  # a C library without it
        return False
    if failed and (code := ctypes.get_errno()) not in NO_EXCHANGE:
        raise OSError(code, os.strerror(code))
    return not failed


def _hold(path: Path, held: contextlib.ExitStack) -> bool | None:
    """Lock a path until `held` closes, as `lock`; False also if the path is gone. Errors: OSError, such as for a link."""
    with contextlib.suppress(FileNotFoundError):
        held.callback(os.close, descriptor := os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK))
        locked = lock(descriptor)
        return locked and path.exists()
    return False


def lock(descriptor: int) -> bool | None:
    """Lock an open file or folder. Returns False if another process or thread has it, None if there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _remove_unheld(path: Path) -> None:
    with contextlib.suppress(OSError), contextlib.ExitStack() as held:
        if _hold(path, held):
            _remove(path)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
