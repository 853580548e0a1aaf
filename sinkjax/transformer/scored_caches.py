"""Cache policies that rank keys: by the attention so far, by their norm, or by the attention of the last queries."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sinkjax.config_files.checks import refuse
from sinkjax.errors import one_of
from sinkjax.transformer.eviction import ScoredCache, refuse_size


@dataclass(frozen=True)
class H2O(ScoredCache):
    """k keys per layer and key-value head: the last k // 2, and the others with the most attention so far.

    Attention is summed over queries and over the query heads of a key-value head, and the key with the least is evicted
    (Zhang et al. 2023, arXiv 2306.14048).
    """

    def scored(self, score: jax.Array, k: jax.Array, received: jax.Array) -> jax.Array:
        """Add the token's attention."""
        del k
        return score + received


@dataclass(frozen=True)
class KeyNorm(ScoredCache):
    """k keys per layer and key-value head: the last k // 2, and the others with the lowest L2 norm.

    Keys of low norm receive much attention (Devoto et al. 2024, arXiv 2406.11430). As in H2O, the last keys stay.
    """

    def scored(self, score: jax.Array, k: jax.Array, received: jax.Array) -> jax.Array:
        """Give the new key its score, the negative norm."""
        del received
        return score.at[:, -1].set(-jnp.linalg.norm(k[:, 0].astype(score.dtype), axis=-1))


@dataclass(frozen=True)
class SnapKV(ScoredCache):
    """k keys per layer and key-value head: the last `window`, and the others with most attention from the last `window` queries.

    SnapKV (Li et al. 2024, arXiv 2404.14469) chooses once, at the end of a prompt; here the choice is repeated after every
    token, so a text of any length can be read. Attention is summed over the queries and over the query heads of a key-value
    head. As in the authors' code, it is pooled over neighbours in the cache, only among the keys before the window, with zeros
    beyond the ends of an average.

    Attributes:
        window: Number of last queries whose attention counts and whose keys stay.
        pool: Width of the pool, an odd number.
        pooling: "avg" or "max".
    """

    window: int = 8
    pool: int = 5
    pooling: str = "avg"

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_size("window", self.window, 1, self.k - 1)
        refuse_size("pool", self.pool, 1)
        refuse(self.pool % 2 == 0, f"pool must be odd, so that it has a middle, not {self.pool}")
        one_of("pooling", self.pooling, ("avg", "max"))

    @property
    def kept(self) -> int:
        """Number of last keys that stay regardless of their score."""
        return self.window

    @property
    def numbers(self) -> tuple[int, ...]:
        """One number for each of the last queries."""
        return (self.window,)

    def scored(self, score: jax.Array, k: jax.Array, received: jax.Array) -> jax.Array:
        """Drop the oldest query, and add the new one's attention."""
        del k
        return jnp.concatenate([score[..., 1:], received[..., None]], axis=-1)

    def worth(self, position: jax.Array, score: jax.Array, last: jax.Array | int) -> jax.Array:
        """Rank the keys before the window by the pooled sum over its queries."""
        before = (position >= 0) & (position <= last - self.window)
        total, half = jnp.where(before, score.sum(axis=-1), 0), self.pool // 2  # no sum is negative, so zeros pad a maximum too
        padded = jnp.pad(total, ((0, 0), (half, half), (0, 0)))
        parts = jnp.stack([padded[:, begin : begin + total.shape[1]] for begin in range(self.pool)])
        return super().worth(position, parts.max(axis=0) if self.pooling == "max" else parts.mean(axis=0), last)
