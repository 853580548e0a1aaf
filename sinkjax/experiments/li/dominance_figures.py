"""The figures of li/dominance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.base import Drawing
from sinkjax.experiments.captions import origin
from sinkjax.report.figures import grid, layers, scatter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sinkjax.experiments.li.dominance import Found

POSITIONS = 24  # drawn of each prompt, so that a column is visible


def drawings(found: Found) -> tuple[Drawing, ...]:
    """Every figure, in the order of the page."""
    return (by_position(found), by_layer(found), keys(found), heads(found))


def by_position(found: Found) -> Drawing:
    """Dominance by depth and position, before and after the norm."""
    before, after = (found.data[name].mean("prompt").values[:, :POSITIONS] for name in ("before", "after"))
    places = [str(place) for place in range(before.shape[1])]
    columns = [grid.Column(title, places, "position") for title in ("hidden state", "after the norm that reads it")]
    both = np.concatenate([before, after])
    limits = (float(np.nanmin(both)), float(np.nanmax(both)))
    depths = [str(depth) for depth in range(len(before))]
    row = grid.Row([before.T, after.T], "max |x| / mean |x| (log scale)", limits, log=True)
    caption = (
        "Dominance ratio, the largest |x| over the mean |x|, by depth and position, of the hidden state (left) and of what the"
        f" next layer's norm makes of it (right), mean over {found.data.sizes['prompt']} prompts, first {len(places)} positions,"
        f" one logarithmic colour scale; it is at most {found.data.sizes['dim']}, the width. {origin(found.data)}."
    )
    figure = grid.grids(columns, [row], depths, "depth (0: embedding, l + 1: after layer l)", height=3.6)
    return Drawing("dominance-by-position", figure, caption)


def by_layer(found: Found) -> Drawing:
    """The first token's dominance by the layer that reads it, beside other positions."""
    data, others = found.data, found.others
    before, after = (found.values(name) for name in ("before", "after"))
    lines = [
        layers.Line("position 0, before the norm", range(len(before)), before),
        layers.Line("position 0, after the norm", range(len(after)), after),
        layers.Line(
            "other positions, before the norm", range(len(before)), _spread(data["before"].mean("prompt").values[:, others])
        ),
    ]
    caption = (
        f"Dominance ratio by the layer that reads the state ({len(before) - 1}: the final norm). Bands: bootstrap 95 % intervals"
        f" over {data.sizes['prompt']} prompts; of other positions, mean and range of {len(others)}. {origin(data)}."
    )
    xlabel = f"layer that reads the state (0-based; {len(before) - 1}: final norm)"
    figure = layers.lines([[layers.Panel("", "max |x| / mean |x|", lines, log=True)]], xlabel, legend_above=True)
    return Drawing("dominance-by-layer", figure, caption)


def keys(found: Found) -> Drawing:
    """The alignment of the first token's key by layer, beside other keys."""
    data, others = found.data, found.others
    aligned, rows = (found.values(name) for name in ("aligned", "row"))
    other = _spread(data["key_alignment"].mean("head").values[:, others])
    lines = [
        layers.Line("cos(u_1, k_0)", range(len(aligned)), aligned),
        layers.Line("cos(u_1, k_j) of other keys", range(len(aligned)), other),
        layers.Line("|cos| of k_0 and the dominant dim's row of W_K", range(len(rows)), rows),
    ]
    caption = (
        "Cosines of the first token's key with the queries' first singular direction u_1 and with the dominant dim's row of W_K,"
        f" means over heads. Bands: bootstrap 95 % intervals over {data.sizes['prompt']} prompts; of other keys, mean and range"
        f" of {len(others)}. {origin(data)}."
    )
    figure = layers.lines([[layers.Panel("", "cosine", lines, signed=True)]], "layer (0-based)", legend_above=True)
    return Drawing("lock-in-by-layer", figure, caption)


def heads(found: Found) -> Drawing:
    """Alignment of each head against its share of positive scores, for key 0 and for another."""
    data = found.data
    other = found.others[len(found.others) // 2]
    share = 100 * data["positive"].mean("prompt").values
    first = scatter.Cloud("key 0", data["alignment"].mean("prompt").values.ravel(), share[..., 0].ravel())
    second = scatter.Cloud(f"key {other}, a control", data["key_alignment"].values[..., other].ravel(), share[..., other].ravel())
    caption = (
        "Each dot is a head: cosine of a key with the first singular direction of the head's queries, and the share of later"
        f" queries with a positive score, for key 0 and for key {other}. {origin(data)}."
    )
    figure = scatter.scatter(
        {"": [first, second]}, "cos(u_1, k)", "queries with a positive score (%)", limits=((-1.02, 1.02), (-3, 103))
    )
    return Drawing("lock-in-by-head", figure, caption)


def _spread(values: NDArray) -> list[Interval]:
    """Mean and range over the last axis, to be drawn as a band."""
    return [Interval(float(row.mean()), float(row.min()), float(row.max()), len(row), 0, 1.0, "range") for row in values]
