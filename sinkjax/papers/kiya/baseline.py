"""kiya/baseline: sink and massive activation of the unedited model, without and with a BOS (Figs. 1a, 2 and 6)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax import Probe, metrics
from sinkjax.papers.background._massive import STAGE_RATIO, massive_prompts, stages
from sinkjax.study import *
from sinkjax.study import MEDIANS, SIZES, below, largest_elsewhere, strongest_other_sink
from sinkjax.study.measures import largest

MASSIVE = "An activation is massive if |h| is above 100 and above 1,000 times the median of its hidden state (Sun et al. 2024)."


@dataclass(frozen=True, kw_only=True)
class Settings(Judged, Sinks, Mapped):
    """Settings of kiya/baseline."""


def study(lab: Lab, s: Settings) -> None:
    """The sink and the massive activation."""
    half, first = layer(lab.half), layer(0)
    seen, other = attention_to(0, lab.half), strongest_other_attention(0, lab.half)
    sink, other_sink, seen_first = sink_rate(0, s.eps), strongest_other_sink(0, s.eps), attention_to(0, 0)
    size, elsewhere, lag = largest_activation(0), largest_elsewhere(0), sink_lag(0, s.eps)
    share = massive_prompts(0, "documents", MEDIANS, MASSIVE)
    large, early = activation_ratio(half), activation_ratio(first)

    columns = (sink, other_sink, size, elsewhere, share, lag, seen, seen_first)
    text = lab.sweep("text", measures=columns)
    without = lab.sweep("without-bos", measures=columns, bos="none", title="without BOS")
    with_bos = lab.sweep("with-bos", measures=columns, bos="own", title="with BOS")

    massive, sinks = reaches(largest_activation(0, half), text, MASSIVE_SIZE), is_sink(seen, text, other)
    later = all_of(sinks, below(seen_first, text, 100 * s.eps))  # as in Llama-2-7B, not as in Llama-3.2-3B
    not_yet = all_of(massive, below(largest_activation(0, first), text, MASSIVE_SIZE))
    figures = "Kiya et al. 2026, Figs. 1a, 6"
    lab.claim("sink", figures, unedited(seen, text, other), beside=[unedited(sink, text, other_sink)])
    lab.claim("activation", figures, unedited(large, text), beside=[unedited(size, text, elsewhere), unedited(share, text)])
    lab.claim("sink-grows", "Kiya et al. 2026, Fig. 6a-c", unedited(seen, text, seen_first), later)
    lab.claim("activation-grows", "Kiya et al. 2026, Fig. 6d-f", unedited(large, text, early), not_yet)
    lab.claim("lag", "ours, on Kiya et al. 2026, Figs. 2c, e", unedited(lag, text), massive)

    both = (without.every, with_bos.every)
    lab.draw(by_layer, partial(sink_rate, 0, s.eps), partial(largest_activation, 0), conditions=both, unedited=False)
    lab.maps(*both)
    lab.draw(activations, *both)


def activation_ratio(layers: Layers) -> Measure:
    """Largest |h| after some layers at position 0 over its size at a typical position, the median over the later ones."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        found = largest(data, layers)
        return np.asarray(found[..., 0] / np.nanmedian(found[..., 1:], axis=-1))

    return Measure(f"largest |h| at position 0 over that at a typical other position in {layers.label}", of, SIZES, log=True)


def sink_lag(position: int, eps: float) -> Measure:
    """Number of layers from a position's activation to its sink, mean over stages; negative if the sink comes first.

    A stage of the activation is a run of layers that leave it above 100 and 100 times the median, and a stage of the sink a
    run of layers whose mean map gives the position more than eps. A stage of the sink belongs to the activation's stage whose
    onset is nearest, and its lag is that of the nearest one; stages of the activation without a sink of their own have no lag.
    """

    def of(data: xarray.Dataset) -> NDArray[Any]:
        seen = data["attention_received"].values[..., position].mean(axis=-1) > eps
        large = metrics.massive_activations(data, position, ratio=STAGE_RATIO)[..., 1:] == 1
        return np.array([[_lag(*pair) for pair in zip(*rows, strict=True)] for rows in zip(seen, large, strict=True)])

    name = f"layers from the onset of the activation at position {position} to the onset of the sink, mean over stages"
    note = f"""A stage of the activation is a run of layers that leave it above 100 and {STAGE_RATIO:g} times the median (Sun et
        al. 2024: 1,000), and a stage of the sink a run of layers whose attention to the position, mean over heads, is above
        {eps:g}. A sink belongs to the nearest onset of the activation, and a stage without a sink is left out."""
    asks = Probe(attention_received=True, resid_max=True, resid_median=True)
    return Measure(name, of, asks, "layers", note=note, position=position)


def _lag(seen: NDArray[np.bool_], large: NDArray[np.bool_]) -> float:
    """Return the mean lag of the sinks' onsets behind their activations', from bool[layer] each; NaN without a stage of both."""
    sinks, sizes = (np.array([first for first, _ in stages(one)]) for one in (seen, large))
    if not sinks.size or not sizes.size:
        return np.nan
    apart = sinks - sizes[:, None]
    owner = np.abs(apart).argmin(axis=0)
    return float(np.mean([min(apart[own, owner == own], key=abs) for own in np.unique(owner)]))
