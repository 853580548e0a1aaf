"""trigger/bound: losses of trained layers next to the lower bounds of docs/results/trigger-bounds.md.

"Other rows" are all rows except BOS's and the trigger's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.summary import Row
from sinkjax.papers.trigger import _bounds
from sinkjax.papers.trigger._bounds import Shape
from sinkjax.papers.trigger._figures import SMALLEST_LOSS
from sinkjax.papers.trigger._outcomes import MILLION
from sinkjax.report.figures.lines import Axis, Bundle, curves
from sinkjax.report.section import Drawing
from sinkjax.study import Numbers, TrainedModels, from_results
from sinkjax.tasks.trigger.config import Trigger

KINDS = ("mass held in training", "free to sink", "while learning", "mass held after training", "logit shifted after training")
MORE = (0.9997, 0.9999, 0.99997, 0.99999)  # further masses for bounds, because trained layers reach them
ANY_MEAN, ANY_FIRST, BLIND, EVEN = "A: mean of rows", "B: row 1", "C: blind weights", "even weights (attained)"


def shape_of(read: Numbers) -> Shape:
    return Shape.of(Trigger(width=read.settings.width, length=read.settings.length))


def masses(capped: xarray.Dataset) -> tuple[float, ...]:
    """The masses below 1 where bounds are computed, in rising order."""
    return tuple(sorted({float(cap) for cap in (*capped["cap"].values, *MORE) if cap < 1}))


def bounds(shape: Shape, caps: Sequence[float] | NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The bounds, and the loss that even weights attain, at some masses: float[cap]."""
    return {
        ANY_MEAN: np.array([_bounds.flags(cap, shape) for cap in caps]),
        ANY_FIRST: np.array([_bounds.first_row(cap, shape) for cap in caps]),
        BLIND: np.array([_bounds.blind(cap, shape, each=True) for cap in caps]),
        EVEN: np.array([_bounds.even(np.full(shape.length, 1 - cap), shape) for cap in caps]),
    }


def points(free: xarray.Dataset, capped: xarray.Dataset) -> dict[str, NDArray[Any]]:
    """All layers: kind -> float[layer, (loss, mean BOS mass, largest BOS mass of row 1)], NaN if not measured."""

    def of(data: xarray.Dataset, prefix: str = "") -> NDArray[Any]:
        return np.stack([data[prefix + name].values.ravel() for name in ("loss", "bos", "first")], axis=-1)

    learning = np.stack([free[f"curve_{name}"].values.ravel() for name in ("loss", "bos")], axis=-1)
    learning = np.pad(learning, ((0, 0), (0, 1)), constant_values=np.nan)
    found = dict(zip(KINDS, (of(capped), of(free), learning, of(free, "held_"), of(free, "shifted_")), strict=True))
    return {kind: array[np.isfinite(array[:, :2]).all(axis=1)] for kind, array in found.items()}


def distances(shape: Shape, known: Sequence[float], layers: NDArray[Any]) -> NDArray[Any]:
    """Loss of each layer over the larger of the bounds A and B for its masses; inf at a full sink. layers: as in `points`.

    Bound A is interpolated between the computed masses (`known`), in the logarithms of bound and mass off BOS.
    """
    falling = list(known)[::-1]
    off, curve = np.log1p(-np.array(falling)), np.log([_bounds.flags(cap, shape) for cap in falling])
    rest = 1 - layers[:, 1]
    mean = np.where(rest > 0, np.exp(np.interp(np.log(np.maximum(rest, 1e-300)), off, curve)), 0)
    least = np.maximum(mean, [0.0 if np.isnan(mass) else _bounds.first_row(float(min(mass, 1)), shape) for mass in layers[:, 2]])
    return np.asarray(np.divide(layers[:, 0], least, out=np.full(len(least), np.inf), where=least > 0))


@from_results
def above_bounds(read: Numbers, free: TrainedModels, capped: TrainedModels) -> tuple[bool, str]:
    """Return the identity that the loss of every layer is above bounds A and B for its masses on BOS."""
    stores = read.data(free.name), read.data(capped.name)
    known, shape = masses(stores[1]), shape_of(read)
    least = {kind: float(distances(shape, known, layers).min()) for kind, layers in points(*stores).items()}
    said = "; ".join(f"{kind} {ratio:.4g}" for kind, ratio in least.items())
    return all(ratio > 1 for ratio in least.values()), f"smallest ratio of a loss to the larger of bounds A and B: {said}"


def held_losses(read: Numbers, of_free: TrainedModels, of_capped: TrainedModels) -> list[Row]:
    """For each mass: losses over runs, held in training and after it, and the best one over each bound."""
    free, capped = read.data(of_free.name), read.data(of_capped.name)
    caps = capped["cap"].values
    curves = bounds(shape_of(read), caps)
    found = []
    for place, cap in enumerate(caps):
        learned = MILLION * capped["loss"].values[place]
        after = MILLION * free["held_loss"].values[:, place]
        values = {"loss, mass held in training (millionths)": learned, "loss, mass held after training (millionths)": after}
        smallest = np.nanmin(learned) / MILLION
        values |= {f"best loss over {name}": np.array([smallest / curve[place]]) for name, curve in curves.items() if cap < 1}
        found += [Row(f"BOS mass {cap:g}", "held", measure, read.interval(each)) for measure, each in values.items()]
    met = 100.0 * (free["outcome"].values == "converged")
    found.append(Row("free to sink", "held", "runs that met the stopping rule (%)", intervals.interval(met)))
    return found


def loss_and_mass(read: Numbers, of_free: TrainedModels, of_capped: TrainedModels, held: str) -> Drawing:
    """Losses against the mass off BOS. held: "in training", next to the bounds, or "after training", next to the first kind."""
    free, capped = read.data(of_free.name), read.data(of_capped.name)
    caps, known = capped["cap"].values, masses(capped)
    lower, dots = bounds(shape_of(read), known), partial(Bundle, kind="dots")
    inner = caps < 1  # a logarithmic axis does not show a mass of 1
    off, losses, after = 1 - caps[inner], capped["loss"].values[inner], free["held_loss"].values[:, inner]
    best, offs = np.nanmin(losses, axis=1), np.tile(off, len(after))
    lines = [Bundle(name, 1 - np.array(known), values, kind="line") for name, values in lower.items()]
    trained = dots("mass held in training", np.repeat(off, losses.shape[1]), losses.ravel())
    mass, loss = "mass off BOS, other rows (1 - c)", "held-out mean squared error"
    sizes = f"n = {read.settings.width}, L = {read.settings.length}"
    if held == "in training":
        here = [known.index(float(cap)) for cap in caps if cap < 1]
        ratios = [Bundle(name, off, best / values[here], kind="line") for name, values in lower.items()]
        path = dots("free to sink, while learning", 1 - free["curve_bos"].values.ravel(), free["curve_loss"].values.ravel())
        ended = dots("free to sink, at the end", 1 - free["bos"].values, free["loss"].values)
        lowest = max(float(np.nanmin(capped["loss"].values[-1])), SMALLEST_LOSS)
        at_full = "not measured" if inner.all() else f"{lowest:.1e}"
        panels = [
            Axis("loss", mass, loss, [*lines, trained, path, ended], "xy"),
            Axis("best loss with the mass held, over each line", mass, "ratio", ratios, "xy"),
        ]
        caption = f"""Left: layers with their mass held in training ({losses.shape[1]} runs per mass) and {len(after)} layers
            free to sink, with the bounds (docs/results/trigger-bounds.md). Right: the best loss at each mass over each line.
            {sizes}. At a mass of 1 on BOS, which a logarithmic axis does not show, the best loss is {at_full}."""
        return Drawing("bounds", curves([panels], height=4.2), caption)
    forced = dots("mass held after training", offs, after.ravel())
    shifted = dots("logit shifted after training", 1 - free["shifted_bos"].values.ravel(), free["shifted_loss"].values.ravel())
    less = dots("mass held after training", offs, (after / best).ravel())
    panels = [
        Axis("loss", mass, loss, [*lines, trained, forced, shifted], "xy"),
        Axis("loss over the best learned with the mass held", mass, "ratio", [less], "xy"),
    ]
    caption = f"""Loss against the mass off BOS of layers trained free to sink and then edited without further training (the mass
        held in the other rows, or a number added to BOS's logit there), next to layers trained with the mass held. {sizes}."""
    return Drawing("forced", curves([panels], height=4.2), caption)
