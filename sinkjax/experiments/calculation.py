"""Carry out a calculation and store what it gives, whole or not at all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from sinkjax.checkpoints.load import Model
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.base import Batch, Calculation
from sinkjax.sweeps.job import description, digest
from sinkjax.sweeps.store import IDENTITY, refuse_other


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
    dataset = calculation.compute(model, batch)
    dataset = dataset.assign_attrs(json.loads(json.dumps({IDENTITY: identity, "study": dict(batch.study)})))
    scratch = path.with_name(f".{path.name}.new")
    try:
        shutil.rmtree(scratch, ignore_errors=True)
        dataset.to_zarr(scratch, mode="w", zarr_format=2, consolidated=True)
        scratch.rename(path)
    except OSError as error:
        shutil.rmtree(scratch, ignore_errors=True)
        raise SinkjaxError(f"cannot make the store {path}: {error.strerror or error}") from error
