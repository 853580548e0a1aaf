"""Where a text has a token, and what keys and positions attract there beside random other positions of the same prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax.studies as st
from sinkjax.analysis import intervals
from sinkjax.config_files.checks import MIN_QUERIES

NATURAL = "in the text"
FREQUENT = 10  # occurrences of a token from which on its mean is listed


def label(token: str) -> str:
    """A token in words."""
    return "line break" if token == "\n" else f"“{token.strip(' ')}”"


def in_text(config: Any, text: Any, token: str, values: Mapping[str, NDArray], clusters: NDArray | None = None) -> list[st.Row]:
    """The values at a token where the text has it, ranked among as many random other positions of the same prompts.

    text: the unedited run. values: name of a measure -> float[prompt, position]. clusters: the document of each prompt.
    """
    where, usable = occurrences(text, token), candidates(text)
    rng = intervals.generator(config.seed, f"background/elsewhere in the text {token}")
    drawn = st.without_replacement(config.controls, lambda: random_positions(where, usable, rng), lambda chosen: chosen.tobytes())
    present = where.any(axis=-1)
    rows = []
    for name, found in values.items():
        here, *random = (_mean_at(found, chosen) for chosen in (where, *drawn))
        value = intervals.interval(here, seed=config.seed, clusters=clusters)
        rank = st.Rank.among(here[present].mean(), [mean[present].mean() for mean in random]) if present.any() else None
        rows.append(st.Row(f"{label(token)} {NATURAL}", NATURAL, name, value, rank=rank))
    return rows


def candidates(text: Any) -> NDArray[np.bool_]:
    """Positions except the first that enough queries see: bool[prompt, position]."""
    position = np.arange(text.sizes["position"])
    return (position > 0) & (position + MIN_QUERIES <= text["length"].values[:, None])


def occurrences(text: Any, token: str) -> NDArray[np.bool_]:
    """Where the text has a token, among the candidates: bool[prompt, position]."""
    size = text.sizes["position"]
    texts = [[*row, *[""] * (size - len(row))] for row in text.attrs["study"]["token_texts"]]
    return (np.array(texts, object) == token) & candidates(text)


def random_positions(where: NDArray[np.bool_], usable: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
    """As many random candidates in each prompt, except the chosen ones (fewer where there are not as many)."""
    others = usable & ~where
    order = np.where(others, rng.random(where.shape), np.inf).argsort(axis=-1).argsort(axis=-1)
    return others & (order < where.sum(axis=-1, keepdims=True))


def _mean_at(values: NDArray, where: NDArray[np.bool_]) -> NDArray:
    """Mean of values[prompt, position] over the chosen positions: float[prompt], NaN where there is none."""
    count = where.sum(axis=-1)
    return np.divide(np.where(where, values, 0).sum(axis=-1), count, out=np.full(len(where), np.nan), where=count > 0)


def ranked(text: Any, values: NDArray) -> list[tuple[float, int, str]]:
    """(mean of float[prompt, position], occurrences, token) of the tokens that the text has often, the largest first."""
    usable = candidates(text)
    named: dict[str, list[float]] = {}
    for row, texts in enumerate(text.attrs["study"]["token_texts"]):
        for position in np.flatnonzero(usable[row, : len(texts)]):
            named.setdefault(texts[position], []).append(values[row, position])
    means = ((float(np.mean(found)), len(found), token) for token, found in named.items() if len(found) >= FREQUENT)
    return sorted(means)[::-1]
