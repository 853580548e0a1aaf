"""Carry out a calculation and store what it gives, whole or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkjax.checkpoints.model import Model
from sinkjax.errors import SinkjaxError
from sinkjax.studies.study import Batch, Calculation
from sinkjax.sweeps.job import description, digest
from sinkjax.sweeps.store import IDENTITY, refuse_other

if TYPE_CHECKING:
    import xarray


def calculate(calculation: Calculation, model: Model, batch: Batch, path: Path) -> None:
    """Compute and write the store `path`, unless it is there. Errors: the store of other numbers; no permission, no room."""
    identity = description(model, "highest") | {
        "calculation": calculation.name,
        "prompts": {
            "count": len(batch.lengths),
            "positions": batch.tokens.shape[1],
            "sha256": digest(batch.tokens, batch.lengths),
        },
    }
    if path.exists():
        refuse_other(path, identity)
        return
    write_whole(calculation.compute(model, batch), path, identity, dict(batch.study))


def write_whole(dataset: xarray.Dataset, path: Path, identity: Mapping[str, Any], study: Mapping[str, Any]) -> None:
    """Write a dataset as the store `path`, whole or not at all; `identity` and `study`, JSON, say how it was made."""
    dataset = dataset.assign_attrs(json.loads(json.dumps({IDENTITY: identity, "study": study})))
    scratch = path.with_name(f".{path.name}.new")
    try:
        shutil.rmtree(scratch, ignore_errors=True)
        dataset.to_zarr(scratch, mode="w", zarr_format=2, consolidated=True)
        scratch.rename(path)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        raise SinkjaxError(f"cannot make the store {path}: {error.strerror or error}") from error
