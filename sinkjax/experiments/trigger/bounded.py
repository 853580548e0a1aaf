"""trigger/bound: what softmax without a sink costs. Layers whose BOS mass is held, in training or after it, and lower bounds.

The bounds and their derivation: `docs/trigger.md` and `experiments/trigger/bound.py`. "Other rows" are all but BOS's and the
trigger's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.experiments.base import Claim, Lesson, Section
from sinkjax.experiments.summary import LEVEL, Row
from sinkjax.experiments.trigger import bound, bounded_measure, summary
from sinkjax.experiments.trigger.bound import Shape
from sinkjax.experiments.trigger.bounded_figures import drawings
from sinkjax.experiments.trigger.capped_config import CappedTraining
from sinkjax.experiments.trigger.config import Bound
from sinkjax.experiments.trigger.models import training
from sinkjax.experiments.trigger.words import count_of, notes, provenance
from sinkjax.experiments.words import verdict
from sinkjax.tasks.trigger.config import Trigger
from sinkjax.tasks.trigger.task import model

if TYPE_CHECKING:
    import xarray

FREE, CAPPED = "free", "capped"
NEVER = 1e-12  # a tolerance that no run meets, for runs that are to make all their steps
MORE = (0.9997, 0.9999, 0.99997, 0.99999)  # masses at which bounds are computed beside the caps, as trained layers go there
ANY_MEAN, ANY_FIRST, BLIND, EVEN = "A: mean of rows", "B: row 1", "C: blind weights", "even weights (attained)"
CLAIM = (
    "Ran-Milo 2026, Theorem 1: a softmax layer of small loss puts nearly all attention on BOS wherever it has nothing to do. Here"
    " with constants of our own: how large the loss must be at each BOS mass, and what trained layers reach."
)


def lessons(config: Bound) -> tuple[Lesson, ...]:
    """Layers that are free to sink, and layers whose BOS mass is held."""
    free = training(config, {})
    fixed = training(config, {"seeds": config.cap_seeds, "steps": config.cap_steps, "tolerance": NEVER})
    capped = CappedTraining(**vars(fixed), caps=config.caps)
    return (
        Lesson(FREE, free, model(free), partial(bounded_measure.free, config)),
        Lesson(CAPPED, capped, model(capped), partial(bounded_measure.capped, config)),
    )


def section(config: Bound, stores: Mapping[str, xarray.Dataset]) -> Section:
    """Losses against BOS masses, beside the bounds."""
    data = {name: store.load() for name, store in stores.items()}
    curves = bounds(config, config.caps)
    layers = points(config, data)
    return Section(
        experiment="trigger/bound",
        title="What softmax without a sink costs",
        claim=CLAIM,
        findings=(*_findings(config, data, curves, layers), *summary.exceptions({FREE: data[FREE]}, {FREE: "free to sink"})),
        rows=tuple(_rows(config, data, curves)),
        featured=tuple(_label(cap) for cap in config.caps),
        drawings=drawings(config, data, masses(config), bounds(config, masses(config))),
        notes=(*notes(config), *_notes(config)),
        provenance=provenance({FREE: data[FREE]}) | {"held masses": f"{len(config.caps)}, {config.cap_seeds} runs each"},
        claims=_claims(config, layers),
        subject="layer",
        over="runs",
    )


def shape_of(config: Bound) -> Shape:
    """Sizes of the data."""
    return Shape.of(Trigger(width=config.width, length=config.length))


def masses(config: Bound) -> tuple[float, ...]:
    """The masses below 1 at which bounds are computed, rising."""
    return tuple(sorted({cap for cap in (*config.caps, *MORE) if cap < 1}))


def bounds(config: Bound, caps: Sequence[float]) -> dict[str, NDArray]:
    """The bounds, and the loss that even weights attain, at some masses: float[cap]."""
    shape = shape_of(config)
    found = {
        ANY_MEAN: [bound.flags(cap, shape) for cap in caps],
        ANY_FIRST: [bound.first_row(cap, shape) for cap in caps],
        BLIND: [bound.blind(cap, shape, each=True) for cap in caps],
        EVEN: [bound.even(np.full(shape.length, 1 - cap), shape) for cap in caps],
    }
    return {name: np.array(values) for name, values in found.items()}


def points(config: Bound, data: Mapping[str, Any]) -> dict[str, NDArray]:
    """All layers that were seen: kind -> float[layer, (loss, mean BOS mass, largest BOS mass of row 1)], NaN if not measured."""

    def of(store: str, prefix: str = "") -> NDArray:
        return np.stack([data[store][prefix + name].values.ravel() for name in ("loss", "bos", "first")], axis=-1)

    learning = np.stack([data[FREE][f"curve_{name}"].values.ravel() for name in ("loss", "bos")], axis=-1)
    learning = np.pad(learning, ((0, 0), (0, 1)), constant_values=np.nan)
    found = {
        "mass held in training": of(CAPPED),
        "free to sink": of(FREE),
        "while learning": learning,
        "mass held after training": of(FREE, "held_"),
        "logit shifted after training": of(FREE, "shifted_"),
    }
    return {kind: array[np.isfinite(array[:, :2]).all(axis=1)] for kind, array in found.items()}


def distances(config: Bound, layers: NDArray) -> NDArray:
    """Loss of each layer over the larger of the bounds A and B for its masses; inf at a full sink. layers: as in `points`.

    Bound A is interpolated between masses at which it is known, in the logarithms of bound and mass off BOS.
    """
    shape = shape_of(config)
    known = masses(config)[::-1]
    off, curve = np.log1p(-np.array(known)), np.log([bound.flags(cap, shape) for cap in known])
    rest = 1 - layers[:, 1]
    mean = np.where(rest > 0, np.exp(np.interp(np.log(np.maximum(rest, 1e-300)), off, curve)), 0)
    first = [0.0 if np.isnan(mass) else bound.first_row(float(min(mass, 1)), shape) for mass in layers[:, 2]]
    least = np.maximum(mean, first)
    return np.divide(layers[:, 0], least, out=np.full(len(least), np.inf), where=least > 0)


def _label(cap: float) -> str:
    return f"BOS mass {cap:g}"


def _rows(config: Bound, data: Mapping[str, Any], curves: Mapping[str, NDArray]) -> list[Row]:
    """For each mass: losses over runs, in training and after it, and the best one over each bound."""
    found = []
    for place, cap in enumerate(config.caps):
        trained = summary.MILLION * data[CAPPED]["loss"].values[place]
        after = summary.MILLION * data[FREE]["held_loss"].values[:, place]

        def row(measure: str, values: NDArray, label: str = _label(cap)) -> Row:
            return Row(label, "held", measure, intervals.interval(values, level=LEVEL, seed=config.seed))

        found += [
            row("loss, mass held in training (millionths)", trained),
            row("loss, mass held after training (millionths)", after),
        ]
        found += [
            row(f"best loss over {name}", np.array([np.nanmin(trained) / summary.MILLION / values[place]]))
            for name, values in curves.items()
            if cap < 1
        ]
    return found


def _findings(
    config: Bound, data: Mapping[str, Any], curves: Mapping[str, NDArray], layers: Mapping[str, NDArray]
) -> tuple[str, ...]:
    best = np.nanmin(data[CAPPED]["loss"].values, axis=1)
    inner = np.array(config.caps) < 1
    ratios = {name: (best / np.where(inner, values, 1))[inner] for name, values in curves.items()}
    free, after = data[FREE], np.nanmedian(data[FREE]["held_loss"].values, axis=0)
    losses = ", ".join(f"{loss:.2g} at {cap:g}" for cap, loss in zip(config.caps, best, strict=True))
    forced = ", ".join(f"{loss:.2g} at {cap:g}" for cap, loss in zip(config.caps, after, strict=True))
    return (
        f"Trained with the BOS mass of the other rows held, the best loss of {config.cap_seeds} runs each is {losses}.",
        f"That is {_range(ratios[BLIND])} times bound C (weights that do not look at the noise), {_range(ratios[ANY_FIRST])}"
        f" times bound B (any weights, row 1 capped) and {_range(ratios[ANY_MEAN])} times bound A (any weights, capped in the"
        " mean).",
        f"Free to sink, {count_of(free)} met the stopping rule: loss {_range(free['loss'].values)}, mass off BOS"
        f" {_range(1 - free['bos'].values)} in the mean.",
        f"Held after training, without learning anew, the median loss of these layers is {forced}; that is"
        f" {_range((after / best)[inner])} times the best loss of layers that learn with the mass held.",
        f"The smallest ratio of loss to bound (the larger of A and B) of any layer is"
        f" {np.min([distances(config, each).min() for each in layers.values()]):.2f}.",
    )


def _range(values: NDArray) -> str:
    low, high = np.nanmin(values), np.nanmax(values)
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"


def _claims(config: Bound, layers: Mapping[str, NDArray]) -> tuple[Claim, ...]:
    least = {kind: distances(config, each) for kind, each in layers.items()}
    evidence = "; ".join(f"{kind}: {len(each)} layers, smallest ratio {each.min():.3g}" for kind, each in least.items())
    return (
        Claim(
            "A softmax layer of small loss has its attention on BOS in the other rows (Theorem 1; its constants were not"
            " available).",
            verdict(all(bool((each > 1).all()) for each in least.values())),
            f"Loss over the larger of the lower bounds A and B for the layer's own BOS masses. {evidence}. Rule: every ratio"
            " above 1. The bounds are derived in docs/trigger.md, not the paper's.",
        ),
    )


def _notes(config: Bound) -> tuple[str, ...]:
    return (
        "A mass is held exactly, by an edit of the weights: BOS's weight is set to it, the row's other weights are rescaled to"
        " the rest. In training the edit is part of the layer; the scores decide how the rest is divided, and all of the"
        f" trigger's row. These runs make {config.cap_steps:,} steps and do not stop before.",
        "Bounds A and B hold for any weights and any linear map of values; A if BOS's mass is capped in the mean over sequences"
        " and other rows, B if it is capped in row 1 of every sequence (taken here as the largest of all held-out ones). Bound C"
        " is proved only for weights that do not depend on the noise, each row capped. Even weights attain the loss of their"
        " line.",
        "A bound speaks of the mean over all sequences; losses are means over"
        f" {config.sequences:,} held-out ones (while learning: over an evaluation batch), so ratios have their sampling error.",
    )
