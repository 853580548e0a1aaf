"""What the studies of masked attention share: sets of edited layers, and measures at a position of each edit's own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import metrics

SINGLE, FIRST, ALL = "one layer", "first layers", "all layers"
SOME = 1.0  # per cent of heads: a model with fewer on a key has no sink there that could move
ONSET = 0.5  # share of a layer's heads by which the sink has formed, as in kiya/baseline


def first_layers(n: int) -> str:
    """The name of the set of the first n layers."""
    return "layer 0" if n == 1 else f"layers 0 to {n - 1}"


def layer_sets(L: int, counts: Iterable[int], first: str = FIRST) -> dict[str, dict[str, range]]:
    """Series of sets of layers, each name -> layers: every layer alone, the first n for each n of `counts` below L, and all."""
    return {
        SINGLE: {f"layer {layer}": range(layer, layer + 1) for layer in range(L)},
        first: {first_layers(n): range(n) for n in sorted(set(counts)) if n < L},
        ALL: {ALL: range(L)},
    }


def onset(shares: NDArray, key: int) -> int:
    """The layer in which the sink forms: the first with more than `ONSET` of its heads on the key, mean over prompts.

    It is read from the unedited run, so it is no choice among the effects of edits.

    Args:
        shares: Of each layer's heads that sink on the key, float[prompt, layer].
        key: For the message.

    Raises:
        Absent: There is none.
    """
    found = float(metrics.onset(np.asarray(shares).mean(axis=0), ONSET))
    if not np.isfinite(found):
        raise st.Absent(f"in no layer do more than {ONSET:.0%} of the heads sink on key {key}")
    return int(found)


def placed_measures(place: str, note: str) -> tuple[st.Measure, st.Measure, st.Measure]:
    """Sinks and the largest |h| at the position of each edit (`Condition.at`), and sinks on key 0. note: what a sink is."""
    points = "percentage points"
    return (
        st.Measure(f"heads that sink on {place} (%)", st.heads_on, unit=points, note=note, placed=True),
        st.Measure(f"largest |h| at {place}", st.largest, placed=True),
        st.Measure("heads that sink on key 0 (%)", lambda data: st.heads_on(data)[..., 0], unit=points),
    )


def zero_added(which: str, **selected: Any) -> dict[str, sinkjax.Edit]:
    """The no-op of a mask: 0 added to the logits that it hides. selected: as for `sinkjax.edit`."""
    return {f"0 added to the logits {which}": sinkjax.edit("logits", "add", 0.0, relation="others", **selected)}
