"""Who makes a store, and who computes which of its calls: locks, which a kill releases, or in an object store leases."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import filelock

from sinkjax.config_files.files import has_locks, take_lock
from sinkjax.config_files.places import Place, create, delete, is_remote, listed, read_bytes, remove, upload
from sinkjax.errors import SinkjaxError, Unavailable
from sinkjax.sweeps.chunks import faults

PATIENCE = 60.0  # seconds to wait for the process that makes a store; more than any takes
EXPIRY = 60.0  # seconds after which a lease that was not renewed is free
BEING_MADE = ".being_made"  # in an object store: it is there from before the first file until after the last one


@contextlib.contextmanager
def making(path: Place, replace: bool = False) -> Iterator[Path | None]:
    """A scratch folder, to be filled, which becomes `path` at the end; None if another process was faster.

    Processes take turns. Where a file system has no locks, the rename still lets one of them win, and nothing is overwritten.
    replace: whether to replace a store with missing or changed files.
    Errors: no permission or no room; another process that does not finish.
    """
    if is_remote(path):
        with _making_remotely(path, replace) as scratch:
            yield scratch
        return
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            if path.exists() and not (replace and faults(path)):
                yield None
                return
            if has_locks(path.parent):  # else another process may be filling one
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


@contextlib.contextmanager
def _making_remotely(path: Place, replace: bool) -> Iterator[Path | None]:
    """The same in an object store, into which a folder of this machine is copied. What a killed process began is removed."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name, Leases(path.with_name(f".{path.name}.lease")) as lease:
        while not lease.take("make"):
            if time.monotonic() - begun > PATIENCE + EXPIRY:
                raise Unavailable(f"{lease.owner('make')} has been making {path} for more than {PATIENCE:.0f} s; end it")
            time.sleep(lease.pause)
        if path.exists() and not (path / BEING_MADE).exists() and not (replace and faults(path)):
            yield None
            return
        yield (scratch := Path(name) / path.name)
        if not lease.keeps("make"):
            return
        (path / BEING_MADE).write_bytes(b"")
        for left in set(listed(path)) - {BEING_MADE}:
            delete(path / left)
        upload(scratch, path)
        if lease.keeps("make"):  # else it is being made by the process that took over
            delete(path / BEING_MADE)


class Claims:
    """The calls that this process computes; others that fill the same store see them.

    A context: what is still claimed at its end, or when the process dies, is free again. pause: seconds between two looks at
    what other processes have done.
    """

    pause = 0.2

    def __init__(self, folder: Place):
        self.folder, self.locks = folder, dict[str, Callable[[], object]]()  # name -> what releases its lock

    def __enter__(self) -> Self:
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

    def _owner(self, name: str) -> Place:
        return self.folder / f"{name}.owner"


class Leases(Claims):
    """Claims in an object store: objects that their owner renews, and that others take over when they are not renewed.

    An object can be created by one process alone. Whoever finds one watches it by a clock of its own, so machines need not agree
    on the time: one that has not changed for EXPIRY seconds is removed, and created anew. Should an owner only have been slow, or
    two processes take over at one time, a call is computed twice, to the same bits.
    """

    pause = 1.0

    def __init__(self, folder: Place):
        super().__init__(folder)
        self.who = f"process {os.getpid()} on {socket.gethostname()}, {secrets.token_hex(8)}"
        self.held: set[str] = set()
        self.seen: dict[str, tuple[bytes, float]] = {}  # name -> the lease of another process, and since when it is the same
        self.guard, self.ended = threading.Lock(), threading.Event()
        self.renewing: threading.Thread | None = None

    def __exit__(self, *error: object) -> None:
        self.ended.set()
        for name in list(self.held):
            with contextlib.suppress(Exception):  # it ends by itself
                self.drop(name)

    def take(self, name: str) -> bool:
        if not create(self._lease(name), self._content()):
            if not self._expired(name):
                return False
            delete(self._lease(name))
            if not create(self._lease(name), self._content()):
                return False
        if not self.renewing and create(self._lease(name), self._content()):
            delete(self._lease(name))
            raise SinkjaxError(f"the library behind {self.folder} overwrites files, so processes cannot share it: update it")
        if not self.keeps(name):  # two took over what had expired, and the other came last
            return False
        self.seen.pop(name, None)
        with self.guard:
            self.held.add(name)
        if self.renewing is None:
            self.renewing = threading.Thread(target=self._renew, daemon=True)
            self.renewing.start()
        return True

    def drop(self, name: str) -> None:
        with self.guard:  # so that no renewal comes afterwards
            self.held.discard(name)
            if self.keeps(name):
                delete(self._lease(name))

    def clear(self) -> None:
        remove(self.folder)

    def owner(self, name: str) -> str:
        try:
            return read_bytes(self._lease(name)).decode().rpartition(",")[0].rpartition(",")[0]
        except OSError:
            return "another process"

    def _lease(self, name: str) -> Place:
        return self.folder / f"{name}.lease"

    def _content(self) -> bytes:
        return f"{self.who}, {secrets.token_hex(8)}".encode()

    def keeps(self, name: str) -> bool:
        """Whether a lease is still that of this process, and no other has taken it over."""
        try:
            return read_bytes(self._lease(name)).startswith(self.who.encode())
        except FileNotFoundError:
            return False

    def _expired(self, name: str) -> bool:
        """Whether the lease of another process has been the same for EXPIRY seconds. One that is gone in this moment is not."""
        try:
            content = read_bytes(self._lease(name))
        except FileNotFoundError:
            return False
        now = time.monotonic()
        before, since = self.seen.get(name, (b"", now))
        if content != before:
            self.seen[name] = content, now
            return False
        return now - since > EXPIRY

    def _renew(self) -> None:
        while not self.ended.wait(EXPIRY / 4):
            for name in list(self.held):
                with self.guard, contextlib.suppress(Exception):  # whatever the library raises: there is a next time
                    if name in self.held and self.keeps(name):
                        self._lease(name).write_bytes(self._content())


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    file = path.with_name(f".{path.name}.lock")
    try:
        release = take_lock(file, PATIENCE)
    except filelock.Timeout:
        raise Unavailable(
            f"another process has been making {path} for more than {PATIENCE:.0f} s; end it, or choose another output"
        ) from None
    try:
        yield
    finally:
        file.unlink(missing_ok=True)  # whoever waits for it sees that it is gone, and begins anew
        release()
