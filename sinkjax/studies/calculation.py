"""Run a calculation and store its result atomically."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sinkjax.checkpoints.model import Model
from sinkjax.config_files.places import Place
from sinkjax.errors import SinkjaxError
from sinkjax.model.fingerprint import digest
from sinkjax.runtime.progress import say
from sinkjax.studies.study import Batch, Calculation
from sinkjax.sweeps.arrays import files_of_dataset
from sinkjax.sweeps.computation import description
from sinkjax.sweeps.hardware import facts
from sinkjax.sweeps.header import Header
from sinkjax.sweeps.identity import HARDWARE, IDENTITY, described
from sinkjax.sweeps.store import begin, existing

if TYPE_CHECKING:
    import xarray


def calculate(calculation: Calculation, model: Model, batch: Batch, path: Place) -> None:
    """Compute and write the store `path`, unless it is there. Errors: the store of other numbers; no permission, no room."""
    identity = description(model, "highest") | {
        "calculation": calculation.name,
        "prompts": {
            "count": len(batch.lengths),
            "positions": batch.tokens.shape[1],
            "sha256": digest(batch.tokens, batch.lengths),
        },
    }
    if holds(path, identity):
        return
    found = calculation.compute(model, batch)
    if set(found.data_vars) != set(calculation.variables):
        given, declared = (", ".join(sorted(map(str, names))) for names in (found.data_vars, calculation.variables))
        raise SinkjaxError(f"the calculation {calculation.name} declares the variables {declared}, but gives {given}")
    write_whole(found, path, identity, dict(batch.study))


def holds(path: Place, identity: Mapping[str, object]) -> bool:
    """Whether the store `path` is there and whole; one with files missing or changed is to be written again, which is said.

    Errors: the store of other numbers.
    """
    store = existing(path, identity)
    if store and store.faults:
        say(f"{path}: {described(store.faults)}; computing it again")
    return store is not None and store.finished and not store.faults


def write_whole(dataset: xarray.Dataset, path: Place, identity: Mapping[str, object], study: Mapping[str, object]) -> None:
    """Write a dataset as the store `path`, whole or not at all; `identity` and `study`, JSON, say how it was made.

    It becomes one object first, so several processes write the same store from it. A sound store from a faster process stays.
    Errors: it holds other numbers; no permission or no room.
    """
    attributes = json.loads(json.dumps({IDENTITY: identity, HARDWARE: [facts()], "study": study}))
    store = begin(path, identity, lambda: Header(attributes))
    store.mend()
    if not store.finished:
        files = files_of_dataset(dataset.assign_attrs(attributes))
        store.objects.write((), 0, {name: np.frombuffer(content, np.uint8) for name, content in files.items()})
        with contextlib.suppress(FileNotFoundError, ValueError):  # another process has finished, or a disk has failed
            files = {name: array.tobytes() for name, array in store.objects.read((), 0).items()}
        store.publish(files)
    store.finish()
