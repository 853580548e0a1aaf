"""Training into a URL: runs in a local folder, and copies every checkpoint.

Orbax writes only to file systems and to Google's store, and objects cannot be appended to, as a log requires. A copy is valid
once the list of its files, a single object, is written; after an earlier kill, the previous list is still valid. The list also
names its writer, so a process that finds another writer's list knows that another training has started there, and stops.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import weakref
from collections.abc import Iterator
from pathlib import Path

from sinkjax.config_files.files import CONFIG_FILE, user_location
from sinkjax.config_files.locations import Location, delete, is_remote, listed, reached, read_bytes
from sinkjax.config_files.temporary import temporary_folder
from sinkjax.errors import SinkjaxError, Unavailable

LISTED = ".files.json"  # in the object store: the list of the files of the last complete copy
# Files of a training; copies of deleted ones are removed.
WRITTEN = ("checkpoints", "config.yaml", "events", "log.jsonl", "models", "series", "speed.jsonl", "summary.json")
LOCAL = ".lock"  # a file that is never copied


class Mirror:
    """A local folder, `folder`, which is deleted with this object, and its copy at `place`."""

    def __init__(self, where: Location):
        held = contextlib.ExitStack()
        self.place, self.folder, self.name = where, held.enter_context(temporary_folder()), secrets.token_hex(8)
        self._expected: bytes | None = None  # the list at `place`
        self._copied: dict[str, tuple[int, int]] = {}  # file -> its size and time
        self.remove = weakref.finalize(self, held.close)

    def pull(self) -> None:
        """Fetch the last complete copy, or a training that somebody uploaded. Errors: `place` has other content."""
        with reached(self.place):
            self._expected = self._list()
            names = {*listed(self.place)} - {LISTED} if self._expected is None else self._names(self._expected)
            if self._expected is None and names and CONFIG_FILE not in names:
                raise SinkjaxError(f"{self.place} exists with other content; choose another place")
            for name in sorted(names):
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                self.place.fs.get_file((self.place / name).path, str(self.folder / name))
        self._copied = self._files()

    def push(self) -> None:
        """Copy new and changed files, then the list, and remove the training's files that no longer exist; other objects stay.

        Errors: another process trains there.
        """
        files = self._files()
        with reached(self.place):
            if self._expected is None:  # a kill during the first copy leaves the files that were pulled
                self._write_list(self._copied)
            for name in (name for name, state in files.items() if self._copied.get(name) != state):
                self._check_alone()
                self.place.fs.put_file(str(self.folder / name), (self.place / name).path)
            self._write_list(files)
            for name in {*listed(self.place)} - {LISTED, *files}:
                if name.partition("/")[0] in WRITTEN:
                    delete(self.place / name)
        self._copied = files

    def _write_list(self, names: dict[str, tuple[int, int]]) -> None:
        self._check_alone()
        self._expected = json.dumps({"writer": self.name, "files": sorted(names)}).encode()
        (self.place / LISTED).write_bytes(self._expected)

    def _check_alone(self) -> None:
        """Raise unless the list is still the one that this process read or wrote."""
        if self._list() != self._expected:
            raise Unavailable(f"another process is also training in {self.place}: this one stops, and the other continues")

    def _list(self) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return read_bytes(self.place / LISTED)
        return None

    def _names(self, content: bytes) -> set[str]:
        """The files of a list. Errors: any of them is not below the folder, on any operating system."""
        with contextlib.suppress(TypeError, ValueError, KeyError, AttributeError):
            names: set[str] = {*json.loads(content)["files"]}
            parts = [name.replace("\\", "/").split("/") for name in names]
            if not any({"", ".", ".."}.intersection(name) or ":" in name[0] for name in parts):
                return names
        raise SinkjaxError(f"{self.place / LISTED} has changed since it was written; remove it to read everything there")

    def _files(self) -> dict[str, tuple[int, int]]:
        files = (path for path in self.folder.rglob("*") if path.is_file() and path.name != LOCAL)
        return {path.relative_to(self.folder).as_posix(): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


@contextlib.contextmanager
def local(folder: str | Location) -> Iterator[tuple[Path, Mirror | None]]:
    """Return a training's folder; for a URL, a local folder with its last copy, and the mirror that pushes to it.

    Errors name the given place, not the folder of this machine, which they remove: another process trains there, or took over;
    other content; a refusal of the object store.
    """
    where = user_location(folder)
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
    """Return the folder or URL that a training was given, as its name."""
    return str(mirror.place if mirror else folder)
