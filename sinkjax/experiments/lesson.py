"""Carry out a lesson: train its models, and store what is measured on them."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sinkjax import __version__
from sinkjax.config_files import documents
from sinkjax.experiments import results
from sinkjax.experiments.base import Lesson
from sinkjax.experiments.calculation import write_whole
from sinkjax.experiments.registry import Chosen
from sinkjax.progress import duration
from sinkjax.sweeps.store import refuse_other
from sinkjax.tasks import registry, train
from sinkjax.train.log import LOG, read
from sinkjax.train.loop import SUMMARY
from sinkjax.train.runs import table

if TYPE_CHECKING:
    import xarray


def teach_all(
    lessons: Sequence[Lesson], chosen: Chosen, out: Path, say: Callable[[str], None], show: Callable[[], object]
) -> None:
    """`teach` every lesson that is wanted, in turn, and say how far it is. show: makes the page, after each lesson if it can.

    Errors: as for `teach`.
    """
    wanted = [lesson for lesson in lessons if lesson.wanted]
    for number, lesson in enumerate(wanted, 1):
        seconds = seconds_left(wanted, out)
        left = "" if seconds is None else f"; about {duration(seconds)} left for all"
        say(f"{lesson.name} ({number} of {len(wanted)}{left})")
        teach(lesson, chosen, out, say)
        if number < len(wanted) and all(lesson.so_far for lesson in lessons):
            show()


def seconds_left(lessons: Sequence[Lesson], out: Path) -> float | None:
    """What the steps that are left will take, at the mean cost of those of finished trainings; None before the first of these."""
    costs, steps = [], 0
    for lesson in lessons:
        folder = out / lesson.name
        if (folder / SUMMARY).is_file():
            costs.append(json.loads((folder / SUMMARY).read_text(encoding="utf-8"))["milliseconds_per_step_of_a_run"])
            continue
        lines = read(folder)[1] if (folder / LOG).is_file() else []
        made = max((line["step"] for line in lines), default=0)
        steps += (lesson.training.steps - made) * len(table(lesson.training, registry.task(lesson.training)))
    known = [cost for cost in costs if cost is not None]
    return steps * float(np.mean(known)) / 1000 if known else None


def stores_of(lessons: Sequence[Lesson], folder: Path) -> Mapping[str, xarray.Dataset]:
    """The stores of lessons by name; of one that is not finished, what it tells so far. Errors: a store that is not there, of a
    lesson that tells nothing before its end."""
    found = {}
    for lesson in lessons:
        path = results.store_path(folder, lesson.name)
        if path.exists() or lesson.so_far is None:
            found[lesson.name] = results.open_store(path)
        elif (data := lesson.so_far(folder / lesson.name)) is not None:
            found[lesson.name] = data
    return found


def teach(lesson: Lesson, chosen: Chosen, out: Path, say: Callable[[str], None]) -> None:
    """Train what a lesson wants into `out`/its name, or what is left of it, and store what is measured, unless it is there.

    Errors: a training or a store of other numbers; no permission, no room.
    """
    store, identity = results.store_path(out, lesson.name), description(lesson)
    if store.exists():
        refuse_other(store, identity)
        return
    say(f"{lesson.name}: training")
    found = train(lesson.training, out / lesson.name, say)
    say(f"{lesson.name}: measuring")
    study = {"experiment": chosen.experiment, "config": documents.plain(documents.fields(chosen.config))}
    write_whole(lesson.measure(found), store, identity, study)


def description(lesson: Lesson) -> dict[str, Any]:
    """Training, device and versions behind some numbers, as JSON."""
    versions = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "optax")}
    return {
        "calculation": lesson.name,
        "training": documents.plain(documents.fields(lesson.training)),
        "dtype": lesson.training.dtype,
        "devices": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        "versions": {"sinkjax": __version__} | versions,
    }
