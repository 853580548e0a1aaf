"""What kiya/bos-swap says of the paper's statements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals, metrics
from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.base import Claim
from sinkjax.experiments.kiya import bos
from sinkjax.experiments.kiya.config import BosSwap
from sinkjax.experiments.words import above, below, verdict
from sinkjax.report.table import interval

if TYPE_CHECKING:
    import xarray

DEEP = 2  # the first layer that counts as deeper: the paper's layer 3
FEW = 5.0  # per cent of a layer's heads, below which there is no sink


def claims(config: BosSwap, runs: Mapping[str, xarray.Dataset]) -> tuple[Claim, ...]:
    """The paper's statements on BOS, and what the same swap does to an ordinary first token."""
    follows = "In the first layer, sink and massive activation follow BOS, and the new first token has none (Fig. 2a, d)."
    late = (
        "In the first layer neither the new first token nor the moved BOS has a sink; deeper, the new first token has it (Fig. 7,"
        " Llama-2-7B)."
    )
    deeper = "In deeper layers the new first token has both sink and massive activation (Fig. 2c, f; Fig. 7)."
    ordinary = "The same holds of an ordinary first token: in deeper layers position 0 has both, whatever token is there."
    if bos.WITH not in runs:
        reason = "The model's files name no BOS token."
        absent = tuple(Claim(statement, "not applicable", reason) for statement in (follows, late, deeper))
    else:
        data = runs[bos.WITH]
        absent = (_follows(config, data, follows), _late(config, data, late), _deeper(config, data, deeper))
    return (*absent, _deeper(config, runs[bos.WITHOUT], ordinary))


def rates(config: BosSwap, data: xarray.Dataset) -> tuple[NDArray, NDArray]:
    """Share of heads, in per cent, that sink on position 0 and on the moved token's place: float[swap, prompt, layer] each."""
    swapped = data.isel(edit=slice(1, None))
    place = np.repeat(np.array(config.positions)[:, None], data.sizes["prompt"], axis=1)
    first, moved = (metrics.sink_rate(swapped, key, config.eps, per="layer") for key in (0 * place, place))
    return 100 * first, 100 * moved


def prominences(config: BosSwap, data: xarray.Dataset) -> tuple[NDArray, NDArray]:
    """|h| at position 0 and at the moved token, over that of a typical unswapped position: float[swap, prompt, depth] each."""
    swapped = data.isel(edit=slice(1, None))
    place, positions = np.array(config.positions), np.arange(data.sizes["position"])
    others = (positions != 0) & (positions != place[:, None])
    return bos.prominence(swapped, 0 * place, others), bos.prominence(swapped, place, others)


def _of(config: BosSwap, values: NDArray) -> Interval:
    """The mean over swaps, and over prompts its interval, of float[swap, prompt]."""
    return intervals.interval(values.mean(axis=0), seed=config.seed)


def _follows(config: BosSwap, data: xarray.Dataset, statement: str) -> Claim:
    (first, moved), (at_first, at_moved) = rates(config, data), prominences(config, data)
    sink, massive = _of(config, (moved - first)[..., 0]), _of(config, (at_moved - at_first)[..., 1])
    return Claim(
        statement,
        verdict(above(sink, 0) and above(massive, 0)),
        "Rule: in layer 0, more heads sink on the moved BOS than on position 0, and |h| after it is larger there, both intervals"
        f" above 0. Difference {interval(sink, signed=True)} percentage points ({interval(_of(config, moved[..., 0]))} % and"
        f" {interval(_of(config, first[..., 0]))} %), and {interval(massive, signed=True)} times a typical position's |h|"
        f" ({interval(_of(config, at_moved[..., 1]))} and {interval(_of(config, at_first[..., 1]))}).",
    )


def _late(config: BosSwap, data: xarray.Dataset, statement: str) -> Claim:
    first, moved = (_of(config, rate[..., 0]) for rate in rates(config, data))
    neither = below(first, FEW) and below(moved, FEW)
    later = _deeper(config, data, "")
    return Claim(
        statement,
        verdict(neither and later.verdict == "confirmed"),
        f"Rule: in layer 0 fewer than {FEW:g} % of heads sink on either place, by their intervals, and the next statement is"
        f" confirmed. In layer 0 {interval(first)} % sink on position 0 and {interval(moved)} % on the moved BOS; the next"
        f" statement is {later.verdict}.",
    )


def _deeper(config: BosSwap, data: xarray.Dataset, statement: str) -> Claim:
    deep = min(DEEP, data.sizes["layer"] - 1)
    first, moved = (rate[..., deep:].mean(axis=-1) for rate in rates(config, data))
    before = 100 * metrics.sink_rate(data, 0, config.eps, per="layer")[:1, :, deep:].mean(axis=-1)
    at_first, at_moved = (times[..., 1:].max(axis=-1) for times in prominences(config, data))
    kept, massive = _of(config, first - before / 2), _of(config, at_first)
    return Claim(
        statement,
        verdict(above(kept, 0) and above(massive, config.massive)),
        f"Rule: from layer {deep} on, position 0 keeps more than half of its sinks, and at some depth its |h| is more than"
        f" {config.massive:g} times a typical position's, both by their intervals. {interval(_of(config, first))} % of heads sink"
        f" on position 0 ({interval(_of(config, before))} % without an edit) and {interval(_of(config, moved))} % on the moved"
        f" token; |h| is {interval(massive)} times a typical position's, and at the moved token {interval(_of(config, at_moved))}"
        " times.",
    )
