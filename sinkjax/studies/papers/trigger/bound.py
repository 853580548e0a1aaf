"""trigger/bound: what softmax without a sink costs. Layers whose BOS mass is held, in training or after it, and lower bounds.

The bounds and their derivation: `docs/trigger.md` and `_bounds.py`. "Other rows" are all but BOS's and the trigger's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax.studies as st
from sinkjax.config_files.checks import at_least, each_once
from sinkjax.errors import SinkjaxError
from sinkjax.report.section import Drawing
from sinkjax.studies.papers.trigger import _bounds
from sinkjax.studies.papers.trigger import _lab as lab
from sinkjax.studies.papers.trigger._bound_figures import drawings
from sinkjax.studies.papers.trigger._bounds import Shape
from sinkjax.studies.study import TrainingSpec
from sinkjax.tasks.trigger.config import CappedTraining, Trigger

FREE, CAPPED = "free", "capped"
KINDS = ("mass held in training", "free to sink", "while learning", "mass held after training", "logit shifted after training")
NEVER = 1e-12  # a tolerance that no run meets, so that all steps are made
MORE = (0.9997, 0.9999, 0.99997, 0.99999)  # further masses at which bounds are computed, as trained layers reach them
ANY_MEAN, ANY_FIRST, BLIND, EVEN = "A: mean of rows", "B: row 1", "C: blind weights", "even weights (attained)"


@dataclass(frozen=True, kw_only=True)
class Bound(lab.Trials):
    """What softmax without a sink costs: the loss of layers whose BOS mass is held, in training or after it, and lower bounds."""

    seeds: int = 8
    """runs of the layer that is free to sink"""
    caps: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99, 0.997, 0.999, 1.0)
    """masses on BOS that are held in the rows other than BOS's and the trigger's"""
    cap_seeds: int = 4
    """runs of each mass that is held in training"""
    cap_steps: int = 5000
    """training steps of each of these runs"""
    shifts: tuple[float, ...] = (-2.0, -4.0, -6.0, -8.0, -10.0, -12.0)
    """added to BOS's logit in those rows of the trained layers"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, cap_seeds=1, cap_steps=1)
        each_once(self, "caps")
        each_once(self, "shifts")
        if list(self.caps) != sorted(self.caps) or not 0 <= self.caps[0] <= self.caps[-1] <= 1:
            raise SinkjaxError(f"caps must rise from 0 to 1 at most, not {list(self.caps)}")


def trainings(config: Bound) -> list[TrainingSpec]:
    """Layers that are free to sink, and layers whose BOS mass is held."""
    from sinkjax.studies.papers.trigger import _bound_measure as measure
    from sinkjax.tasks.trigger.task import model

    free = lab.training(config, {})
    fixed = lab.training(config, {"seeds": config.cap_seeds, "steps": config.cap_steps, "tolerance": NEVER})
    capped = CappedTraining(**vars(fixed), caps=config.caps)
    return [
        TrainingSpec(FREE, free, model(free), partial(measure.free, config)),
        TrainingSpec(CAPPED, capped, model(capped), partial(measure.capped, config)),
    ]


def shape_of(config: Bound) -> Shape:
    return Shape.of(Trigger(width=config.width, length=config.length))


def masses(config: Bound) -> tuple[float, ...]:
    """The masses below 1 at which bounds are computed, in rising order."""
    return tuple(sorted({cap for cap in (*config.caps, *MORE) if cap < 1}))


def bounds(config: Bound, caps: Sequence[float]) -> dict[str, NDArray]:
    """The bounds, and the loss that even weights attain, at some masses: float[cap]."""
    shape = shape_of(config)
    of = {
        ANY_MEAN: lambda cap: _bounds.flags(cap, shape),
        ANY_FIRST: lambda cap: _bounds.first_row(cap, shape),
        BLIND: lambda cap: _bounds.blind(cap, shape, each=True),
        EVEN: lambda cap: _bounds.even(np.full(shape.length, 1 - cap), shape),
    }
    return {name: np.array([bound(cap) for cap in caps]) for name, bound in of.items()}


def points(data: Mapping[str, Any]) -> dict[str, NDArray]:
    """All layers: kind -> float[layer, (loss, mean BOS mass, largest BOS mass of row 1)], NaN if not measured."""

    def of(store: str, prefix: str = "") -> NDArray:
        return np.stack([data[store][prefix + name].values.ravel() for name in ("loss", "bos", "first")], axis=-1)

    learning = np.stack([data[FREE][f"curve_{name}"].values.ravel() for name in ("loss", "bos")], axis=-1)
    learning = np.pad(learning, ((0, 0), (0, 1)), constant_values=np.nan)
    found = dict(zip(KINDS, (of(CAPPED), of(FREE), learning, of(FREE, "held_"), of(FREE, "shifted_")), strict=True))
    return {kind: array[np.isfinite(array[:, :2]).all(axis=1)] for kind, array in found.items()}


def distances(config: Bound, layers: NDArray) -> NDArray:
    """Loss of each layer over the larger of the bounds A and B for its masses; inf at a full sink. layers: as in `points`.

    Bound A is interpolated between the masses at which it is computed, in the logarithms of bound and mass off BOS.
    """
    shape = shape_of(config)
    known = masses(config)[::-1]
    off, curve = np.log1p(-np.array(known)), np.log([_bounds.flags(cap, shape) for cap in known])
    rest = 1 - layers[:, 1]
    mean = np.where(rest > 0, np.exp(np.interp(np.log(np.maximum(rest, 1e-300)), off, curve)), 0)
    first = [0.0 if np.isnan(mass) else _bounds.first_row(float(min(mass, 1)), shape) for mass in layers[:, 2]]
    least = np.maximum(mean, first)
    return np.divide(layers[:, 0], least, out=np.full(len(least), np.inf), where=least > 0)


def label(cap: float) -> str:
    return f"BOS mass {cap:g}"


def best(results: st.Results) -> NDArray:
    """The smallest loss of any run with each mass held in training: float[cap]."""
    return np.nanmin(results[CAPPED]["loss"].values, axis=1)


def rows(results: st.Results) -> list[st.Row]:
    """For each mass: losses over runs, in training and after it, and the best one over each bound."""
    config = results.config
    curves = bounds(config, config.caps)
    found = []
    for place, cap in enumerate(config.caps):
        values = {
            "loss, mass held in training (millionths)": lab.MILLION * results[CAPPED]["loss"].values[place],
            "loss, mass held after training (millionths)": lab.MILLION * results[FREE]["held_loss"].values[:, place],
        }
        smallest = np.nanmin(values["loss, mass held in training (millionths)"]) / lab.MILLION
        values |= {f"best loss over {name}": np.array([smallest / curve[place]]) for name, curve in curves.items() if cap < 1}
        found += [st.Row(label(cap), "held", measure, results.interval(each)) for measure, each in values.items()]
    return found


def findings(config: Bound, architecture: Any) -> Iterator[st.Quantity]:
    yield st.quantity(
        "free to sink: runs that met the stopping rule", lambda results: (results[FREE]["outcome"] == lab.DONE).sum()
    )
    inner = np.array(config.caps) < 1  # with all the mass on BOS the bounds are 0

    def ratio(results: st.Results, name: str, pick: Any) -> float:
        return float(pick(best(results)[inner] / bounds(config, config.caps)[name][inner]))

    def held(results: st.Results) -> float:
        after = np.nanmedian(results[FREE]["held_loss"].values, axis=0)
        return float(np.nanmedian(after[inner] / best(results)[inner]))

    for name in (BLIND, ANY_FIRST, ANY_MEAN):
        of = f"ratio of the best loss with the mass held to bound {name}"
        yield st.quantity(f"smallest {of}", partial(ratio, name=name, pick=np.nanmin))
        yield st.quantity(f"largest {of}", partial(ratio, name=name, pick=np.nanmax))
    yield st.quantity("loss with the mass held after training over the best learned with it held (median)", held)


def claims(config: Bound, architecture: Any) -> Iterator[st.Claim]:
    def least(kind: str) -> st.Quantity:
        name = f"smallest ratio of loss to the larger of bounds A and B, {kind}"
        return st.number(name, lambda results: distances(config, points(results)[kind]).min())

    yield st.Claim(
        "The loss of a softmax layer is above bounds A and B for its masses on BOS, as docs/trigger.md derives.",
        st.all_of(*(st.above(least(kind), 1) for kind in KINDS)),
        kind="identity",
    )


def drawn(results: st.Results, place: int) -> Drawing:
    """One of the two figures."""
    return drawings(results, masses(results.config), bounds(results.config, masses(results.config)))[place]


STUDY = st.Study(
    name="trigger/bound",
    config=Bound,
    title="What softmax without a sink costs",
    question="""Ran-Milo 2026, Theorem 1: a softmax layer of small loss puts nearly all attention on BOS in every row where it has
        nothing to write. Here with our own constants: how large must the loss be at each BOS mass, and what do trained layers
        reach?""",
    trainings=trainings,
    rows=rows,
    claims=claims,
    findings=findings,
    featured=lambda results: tuple(label(cap) for cap in results.config.caps),
    figures=lambda config, architecture: [partial(drawn, place=place) for place in range(2)],
    notes=lambda config, results: (
        *lab.shared_notes(config),
        f"""A mass is held exactly, by an edit of the weights: BOS's weight is set to it, and the row's other weights are rescaled
        to sum to the rest. During training the edit is part of the layer; the scores decide how the rest is divided, and all of
        the trigger's row. These runs make all {config.cap_steps:,} steps.""",
        """Bounds A and B hold for any weights and any linear map of values: A if BOS's mass is capped in the mean over sequences
        and other rows, B if it is capped in row 1 of every sequence (here: its maximum over the held-out ones). Bound C is proved
        only for weights that do not depend on the noise, with each row capped. Even weights attain the loss of their line. The
        bounds are derived in docs/trigger.md; they are not the paper's.""",
        f"""A bound is on the mean over all sequences; losses are means over {config.sequences:,} held-out ones (while learning:
        over an evaluation batch), so ratios have a sampling error.""",
    ),
    status=lambda results: lab.unfinished(results.trained, {FREE: "free to sink"}),
    provenance=lambda results: (
        lab.provenance({FREE: results[FREE]})
        | {"held masses": f"{len(results.config.caps)}, {results.config.cap_seeds} runs each"}
    ),
    subject="layer",
    over="runs",
)
