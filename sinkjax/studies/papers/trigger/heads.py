"""trigger/heads: several layers and heads with a residual stream; how many heads sink, and which, seed by seed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax.studies as st
from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.summary import LEVEL
from sinkjax.config_files.checks import each_once
from sinkjax.errors import SinkjaxError
from sinkjax.report.section import Drawing
from sinkjax.studies.papers.trigger import _figures as figures
from sinkjax.studies.papers.trigger import _heads_figures as heads_figures
from sinkjax.studies.papers.trigger import _lab as lab
from sinkjax.studies.papers.trigger._lab import LABELS, NORMALISERS, OTHERS, RELU, SOFTMAX, Edited, Judged, Model
from sinkjax.studies.study import TrainingSpec

KINDS = {"share": "share of BOS", "weight": "weight on BOS"}
MEASURES = (
    lab.SOLVED,
    lab.STEPS,
    lab.LOSS,
    lab.LEFT,
    lab.ERROR,
    lab.BOS,
    lab.BOS_SHARE,
    lab.ELSEWHERE,
    lab.BOS_TRIGGER,
    lab.BOS_TRIGGER_SHARE,
)
PUBLISHED = {"2x2": 4, "4x4": 8}  # heads of softmax models that sink, read off one example each (Figs. 4, 6 and 7)


@dataclass(frozen=True, kw_only=True)
class Heads(Edited, Judged):
    """Several layers and heads with a residual stream: which heads sink (Figs. 4 to 8)."""

    seeds: int = 4
    """runs of each model, each with an initialisation and data of its own"""
    rate: float = 1e-4
    """of Adam's steps"""
    sizes: tuple[str, ...] = ("2x2", "4x4")
    """layers x heads"""

    def __post_init__(self) -> None:
        super().__post_init__()
        each_once(self, "sizes")
        for size in self.sizes:
            if not re.fullmatch(r"[1-9]\d?x[1-9]\d?", size):
                raise SinkjaxError(f"sizes holds {size!r}, but a size is written layers x heads, as 2x2")


def forms(config: Heads) -> tuple[Model, ...]:
    """The models, with what each differs in from the paper's single head."""
    found = []
    for size in config.sizes:
        layers, heads = map(int, size.split("x"))
        for name, normaliser in NORMALISERS.items():
            changes = {"layers": layers, "heads": heads, "residual": True, **normaliser}
            found.append(Model(f"{name}-{size}", f"{LABELS[name]} {size}", changes))
    return tuple(found)


def counted(kind: str, config: Heads) -> str:
    """The name of a measure: how many heads sink."""
    return f"heads with a mean {KINDS[kind]} of at least {config.sinks:g}, other rows"


def masses(data: Any, kind: str) -> NDArray:
    """Mean share or weight of BOS in the rows of other tokens, float [run, layer, head]."""
    return data[kind].sel(rows=OTHERS, target="bos").transpose("run", "layer", "head").values


def counts(data: Any, kind: str, threshold: float) -> NDArray:
    """How many heads of each run reach a threshold; NaN for a run that diverged."""
    found = masses(data, kind)
    many = (found >= threshold).sum(axis=(1, 2)).astype(float)
    return np.where(np.isfinite(found).all(axis=(1, 2)), many, np.nan)


def labels_of(config: Heads) -> dict[str, str]:
    return {form.name: form.label for form in forms(config)}


def rows(results: st.Results) -> list[st.Row]:
    """Rows of models, of runs, and of each layer and head."""
    config, data, labels = results.config, results.trained, labels_of(results.config)
    found = lab.rows(data, labels, MEASURES, config.seed)
    for name, label in labels.items():
        for kind in KINDS:
            many = counts(data[name], kind, config.sinks)
            found.append(st.Row(label, lab.MODELS, counted(kind, config), over_runs(config, many)))
            found += [
                st.Row(f"{label}, seed {seed}", lab.RUNS, counted(kind, config), lab.alone(count))
                for seed, count in zip(data[name]["run"].values, many, strict=True)
            ]
            for layer, head in np.ndindex(*masses(data[name], kind).shape[1:]):
                measured = lab.BOS_SHARE if kind == "share" else lab.BOS
                one = over_runs(config, masses(data[name], kind)[:, layer, head])
                found.append(st.Row(f"{label}, layer {layer} head {head}", "heads", measured, one))
    return found


def over_runs(config: Heads, values: NDArray) -> Interval:
    return intervals.interval(values, level=LEVEL, seed=config.seed)


def solved(config: Heads, data: Any) -> NDArray:
    """Which runs have solved the task, bool[run]; False for one that diverged."""
    return lab.values(data, lab.LEFT) < config.solved


def solving(name: str, label: str) -> st.Quantity:
    """How many runs of a model have solved the task."""
    return st.quantity(f"{label}: runs that solved the task", lambda results: solved(results.config, results[name]).sum())


def sinking(name: str, label: str, kind: str, runs: str = "solved") -> st.Quantity:
    """Heads that sink in each run that solved the task, or in all runs: their mean over runs."""

    def of(results: st.Results) -> Interval:
        config, data = results.config, results[name]
        many = counts(data, kind, config.sinks)
        return over_runs(config, many[solved(config, data)] if runs == "solved" else many)

    return st.quantity(
        f"{label}: heads that sink by {kind}, {'runs that solved the task' if runs == 'solved' else 'all runs'}", of
    )


def each_run(name: str, label: str, kind: str, words: str, holds: Any) -> st.Rule:
    """In every run that solved the task the number of sinking heads is as wanted."""

    def test(results: st.Results) -> tuple[bool, tuple[st.Estimate, ...]]:
        many = counts(results[name], kind, results.config.sinks)[solved(results.config, results[name])]
        return bool(holds(many).all()), (sinking(name, label, kind)(results), sinking(name, label, kind, "all")(results))

    return st.Rule(words, test)


def claims(config: Heads, architecture: Any) -> Iterator[st.Claim]:
    """Verdicts on the runs that solved the task, as the theorems speak of models of small loss."""
    for size in config.sizes:
        soft, relu = f"{SOFTMAX}-{size}", f"{RELU}-{size}"
        label, of_relu = labels_of(config)[soft], labels_of(config)[relu]
        total = int(np.prod([int(part) for part in size.split("x")]))
        good, idle = (st.at_least(solving(name, labels_of(config)[name]), 1) for name in (soft, relu))
        one = "one or more heads sink in each run that solved the task"
        yield st.Claim(
            f"A softmax model of {size} heads that solves the task has a head that sinks (Theorem 2).",
            each_run(soft, label, "share", one, lambda many: many >= 1),
            given=good,
        )
        if size in PUBLISHED:
            wanted = PUBLISHED[size]
            yield st.Claim(
                f"{wanted} of {total} heads of the softmax model of {size} heads sink (Figs. 4, 6, 7; read off one example).",
                holds_number(sinking(soft, label, "share"), wanted),
                given=good,
                paper=f"{wanted}, one seed",
            )
        yield st.Claim(
            f"In a ReLU model of {size} heads none sinks (Figs. 5, 8).",
            each_run(relu, of_relu, "weight", "no head sinks by weight in any run that solved the task", lambda many: many == 0),
            given=idle,
            also=(sinking(relu, of_relu, "share"), lab.measured(relu, lab.BOS, f"{of_relu}: {lab.BOS}")),
        )


def holds_number(quantity: st.Quantity, number: float) -> st.Rule:
    """The interval (or, without one, the mean) holds a number."""

    def test(results: st.Results) -> tuple[bool, tuple[st.Estimate, ...]]:
        found = quantity(results)
        low, high = (found.value.mean if end is None else end for end in (found.value.low, found.value.high))
        return low is not None and high is not None and low <= number <= high, (found,)

    return st.Rule(f"the interval of {quantity.name} holds {number:g}", test)


def findings(config: Heads, architecture: Any) -> Iterator[st.Quantity]:
    for name, label in labels_of(config).items():
        yield lab.done(name, label)
        yield lab.measured(name, lab.LEFT, f"{label}: {lab.LEFT}")
        yield from (sinking(name, label, kind, "all") for kind in KINDS)
    yield figures.noop(tuple(labels_of(config)))


def head_maps(results: st.Results, name: str, label: str) -> Drawing:
    return figures.head_maps(results.config, name, label, results[name])


def drawings(config: Heads, architecture: Any) -> Iterator[st.Figure]:
    labels = labels_of(config)
    yield lambda results: heads_figures.sinking(config, results.trained, labels)
    yield lambda results: heads_figures.by_head(config, results.trained, labels)
    for name, label in labels.items():
        yield partial(head_maps, name=name, label=label)
    yield lambda results: figures.learning(config, results.trained, labels)
    yield lambda results: figures.edited_losses(config, results.trained, labels)


def trainings(config: Any) -> list[TrainingSpec]:
    from sinkjax.studies.papers.trigger._measure import training_spec  # imports JAX

    return [training_spec(config, form, config.moves) for form in forms(config)]


STUDY = st.Study(
    name="trigger/heads",
    config=Heads,
    title="Several layers and heads: how many sink",
    question="""Ran-Milo 2026, Theorem 2, Figs. 4 to 8: with several layers and heads, some heads of a softmax model must sink on
        BOS, not all; ReLU attention needs none.""",
    trainings=trainings,
    rows=rows,
    claims=claims,
    findings=findings,
    featured=lambda results: tuple(labels_of(results.config).values()),
    figures=drawings,
    notes=lambda config, results: (
        *lab.notes(config),
        f"""A head sinks where the mean share of BOS in the rows of all tokens but BOS and the trigger is at least
        {config.sinks:g}. For softmax, weights are shares. For ReLU both are given: rows near 0 have shares too.""",
        f"A run has solved the task where its held-out loss is below {config.solved:g} % of that of an idle model.",
        "Heads are exchangeable, and which of them sinks differs between seeds, so heads are counted for each seed.",
    ),
    status=lambda results: lab.unfinished(results.trained, labels_of(results.config)),
    provenance=lambda results: lab.provenance(results.trained),
    subject="model",
    over="runs",
)
