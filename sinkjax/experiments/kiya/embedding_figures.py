"""The figures of kiya/embedding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.base import Drawing
from sinkjax.experiments.captions import origin
from sinkjax.experiments.kiya.config import Embedding
from sinkjax.experiments.summary import LEVEL
from sinkjax.report.figures import points, scatter

if TYPE_CHECKING:
    import xarray

DOTS = 4000  # ordinary tokens drawn; more would only darken the cloud
PANELS = {"cosine_repeated": "query heads joined, keys repeated", "cosine_heads": "mean over query heads"}


def drawings(config: Embedding, data: xarray.Dataset) -> tuple[Drawing, ...]:
    """Every figure, in the order of the page."""
    return vocabulary(config, data), by_head(data)


def vocabulary(config: Embedding, data: xarray.Dataset) -> Drawing:
    """Cosine against norm: every token's key, with the BOS and the mean embedding among them."""
    tokens, bos = np.arange(data.sizes["token"]), data.attrs["bos"]
    ordinary = np.flatnonzero(data["ordinary"].values & (tokens != bos))
    drawn = intervals.generator(config.seed, "kiya/embedding dots").choice(ordinary, min(DOTS, ordinary.size), replace=False)
    kinds = {f"{drawn.size:,} of {ordinary.size:,} ordinary tokens": drawn}
    special = np.flatnonzero(~data["ordinary"].values & (tokens != bos))
    if special.size:
        kinds["special tokens and unused rows"] = special

    def clouds(name: str) -> list[scatter.Cloud]:
        norm, cosine = data["token_key_norm"].values, data[f"token_{name}"].values
        found = [
            scatter.Cloud(kind, norm[chosen], cosine[chosen], faint=number == 0)
            for number, (kind, chosen) in enumerate(kinds.items())
        ]
        for row, kind in enumerate((f"BOS, {data.attrs['bos_text']}", "mean of the others")):
            found.append(scatter.Cloud(kind, data["key_norm"].values[[row]], data[name].values[[row]]))
        return found

    caption = (
        "The first block's key of every token made from its embedding alone: its length (key-value heads joined) and its cosine"
        f" with the mean query, of the joined heads and averaged over heads. {origin(data, text=False)}."
    )
    figure = scatter.scatter(
        {title: clouds(name) for name, title in PANELS.items()}, "||k|| in layer 0", "cosine of k with the mean query"
    )
    return Drawing("vocabulary", figure, caption)


def by_head(data: xarray.Dataset) -> Drawing:
    """Cosine of the mean query with both keys in each query head."""
    names = {0: f"BOS, {data.attrs['bos_text']}", 1: "mean of the others"}
    found = [
        points.Point(f"head {head}", Interval(float(cosine), None, None, 1, 0, LEVEL, "none"), names[row])
        for row, values in enumerate(data["head_cosine"].values)
        for head, cosine in enumerate(values)
    ]
    caption = (
        "Cosine of the mean query with the key of BOS and with that of the mean embedding in each query head of layer 0."
        f" {origin(data, text=False)}."
    )
    return Drawing("by-head", points.points({"layer 0": found}, "cosine of the key with the mean query", (-1, 1)), caption)
