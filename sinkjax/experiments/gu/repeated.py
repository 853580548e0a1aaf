"""Attention in a prompt of one token repeated, in closed form, and the bound on it (Gu et al. 2025, Propositions 1 to 4).

Without absolute positions all hidden states of such a prompt are equal (attention then averages equal values), so all queries are
the same q and all keys the same k before the rotation, and the score of a query for the key `back` positions before it is a
function s(back) of the distance alone. With |s| <= xi, and t keys to see, no weight exceeds e^{2 xi} / (e^{2 xi} + t - 1).

All in float64, with NumPy. Shape suffixes: D head width, N tokens; leading axes are free.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def scores(query: NDArray, key: NDArray, frequencies: NDArray, factor: float, tokens: int) -> Floats:
    """Scores q R(back) k / sqrt(D) for back = 0 to tokens - 1: float64[..., tokens].

    query, key: [..., D], before the rotation. frequencies: [D / 2], radians an index. factor: on the rotary tables (1 but for
    YaRN)."""
    q1, q2 = np.split(np.asarray(query, np.float64), 2, axis=-1)
    k1, k2 = np.split(np.asarray(key, np.float64), 2, axis=-1)
    angles = np.asarray(frequencies, np.float64)[:, None] * np.arange(tokens)
    turned = (q1 * k1 + q2 * k2) @ np.cos(angles) + (q1 * k2 - q2 * k1) @ np.sin(angles)
    return turned * factor**2 / np.sqrt(np.shape(query)[-1])


def largest_score(query: NDArray, key: NDArray, factor: float, pairs: bool) -> Floats:
    """xi, which no score exceeds in size: float64[...].

    From the norms (the paper's): |q| |k| / sqrt(D). From the rotary pairs: the sum over pairs of |q_p| |k_p| / sqrt(D), which is
    never larger, as a rotation mixes nothing but the two entries of a pair.
    """
    sizes = []
    for x in (query, key):
        halves = np.stack(np.split(np.asarray(x, np.float64), 2, axis=-1))
        sizes.append(np.sqrt(np.square(halves).sum(axis=0)))
    q, k = sizes
    products = (q * k).sum(axis=-1) if pairs else np.sqrt(np.square(q).sum(axis=-1) * np.square(k).sum(axis=-1))
    return products * factor**2 / np.sqrt(np.shape(query)[-1])


def weights(by_distance: Floats, tokens: int) -> Floats:
    """Attention of each query to each key, 0 where it sees none: float64[..., tokens, tokens]. by_distance: `scores`."""
    back = np.arange(tokens)[:, None] - np.arange(tokens)
    shown = np.where(back >= 0, by_distance[..., np.maximum(back, 0)], -np.inf)
    powers = np.exp(shown - shown.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def to_first(by_distance: Floats) -> Floats:
    """Attention of each query to key 0: float64[..., N]."""
    return np.exp(by_distance - np.logaddexp.accumulate(by_distance, axis=-1))


def largest_weight(by_distance: Floats) -> Floats:
    """The largest weight in each query's row: float64[..., N]."""
    return np.exp(np.maximum.accumulate(by_distance, axis=-1) - np.logaddexp.accumulate(by_distance, axis=-1))


def bound(xi: NDArray, tokens: int) -> Floats:
    """e^{2 xi} / (e^{2 xi} + t - 1) for t = 1 to tokens: float64[..., tokens]."""
    others = np.arange(tokens, dtype=np.float64)
    return 1 / (1 + others * np.exp(-2 * np.asarray(xi, np.float64))[..., None])


def running_mean(values: Floats, tokens: NDArray) -> Floats:
    """Means of the first entries along the last axis, for each number of tokens: float64[..., tokens]. (alpha of Gu et al.)"""
    return values.cumsum(axis=-1)[..., tokens - 1] / tokens
