"""Which experiments there are. This module imports no JAX: configs are light, recipes are imported when they run.

A new experiment is a config type, a recipe module (`experiments/base.py` says what that holds), a line here, a file in `configs`.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from pathlib import Path
from typing import Any, cast

from sinkjax.config_files import documents
from sinkjax.config_files.files import document
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.experiments.base import Course, Recipe

STORE_SUFFIX = ".zarr"

# experiment of a config that runs all those of a family (`experiments/suite.py`) -> the name of its type
SUITES = {"all": "All", "all-trained": "AllTrained"}

# experiment -> (module and name of its config type, module of its recipe)
EXPERIMENTS = {
    "background/compression": (
        "sinkjax.experiments.background.config",
        "Compression",
        "sinkjax.experiments.background.compression",
    ),
    "background/elsewhere": ("sinkjax.experiments.background.config", "Elsewhere", "sinkjax.experiments.background.elsewhere"),
    "background/massive": ("sinkjax.experiments.background.config", "Massive", "sinkjax.experiments.background.massive"),
    "background/patch": ("sinkjax.experiments.background.config", "Patch", "sinkjax.experiments.background.patch"),
    "background/quantise": ("sinkjax.experiments.background.config", "Quantise", "sinkjax.experiments.background.quantise"),
    "background/streaming": ("sinkjax.experiments.background.config", "Streaming", "sinkjax.experiments.background.streaming"),
    "gu/angles": ("sinkjax.experiments.gu.config", "Angles", "sinkjax.experiments.gu.angles"),
    "gu/norms": ("sinkjax.experiments.gu.config", "Norms", "sinkjax.experiments.gu.norms"),
    "gu/repeat-bound": ("sinkjax.experiments.gu.config", "RepeatBound", "sinkjax.experiments.gu.repeat_bound"),
    "gu/rope-positions": ("sinkjax.experiments.gu.config", "RopePositions", "sinkjax.experiments.gu.rope_positions"),
    "gu/sink-rate": ("sinkjax.experiments.gu.config", "SinkRate", "sinkjax.experiments.gu.sink_rate"),
    "kiya/after-softmax": ("sinkjax.experiments.kiya.config", "AfterSoftmax", "sinkjax.experiments.kiya.after_softmax"),
    "kiya/baseline": ("sinkjax.experiments.kiya.config", "Baseline", "sinkjax.experiments.kiya.baseline"),
    "kiya/bos-swap": ("sinkjax.experiments.kiya.config", "BosSwap", "sinkjax.experiments.kiya.bos_swap"),
    "kiya/embedding": ("sinkjax.experiments.kiya.config", "Embedding", "sinkjax.experiments.kiya.embedding"),
    "kiya/mask": ("sinkjax.experiments.kiya.config", "Mask", "sinkjax.experiments.kiya.mask"),
    "kiya/rope": ("sinkjax.experiments.kiya.config", "Rope", "sinkjax.experiments.kiya.rope"),
    "kiya/self": ("sinkjax.experiments.kiya.config", "SelfOnly", "sinkjax.experiments.kiya.self_only"),
    "li/amplify": ("sinkjax.experiments.li.config", "Amplify", "sinkjax.experiments.li.amplify"),
    "li/dominance": ("sinkjax.experiments.li.config", "Dominance", "sinkjax.experiments.li.dominance"),
    "li/isolate": ("sinkjax.experiments.li.config", "Isolate", "sinkjax.experiments.li.isolate"),
    "li/super-neurons": ("sinkjax.experiments.li.config", "SuperNeurons", "sinkjax.experiments.li.super_neurons"),
    "li/variance": ("sinkjax.experiments.li.config", "Variance", "sinkjax.experiments.li.variance"),
    "pretrain": ("sinkjax.experiments.pretrain.config", "Ablation", "sinkjax.experiments.pretrain.ablation"),
    "sweep": ("sinkjax.experiments.config", "Sweep", "sinkjax.experiments.sweep"),
    "trigger/assumptions": ("sinkjax.experiments.trigger.config", "Assumptions", "sinkjax.experiments.trigger.assumptions"),
    "trigger/bound": ("sinkjax.experiments.trigger.config", "Bound", "sinkjax.experiments.trigger.bounded"),
    "trigger/heads": ("sinkjax.experiments.trigger.config", "Heads", "sinkjax.experiments.trigger.heads"),
    "trigger/one-layer": ("sinkjax.experiments.trigger.config", "OneLayer", "sinkjax.experiments.trigger.one_layer"),
    "trigger/sizes": ("sinkjax.experiments.trigger.config", "Sizes", "sinkjax.experiments.trigger.sizes"),
}


@dataclasses.dataclass(frozen=True)
class Chosen:
    """An experiment and its config.

    folder: where the results of a former run lie, if it was chosen by them. store: one that `sinkjax.sweep` made from Python,
    whose page goes to `folder`.
    """

    experiment: str
    config: Any
    folder: Path | None = None
    store: Path | None = None

    @property
    def suite(self) -> bool:
        """Whether it is many experiments."""
        return self.experiment in SUITES


def config_type(experiment: Any) -> type:
    """The dataclass of an experiment's config. Errors: an unknown experiment."""
    if isinstance(experiment, str) and experiment in SUITES:
        return cast(type, getattr(importlib.import_module("sinkjax.experiments.config"), SUITES[experiment]))
    module, name, _ = _entry(experiment)
    return cast(type, getattr(importlib.import_module(module), name))


def trains(experiment: str) -> bool:
    """Whether an experiment, or a suite, trains models of its own instead of taking one. Errors: an unknown experiment."""
    shared = importlib.import_module("sinkjax.experiments.config")
    return issubclass(config_type(experiment), (shared.Trains, shared.AllTrained))


def recipe(experiment: str) -> Recipe:
    """The module that runs an experiment on a model. Errors: an unknown experiment."""
    return cast(Recipe, importlib.import_module(_entry(experiment)[2]))


def course(experiment: str) -> Course:
    """The module that runs an experiment which trains its models. Errors: an unknown experiment."""
    return cast(Course, importlib.import_module(_entry(experiment)[2]))


def choose(name: str) -> Chosen:
    """The config behind what a user names: a shipped config ("kiya/mask"), a YAML file, or the results of a former run.

    Results are an output folder, its config.yaml, or a store. Errors: nothing of that name; a document that is not a config.
    """
    path = Path(name).expanduser()
    if path.suffix == STORE_SUFFIX and path.is_dir():
        return _of_store(path)
    text, what, folder = document(name)
    return read(text, what, folder)


def _of_store(path: Path) -> Chosen:
    """The run that a store belongs to, by its attributes; a store made from Python is a sweep with the summary's defaults."""
    try:
        attributes = json.loads((path / ".zattrs").read_text(encoding="utf-8"))
        study = attributes.get("study")
    except (OSError, ValueError, AttributeError):
        raise SinkjaxError(f"{path} is not the store of a sweep") from None
    if study is None:
        return Chosen("sweep", config_type("sweep")(), path.with_name(f"{path.stem}-report"), path)
    return read(json.dumps({"experiment": study["experiment"], **study["config"]}), str(path), path.parent)


def read(text: str, what: str, folder: Path | None = None) -> Chosen:
    """A YAML document as an experiment's config. Errors: no `experiment`, an unknown one, or fields that do not fit it."""
    values = documents.parse(text, what)
    if "training" in values:
        raise SinkjaxError(f"{what} is a training; use: sinkjax train {what}")
    if "experiment" not in values:
        raise SinkjaxError(f"{what} lacks the key 'experiment', one of {', '.join(EXPERIMENTS)}")
    experiment = values.pop("experiment")
    try:
        cls = config_type(experiment)
    except SinkjaxError as error:
        raise SinkjaxError(f"{what}: {error}") from None
    return Chosen(experiment, documents.build(cls, values, what), folder)


def _entry(experiment: Any) -> tuple[str, str, str]:
    if not isinstance(experiment, str) or experiment not in EXPERIMENTS:
        raise unknown("experiment", experiment, EXPERIMENTS)
    return EXPERIMENTS[experiment]
