"""Sizes of studies: named sets of fields of a training, read from `sizes.yaml`. This module imports no JAX.

Settings are a paper's where it states them, else chosen here, as `about` says. A micro-batch fits on one device of 80 GB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sinkjax.config_files import documents

SizeName = Literal["mini", "340k", "60m", "1b", "152m", "backcopy", "backcopy-mini", "mini-softmax", "smollm2", "chats"]


@dataclass(frozen=True)
class Size:
    """task: its name for `sinkjax train`. fields: its config's fields. about: their source."""

    task: str
    fields: Mapping[str, object]
    about: str


def _read(file: Path) -> dict[str, Size]:
    """Every size by its name. A list in the file is a tuple of the config."""
    found = {}
    for name, entry in documents.parse(file.read_text(encoding="utf-8"), file.name)["sizes"].items():
        fields = {key: tuple(value) if isinstance(value, list) else value for key, value in entry["fields"].items()}
        found[name] = Size(entry["task"], fields, entry["about"])
    return found


SIZES = _read(Path(__file__).with_name("sizes.yaml"))
