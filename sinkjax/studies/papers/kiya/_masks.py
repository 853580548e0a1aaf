"""What the studies of masked attention share: sets of edited layers, and measures at a position of each edit's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import metrics

SINGLE, FIRST, ALL = "one layer", "first layers", "all layers"
SOME = 1.0  # per cent of heads: a model with fewer on a key has no sink there that could move
UP_TO_SINK = "layers 0 to the one in which the sink forms"
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


def sink_forms(key: Callable[[Any], int]) -> st.Values:
    """The layer in which the sink forms, known before the sweep: no edit, on the prompts of the controls.

    The last layer if it never forms, which `before_the_last` tells apart. key: config -> the key.
    """

    def measured(config: Any, model: Any, batch: st.Batch) -> int:
        few = slice(st.control_prompts(config))
        asked, tokens, lengths = sinkjax.Probe(attention_received=True), batch.tokens[few], batch.lengths[few]
        data = sinkjax.sweep(model, tokens, [sinkjax.compose()], probe=asked, lengths=lengths, progress=False)
        try:
            return onset(metrics.sink_rate(data, key(config), config.eps, per="layer")[0], key(config))
        except st.Absent:
            return int(model.config.layers) - 1

    return st.Values(lambda config, architecture, prompts: architecture.layers - 1, measured)


def before_the_last(shares: NDArray, key: int) -> str:
    """The label of the layers up to that in which the sink forms. shares, key: as for `onset`.

    Raises:
        Absent: It forms in no layer, or in the last one alone.
    """
    if onset(shares, key) == np.shape(shares)[1] - 1:
        raise st.Absent("the sink forms in the last layer alone, so that there are no later ones")
    return UP_TO_SINK


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
