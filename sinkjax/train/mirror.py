"""A training whose folder is a URL: it runs in a folder of this machine, and each of its checkpoints is copied.

Orbax writes only to file systems and to Google's store, and no object can be appended to, as a log is. A copy counts once the
list of its files is written, one object: a kill before that leaves the files of the list before. The list also names its writer,
so a process that finds another's list there knows that another one has begun to train in this place, and ends.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

from sinkjax.config_files.files import CONFIG_FILE
from sinkjax.config_files.places import Place, delete, is_remote, listed, place, reached, read_bytes
from sinkjax.errors import SinkjaxError, Unavailable

LISTED = ".files.json"  # in the object store: the files of the last whole copy
# Files of a training: those that it no longer has are removed.
WRITTEN = ("checkpoints", "config.yaml", "events", "log.jsonl", "models", "series", "speed.jsonl", "summary.json")
OWN = ".lock"  # a file of only this machine


class Mirror:
    """A folder of this machine, `folder`, which is removed with this object, and its copy at `place`."""

    def __init__(self, where: Place):
        self.place, self.folder, self.name = where, Path(tempfile.mkdtemp(prefix="sinkjax-")), secrets.token_hex(8)
        self.seen: bytes | None = None  # the list that is expected to be there
        self._sent: dict[str, tuple[int, int]] = {}  # copied file -> its size and time
        self.remove = weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    def pull(self) -> None:
        """Fetch the last whole copy, if there is one, or a training that somebody put there. Errors: other content is there."""
        with reached(self.place):
            self.seen = self._list()
            names = sorted(self._there()) if self.seen is None else _names(self.seen)
            if names is None:
                raise SinkjaxError(f"{self.place / LISTED} has changed since it was written; remove it to read everything there")
            if self.seen is None and names and CONFIG_FILE not in names:
                raise SinkjaxError(f"{self.place} exists with other content; choose another place")
            for name in names:
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                self.place.fs.get_file((self.place / name).path, str(self.folder / name))
        self._sent = self._here()

    def push(self) -> None:
        """Copy new and changed files, then the list, and remove the training's files that no longer exist; other objects stay.

        Errors: another process trains there.
        """
        here = self._here()
        with reached(self.place):
            if self.seen is None:  # a kill within the first copy leaves the files that were pulled
                self._write_list(sorted(self._sent))
            for name in (name for name, state in here.items() if self._sent.get(name) != state):
                self._check_alone()
                self.place.fs.put_file(str(self.folder / name), (self.place / name).path)
            self._write_list(sorted(here))
            for name in self._there() - here.keys():
                if name.partition("/")[0] in WRITTEN:
                    delete(self.place / name)
        self._sent = here

    def _write_list(self, names: list[str]) -> None:
        self._check_alone()
        self.seen = json.dumps({"writer": self.name, "files": names}).encode()
        (self.place / LISTED).write_bytes(self.seen)

    def _check_alone(self) -> None:
        """Raise unless the list is still the one that this process saw or wrote."""
        if self._list() != self.seen:
            raise Unavailable(f"another process trains in {self.place} too: this one ends, and the other goes on")

    def _list(self) -> bytes | None:
        try:
            return read_bytes(self.place / LISTED)
        except FileNotFoundError:
            return None

    def _there(self) -> set[str]:
        """All objects but the list."""
        return set(listed(self.place)) - {LISTED}

    def _here(self) -> dict[str, tuple[int, int]]:
        files = (path for path in self.folder.rglob("*") if path.is_file() and path.name != OWN)
        return {path.relative_to(self.folder).as_posix(): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def _names(content: bytes) -> list[str] | None:
    """The files of a list; None if it names others than files below a folder, on any system."""
    with contextlib.suppress(TypeError, ValueError, KeyError, AttributeError):
        names: list[str] = json.loads(content)["files"]
        parts = [name.replace("\\", "/").split("/") for name in names]
        if not any({"", ".", ".."}.intersection(name) or ":" in name[0] for name in parts):
            return names
    return None


@contextlib.contextmanager
def local(folder: str | Place) -> Iterator[tuple[Path, Mirror | None]]:
    """The folder of a training; for a URL a folder of this machine with its last copy, and the mirror to be pushed there.

    Errors name the given place, not the folder of this machine, which they remove: another process trains there, or took over;
    other content; a refusal of the object store.
    """
    where = place(folder)
    if not is_remote(where):
        yield where, None
        return
    mirror = Mirror(where)
    try:
        mirror.pull()
        yield mirror.folder, mirror
    except BaseException as error:
        mirror.remove()
        if isinstance(error, SinkjaxError):
            error.args = (str(error).replace(str(mirror.folder), str(mirror.place)),)
        raise


def called(folder: Path, mirror: Mirror | None) -> str:
    """How a training is called: by the folder or the URL that was given."""
    return str(mirror.place if mirror else folder)
