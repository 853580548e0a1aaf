"""What background/elsewhere reads from its records: where tokens stand, what they attract, and when position 0 begins to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax import metrics, stats
from sinkjax.experiments.background.config import Elsewhere
from sinkjax.experiments.background.spectra import correlation
from sinkjax.experiments.config import MIN_QUERIES
from sinkjax.experiments.summary import Row

if TYPE_CHECKING:
    import xarray

NATURAL = "in the text"
SINKS, SIZE = "heads that sink there (%)", "largest |h| there over that of the median position"
ACTIVATION_RATIOS, SINK_SHARES = (5.0, 10.0, 20.0), (0.25, 0.5)  # what may count as an onset
LAGS = (-2, -1, 0, 1)  # depths from the one that enters a layer at which its activation is compared with the layer's sink
FREQUENT = 10  # occurrences of a token from which on its mean is listed


def label(token: str) -> str:
    """A token in words."""
    return "line break" if token == "\n" else f"“{token.strip(' ')}”"


def sizes(data: xarray.Dataset) -> NDArray:
    """Largest over depths of max |h| at a position over that of the prompt's median position: float[..., prompt, position]."""
    largest = np.asarray(data["resid_max"])
    return (largest / np.nanmedian(largest, axis=-1, keepdims=True)).max(axis=-2)


def sinks(data: xarray.Dataset, eps: float) -> NDArray:
    """Heads that sink on each key, in per cent: float[..., prompt, key]."""
    return 100 * (np.asarray(data["attention_received"]) > eps).mean(axis=(-3, -2))


def in_text(config: Elsewhere, text: xarray.Dataset, token: str) -> tuple[Row, ...]:
    """What a token attracts where the text has it, beside as many random other positions of the same prompts."""
    where, usable = occurrences(text, token), candidates(text)
    rng = stats.generator(config.seed, f"background/elsewhere in the text {token}")
    draws = [where, *(random_positions(where, usable, rng) for _ in range(config.controls))]
    rows = []
    for name, values in ((SINKS, sinks(text, config.eps)), (SIZE, sizes(text))):
        means = [_mean_at(values, chosen) for chosen in draws]
        present = np.isfinite(means[0])
        averages = [mean[present].mean() if present.any() else np.nan for mean in means]
        rank = float(stats.percentile_among(averages[0], averages[1:])) if present.any() else None
        value = stats.interval(means[0], seed=config.seed)
        rows.append(
            Row(f"{label(token)} {NATURAL}", NATURAL, name, value, percentile=rank, controls=config.controls * present.any())
        )
    return tuple(rows)


def candidates(text: xarray.Dataset) -> NDArray[np.bool_]:
    """Positions but the first that enough queries see: bool[prompt, position]."""
    position = np.arange(text.sizes["position"])
    return (position > 0) & (position + MIN_QUERIES <= text["length"].values[:, None])


def occurrences(text: xarray.Dataset, token: str) -> NDArray[np.bool_]:
    """Where the text has a token, among the candidates: bool[prompt, position]."""
    size = text.sizes["position"]
    texts = [[*row, *[""] * (size - len(row))] for row in text.attrs["study"]["token_texts"]]
    return (np.array(texts, object) == token) & candidates(text)


def random_positions(where: NDArray[np.bool_], usable: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
    """As many random candidates in each prompt, but the chosen ones (fewer where there are not as many)."""
    others = usable & ~where
    order = np.where(others, rng.random(where.shape), np.inf).argsort(axis=-1).argsort(axis=-1)
    return others & (order < where.sum(axis=-1, keepdims=True))


def _mean_at(values: NDArray, where: NDArray[np.bool_]) -> NDArray:
    """Mean of values[prompt, position] over the chosen positions: float[prompt], NaN where there is none."""
    count = where.sum(axis=-1)
    return np.divide(np.where(where, values, 0).sum(axis=-1), count, out=np.full(len(where), np.nan), where=count > 0)


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


def most_carried(text: xarray.Dataset) -> str:
    """The frequent tokens of the text with the largest activations, in words."""
    values, usable = sizes(text), candidates(text)
    named: dict[str, list[float]] = {}
    for row, texts in enumerate(text.attrs["study"]["token_texts"]):
        for position in np.flatnonzero(usable[row, : len(texts)]):
            named.setdefault(texts[position], []).append(values[row, position])
    means = sorted(
        ((float(np.mean(entries)), len(entries), token) for token, entries in named.items() if len(entries) >= FREQUENT)
    )
    return ", ".join(f"{label(token)} {mean:.1f} (n = {count})" for mean, count, token in means[::-1][:3])
