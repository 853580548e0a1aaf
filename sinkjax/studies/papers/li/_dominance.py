"""What is read of a dominance record: the dominant dims, and each number in every state, beside that of other positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax.studies as st
from sinkjax.analysis import intervals

STORE = "dominance"
BEFORE, AFTER = "dominance ratio at position 0, before the norm", "dominance ratio at position 0, after the norm"
ALIGNED, POSITIVE = "cos(u_1, k_0), mean over heads", "queries with a positive score of key 0 (%)"
ROW = "|cos| of k_0 and the dominant dim's row of W_K"
SHALLOW, PEAK, SINKING = "each prompt's peak in the first third of layers", "each prompt's peak", "heads that sink on key 0"
WELL, IN_WELL = "share of well-aligned heads (%)", "well-aligned heads"
HELD = 80  # per cent of the squared norm, from which one dim rules a state


def others(results: st.Results) -> list[int]:
    """The positions that position 0 is compared with, drawn at random."""
    places = np.arange(1, results.size("position", STORE) // 2 + 1)
    rng = intervals.generator(results.config.seed, "li/dominance controls")
    return sorted(rng.choice(places, min(results.config.controls, len(places)), replace=False).tolist())


def others_before(results: st.Results) -> NDArray:
    """Their dominance ratio before the norm, mean over prompts: float[depth, position]."""
    return np.nanmean(results[STORE]["before"].values[..., others(results)], axis=0)


def dims(results: st.Results) -> NDArray:
    """The dim that dominates the first token after the norm, in most prompts: int[depth]."""
    return np.array([np.bincount(column).argmax() for column in results[STORE]["dim"].values.T])


def row_cosines(results: st.Results) -> NDArray:
    """|cosine| of k_0 and that dim's row of W_K: float[layer, kv_head]."""
    values = results[STORE]["row_cosine"].values
    return np.take_along_axis(values, dims(results)[: len(values), None, None], axis=2)[..., 0]


def state(depth: int, L: int) -> str:
    """The name of the state at a depth: the layer that reads it."""
    return f"layer {depth}" if depth < L else "final norm"


def rows(results: st.Results) -> Iterator[st.Row]:
    """Each number in every state, ranked among other positions; the cosine with a row of W_K is ranked among all other rows."""
    data, places, L = results[STORE], others(results), results.size("layer", STORE)
    before, after, positive = data["before"].values, data["after"].values, 100 * data["positive"].mean("head").values
    among = data["row_cosine"].mean("kv_head").values
    rest = np.array([np.delete(cosines, dim) for cosines, dim in zip(among, dims(results)[:L], strict=True)])
    numbers = {  # float[prompt, state], and the controls, float[prompt, state, control]
        BEFORE: (before[..., 0], before[..., places]),
        AFTER: (after[..., 0], after[..., places]),
        ALIGNED: (data["alignment"].mean("head").values, data["key_alignment"].mean("head").values[None, :, places]),
        POSITIVE: (positive[..., 0], positive[..., places]),
        ROW: (row_cosines(results).mean(axis=1)[None], rest[None]),
    }
    for name, (values, elsewhere) in numbers.items():
        labels = [state(depth, L) for depth in range(values.shape[1])]
        yield from own_rows(results, labels, name, values, elsewhere)
    for label, count in ((SHALLOW, L // 3 + 1), (PEAK, L + 1)):
        for name, values in zip((BEFORE, AFTER), at_peaks(before[:, :count], after[:, :count]), strict=True):
            yield from own_rows(results, [label], name, values[:, :1], values[:, None, places])
    for (label, name), values in of_prompts(results).items():
        yield from own_rows(results, [label], name, values[:, :1], values[:, None, places] if values.shape[1] > 1 else None)


def own_rows(results: st.Results, labels: list[str], name: str, values: NDArray, elsewhere: NDArray | None) -> list[st.Row]:
    """values: float[prompt, label]. elsewhere: of the controls, float[prompt, label, control]."""
    clusters = results.clusters(len(values)) if len(values) > 1 else None
    others = None if elsewhere is None else elsewhere.swapaxes(0, 1)
    return st.own_rows(labels, "state that a layer reads", name, values.T, results.config.seed, others, clusters=clusters)


def at_peaks(before: NDArray, after: NDArray) -> list[NDArray]:
    """Both ratios of each prompt and position in the state with the largest ratio before the norm: float[prompt, position]."""
    peaks = np.where(np.isnan(before), -np.inf, before).argmax(axis=1)[:, None]
    return [np.take_along_axis(ratio, peaks, axis=1)[:, 0] for ratio in (before, after)]


def of_prompts(results: st.Results) -> dict[tuple[str, str], NDArray]:
    """What is said of heads, in each prompt, of key 0 and (with controls) of the other keys: float[prompt, key].

    By heads and measure; NaN in a prompt without such heads.
    """
    data, config = results[STORE], results.config
    cosine, positive = data["alignment"].values, 100 * data["positive"].values
    sinks, well = data["received"].values > config.eps, cosine >= config.aligned
    keys = np.repeat(data["key_alignment"].values[None], len(cosine), axis=0)
    keys[..., 0] = cosine
    return {
        (SINKING, ALIGNED): mean_of(keys, sinks),
        (SINKING, WELL): 100 * mean_of(well[..., None], sinks),
        (IN_WELL, POSITIVE): mean_of(positive, well),
    }


def mean_of(values: NDArray, chosen: NDArray) -> NDArray:
    """The mean over chosen heads, bool[prompt, layer, head], of float[prompt, layer, head, key]: float[prompt, key]."""
    count = chosen.sum(axis=(1, 2))[:, None]
    total = np.where(chosen[..., None], values, 0).sum(axis=(1, 2))
    return np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def peak(results: st.Results, name: str, count: int | None = None) -> int:
    """The state in which a number is largest, of the first `count` states."""
    found = [row.value.mean or 0 for row in results.own.values() if row.measure == name]
    return int(np.argmax(found[:count]))


def own_row(results: st.Results) -> NDArray:
    """The median |cosine| over the key heads of the layers in which one dim holds most of the squared norm, NaN without any."""
    data = results[STORE]
    ruled = data["held"].values[:, :-1] >= HELD / 100
    return np.array([over(np.median, cosines[rules]) for cosines, rules in zip(data["own_row"].values, ruled, strict=True)])


def over(of: Callable[[NDArray], Any], values: NDArray) -> float:
    """A mean, median, ... of some numbers, NaN where there are none."""
    return float(of(values)) if values.size else np.nan
