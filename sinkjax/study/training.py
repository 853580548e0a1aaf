"""Train the models of a study, and store their measurements."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sinkjax.config_files import documents
from sinkjax.config_files.places import Place
from sinkjax.errors import SinkjaxError
from sinkjax.runtime import processes
from sinkjax.runtime.progress import duration
from sinkjax.study import folder as results
from sinkjax.study.calculation import holds, write_whole
from sinkjax.study.choice import Chosen
from sinkjax.study.work import TrainingSpec
from sinkjax.tasks import registry, train
from sinkjax.train.log import LOG, SUMMARY, read, step_cost
from sinkjax.train.runs import table
from sinkjax.version import __version__

if TYPE_CHECKING:
    import xarray


def train_all(
    specs: Sequence[TrainingSpec], chosen: Chosen, out: Place, log: Callable[[str], None], show: Callable[[], object]
) -> None:
    """Train every model that is wanted, in turn.

    log: called with a line of text before each step. show: rebuilds the page; it is called after each training if all of them can
    be shown unfinished.

    Errors: as for `train_one`.
    """
    wanted = [spec for spec in specs if spec.wanted]
    for number, spec in enumerate(wanted, 1):
        seconds = seconds_left(wanted, out)
        left = "" if seconds is None else f"; about {duration(seconds)} left for all"
        log(f"{spec.name} ({number} of {len(wanted)}{left})")
        train_one(spec, chosen, out, log)
        if number < len(wanted) and all(spec.so_far for spec in specs):
            processes.by_first(show)


def seconds_left(specs: Sequence[TrainingSpec], out: Place) -> float | None:
    """Time for the remaining steps, at the mean cost of finished trainings' steps; None before the first of these."""
    costs, steps = [], 0
    for spec in specs:
        folder = out / spec.name
        if (folder / SUMMARY).is_file():
            costs.append(step_cost(folder))
            continue
        lines = read(folder)[1] if (folder / LOG).is_file() else []
        made = max((line["step"] for line in lines), default=0)
        steps += (spec.training.steps - made) * len(table(spec.training, registry.task(spec.training)))
    known = [cost for cost in costs if cost is not None]
    return steps * float(np.mean(known)) / 1000 if known else None


def stores_of(specs: Sequence[TrainingSpec], folder: Place) -> Mapping[str, xarray.Dataset]:
    """The stores of the trainings that have run by name; of an unfinished one, its results so far.

    Errors: none has run.
    """
    found = {}
    for spec in specs:
        path = results.store_path(folder, spec.name)
        if path.exists():
            found[spec.name] = results.open_store(path)
        elif spec.so_far is not None and (data := spec.so_far(folder / spec.name)) is not None:
            found[spec.name] = data
    if not found and all(spec.so_far is None for spec in specs):
        raise SinkjaxError(f"there is no store of a training in {folder}; run the study first")
    return found


def train_one(spec: TrainingSpec, chosen: Chosen, out: Place, log: Callable[[str], None]) -> None:
    """Train a spec, or its remaining steps, in the folder of its name in `out`, and store the measurements unless they are there.

    Errors: a training or a store of other numbers; no permission, no room.
    """
    store, identity = results.store_path(out, spec.name), description(spec)
    if processes.largest(holds(store, identity))[0]:  # joined processes must all train, or not at all
        return
    log(f"{spec.name}: training")
    found = train(spec.training, out / spec.name, log)
    log(f"{spec.name}: measuring")
    study = {"experiment": chosen.experiment, "config": documents.plain(documents.fields(chosen.config))}
    processes.by_first(lambda: write_whole(spec.measure(found), store, identity, study))


def description(spec: TrainingSpec) -> dict[str, object]:
    """The training and the versions that made some numbers, as JSON."""
    versions = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "optax")}
    return {
        "calculation": spec.name,
        "training": documents.plain(documents.decisive(spec.training)),
        "dtype": spec.training.dtype,
        "versions": {"sinkjax": __version__} | versions,
    }
