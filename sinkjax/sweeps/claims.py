"""Who makes a store, and who computes which of its calls: locks, which a kill releases."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock

from sinkjax.config_files.files import take_lock
from sinkjax.errors import SinkjaxError
from sinkjax.sweeps.chunks import faults

PATIENCE = 60.0  # seconds to wait for the process that makes a store; more than any takes


@contextlib.contextmanager
def making(path: Path, replace: bool = False) -> Iterator[Path | None]:
    """A scratch folder beside `path`, to be filled, which becomes `path` at the end; None if another process was faster.

    Processes take turns. Where a file system has no locks, the rename still lets one of them win, and nothing is overwritten.
    replace: whether a store of which files are missing or changed gives way.
    Errors: no permission or no room; another process that does not come to an end.
    """
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            if path.exists() and not (replace and faults(path)):
                yield None
                return
            for left in path.parent.glob(f".{glob.escape(path.name)}.*new"):  # by processes that were killed
                shutil.rmtree(left, ignore_errors=True)
            yield scratch
            if replace and faults(path):
                shutil.rmtree(path)
            scratch.rename(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not path.is_dir():
            reason = ": ".join(str(part) for part in (error.strerror or error, error.filename) if part)
            raise SinkjaxError(f"cannot make the store {path}: {reason}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class Claims:
    """The calls that this process computes; others that fill the same store see them.

    A context: what is still claimed at its end, or when the process dies, is free again.
    """

    def __init__(self, folder: Path):
        self.folder, self.locks = folder, dict[str, Callable[[], object]]()  # name -> what releases its lock

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, *error: object) -> None:
        for name in list(self.locks):
            self.drop(name)
        with contextlib.suppress(OSError):  # not empty while others compute, not there if there was nothing to do
            self.folder.rmdir()

    def take(self, name: str) -> bool:
        """Claim a call, unless another process has; without locks it may be computed twice, to the same bits. Errors: OSError."""
        try:
            self.folder.mkdir(exist_ok=True)
            self.locks[name] = take_lock(self.folder / f"{name}.lock", timeout=0)
        except (filelock.Timeout, FileNotFoundError):  # the latter: the store was finished in this moment
            return False
        except FileExistsError:  # another process removes the folder in this moment, or it is none
            if self.folder.is_file():
                raise
            return False
        with contextlib.suppress(FileNotFoundError):
            self._owner(name).write_text(f"process {os.getpid()} on {socket.gethostname()}")
        return True

    def drop(self, name: str) -> None:
        """Give up a claim. Whoever takes the call next looks whether it is done."""
        for file in (self._owner(name), self.folder / f"{name}.lock"):
            file.unlink(missing_ok=True)
        self.locks.pop(name)()

    def clear(self) -> None:
        """Remove what killed processes left, once all calls are done."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def owner(self, name: str) -> str:
        """Who has claimed a call, in words."""
        try:
            return self._owner(name).read_text()
        except OSError:
            return "another process"

    def _owner(self, name: str) -> Path:
        return self.folder / f"{name}.owner"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    file = path.with_name(f".{path.name}.lock")
    try:
        release = take_lock(file, PATIENCE)
    except filelock.Timeout:
        raise SinkjaxError(
            f"another process has been making {path} for more than {PATIENCE:.0f} s; end it, or choose another output"
        ) from None
    try:
        yield
    finally:
        file.unlink(missing_ok=True)  # whoever waits for it sees that it is gone, and begins anew
        release()
