"""What background/elsewhere reads from its records: where tokens stand, and what they attract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.config_files.checks import MIN_QUERIES
from sinkjax.experiments.background.config import Elsewhere
from sinkjax.experiments.summary import Row

if TYPE_CHECKING:
    import xarray

NATURAL, PLACED = "in the text", "put there"
SINKS, SIZE = "heads that sink there (%)", "largest |h| there over that of the median position"
FREQUENT = 10  # occurrences of a token from which on its mean is listed


def label(token: str) -> str:
    """A token in words."""
    return "line break" if token == "\n" else f"“{token.strip(' ')}”"


def there(token: str) -> str:
    """The label of the edit that puts a token at the place."""
    return f"{label(token)} {PLACED}"


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
    rng = intervals.generator(config.seed, f"background/elsewhere in the text {token}")
    draws = [where, *(random_positions(where, usable, rng) for _ in range(config.controls))]
    rows = []
    for name, values in ((SINKS, sinks(text, config.eps)), (SIZE, sizes(text))):
        means = [_mean_at(values, chosen) for chosen in draws]
        present = np.isfinite(means[0])
        averages = [mean[present].mean() if present.any() else np.nan for mean in means]
        rank = float(intervals.percentile_among(averages[0], averages[1:])) if present.any() else None
        value = intervals.interval(means[0], seed=config.seed)
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
