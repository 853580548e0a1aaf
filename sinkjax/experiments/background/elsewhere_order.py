"""The order of activation and sink in background/elsewhere: which of them comes first at position 0, and where either begins on
other tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals, metrics
from sinkjax.experiments.background.config import Elsewhere
from sinkjax.experiments.background.elsewhere_tokens import PLACED
from sinkjax.report.table import interval
from sinkjax.studies.papers.background._spectra import correlation

if TYPE_CHECKING:
    import xarray

ACTIVATION_RATIOS, SINK_SHARES = (5.0, 10.0, 20.0), (0.25, 0.5)  # what may count as an onset
LEAST_RATIO, LEAST_SHARE = 10.0, 0.25  # the onset on another token: times the median position, share of a layer's heads
LAGS = (-2, -1, 0, 1)  # depths from the one that enters a layer at which its activation is compared with the layer's sink


def gaps(text: xarray.Dataset, eps: float) -> dict[tuple[float, float], NDArray]:
    """(activation ratio, sink share) -> layers between the one that writes the activation and the first that sinks, by prompt.

    A depth has the activation if the largest |h| of position 0 exceeds that of the median position so many times; a layer sinks
    if more than the share of its heads do. NaN where either never happens.
    """
    largest = np.asarray(text["resid_max"])
    ratio = largest[..., 0] / np.nanmedian(largest, axis=-1)
    per_layer = metrics.sink_rate(text, 0, eps, per="layer")
    found = {}
    for least in ACTIVATION_RATIOS:
        for share in SINK_SHARES:
            writer, sink = metrics.onset(ratio, least) - 1, metrics.onset(per_layer, share)
            both = np.isfinite(writer) & np.isfinite(sink)
            found[least, share] = np.subtract(sink, writer, out=np.full(len(sink), np.nan), where=both)
    return found


def correlations(text: xarray.Dataset, eps: float) -> dict[int, NDArray]:
    """Lag -> correlation over layers l of log activation ratio at depth l + lag and the share of heads that sink on key 0.

    Lag 0: the stream that enters the layer, written by the one before it; lag 1: the stream that the layer itself leaves. All
    lags are over the same layers. Float[prompt], NaN where the sink is the same in every layer or there are too few layers.
    """
    largest = np.asarray(text["resid_max"])
    ratio = np.log(largest[..., 0] / np.nanmedian(largest, axis=-1))
    rates = metrics.sink_rate(text, 0, eps, per="layer")[:, -min(LAGS) :]
    count = rates.shape[-1]
    return {lag: correlation(ratio[:, lag - min(LAGS) :][:, :count], rates) for lag in LAGS}


def onsets(data: xarray.Dataset, place: int, eps: float) -> tuple[NDArray, NDArray]:
    """The layer that writes the activation of a position, and the first layer that sinks on it: float[edit, prompt], inf if none.

    The activation is there where the largest |h| exceeds LEAST_RATIO times that of the median position, the sink where more than
    LEAST_SHARE of a layer's heads sink; an activation that the embedding has is written by layer -1.
    """
    largest = np.asarray(data["resid_max"])
    ratio = largest[..., place] / np.nanmedian(largest, axis=-1)
    return metrics.onset(ratio, LEAST_RATIO) - 1, metrics.onset(metrics.sink_rate(data, place, eps, per="layer"), LEAST_SHARE)


def said_lags(text: xarray.Dataset, config: Elsewhere) -> str:
    """How a layer's sink goes with the activation at the depths around it, in words."""
    names = {-1: "a layer earlier", 0: "the stream that enters it", 1: "the stream that it leaves"}
    at = correlations(text, config.eps)
    if not np.isfinite(at[0]).any():
        return "The share of heads that sink on key 0 is the same in every layer, so that nothing correlates with it."
    parts = (f"{interval(intervals.interval(at[lag], seed=config.seed))} with {name}" for lag, name in names.items())
    listed = "; ".join(parts)
    return f"Over layers, the share of heads that sink on key 0 correlates with the log activation of position 0: {listed}."


def said_gaps(text: xarray.Dataset, config: Elsewhere) -> str:
    """The order of the onsets at position 0, for every pair of thresholds, in words."""
    parts = []
    for (ratio, share), values in gaps(text, config.eps).items():
        defined = values[np.isfinite(values)]
        where = f"ratio {ratio:g}, {share:.0%} of heads"
        parts.append(f"{where}: {interval(intervals.interval(defined, seed=config.seed))}" if defined.size else f"{where}: never")
    return (
        "The first onsets depend on their thresholds; layers between the one that writes the activation of position 0 and the"
        f" first one that sinks on it: {'; '.join(parts)}."
    )


def said_onsets(data: xarray.Dataset, config: Elsewhere) -> str:
    """The onsets on each token that is put at the place, in words; the first edit puts none there."""

    def middle(layers: NDArray, preposition: str) -> str:
        there = layers[np.isfinite(layers)]
        if not there.size:
            return "never"
        return f"{preposition} layer {np.median(there):.0f} (median of {there.size} of {layers.size} prompts)"

    writer, sink = onsets(data, config.place, config.eps)
    parts = [
        f"{str(label).removesuffix(f' {PLACED}')} activation {middle(writer[number], 'after')}, sink"
        f" {middle(sink[number], 'from')}"
        for number, label in enumerate(data["edit"].values)
        if number
    ]
    return (
        f"Onsets on the token at position {config.place} (|h| above {LEAST_RATIO:g} times that of the median position; more than"
        f" {LEAST_SHARE:.0%} of a layer's heads): {'; '.join(parts)}."
    )
