"""The fields of a record as far as they identify a result, so that a record can gain fields and old results stay valid."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

LATER = {"later": True}  # metadata of a field that records did not have when the first results were stored


def stated(record: Any) -> dict[str, Any]:
    """Name -> value of a dataclass instance, but for later fields that hold their default."""
    return {
        field.name: getattr(record, field.name)
        for field in fields(record)
        if not (field.metadata.get("later") and getattr(record, field.name) == field.default)
    }
