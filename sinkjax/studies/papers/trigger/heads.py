"""trigger/heads: several layers and heads with a residual stream; how many heads sink, and which, for each seed."""

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
from sinkjax.config_files.checks import each_once
from sinkjax.errors import SinkjaxError
from sinkjax.report.figures import layers
from sinkjax.report.figures.grid import Column, Row, grids
from sinkjax.report.section import Drawing
from sinkjax.studies.papers.trigger import _figures as figures
from sinkjax.studies.papers.trigger import _lab as lab
from sinkjax.studies.papers.trigger._lab import LABELS, NORMALISERS, RELU, SOFTMAX, Edited, Judged, Model
from sinkjax.studies.papers.trigger._study import study

KINDS = {
    "share": "share of BOS",
    "weight": "weight on BOS",
    "part": "weight on BOS in whole rows",
    "written": "part of its output from BOS",
}
DRAWN = ("share", "weight")
MEASURES = lab.all_but(lab.ELSEWHERE_TRIGGER, lab.UNEVEN, lab.PART_ELSEWHERE)
FREE_OF_SCALE = ("part", "written")  # kinds by which heads of unnormalised attention are judged
MAJORITY = 0.5  # of the runs
NONE = 0.5  # heads that sink, mean over runs: fewer are as good as none
NEAR = 1  # head by which the mean number may differ from that of one example
PUBLISHED = {"2x2": 4, "4x4": 8}  # heads of softmax models that sink, read off one example each (Figs. 4, 6 and 7)
THRESHOLDS = [round(0.05 * step, 2) for step in range(1, 20)]


@dataclass(frozen=True, kw_only=True)
class Heads(Edited, Judged):
    """Several layers and heads with a residual stream: which heads sink (Figs. 4 to 8)."""

    seeds: int = 8
    rate: float = 1e-4
    sizes: tuple[str, ...] = ("2x2", "4x4")
    """layers x heads"""

    def __post_init__(self) -> None:
        super().__post_init__()
        each_once(self, "sizes")
        for size in self.sizes:
            if not re.fullmatch(r"[1-9]\d?x[1-9]\d?", size):
                raise SinkjaxError(f"sizes holds {size!r}, but a size is written layers x heads, as 2x2")


def shape(size: str) -> tuple[int, int]:
    """Layers and heads of a size."""
    depth, heads = map(int, size.split("x"))
    return depth, heads


def models(config: Heads) -> list[Model]:
    return [
        Model(f"{name}-{size}", f"{LABELS[name]} {size}", {"layers": depth, "heads": heads, "residual": True, **normaliser})
        for size in config.sizes
        for depth, heads in [shape(size)]
        for name, normaliser in NORMALISERS.items()
    ]


def counted(kind: str, config: Heads) -> str:
    """The name of a measure: how many heads sink."""
    return f"heads with a mean {KINDS[kind]} of at least {config.sinks:g}, other rows"


def counts(data: Any, kind: str, threshold: float) -> NDArray:
    """How many heads of each run reach a threshold; NaN for a run that diverged."""
    found = lab.on_bos(data, kind)
    return np.where(np.isfinite(found).all(axis=(1, 2)), (found >= threshold).sum(axis=(1, 2)), np.nan)


def rows(results: st.Results) -> list[st.Row]:
    """Rows of models, of runs, and of each layer and head."""
    labels = lab.labels_of(models(results.config))
    found = lab.rows(results, labels, MEASURES)
    for name, label in labels.items():
        for kind, measure in (("share", lab.BOS_SHARE), ("weight", lab.BOS), ("part", lab.PART), ("written", lab.WRITTEN)):
            many, said = counts(results[name], kind, results.config.sinks), counted(kind, results.config)
            found.append(st.Row(label, lab.MODELS, said, results.interval(many)))
            found += lab.run_rows(results[name], label, said, many)
            masses = lab.on_bos(results[name], kind)
            for layer, head in np.ndindex(*masses.shape[1:]):
                mass = results.interval(masses[:, layer, head])
                found.append(st.Row(f"{label}, layer {layer} head {head}", "heads", measure, mass))
    return found


def solved(results: st.Results, name: str) -> NDArray:
    """Which runs have solved the task, bool[run]; False for one that diverged."""
    return lab.values(results[name], lab.LEFT) < results.config.solved


def solving(name: str, label: str) -> st.Quantity:
    return st.number(f"{label}: runs that solved the task", lambda results: solved(results, name).sum())


def sinking(name: str, label: str, kind: str) -> st.Quantity:
    """Heads that sink in each run that solved the task, mean over these runs."""

    def of(results: st.Results) -> NDArray:
        return counts(results[name], kind, results.config.sinks)[solved(results, name)]

    return st.quantity(f"{label}: heads that sink by {KINDS[kind]}, runs that solved the task", of)


def with_a_sink(name: str, label: str) -> st.Quantity:
    """1 for each run that solved the task and has a head that sinks, 0 for one that solved it without."""

    def of(results: st.Results) -> NDArray:
        many = counts(results[name], "share", results.config.sinks)[solved(results, name)]
        return np.where(np.isfinite(many), many >= 1, np.nan)

    return st.quantity(f"{label}: share of the runs that solved the task in which one or more heads sink", of)


def claims(config: Heads, architecture: Any) -> Iterator[st.Claim]:
    """Verdicts are on the runs that solved the task, as the theorems are about models of small loss."""
    labels = lab.labels_of(models(config))
    for size in config.sizes:
        soft, relu = f"{SOFTMAX}-{size}", f"{RELU}-{size}"
        label, of_relu = labels[soft], labels[relu]
        good, idle = (st.at_least(solving(name, labels[name]), 1) for name in (soft, relu))
        many = sinking(soft, label, "share")
        yield st.Claim(
            f"Most softmax models of {size} heads that solve the task have one or more heads that sink.",
            st.above(with_a_sink(soft, label), MAJORITY),
            given=good,
            source="Ran-Milo 2026, Theorem 2",
            also=(many,),
        )
        if size in PUBLISHED:
            wanted, total = PUBLISHED[size], int(np.prod(shape(size)))
            yield st.Claim(
                f"In softmax models of {size} heads that solve the task about {wanted} of {total} heads sink on average.",
                st.within(many, wanted - NEAR, wanted + NEAR),
                given=good,
                source="Ran-Milo 2026, Figs. 4, 6, 7",
                paper=f"{wanted}, read off one example",
            )
        yield st.Claim(
            f"In ReLU models of {size} heads that solve the task fewer than {NONE:g} heads sink on average.",
            st.all_of(*(st.below(sinking(relu, of_relu, kind), NONE) for kind in FREE_OF_SCALE)),
            given=idle,
            source="Ran-Milo 2026, Figs. 5, 8",
            paper="0, one example",
            also=tuple(sinking(relu, of_relu, kind) for kind in DRAWN),
        )


def sinking_heads(results: st.Results) -> Drawing:
    """How many heads sink, against the threshold from which on one counts."""
    config = results.config
    curves = (  # a softmax row's weights are its shares
        ("softmax", SOFTMAX, "share"),
        (f"{LABELS[RELU]}, share of row", RELU, "share"),
        (f"{LABELS[RELU]}, raw weight", RELU, "weight"),
    )
    panels = []
    for size in config.sizes:
        lines = []
        for line, name, kind in curves:
            many = np.stack([counts(results[f"{name}-{size}"], kind, threshold) for threshold in THRESHOLDS])
            lines.append(layers.Line(line, THRESHOLDS, list(intervals.intervals(many, seed=config.seed))))
        total = np.prod(shape(size))
        panels.append(layers.Panel(f"{size}: {total} heads", "heads that sink", lines, top=float(total)))
    caption = (
        "Number of heads that sink, against the smallest mean mass on BOS, in the rows of all tokens but BOS and the trigger, for"
        f" which a head counts; the summary uses {config.sinks:g}. Bands: 95 % intervals over {config.seeds} runs."
    )
    figure = layers.lines([panels], "mean mass on BOS from which on a head sinks", legend_above=True)
    return Drawing("sinking-heads", figure, caption)


def by_head(results: st.Results, labels: dict[str, str]) -> Drawing:
    """The mass on BOS in each layer and head, for each seed."""
    masses = {kind: [lab.on_bos(results[name], kind) for name in labels] for kind in DRAWN}  # [run, layer, head] each
    names = [[f"{layer}.{head}" for layer, head in np.ndindex(*mass.shape[1:])] for mass in masses["share"]]
    columns = [Column(label, name, "layer.head") for label, name in zip(labels.values(), names, strict=True)]
    top = max(1.0, *(float(np.nanmax(mass)) for mass in masses["weight"]))
    flat = {kind: [mass.reshape(len(mass), -1).T for mass in several] for kind, several in masses.items()}
    panels = [Row(flat["share"], "share", limits=(0, 1)), Row(flat["weight"], "weight", limits=(0, top))]
    seeds = [str(seed) for seed in next(iter(results.trained.values()))["run"].values]
    caption = (
        "Mean mass on BOS in the rows of all tokens but BOS and the trigger, by layer, head and seed: as a share of the row,"
        " and as the weight itself. The two are equal for softmax."
    )
    return Drawing("bos-by-head", grids(columns, panels, seeds, "seed", height=2.1), caption)


def drawings(config: Heads, architecture: Any) -> Iterator[st.Figure]:
    labels = lab.labels_of(models(config))
    yield sinking_heads
    yield partial(by_head, labels=labels)
    for name, label in labels.items():
        yield partial(figures.head_maps, name=name, label=label)
    yield partial(figures.learning, labels=labels)
    yield partial(figures.edited_losses, labels=labels)


STUDY = study(
    models,
    name="trigger/heads",
    config=Heads,
    title="Several layers and heads: how many sink",
    question="""Ran-Milo 2026, Theorem 2, Figs. 4 to 8: with several layers and heads, some heads of a softmax model must sink on
        BOS, not all; ReLU attention needs none.""",
    rows=rows,
    claims=claims,
    findings=lambda config, architecture: [figures.noop(tuple(lab.labels_of(models(config))))],
    figures=drawings,
    notes=lambda config: [
        f"""A head sinks if the mean share of BOS in the rows of all tokens but BOS and the trigger is at least
        {config.sinks:g}. For softmax, weights are shares. A ReLU head sinks if this holds for its weight in units of a whole
        row, or for the part of its output that comes from BOS. Theorem 2 says that some head sinks, in some row; the rule asks
        for a head with this mean.""",
        f"A run has solved the task if its held-out loss is below {config.solved:g} % of that of a model that writes nothing.",
        "Heads are exchangeable, and which of them sink differs between seeds, so heads are counted for each seed.",
    ],
)
