"""The figures of trigger/bound: losses against BOS masses, beside the bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.report.figures.frontier import Dots, Line, Panel, frontier
from sinkjax.report.section import Drawing
from sinkjax.studies.papers.trigger._figures import SMALLEST_LOSS

MASS = "mass off BOS, other rows (1 - c)"


def drawings(config: Any, data: Mapping[str, Any], masses: Sequence[float], curves: Mapping[str, NDArray]) -> tuple[Drawing, ...]:
    """Layers trained with a mass held, and layers of which it is held after training. curves: name -> float[mass], the bounds."""
    inner = np.array([cap < 1 for cap in config.caps])
    off = 1 - np.array(config.caps)[inner]
    here = [masses.index(cap) for cap in config.caps if cap < 1]
    free, capped = data["free"], data["capped"]
    runs, best = capped.sizes["run"], np.nanmin(capped["loss"].values, axis=1)[inner]
    lines = [Line(name, 1 - np.array(masses), values) for name, values in curves.items()]
    ratios = [Line(name, off, best / values[here]) for name, values in curves.items()]
    held = Dots("mass held in training", np.repeat(off, runs), capped["loss"].values[inner].ravel())
    path = Dots("free to sink, while learning", 1 - free["curve_bos"].values.ravel(), free["curve_loss"].values.ravel())
    ended = Dots("free to sink, at the end", 1 - free["bos"].values, free["loss"].values)
    after = free["held_loss"].values[:, inner]
    forced = Dots("mass held after training", np.tile(off, len(after)), after.ravel())
    shifted = Dots("logit shifted after training", 1 - free["shifted_bos"].values.ravel(), free["shifted_loss"].values.ravel())
    less = Dots("mass held after training", np.tile(off, len(after)), (after / best).ravel())
    loss, sizes = "held-out mean squared error", f"n = {config.width}, L = {config.length}"
    return (
        Drawing(
            "bounds",
            frontier(
                [
                    Panel("loss", MASS, loss, lines, [held, path, ended]),
                    Panel("best loss with the mass held, over each line", MASS, "ratio", ratios, [], plain=True),
                ]
            ),
            f"Loss against the mass off BOS. Left: each layer with its mass held in training ({runs} runs a mass), and"
            f" {len(after)} layers free to sink, while they learn and at the end. Lines: lower bounds A, B and C, and the loss"
            f" that even weights attain (docs/trigger.md). Right: the best loss at each mass over each line. {sizes}. At a mass"
            f" of 1 on BOS, which a logarithmic axis does not show, the best loss is {_at_full_sink(config, capped)}.",
        ),
        Drawing(
            "forced",
            frontier(
                [
                    Panel("loss", MASS, loss, lines, [held, forced, shifted]),
                    Panel("loss over the best learned with the mass held", MASS, "ratio", [], [less], plain=True),
                ]
            ),
            "Loss against the mass off BOS of layers that were trained free to sink and then edited, without learning anew: the"
            " mass held in the other rows, or a number added to BOS's logit there; beside layers that learned with the mass held."
            f" {sizes}.",
        ),
    )


def _at_full_sink(config: Any, capped: Any) -> str:
    if config.caps[-1] < 1:
        return "not measured"
    return f"{max(float(np.nanmin(capped['loss'].values[-1])), SMALLEST_LOSS):.1e}"
