"""Visibility of keys, and non-rotary positions: vectors added to the embedding, or biases added to the scores.

A score's bias depends only on the distance back from the query to the key. A key ahead of its query, visible only in a prefix,
counts as distance 0, as in a T5 decoder.

Sources. Sinusoidal: Vaswani et al. 2017; ALiBi: Press et al. 2022; buckets: Raffel et al. 2020 (T5); all of them compared: Gu et
al. 2025, Table 3, whose "relative" row is `BucketIndex`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.config_files.checks import refuse


class AddedPosition(ABC):
    """A vector for each position, added to the embedding after the edits at EMBED."""

    @abstractmethod
    def vectors(self, T: int, width: int, params: Mapping[str, Any]) -> Any:
        """Return vectors of the first T positions, [T, width]. params: the model's parameters."""


@dataclass(frozen=True)
class Sinusoidal(AddedPosition):
    """Sines in the first half of the dims and cosines in the second, of i / base^(2 n / width) at position i."""

    base: float = 10_000.0

    def __post_init__(self) -> None:
        refuse(not self.base > 1, f"the base of sinusoidal positions must be above 1, not {self.base}")

    def vectors(self, T: int, width: int, params: Mapping[str, Any]) -> np.ndarray:
        angles = np.arange(T)[:, None] * self.base ** -(np.arange(0, width, 2) / width)
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)


@dataclass(frozen=True)
class Learned(AddedPosition):
    """A learned table. Parameters: positions [context + offset, width].

    offset: the row of position 0; rows before it are unused (OPT).
    """

    offset: int = field(default=0, repr=False)

    def vectors(self, T: int, width: int, params: Mapping[str, Any]) -> jax.Array:
        return params["positions"][self.offset : self.offset + T]


class ScorePosition(ABC):
    """A bias per distance (and head), added to the scaled scores before the edits at LOGITS."""

    @abstractmethod
    def by_distance(self, T: int, heads: int, w: Mapping[str, Any]) -> Any:
        """Return the biases at distances 0 to T - 1, [H or 1, T]. w: the parameters of the layer."""

    def between(self, query_Q: jax.Array, key_S: jax.Array, T: int, heads: int, w: Mapping[str, Any], dtype: Any) -> jax.Array:
        """Return the biases between queries and keys at these positions, [H or 1, Q, S]; distances from T count as T - 1."""
        return jnp.asarray(self.by_distance(T, heads, w), dtype)[:, jnp.clip(query_Q[:, None] - key_S, 0, T - 1)]


@dataclass(frozen=True)
class Alibi(ScorePosition):
    """-slope distance, with the slopes 2^(-8 / H), 2^(-16 / H), ..., 2^-8 of the H heads."""

    def by_distance(self, T: int, heads: int, w: Mapping[str, Any]) -> np.ndarray:
        return -(2.0 ** (-8 * np.arange(1, heads + 1) / heads))[:, None] * np.arange(T)


@dataclass(frozen=True)
class PowerAlibi(ScorePosition):
    """-slope distance, with the slopes of a power of two of heads (BLOOM, MPT, Falcon).

    They are 2^(-m / n), ..., 2^-m for n heads and m = `steepest`; of fewer heads than n, the next power of two, every second one
    comes first (Press et al. 2022). factor: on the slopes. rounded: slopes, positions and their products are rounded to bfloat16
    (Falcon in transformers), so that a score depends on both positions.
    """

    steepest: float = 8.0
    factor: float = 1.0
    rounded: bool = False

    def slopes(self, heads: int) -> np.ndarray:
        n = 2 ** math.ceil(math.log2(heads))
        slopes = 2.0 ** (-self.steepest * np.arange(1, n + 1) / n)
        return slopes if n == heads else np.concatenate([slopes[1::2], slopes[::2]])[:heads]

    def by_distance(self, T: int, heads: int, w: Mapping[str, Any]) -> np.ndarray:
        return -self.factor * self.slopes(heads)[:, None] * np.arange(T)

    def between(self, query_Q: jax.Array, key_S: jax.Array, T: int, heads: int, w: Mapping[str, Any], dtype: Any) -> jax.Array:
        if not self.rounded:
            return super().between(query_Q, key_S, T, heads, w, dtype)

        def bfloat16(x: Any) -> jax.Array:
            return jax.lax.reduce_precision(jnp.asarray(x, dtype), exponent_bits=8, mantissa_bits=7)

        query, key = (bfloat16(bfloat16(self.slopes(heads))[:, None] * bfloat16(at)) for at in (query_Q, key_S))
        return self.factor * (key[:, None] - query[:, :, None])


@dataclass(frozen=True)
class Buckets(ScorePosition):
    """Distances in buckets: half of the buckets have one distance each, the others grow to `max_distance` by equal ratios."""

    buckets: int = 32
    max_distance: int = 128

    def __post_init__(self) -> None:
        fits = self.buckets >= 2 and self.buckets % 2 == 0 and self.max_distance > self.buckets // 2
        given = f"{self.buckets} and {self.max_distance}"
        refuse(not fits, f"relative positions need an even number of buckets and a max_distance above half of it, not {given}")

    def numbers(self, T: int) -> np.ndarray:
        """Return the bucket of each distance from 0 to T - 1, int [T]."""
        near, distance = self.buckets // 2, np.arange(T)
        steps = np.log(np.maximum(distance, near) / near) / np.log(self.max_distance / near) * (self.buckets - near)
        return np.where(distance < near, distance, np.minimum(near + steps.astype(int), self.buckets - 1))


@dataclass(frozen=True)
class RelativeBias(Buckets):
    """A learned bias per bucket and head, separate for each layer (T5 shares one table among its layers).

    Parameters: layers/relative_bias [L, H, buckets].
    """

    def by_distance(self, T: int, heads: int, w: Mapping[str, Any]) -> jax.Array:
        return w["relative_bias"][:, self.numbers(T)]


@dataclass(frozen=True)
class BucketIndex(Buckets):
    """The bucket's index itself as the bias, so that scores grow with distance, as in Gu et al.'s code for "relative"."""

    def by_distance(self, T: int, heads: int, w: Mapping[str, Any]) -> np.ndarray:
        return self.numbers(T)[None]


def vectors(
    h: jax.Array, position: object, params: Mapping[str, Any], first: jax.Array | int = 0, total: int | None = None
) -> jax.Array | None:
    """Return the vectors [T, d] to add to embedding rows h [B, T, d], in their dtype; None if the model has none.

    first: the position of the first row. total: the number of positions; None: T.
    """
    if not isinstance(position, AddedPosition):
        return None
    T, width = h.shape[1:]
    made = jnp.asarray(position.vectors(total or T, width, params), h.dtype)
    return made if total is None else jax.lax.dynamic_slice_in_dim(made, first, T)


def add_to_scores(
    scores: jax.Array, position: object, query_Q: jax.Array, key_S: jax.Array, T: int, w: Mapping[str, Any]
) -> jax.Array:
    """Add position biases, if any, to scores [B, H, Q, S]. T: distances from here count as T - 1."""
    if not isinstance(position, ScorePosition):
        return scores
    return scores + position.between(query_Q, key_S, T, scores.shape[1], w, scores.dtype)


def visible_keys(rows_Q: Any, T: int, window: Any, prefix: int | None, lengths_B: Any) -> Any:
    """Return whether each query in `rows_Q` sees each of T keys: bool [B or 1, Q, T], in NumPy or JAX like the arguments.

    A query sees the last `window` keys, including its own (None for all earlier ones), and the prefix: the first `prefix`
    positions, within the prompt, see each other in both directions, and every later query sees them beyond any window.
    """
    keys = np.arange(T)
    back_QT = rows_Q[:, None] - keys
    seen_QT = back_QT >= 0 if window is None else (back_QT >= 0) & (back_QT < window)
    if prefix is None:
        return seen_QT[None]
    return seen_QT[None] | in_prefix(T, prefix, lengths_B)[:, None]


def in_prefix(T: int, prefix: int | None, lengths_B: Any) -> Any:
    """Return which positions are in the prefix and in the prompt: bool [B, T]."""
    return np.arange(T) < lengths_B[:, None].clip(max=prefix or 0)
