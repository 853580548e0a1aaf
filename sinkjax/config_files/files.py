"""Atomic writing of files and folders, the folder of a config, and shipped configs."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sinkjax.config_files import documents, temporary
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.locations import Location, create, is_remote, listed, location, reached, url_protocol, usable
from sinkjax.errors import LONGEST, SinkjaxError, Unavailable, one_of, unknown

CONFIG_FILE = "config.yaml"  # in the folder of a run
CARD_FILE = "card.json"  # in the folder of a card
SUFFIX = ".yaml"  # of shipped configs
MOST_BYTES = 4 * documents.MOST_BYTES  # a character has up to four
MOST_TEXT = 1_000_000_000  # maximum bytes of a text that is read at once
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # a full disk, a quota, a limit of the process

NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)  # of a file system without hard links


def ends_all(error: SinkjaxError) -> bool:
    """Return whether an error affects the whole location (full, read-only or unreachable) and not just this operation."""
    cause = error.__context__
    return isinstance(error, Unavailable) or (isinstance(cause, OSError) and cause.errno in (*NO_ROOM, errno.EROFS))


def write(
    path: Location, content: str | bytes, durable: bool = False, scratch: Location | None = None, new: bool = False
) -> bool:
    """Write a file under a temporary name and rename it, or write an object directly. Safe for several processes.

    durable: whether the content reaches the disk before the rename, so that a power failure leaves no empty file. scratch: the
    folder of the temporary name, by default the file's own. new: whether to leave an existing file alone: of several writers, one
    succeeds. Returns whether it was written. Errors: no permission, no space.
    """
    raw = content.encode() if isinstance(content, str) else content
    if is_remote(path):
        with reached(path):
            if new:
                return create(path, raw)
            path.write_bytes(raw)
            return True
    with attempt("write", path, len(raw)):
        for parent in {path.parent, scratch or path.parent}:
            parent.mkdir(parents=True, exist_ok=True)
        with temporary.named_after(path, scratch) as begun:
            begun.write_bytes(raw)
            if durable:
                _sync(begun)
            if new:
                try:
                    os.link(begun, path)
                    return True
                except FileExistsError:
                    return False
                except OSError as error:
                    if error.errno not in NO_LINKS:
                        raise
            begun.replace(path)
    return True


def write_new(path: Location, content: str | bytes, durable: bool = False, scratch: Location | None = None) -> bool:
    """Write a file unless it exists, as `write`; returns whether it was this writer."""
    return write(path, content, durable, scratch, new=True)


@contextmanager
def whole_folder(folder: Path, wanted: int) -> Iterator[Path]:
    """Make a new folder to fill, which replaces `folder` at the end, with every file on disk.

    An existing folder is exchanged for it in one step (where the system cannot, renamed just before) and deleted just after; if
    filling is interrupted, it is untouched. wanted: the bytes to be written, for messages. Errors: no permission, no space.
    """
    with attempt("write", folder, wanted):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with temporary.named_after(folder, make=Path.mkdir) as scratch:
            yield scratch
            for path in (*scratch.iterdir(), scratch):
                _sync(path)
            if not folder.exists():
                scratch.rename(folder)
            elif not temporary.exchange(scratch, folder):
                replaced = scratch.with_suffix(".old")
                folder.rename(replaced)
                try:
                    scratch.rename(folder)
                except OSError:
                    replaced.rename(folder)
                    raise
                shutil.rmtree(replaced, ignore_errors=True)
            _sync(folder.parent)


def own_folder(folder: Path, what: str) -> list[str]:
    """Return the names in a folder that will be replaced as a whole; [] if it does not exist.

    what: its content, for messages. Errors: a link, the working directory or a file; no permission.
    """
    with attempt("write", folder):
        refuse(folder.is_symlink(), f"{folder} is a symbolic link; name the folder itself, or choose another one")
        refuse(folder.resolve() == Path.cwd(), f"{what} needs a folder of its own, not the working directory ({str(folder)!r})")
        refuse(folder.exists() and not folder.is_dir(), f"{folder} is a file; choose a folder for {what}")
        return sorted(listed(folder))


def reserve(folder: Path, wanted: int, path: Path) -> None:
    """Raise unless `folder` has space for `wanted` more bytes, to be written as `path`.

    This allocates an unnamed file, so that quotas and limits also count.
    """
    with attempt("write", path, wanted):
        if hasattr(os, "posix_fallocate"):
            with tempfile.TemporaryFile(dir=folder) as file:
                os.posix_fallocate(file.fileno(), 0, wanted)
        elif shutil.disk_usage(folder).free < wanted:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def take_lock(file: Path) -> Callable[[], None]:
    """Take an OS file lock, which a kill releases; returns a function that releases it. A no-op if the file system has no locks.

    Errors: BlockingIOError if another process holds it; another OSError.
    """
    release = partial(os.close, descriptor := os.open(file, os.O_RDWR | os.O_CREAT, 0o644))
    if temporary.lock(descriptor) is False:
        release()
        raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), str(file))
    return release


@contextmanager
def attempt(verb: str, path: Location, wanted: int | None = None) -> Iterator[None]:
    """Turn an OSError into the error of `cannot_write`."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error, wanted, verb) from error


def cannot_write(path: Location, error: OSError, wanted: int | None = None, verb: str = "write") -> SinkjaxError:
    """Build the error for a path that could not be written. wanted: the bytes to be written, mentioned if there was no space."""
    bytes_wanted = f" (at least {wanted:,} bytes wanted)" if wanted is not None and error.errno in NO_ROOM else ""
    return SinkjaxError(f"cannot {verb} {path}: {error.strerror or error}{bytes_wanted}")


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def user_location(name: Any) -> Location:
    """Return a results location that a user names: a path or a URL. Errors: see `user_path`; an unusable URL."""
    return location(name) if url_protocol(name) else user_path(name)


def plain_name(name: str) -> str:
    """Return a name that becomes a file's or a folder's in the folder of a run. Errors: it is a path to elsewhere."""
    wrong = name in ("", ".", "..") or not {*"/\\\0"}.isdisjoint(name)
    refuse(wrong, f"{name[:LONGEST]!r} cannot be the name of a file: it must hold no slash and not be '..'")
    return name


def user_path(name: Any) -> Path:
    """Return the path that a user names, with `~` expanded. Errors: no such user; a URL; an impossible path."""
    local = "this must be a local path: copy the files from or to it yourself"
    refuse(url_protocol(name) is not None, f"{str(name)[:LONGEST]} is a URL, but {local}")
    wrong = not isinstance(name, str | Path) or name == "" or "\0" in str(name)
    refuse(wrong, f"a path must be a non-empty text without NUL, not {name!r}")
    try:
        with attempt("use", f"the path {str(name)[:LONGEST]}"):
            path = Path(name).expanduser()
            path.exists()
            return path
    except RuntimeError:
        raise SinkjaxError(f"{name} names the home folder of an unknown user") from None


def regular(path: Location, most: int | None = None) -> None:
    """Raise unless a path is a file of at most `most` bytes: a pipe may block a reader, and a device may never end."""
    with attempt("read", path), reached(path):
        state = path.stat()
    kind = "folder" if stat.S_ISDIR(state.st_mode) else "pipe or a device"
    refuse(not stat.S_ISREG(state.st_mode), f"cannot read {path}: it is a {kind}")
    large = most is not None and state.st_size > most
    refuse(large, f"{path} has {state.st_size:,} bytes, more than the {most or 0:,} that such a file may have")


def read_text(path: Location, most: int = MOST_BYTES, encoding: str = "utf-8") -> str:
    """Read a file's text. most: maximum size in bytes. Errors: see `regular`; not readable, or not UTF-8."""
    regular(path, most)
    try:
        with attempt("read", path), reached(path):
            text: str = path.read_text(encoding=encoding)
        return text
    except UnicodeDecodeError as error:
        raise SinkjaxError(f"{path} is not UTF-8 text: byte {error.start} does not decode") from None


def claim_folder(folder: Location, document: str, differences: Callable[[str], list[str]], what: str) -> None:
    """Claim a folder for a config: write its document into a new or empty folder, or accept a folder that already has it.

    differences: maps the existing document to the differing fields. what: the folder's purpose, for messages.
    Errors: a file of that name; other content, or another config's (each field that differs); no permission.
    """
    identity = folder / CONFIG_FILE
    with reached(folder):
        if not is_remote(folder):
            temporary.sweep(folder, CONFIG_FILE)
        with usable(folder):
            refuse(folder.exists() and not folder.is_dir(), f"{folder} is a file; choose a folder for the results")
            if not identity.is_file():
                others = [name for name in listed(folder) if not name.startswith(f".{CONFIG_FILE}.")]
                other = others and not identity.is_file()  # another process may have made it since
                refuse(bool(other), f"{folder} exists with other content; choose another --out")
                if not others and write_new(identity, document):
                    return
        differs = differences(read_text(identity))
        full = differs and listed(folder) != [CONFIG_FILE]
        refuse(bool(full), f"{folder} holds another {what} ({'; '.join(differs)}); choose another --out or delete it")
        if differs:  # left over from a run that failed before its first result
            write(identity, document)


def configs() -> dict[str, Path]:
    """Map the names of all shipped configs ("paper/study", or "all"), sorted, to their YAML files.

    Their folder is inside the package in a wheel, and next to it in a checkout (an editable install).
    """
    package = Path(__file__).parents[1]
    root = next((folder for folder in (package / "configs", package.parent / "configs") if folder.is_dir()), None)
    if root is None:
        raise SinkjaxError("this installation of sinkjax has no configs folder; install it again from a wheel or a checkout")
    found = sorted(root.rglob(f"*{SUFFIX}"), key=lambda file: (file.parent, file.name))
    return {file.relative_to(root).with_suffix("").as_posix(): file for file in found}


def config_path(name: str) -> Path:
    """Return the YAML file of the shipped config `name`, e.g. "kiya/mask". Errors: there is no such config."""
    shipped = configs()
    one_of("config", name, shipped)
    return shipped[name]


def shipped(kind: str = "experiment") -> list[str]:
    """Return the names of shipped configs whose documents have the key `kind`: studies (also whole ones), or trainings."""
    keys = {"experiment", "study"} if kind == "experiment" else {kind}
    return [name for name, file in configs().items() if keys & documents.parse(file.read_text(encoding="utf-8"), name).keys()]


def document(name: str, kind: str = "experiment", what: str = "study") -> tuple[str, str, Location | None]:
    """Return the document that a user names, its name for messages, and its folder if an earlier run wrote it.

    kind: the kind of shipped configs to suggest for an unknown name. what: noun for an unknown name. Errors: nothing has that
    name.
    """
    if name in configs():
        return config_path(name).read_text(encoding="utf-8"), name, None
    path = user_location(name)
    with reached(path):
        file = path / CONFIG_FILE if path.is_dir() else path
        if not file.is_file():
            refuse(path.is_dir(), f"{path} is not the folder of a run: it holds no {CONFIG_FILE}")
            refuse(path.suffix in (SUFFIX, ".yml"), f"there is no file {name}")
            raise unknown(what, name, shipped(kind), " (--help lists them); or a YAML file, or the folder of an earlier run")
    return read_text(file), str(file), file.parent if file.name == CONFIG_FILE else None
