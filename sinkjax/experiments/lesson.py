"""Carry out a lesson: train its models, and store what is measured on them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from sinkjax import __version__
from sinkjax.experiments import documents, results
from sinkjax.experiments.base import Lesson
from sinkjax.experiments.calculation import write_whole
from sinkjax.experiments.registry import Chosen
from sinkjax.sweeps.store import refuse_other
from sinkjax.train import train


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
