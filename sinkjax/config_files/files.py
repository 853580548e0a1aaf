"""Files of results, written whole or not at all."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from sinkjax.errors import SinkjaxError


def write(path: Path, content: str | bytes) -> None:
    """Write a file under another name first, then rename it. Errors: no permission, no room."""
    scratch = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_bytes(content.encode() if isinstance(content, str) else content)
        scratch.replace(path)
    except OSError as error:
        with suppress(OSError):
            scratch.unlink()
        raise SinkjaxError(f"cannot write {path}: {error.strerror}") from None
