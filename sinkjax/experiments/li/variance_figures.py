"""The figures of li/variance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.base import Drawing
from sinkjax.experiments.captions import origin
from sinkjax.experiments.li.config import Variance
from sinkjax.report.figures import layers, scatter

if TYPE_CHECKING:
    import xarray


def drawings(config: Variance, data: xarray.Dataset) -> tuple[Drawing, ...]:
    """Every figure, in the order of the page."""
    return (by_position(config, data), structure(data))


def by_position(config: Variance, data: xarray.Dataset) -> Drawing:
    """Variance against position, before and behind W_O, beside the averaging law."""
    heads, after = data["deviation"].mean("head").values, data["after"].values
    weights = data["squared_weights"].values[0]
    own = data["deviation"].mean("prompt").values[0, :, :1]
    expected = (weights * own).sum(0) / own.sum()
    places = np.arange(1, heads.shape[-1] + 1)
    law, weighted = _curve("averaging law 1 / (i + 1)", 1 / places), _curve("sum of squared weights", expected)
    panels = [
        _panel(config, "head outputs", heads / heads[0, :, 0].mean(), data, [law, weighted]),
        _panel(config, "attention output, behind W_O", after / after[0, :, 0].mean(), data, [law]),
    ]
    caption = (
        "Variance over prompts of the first block's head outputs (left) and of its attention output (right), mean over dims, in"
        " units of its value at position 0, whose query sees one value only. Even attention follows the averaging law; a curve"
        " above it comes from attention that is not spread evenly, as the sum of each query's squared weights tells. Bands:"
        f" bootstrap 95 % intervals over {data.sizes['prompt']} prompts. {origin(data)}."
    )
    figure = layers.lines([panels], "tokens that the query sees, i + 1", legend_above=True, log_x=True)
    return Drawing("variance-by-position", figure, caption)


def _panel(config: Variance, title: str, values: NDArray, data: xarray.Dataset, more: list[layers.Line]) -> layers.Panel:
    places = range(1, values.shape[-1] + 1)
    found = [
        layers.Line(str(name), places, intervals.intervals(arm, axis=0, seed=config.seed).tolist())
        for name, arm in zip(data["attention"].values, values, strict=True)
    ]
    return layers.Panel(title, "variance (share of position 0's)", [*found, *more], log=True)


def structure(data: xarray.Dataset) -> Drawing:
    """Each dim's standard deviation against the norm of its row of W_O."""
    clouds = {
        f"{name}": [scatter.Cloud("a dim of a head", std.ravel(), data["row_norm"].values.ravel())]
        for name, std in zip(data["attention"].values, data["std"].values, strict=True)
    }
    caption = (
        "Standard deviation of each dim of the first block's head outputs against the L2 norm of the row of W_O that reads it:"
        f" {data['row_norm'].size} dims of {data.sizes['head']} heads, both axes logarithmic. {origin(data)}."
    )
    figure = scatter.scatter(clouds, "standard deviation of the dim", "L2 norm of its row of W_O", log=True)
    return Drawing("variance-and-output-matrix", figure, caption)


def _curve(name: str, values: NDArray) -> layers.Line:
    """Values without intervals."""
    return layers.Line(name, range(1, len(values) + 1), [Interval(value, None, None, 1, 0, 0.95, "none") for value in values])
