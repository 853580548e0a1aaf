"""trigger/heads: several layers and heads with a residual stream; how many heads sink, and which, seed by seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.base import NO_EDIT, Claim, Drawing, Lesson, Section
from sinkjax.experiments.summary import LEVEL, Row
from sinkjax.experiments.trigger import figures, heads_figures, measure, models, summary
from sinkjax.experiments.trigger.config import Heads
from sinkjax.experiments.trigger.measure import OTHERS
from sinkjax.experiments.trigger.models import NORMALISERS, RELU, SOFTMAX, WORDS, Model
from sinkjax.experiments.trigger.words import count_of, notes, provenance, small
from sinkjax.experiments.words import verdict
from sinkjax.report.table import interval

if TYPE_CHECKING:
    import xarray

KINDS = {"share": "share of BOS", "weight": "weight on BOS"}
MEASURES = (
    summary.SOLVED,
    summary.STEPS,
    summary.LOSS,
    summary.LEFT,
    summary.ERROR,
    summary.BOS,
    summary.BOS_SHARE,
    summary.ELSEWHERE,
    summary.BOS_TRIGGER,
    summary.BOS_TRIGGER_SHARE,
)
PUBLISHED = {"2x2": 4, "4x4": 8}  # heads of softmax models that sink, read off one example each (Figs. 4, 6 and 7)
CLAIM = (
    "Ran-Milo 2026, Theorem 2, Figs. 4 to 8: with several layers and heads, some heads of a softmax model must sink on BOS, not"
    " all; ReLU attention needs none."
)


def lessons(config: Heads) -> tuple[Lesson, ...]:
    """Softmax and ReLU of each size."""
    return tuple(models.lesson(config, form, config.moves) for form in forms(config))


def forms(config: Heads) -> tuple[Model, ...]:
    """The models, with what each differs in from the paper's single head."""
    found = []
    for size in config.sizes:
        layers, heads = map(int, size.split("x"))
        for name, normaliser in NORMALISERS.items():
            changes = {"layers": layers, "heads": heads, "residual": True, **normaliser}
            found.append(Model(f"{name}-{size}", f"{WORDS[name]} {size}", changes))
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


def section(config: Heads, stores: Mapping[str, xarray.Dataset]) -> Section:
    """How many heads sink in each model, which, and how the models solve the task."""
    data = {name: store.load() for name, store in stores.items()}
    labels = {form.name: form.label for form in forms(config)}
    return Section(
        experiment="trigger/heads",
        title="Several layers and heads: how many sink",
        claim=CLAIM,
        findings=(*_findings(config, data, labels), *summary.exceptions(data, labels)),
        rows=tuple(_rows(config, data, labels)),
        featured=tuple(labels.values()),
        drawings=(
            heads_figures.sinking(config, data, labels),
            heads_figures.by_head(config, data, labels),
            *_maps(config, data, labels),
            figures.learning(config, data, labels),
            figures.edited_losses(config, data, labels),
        ),
        notes=(
            *notes(config),
            f"A head sinks where the mean share of BOS in the rows of all tokens but BOS and the trigger is at least"
            f" {config.sinks:g}. For softmax, weights are shares. For ReLU both are given: rows near 0 have shares too.",
            f"A run has solved the task where its held-out loss is below {config.solved:g} % of that of an idle model.",
            "Heads are exchangeable, and which of them sinks differs between seeds, so heads are counted for each seed.",
        ),
        provenance=provenance(data),
        claims=_claims(config, data),
        subject="model",
        over="runs",
    )


def _maps(config: Heads, data: Mapping[str, Any], labels: Mapping[str, str]) -> list[Drawing]:
    return [figures.head_maps(config, name, label, data[name]) for name, label in labels.items()]


def _rows(config: Heads, data: Mapping[str, Any], labels: Mapping[str, str]) -> list[Row]:
    """Rows of models, of runs, and of each layer and head."""
    found = summary.rows(data, labels, MEASURES, config.seed)
    for name, label in labels.items():
        for kind in KINDS:
            many = counts(data[name], kind, config.sinks)
            found.append(Row(label, summary.MODELS, counted(kind, config), _over_runs(config, many)))
            found += [
                Row(f"{label}, seed {seed}", summary.RUNS, counted(kind, config), summary.alone(count))
                for seed, count in zip(data[name]["run"].values, many, strict=True)
            ]
            for layer, head in np.ndindex(*masses(data[name], kind).shape[1:]):
                measured = summary.BOS_SHARE if kind == "share" else summary.BOS
                one = _over_runs(config, masses(data[name], kind)[:, layer, head])
                found.append(Row(f"{label}, layer {layer} head {head}", "heads", measured, one))
    return found


def _over_runs(config: Heads, values: NDArray) -> Interval:
    return intervals.interval(values, level=LEVEL, seed=config.seed)


def _findings(config: Heads, data: Mapping[str, Any], labels: Mapping[str, str]) -> tuple[str, ...]:
    said = []
    for name, label in labels.items():
        L, H = data[name].sizes["layer"], data[name].sizes["head"]
        by_seed = ", ".join(
            f"seed {seed}: {_many(count)} ({_which(one) if one.any() else 'none'})"
            for seed, count, one in zip(
                data[name]["run"].values,
                counts(data[name], "share", config.sinks),
                masses(data[name], "share") >= config.sinks,
                strict=True,
            )
        )
        raw = _over_runs(config, counts(data[name], "weight", config.sinks))
        said.append(
            f"{label}: {interval(_over_runs(config, counts(data[name], 'share', config.sinks)))} of {L * H} heads sink by share"
            f" and {interval(raw)} by weight. {count_of(data[name])} met the stopping rule; held-out loss"
            f" {interval(summary.interval(data[name], summary.LEFT, config.seed))} % of that of an idle model."
        )
        said.append(f"{label}, sinking heads by share, as layer.head: {by_seed}.")
    return (*said, *_edited(config, data, labels), figures.identity(data))


def _edited(config: Heads, data: Mapping[str, Any], labels: Mapping[str, str]) -> list[str]:
    """What masking BOS and taking its weight away, in all layers and heads, do to the loss of the other rows."""
    said = []
    for name, label in labels.items():
        losses = {edit: small(loss) for edit, loss in figures.edits_summary(config, data[name], OTHERS).items()}
        said.append(
            f"{label}, in all layers and heads: the loss of the other rows is {losses[NO_EDIT]} without an edit,"
            f" {losses[measure.MASKED]} with BOS's key masked, {losses[measure.WEIGHT_OFF]} with its weight removed,"
            f" {losses[figures.OTHER_KEYS]} with another key masked."
        )
    return said


def _many(count: float) -> str:
    return "diverged" if np.isnan(count) else str(int(count))


def _which(sinking: NDArray) -> str:
    """Layer and head of those that sink, both from 0."""
    return " ".join(f"{layer}.{head}" for layer, head in np.argwhere(sinking))


def _claims(config: Heads, data: Mapping[str, Any]) -> tuple[Claim, ...]:
    """Verdicts on the runs that solved the task, as the theorems speak of models of small loss."""
    found = []
    for size in config.sizes:
        soft, relu = data[f"{SOFTMAX}-{size}"], data[f"{RELU}-{size}"]
        good, idle = _solved(config, soft), _solved(config, relu)
        many, raw, shares = (
            counts(soft, "share", config.sinks),
            counts(relu, "weight", config.sinks),
            counts(relu, "share", config.sinks),
        )
        total = soft.sizes["layer"] * soft.sizes["head"]
        found.append(
            Claim(
                f"A softmax model of {size} heads that solves the task has a head that sinks (Theorem 2).",
                verdict(bool((many[good] >= 1).all()), applies=bool(good.any())),
                f"Sinking heads of {total}, by seed: {_listed(many, good)}. Rule: one or more in each run that solved the task.",
            )
        )
        if size in PUBLISHED:
            count, wanted = _over_runs(config, many[good]), PUBLISHED[size]
            low, high = (count.mean if end is None else end for end in (count.low, count.high))
            found.append(
                Claim(
                    f"{wanted} of {total} heads of the softmax model of {size} heads sink (Figs. 4, 6, 7; read off one example).",
                    verdict(low is not None and high is not None and low <= wanted <= high, applies=bool(good.any())),
                    f"{interval(count)} heads in the runs that solved the task. Rule: the interval holds {wanted}.",
                    f"{wanted}, one seed",
                )
            )
        found.append(
            Claim(
                f"In a ReLU model of {size} heads none sinks (Figs. 5, 8).",
                verdict(bool((raw[idle] == 0).all()), applies=bool(idle.any())),
                f"Heads with a mean weight on BOS of at least {config.sinks:g}, by seed: {_listed(raw, idle)}; by share of the"
                f" row: {_listed(shares, idle)}. Mean weight on BOS {interval(summary.interval(relu, summary.BOS, config.seed))}."
                " Rule: none by weight, in any run that solved the task.",
            )
        )
    return tuple(found)


def _solved(config: Heads, data: Any) -> NDArray:
    """Which runs have solved the task, bool [run]."""
    return summary.values(data, summary.LEFT) < config.solved  # False for one that diverged


def _listed(values: NDArray, solved: NDArray) -> str:
    """A count of each run; in brackets those of runs that have not solved the task."""
    words = map(_many, values)
    return ", ".join(word if good else f"({word})" for word, good in zip(words, solved, strict=True))
