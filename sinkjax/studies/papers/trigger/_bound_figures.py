"""The figures of trigger/bound: losses against the mass off BOS, beside the bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

import sinkjax.studies as st
from sinkjax.report.figures.frontier import Dots, Line, Panel, frontier
from sinkjax.report.section import Drawing
from sinkjax.studies.papers.trigger._figures import SMALLEST_LOSS


def drawings(results: st.Results, masses: Sequence[float], curves: Mapping[str, NDArray]) -> tuple[Drawing, Drawing]:
    """Layers trained with a mass held, and layers of which it is held after training. curves: name -> float[mass], the bounds."""
    config, free, capped = results.config, results["free"], results["capped"]
    inner = np.array(config.caps) < 1  # a logarithmic axis does not show a mass of 1
    off, losses, after = 1 - np.array(config.caps)[inner], capped["loss"].values[inner], free["held_loss"].values[:, inner]
    best, offs = np.nanmin(losses, axis=1), np.tile(off, len(after))
    here = [masses.index(cap) for cap in config.caps if cap < 1]
    at_full = "not measured"
    if not inner.all():
        at_full = f"{max(float(np.nanmin(capped['loss'].values[-1])), SMALLEST_LOSS):.1e}"
    lines = [Line(name, 1 - np.array(masses), values) for name, values in curves.items()]
    ratios = [Line(name, off, best / values[here]) for name, values in curves.items()]
    held = Dots("mass held in training", np.repeat(off, losses.shape[1]), losses.ravel())
    path = Dots("free to sink, while learning", 1 - free["curve_bos"].values.ravel(), free["curve_loss"].values.ravel())
    ended = Dots("free to sink, at the end", 1 - free["bos"].values, free["loss"].values)
    forced = Dots("mass held after training", offs, after.ravel())
    shifted = Dots("logit shifted after training", 1 - free["shifted_bos"].values.ravel(), free["shifted_loss"].values.ravel())
    less = Dots("mass held after training", offs, (after / best).ravel())
    mass, loss, sizes = (
        "mass off BOS, other rows (1 - c)",
        "held-out mean squared error",
        f"n = {config.width}, L = {config.length}",
    )
    learned = [
        Panel("loss", mass, loss, lines, [held, path, ended]),
        Panel("best loss with the mass held, over each line", mass, "ratio", ratios, [], plain=True),
    ]
    edited = [
        Panel("loss", mass, loss, lines, [held, forced, shifted]),
        Panel("loss over the best learned with the mass held", mass, "ratio", [], [less], plain=True),
    ]
    caption = (
        f"Loss against the mass off BOS. Left: layers with their mass held in training ({losses.shape[1]} runs per mass), and"
        f" {len(after)} layers free to sink, during training and at the end. Lines: lower bounds A, B and C, and the loss that"
        f" even weights attain (docs/trigger.md). Right: the best loss at each mass divided by each line. {sizes}. At a mass of 1"
        f" on BOS, which a logarithmic axis does not show, the best loss is {at_full}."
    )
    without = (
        "Loss against the mass off BOS of layers trained free to sink and then edited without further training (the mass held in"
        f" the other rows, or a number added to BOS's logit there), beside layers trained with the mass held. {sizes}."
    )
    return Drawing("bounds", frontier(learned), caption), Drawing("forced", frontier(edited), without)
