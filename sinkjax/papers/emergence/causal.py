"""emergence/causal: edits of a sink and of what feeds it, on a model's checkpoints: when does the sink start to matter?"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import tyro
import xarray
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import metrics
from sinkjax.analysis.summary import Column, Row, column_rows, own_rows
from sinkjax.checkpoints.series import in_folder
from sinkjax.config_files import documents
from sinkjax.config_files.checks import at_least, share
from sinkjax.explain.head_types import head_types
from sinkjax.papers.pretrain._task import SIZES
from sinkjax.report.figures.dots import Mark, points
from sinkjax.report.figures.lines import Line, Panel, lines
from sinkjax.report.figures.style import MOST_COLUMNS
from sinkjax.report.section import Drawing
from sinkjax.runtime.progress import silent
from sinkjax.study import NO_EDIT, Lab, Numbers, TrainingSpec, Trains
from sinkjax.tasks.language_model.config import Pretrain
from sinkjax.tasks.language_model.task import PretrainTask
from sinkjax.train.runs import table
from sinkjax.train.trained import Trained


@dataclass(frozen=True, kw_only=True)
class Settings(Trains):
    """A training from scratch, and what is measured on the models that it keeps."""

    seed: int = 3
    seeds: int = 4
    """runs, each with an initialisation and an order of the data of its own"""
    size: Literal["mini", "340k", "60m", "1b", "152m"] = "mini"
    """size of model and training, as for the studies of pretraining"""
    steps: int | None = 3000
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


def study(lab: Lab, s: Settings) -> None:
    """What hiding the first token does while a model learns."""
    stated = training(s)
    lab.train(ROW, TrainingSpec(ROW, stated, PretrainTask(stated).architecture, partial(measure, s)))
    lab.describe("order", "ours", order)
    lab.describe("onsets", "ours", onsets)
    lab.describe("steps", "ours", over_steps)
    lab.draw(timeline)
    lab.draw(checkpoints)


# Onsets along the checkpoints of a training, the order of events, and figures over steps.


ROW = "softmax"  # the training, its folder and its store


def value_ratio(data: xarray.Dataset) -> NDArray[Any]:
    """Smallest norm of token 0's value over the mean of the others', over layers: float[edit, prompt]."""
    norms = data["value_norm"].transpose("edit", "prompt", "layer", "kv_head", "position").values
    return np.asarray((norms[..., 0] / norms[..., 1:].mean(axis=-1)).mean(axis=-1).min(axis=-1))


# Variable of the store -> its description, with the unit, and float[edit, prompt] of one checkpoint's sweep and `eps`.
MEASURES: dict[str, tuple[str, Callable[[xarray.Dataset, float], NDArray[Any]]]] = {
    "sink_0": ("heads that sink on key 0 (%)", lambda data, eps: 100 * metrics.sink_rate(data, 0, eps)),
    "sink_1": ("heads that sink on key 1 (%)", lambda data, eps: 100 * metrics.sink_rate(data, 1, eps)),
    "attention": ("attention to key 0", lambda data, eps: data["attention_received"].sel(key=0).mean(("layer", "head")).values),
    "ratio": ("largest |h| of token 0 over its median", lambda data, eps: metrics.top1_over_median(data, 0).max(axis=-1)),
    "value_ratio": ("norm of token 0's value over others'", lambda data, eps: value_ratio(data)),
    "secondary": (
        "later tokens aligned with the first (%)",
        lambda data, eps: 100 * metrics.secondary_sinks(data).share.mean(axis=-1),
    ),
    "loss": ("loss (nats per token)", lambda data, eps: metrics.mean_nll(data)),
}
TYPES = {"first": "the first token", "previous": "the previous token", "induction": "what followed the same token before"}
HEADS = "heads that attend to {kind} beyond all random targets (%)"
STRONGEST = "most attention of a head to {kind}, above random targets"
# Bounds of the onsets: % of heads, times the median, nats per token. Models of before a sink lose 0.02 to 0.07 nats without key 0
# (steps 30 to 456 of these runs, seen before COST was set); what comes later had not been seen.
FORMED, MASSIVE, COST = 1.0, 100.0, 0.1


def of(read: Numbers, name: str, edit: str = NO_EDIT) -> NDArray[Any]:
    """A variable under an edit: float[run, step]."""
    return np.asarray(read[ROW][name].sel(edit=edit).transpose("run", "step").values)


def steps(read: Numbers) -> list[int]:
    """The steps whose models were kept."""
    return [int(step) for step in read[ROW]["step"].values]


def over_steps(read: Numbers) -> list[Row]:
    """Every measure of every checkpoint under every edit; effects are paired by seed, against no edit at the same step."""
    rows, seed, unedited = list[Row](), read.settings.seed, [f"step {step}" for step in steps(read)]
    for name, (measure, _) in MEASURES.items():
        base = of(read, name).T  # [step, run]
        for edit in (NO_EDIT, MASKED, DROPPED):
            labels = [(step if edit == NO_EDIT else f"{step}, {edit}", edit) for step in unedited]
            rows += column_rows(labels, measure, Column(of(read, name, edit).T, base), seed)
    for kind, (name, measure) in itertools.product(read[ROW]["type"].values, (("heads", HEADS), ("strongest", STRONGEST))):
        values = read[ROW][name].sel(type=kind).transpose("step", "run").values
        rows += own_rows(unedited, NO_EDIT, measure.format(kind=TYPES[kind]), values, seed)
    return rows


def reached(read: Numbers) -> dict[str, NDArray[Any]]:
    """Return whether each event of a training has happened: bool[run, step]."""
    sinks, loss, dropped = of(read, "sink_0"), of(read, "loss"), "dropping the MLP of block 0 at token 0"
    moved, halved = of(read, "sink_1", MASKED) - of(read, "sink_1"), of(read, "sink_0", DROPPED) < sinks / 2
    return {
        f"more than {FORMED:g} % of heads sink on key 0": sinks > FORMED,
        f"the largest |h| of token 0 is more than {MASSIVE:g} times its median": of(read, "ratio") > MASSIVE,
        f"masking key 0 costs more than {COST:g} nats per token": of(read, "loss", MASKED) - loss > COST,
        f"masking key 0 makes more than {FORMED:g} % of heads sink on key 1": moved > FORMED,
        f"{dropped} halves the heads that sink on key 0, of more than {FORMED:g} %": (sinks > FORMED) & halved,
        f"{dropped} costs more than {COST:g} nats per token": of(read, "loss", DROPPED) - loss > COST,
    }


def onsets(read: Numbers) -> list[Row]:
    """The first kept step of each event, mean over the runs that have one, and the number of these."""
    rows, first = list[Row](), f"first kept step (mean over runs that have one, of {read[ROW].sizes['run']})"
    for event, there in reached(read).items():
        has = there.any(axis=1)
        at = np.where(has, np.array(steps(read))[there.argmax(axis=1)], np.nan) if has.any() else np.array([np.nan])
        rows += [Row(event, "onsets", first, read.interval(at))]
        rows += [Row(event, "onsets", "runs that have one (%)", read.interval(100.0 * has))]
    return rows


def halfway(at: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    """Return the first step after which a run stays above the middle of its first and last value, inclusive, or NaN: float[run].

    at: int[point], the steps in order. values: float[run, point].
    """
    below = ~(values > (values[:, :1] + values[:, -1:]) / 2)
    following = np.where(below.any(axis=1), values.shape[1] - below[:, ::-1].argmax(axis=1), 0)  # the point after the last below
    return np.append(at, np.nan)[following]


def in_order(at: NDArray[Any], rising: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """`halfway` of each quantity, sorted by its mean; quantities that do not rise in every run come last."""
    found = {name: halfway(at, values) for name, values in rising.items()}
    return dict(sorted(found.items(), key=lambda item: np.nan_to_num(item[1], nan=np.inf).mean()))


def events(read: Numbers, logs: bool = False) -> dict[str, NDArray[Any]]:
    """Return the first kept step after which each quantity stays beyond the middle of its change, inclusive: float[run].

    logs: whether the middle is in logarithms, earlier for what rises and later for what falls; positive quantities only.
    """
    scale: Callable[[NDArray[Any]], NDArray[Any]] = np.log if logs else np.array
    rising = {  # negative if they fall: float[run, step]
        "held-out loss": -scale(of(read, "loss")),
        "norm of the first token's value": -scale(of(read, "value_ratio")),
        "largest activation over the median": scale(of(read, "ratio")),
        "attention to the first token": scale(of(read, "attention")),
    }
    if not logs:
        strongest = read[ROW]["strongest"].transpose("type", "run", "step")
        rising["later tokens aligned with the first"] = of(read, "secondary")
        rising |= {f"a head that attends to {kind}": strongest.sel(type=name).values for name, kind in TYPES.items()}
    return in_order(np.array(steps(read)), rising)


def order(read: Numbers) -> list[Row]:
    """The step of each event, and how much later it is than the one before, paired by seed, on both scales."""
    rows = []
    for logs, scale in ((False, ""), (True, ", in logarithms")):
        before = None
        for name, at in events(read, logs).items():
            rows.append(Row(name, "order", f"step from which half of the change is made{scale}", read.interval(at)))
            if before is not None:
                rows.append(Row(name, "order", f"steps after the line above{scale}", read.interval(at - before)))
            before = at
    return rows


def timeline(read: Numbers) -> Drawing:
    """The events on two lines of time, by the middle of each change and of its logarithm."""
    marks = {
        title: [Mark(name, read.interval(at), "mean over seeds") for name, at in events(read, logs).items()]
        for title, logs in (("halfway", False), ("halfway in logarithms", True))
    }
    caption = f"""The first kept step at and after which each quantity is beyond the middle of its first and last value, or of
        their logarithms: means over the seeds with such a step, of {read[ROW].sizes["run"]}; bars: 95% intervals."""
    return Drawing("timeline", points(marks, "training step"), caption)


def checkpoints(read: Numbers) -> Drawing:
    """The sinks, what feeds them and the loss over steps, without an edit and with each."""
    x, names = list(steps(read)), (NO_EDIT, MASKED, DROPPED)
    panels = []
    for name in ("sink_0", "sink_1", "ratio", "value_ratio", "loss"):
        values = [of(read, name, edit) for edit in names]
        limits = (float(np.min(values)), float(np.max(values))) if name == "loss" else None  # no 0, beside which changes vanish
        shown = [Line(edit, x, [*map(read.interval, of_edit.T)]) for edit, of_edit in zip(names, values, strict=True)]
        panels.append(Panel("", textwrap.fill(MEASURES[name][0], LABEL), shown, log=name == "ratio", limits=limits))
    grid = [panels[start : start + MOST_COLUMNS] for start in range(0, len(panels), MOST_COLUMNS)]
    caption = f"""Models of {read[ROW].sizes["run"]} seeds at {len(x)} steps of their training, without an edit and with each.
        A head cannot sink on a masked key. Lines: means over seeds; bands: 95% intervals."""
    return Drawing("over-steps", lines(grid, "step", "above", share="none", courses=True, height=2.5), caption)


# The edits of `emergence/causal` on every model that a training kept, and their measurements.


LABEL = 24  # characters in a line of a y label
MASKED, DROPPED = "key 0 masked", "MLP of block 0 dropped at token 0"
SWEEPS = "sweeps"  # in the folder of the training: a store for each checkpoint
PROBE = sinkjax.Probe.of("attention_received", "resid_max", "resid_median", "resid_first_cosine", "value_norm", "nll")
DRAWS = 500  # sets of random targets that a head's score is compared with
PERIOD = 32  # random tokens that are read twice, where the context allows it
EDITS = (sinkjax.compose().named(NO_EDIT), sinkjax.mask_key(0).named(MASKED), sinkjax.drop_mlp(0, layers=0).named(DROPPED))


def training(config: Settings) -> Pretrain:
    """The one training of the study. Errors: fields that do not fit."""
    stated = {name: getattr(config, name) for name in ("seed", "seeds", "dtype", "text", "steps")} | {"checkpoints": config.kept}
    size = SIZES[config.size]
    values = {**size.fields, **{name: value for name, value in stated.items() if value is not None}, **config.changes}
    return documents.build(Pretrain, values, config.size)


def measure(config: Settings, trained: Trained) -> xarray.Dataset:
    """The effects of the edits on every kept model, on the first tokens of held-out blocks: float[run, step, edit], or NaN.

    sink_0, sink_1: per cent of all heads that sink on keys 0 and 1. attention: on key 0, mean over heads. ratio: max |h| over
    median |h| of token 0, largest over depths. value_ratio: norm of token 0's value over the mean of the others', smallest over
    layers, mean over key-value heads. secondary: per cent of later tokens that are aligned with the first, mean over layers.
    loss: nats a token. All are means over prompts. Coordinates: run (the seeds), step, edit.

    Of types of heads, float[type, run, step]: strongest, the largest attention of any head to the type's target minus its
    mean attention to random ones; heads, per cent of all that attend to it more than to any set of random targets.
    """
    folder, task = trained.folder, PretrainTask(training(config))
    source = task.open(silent)
    tokens = np.asarray(source.held_out()["tokens"])[: config.prompts, : config.length]
    text = {"text": dict(source.card)}
    swept = sinkjax.sweep_models(folder, tokens, EDITS, PROBE, out=folder / SWEEPS, dtype=config.dtype, attributes=text)
    seeds = [run.seed for run in table(task.config, task)]
    steps = sorted({member.step for member in in_folder(folder) if member.step is not None})
    period = min(PERIOD, (task.config.context - 1) // 2)
    types = head_types(folder, period=period, draws=DRAWS, seed=config.seed, dtype=config.dtype)

    def grid(data: xarray.Dataset, of_checkpoints: Any) -> NDArray[Any]:
        """Put values of checkpoints in the places of their runs and steps: [..., checkpoint] -> [run, step, ...]."""
        values = np.stack(of_checkpoints)
        found = np.full((len(seeds), len(steps), *values.shape[1:]), np.nan)
        found[data["run"].values, [steps.index(step) for step in data["step"].values]] = values
        return found

    each = [swept.isel(checkpoint=number) for number in range(swept.sizes["checkpoint"])]
    variables: dict[str, Any] = {
        name: (("run", "step", "edit"), grid(swept, [of(one, config.eps).mean(axis=-1) for one in each]))
        for name, (_, of) in MEASURES.items()
    }
    above = (types["score"] - types["null"]).max(("layer", "head"))
    beyond = 100 * (types["p"] * (1 + DRAWS) < 1.5).mean(("layer", "head"))  # only the score itself is that large
    for name, of_types in (("strongest", above), ("heads", beyond)):
        by_type = np.moveaxis(grid(types, of_types.transpose("checkpoint", "type").values), -1, 0)
        variables[name] = (("type", "run", "step"), by_type)
    axes = {"run": seeds, "step": steps, "edit": [edit.label for edit in EDITS]}
    return xarray.Dataset(variables, axes | {"type": types["type"].values})
