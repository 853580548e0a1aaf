"""The figures of kiya/rope."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.config_files.checks import MIN_QUERIES
from sinkjax.experiments.base import Drawing
from sinkjax.experiments.captions import origin
from sinkjax.experiments.kiya.config import Rope
from sinkjax.experiments.summary import LEVEL
from sinkjax.report.figures import heatmaps, layers

if TYPE_CHECKING:
    import xarray

LABELS = ("rotary index j of the key", "rotary index i of the query", "score / sqrt(head width)")
FEW_HEADS = 9  # that three columns of maps show legibly
POINTS, DISTANCES = 48, 64  # drawn along a line, and the first ones of which every one is drawn


def drawings(config: Rope, data: xarray.Dataset) -> tuple[Drawing, ...]:
    """Every figure, in the order of the page."""
    return averaged(data), by_distance(config, data), would_receive(config, data), *by_head(data)


def averaged(data: xarray.Dataset) -> Drawing:
    """The paper's Fig. 3: scores averaged over heads, for the key of BOS and for the mean key."""
    caption = (
        "Score of the mean query at rotary index i with the key of BOS, and with the mean key, at index j, averaged over the"
        f" heads of layer 0, on one colour scale; grey: keys after the query. {origin(data, text=False)}."
    )
    figure = heatmaps.signed(_causal(data["score"].mean("head").values), list(_names(data)), LABELS)
    return Drawing("scores", figure, caption)


def by_distance(config: Rope, data: xarray.Dataset) -> Drawing:
    """Scores against the distance of the two indices, on which alone they depend."""
    scores = data["score"].values[..., :DISTANCES, 0]  # key at index 0, so the query's index is the distance
    lines = [_line(config, name, scores[row]) for row, name in enumerate(_names(data))]
    caption = (
        "The same scores against the distance i - j, on which alone they depend. Bands: bootstrap 95 % intervals over the"
        f" {data.sizes['head']} heads. {origin(data, text=False)}."
    )
    panels = [[layers.Panel("layer 0, mean over heads", LABELS[2], lines, signed=True)]]
    return Drawing("by-distance", layers.lines(panels, "distance i - j of the rotary indices"), caption)


def would_receive(config: Rope, data: xarray.Dataset) -> Drawing:
    """Attention that a key at each index would receive among mean keys."""
    from sinkjax.experiments.kiya.rope import uniform

    names = (f"key of {next(iter(_names(data)))}", "mean key")
    shown = data.sizes["key"] - MIN_QUERIES + 1
    lines = [_line(config, name, 100 * data["received"].values[row, :, :shown]) for row, name in enumerate(names)]
    even = 100 * uniform(data.sizes["key"])[:shown]
    places = _places(shown)
    lines.append(
        layers.Line("spread evenly", places, [Interval(float(even[x]), None, None, 1, 0, LEVEL, "none") for x in places])
    )
    caption = (
        "Attention that one key would receive from mean queries at its own and later indices if all other keys were mean keys."
        " Were rotary index 0 a cause, the mean key would stand out there. Bands: bootstrap 95 % intervals over"
        f" {data.sizes['head']} heads. {origin(data, text=False)}."
    )
    panels = [[layers.Panel("layer 0, mean over heads", "attention received (%)", lines)]]
    return Drawing("would-receive", layers.lines(panels, "rotary index of the key"), caption)


def by_head(data: xarray.Dataset) -> tuple[Drawing, ...]:
    """The scores of every head, one figure for each key."""
    scores = _causal(data["score"].values)
    limit = float(np.nanmax(np.abs(scores)))
    columns = 3 if data.sizes["head"] <= FEW_HEADS else 6
    found = []
    for row, (name, short) in enumerate(_names(data).items()):
        caption = (
            f"Score of the mean query at rotary index i with the key of {name} at index j in each head of layer 0, on the colour"
            f" scale of both figures; grey: keys after the query. {origin(data, text=False)}."
        )
        titles = [f"head {head}" for head in range(data.sizes["head"])]
        found.append(Drawing(f"by-head-{short}", heatmaps.signed(scores[row], titles, LABELS, columns, limit), caption))
    return tuple(found)


def _names(data: xarray.Dataset) -> dict[str, str]:
    """The two keys as titles, and as parts of file names."""
    return {f"BOS, {data.attrs['bos_text']}": "bos", "mean of the others": "mean"}


def _causal(scores: NDArray) -> NDArray:
    return np.where(np.tri(scores.shape[-1], dtype=bool), scores, np.nan)


def _places(size: int) -> list[int]:
    """Which of `size` points of a line are drawn."""
    return list(range(size)) if size <= DISTANCES else np.unique(np.linspace(0, size - 1, POINTS).round().astype(int)).tolist()


def _line(config: Rope, name: str, values: NDArray) -> layers.Line:
    """A line over the last axis of float[head, x], with intervals over heads."""
    places = _places(values.shape[-1])
    return layers.Line(name, places, list(intervals.intervals(values[:, places], axis=0, seed=config.seed)))
