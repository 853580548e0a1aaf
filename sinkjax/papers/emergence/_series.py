"""The edits of `emergence/causal` on every model that a training kept, and their measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
import xarray
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import metrics
from sinkjax.checkpoints.series import in_folder
from sinkjax.config_files import documents
from sinkjax.config_files.checks import at_least, share
from sinkjax.explain.head_types import head_types
from sinkjax.papers.pretrain._sizes import SIZES
from sinkjax.runtime.progress import silent
from sinkjax.study import NO_EDIT, Trains
from sinkjax.tasks.language_model.config import Pretrain
from sinkjax.tasks.language_model.task import PretrainTask
from sinkjax.train.runs import table
from sinkjax.train.trained import Trained

MASKED, DROPPED = "key 0 masked", "MLP of block 0 dropped at token 0"
SWEEPS = "sweeps"  # in the folder of the training: a store for each checkpoint
PROBE = sinkjax.Probe.of("attention_received", "resid_max", "resid_median", "resid_first_cosine", "value_norm", "nll")
DRAWS = 500  # sets of random targets that a head's score is compared with
PERIOD = 32  # random tokens that are read twice, where the context allows it
EDITS = (sinkjax.compose().named(NO_EDIT), sinkjax.mask_key(0).named(MASKED), sinkjax.drop_mlp(0, layers=0).named(DROPPED))


@dataclass(frozen=True, kw_only=True)
class Kept(Trains):
    """A training from scratch, and what is measured on the models that it keeps."""

    seeds: int = 4
    """runs, each with an initialisation and an order of the data of its own"""
    size: Literal["mini", "340k", "60m", "1b", "152m"] = "mini"
    """size of model and training, as for the studies of pretraining"""
    steps: int | None = None
    """training steps of a run; if none, the size's"""
    kept: int | tuple[int, ...] = 24
    """models of each run that are kept and measured: a list of steps, or how many, log-spaced"""
    text: str | None = None
    """training text: "packaged", "chats", a file, a folder or the hub id of a data set; if none, the size's"""
    prompts: int = 64
    """held-out blocks that are measured, at most as many as the training holds out"""
    length: int = 64
    """tokens of each that are measured, starting with its first"""
    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink (Gu et al. 2025)"""
    changes: tyro.conf.Suppress[Mapping[str, object]] = field(default_factory=dict)
    """fields of the training that override the size's"""

    def check(self) -> None:
        at_least(self, steps=1, prompts=1, length=3)
        share(self, "eps")


def training(config: Kept) -> Pretrain:
    """The one training of the study. Errors: fields that do not fit."""
    stated = {name: getattr(config, name) for name in ("seed", "seeds", "dtype", "text", "steps")} | {"checkpoints": config.kept}
    size = SIZES[config.size]
    values = {**size.fields, **{name: value for name, value in stated.items() if value is not None}, **config.changes}
    return documents.build(Pretrain, values, config.size)


def measure(trained: Trained, config: Kept) -> xarray.Dataset:
    """The effects of the edits on every kept model of every run, on the first tokens of held-out blocks (`of_folder`)."""
    return of_folder(trained.folder, config)


def of_folder(folder: Path, config: Kept) -> xarray.Dataset:
    """Collect the measurements of existing models, also of an unfinished training: float[run, step, edit], NaN if missing.

    sink_0, sink_1: per cent of all heads that sink on keys 0 and 1. attention: on key 0, mean over heads. ratio: max |h| over
    median |h| of token 0, largest over depths. value_ratio: norm of token 0's value over the mean of the others', smallest over
    layers, mean over key-value heads. secondary: per cent of later tokens that are aligned with the first, mean over layers.
    loss: nats a token. All are means over prompts. Coordinates: run (the seeds), step, edit.

    Of types of heads, float[type, run, step]: strongest, the largest attention of any head to the type's target minus its
    mean attention to random ones; heads, per cent of all that attend to it more than to any set of random targets.
    """
    task = PretrainTask(training(config))
    source = task.open(silent)
    tokens = np.asarray(source.held_out()["tokens"])[: config.prompts, : config.length]
    text = {"text": dict(source.card)}
    swept = sinkjax.sweep_models(folder, tokens, EDITS, PROBE, out=folder / SWEEPS, dtype=config.dtype, attributes=text)
    seeds = [run.seed for run in table(task.config, task)]
    steps = sorted({member.step for member in in_folder(folder) if member.step is not None})
    found = {name: np.full((len(seeds), len(steps), len(EDITS)), np.nan) for name in MEASURED}
    for row in range(swept.sizes["checkpoint"]):
        one = swept.isel(checkpoint=row)
        place = int(one["run"]), steps.index(int(one["step"]))
        for name, of in MEASURED.items():
            found[name][place] = of(one, config).mean(axis=-1)
    axes = {"run": seeds, "step": steps, "edit": [edit.label for edit in EDITS]}
    variables: dict[str, tuple[tuple[str, ...], NDArray[Any]]] = {name: ((*axes,), values) for name, values in found.items()}
    period = min(PERIOD, (task.config.context - 1) // 2)
    types = head_types(folder, period=period, draws=DRAWS, seed=config.seed, dtype=config.dtype)
    above = (types["score"] - types["null"]).max(("layer", "head"))
    beyond = 100 * (types["p"] * (1 + DRAWS) < 1.5).mean(("layer", "head"))  # only the score itself is that large
    for name, of_types in (("strongest", above), ("heads", beyond)):
        grid = np.full((types.sizes["type"], len(seeds), len(steps)), np.nan)
        for number, (run, step) in enumerate(zip(types["run"].values, types["step"].values, strict=True)):
            grid[:, run, steps.index(int(step))] = of_types.isel(checkpoint=number)
        variables[name] = (("type", "run", "step"), grid)
    return xarray.Dataset(variables, axes | {"type": types["type"].values})


def value_ratio(data: xarray.Dataset, config: Kept) -> NDArray[Any]:
    """Smallest norm of token 0's value over the mean of the others', over layers: float[edit, prompt]."""
    norms = data["value_norm"].transpose("edit", "prompt", "layer", "kv_head", "position").values
    return np.asarray((norms[..., 0] / norms[..., 1:].mean(axis=-1)).mean(axis=-1).min(axis=-1))


# name of a variable -> float[edit, prompt] of one checkpoint's sweep
MEASURED: dict[str, Callable[[xarray.Dataset, Kept], NDArray[Any]]] = {
    "sink_0": lambda data, config: 100 * metrics.sink_rate(data, 0, config.eps),
    "sink_1": lambda data, config: 100 * metrics.sink_rate(data, 1, config.eps),
    "attention": lambda data, config: data["attention_received"].sel(key=0).mean(("layer", "head")).values,
    "ratio": lambda data, config: metrics.top1_over_median(data, 0).max(axis=-1),
    "value_ratio": value_ratio,
    "secondary": lambda data, config: 100 * metrics.secondary_sinks(data).share.mean(axis=-1),
    "loss": lambda data, config: metrics.mean_nll(data),
}
