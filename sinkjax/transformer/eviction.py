"""Cache policies: which earlier keys and values stay available while a model reads a long text.

A policy keeps keys before their rotary rotation and counts positions inside the cache, as in StreamingLLM. No query is therefore
further from a key than the size of the cache, however long the text. Shape suffixes: B texts, Q new tokens, S keys, K key-value
heads, D head width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from sinkjax.errors import SinkjaxError, short

State = dict[str, jax.Array]  # the keys and values that a policy keeps in a layer, with their scores


class Keys(NamedTuple):
    """Keys that new tokens may see, not rotated.

    keys, values: [B, S, K, D]. key_index: int [S], query_index: int [Q], positions in the cache; only differences count, because
    `evaluate` refuses models whose scores depend on more: a kernel or a norm of rotated queries and keys, queries that grow,
    rounded position biases.
    visible: bool [1, 1, Q, S]. position: int, broadcasts to [B, S, K], positions in the text, negative for empty slots.
    """

    keys: jax.Array
    values: jax.Array
    key_index: jax.Array
    query_index: jax.Array
    visible: jax.Array
    position: jax.Array


@dataclass(frozen=True)
class Streaming:
    """Cache of the first `sinks` tokens and the last `window` ones, including the query's own (StreamingLLM, Xiao et al. 2024).

    Attributes:
        sinks: Number of first tokens to keep; 0: a plain sliding window.
        window: Number of last tokens to keep.
    """

    sinks: int = 4
    window: int = 1020
    block: ClassVar[int] = 128  # tokens computed at a time; this changes results only by rounding

    def __post_init__(self) -> None:
        refuse_size("sinks", self.sinks, 0)
        refuse_size("window", self.window, 1)

    @property
    def size(self) -> int:
        """Maximum number of keys that a query sees."""
        return self.sinks + self.window

    def empty(self, B: int, K: int, D: int, dtype: Any) -> State:
        sizes = {"sink": self.sinks, "recent": self.window}
        return {f"{part}_{what}": jnp.zeros((B, size, K, D), dtype) for part, size in sizes.items() for what in "kv"}

    def keys(self, state: State, k: jax.Array, v: jax.Array, first: jax.Array | int) -> tuple[Keys, ...]:
        """Return the cache that the tokens from `first` see; k, v [B, Q, K, D] are their own."""
        rows = first + jnp.arange(k.shape[1])
        at = first - self.window + jnp.arange(self.window + k.shape[1])
        begin = jnp.maximum(at[0], 0)  # small angles are exact
        seen = (at >= self.sinks) & (at <= rows[:, None]) & (at > rows[:, None] - self.window)
        recent_k, recent_v = (jnp.concatenate([state[f"recent_{what}"], new], axis=1) for what, new in (("k", k), ("v", v)))
        parts = [Keys(recent_k, recent_v, at - begin, rows - begin, seen[None, None], at[:, None])]
        if self.sinks:
            sinks = jnp.arange(self.sinks)
            sink_k, sink_v = (self._sinks(state[f"sink_{what}"], new, first) for what, new in (("k", k), ("v", v)))
            inside = jnp.minimum(rows, self.size - 1)
            parts.insert(0, Keys(sink_k, sink_v, sinks, inside, (sinks <= rows[:, None])[None, None], sinks[:, None]))
        return tuple(parts)

    def keep(self, state: State, k: jax.Array, v: jax.Array, first: jax.Array | int, received: jax.Array) -> State:
        """Return the state after these tokens. received: [B, K, S], the attention that each of `keys` got."""
        sinks = {f"sink_{what}": self._sinks(state[f"sink_{what}"], new, first) for what, new in (("k", k), ("v", v))}
        recent = {name: jnp.concatenate([state[name], new], axis=1) for name, new in (("recent_k", k), ("recent_v", v))}
        return sinks | {name: every[:, -self.window :] for name, every in recent.items()}

    def _sinks(self, old: jax.Array, new: jax.Array, first: jax.Array | int) -> jax.Array:
        """Update the vectors of the first tokens with any that are among the new tokens."""
        place = jnp.arange(self.sinks) - first
        arrived = (place >= 0) & (place < new.shape[1])
        return jnp.where(arrived[:, None, None], new[:, jnp.clip(place, 0, new.shape[1] - 1)], old)


@dataclass(frozen=True)
class ScoredCache:
    """k keys per layer and key-value head: the last ones, and the others with the highest scores. A subclass gives the scores.

    Attributes:
        k: Maximum number of keys that a query sees, including its own.
    """

    k: int
    block: ClassVar[int] = 1  # tokens computed at a time, because later ones must not see keys evicted by these

    def __post_init__(self) -> None:
        refuse_size("k", self.k, 2)

    @property
    def size(self) -> int:
        """Maximum number of keys that a query sees."""
        return self.k

    @property
    def kept(self) -> int:
        """Number of last keys that stay whatever their score."""
        return self.k // 2

    @property
    def numbers(self) -> tuple[int, ...]:
        """Shape of the numbers that score a key."""
        return ()

    def empty(self, B: int, K: int, D: int, dtype: Any) -> State:
        slots = self.k - 1
        return {
            "k": jnp.zeros((B, slots, K, D), dtype),
            "v": jnp.zeros((B, slots, K, D), dtype),
            "position": jnp.full((B, slots, K), -1),
            "score": jnp.zeros((B, slots, K, *self.numbers), jnp.promote_types(dtype, jnp.float32)),
        }

    def scored(self, score: jax.Array, k: jax.Array, received: jax.Array) -> jax.Array:
        """Update the scores [B, S, K, *numbers] after a token: k [B, 1, K, D] is its key, received [B, S, K] its attention."""
        raise NotImplementedError

    def worth(self, position: jax.Array, score: jax.Array, last: jax.Array | int) -> jax.Array:
        """Rank the keys at these positions, [B, S, K]; the lowest is evicted. last: the last token's position."""
        return jnp.where(position > last - self.kept, jnp.inf, score)

    def keys(self, state: State, k: jax.Array, v: jax.Array, first: jax.Array | int) -> tuple[Keys, ...]:
        """Return the cache that the token at `first` sees; k, v [B, 1, K, D] are its own. Slots fill from the end, by
        position."""
        index = jnp.arange(self.k)
        seen = index >= self.k - 1 - first
        all_k, all_v = (jnp.concatenate([old, new], axis=1) for old, new in ((state["k"], k), (state["v"], v)))
        return (Keys(all_k, all_v, index, index[-1:], seen[None, None, None], _with(state["position"], first)),)

    def keep(self, state: State, k: jax.Array, v: jax.Array, first: jax.Array | int, received: jax.Array) -> State:
        """Return the state after this token. received: [B, K, S], the attention that each of `keys` got."""
        position = _with(state["position"], first)
        new = jnp.pad(state["score"], [(0, 0), (0, 1)] + [(0, 0)] * (state["score"].ndim - 2))
        score = self.scored(new, k, received.swapaxes(1, 2))
        evicted = jnp.argmin(jnp.where(position < 0, -jnp.inf, self.worth(position, score, first)), axis=1)[:, None]
        slots = jnp.arange(self.k - 1)[None, :, None]
        chosen = slots + (slots >= evicted)

        def take(x: jax.Array) -> jax.Array:
            return jnp.take_along_axis(x, chosen.reshape(*chosen.shape, *[1] * (x.ndim - 3)), axis=1)

        keys, values = (jnp.concatenate([old, new], axis=1) for old, new in ((state["k"], k), (state["v"], v)))
        return {"k": take(keys), "v": take(values), "position": take(position), "score": take(score)}


def _with(position: jax.Array, first: jax.Array | int) -> jax.Array:
    """Add the position of a new key to those of the kept keys [B, S, K]."""
    return jnp.concatenate([position, jnp.full_like(position[:, :1], first)], axis=1)


CachePolicy = Streaming | ScoredCache


def refuse_size(name: str, value: Any, least: int, most: float = float("inf")) -> None:
    """Raise unless a field is an integer within bounds."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        bounds = f"of at least {least}" if most == float("inf") else f"from {least} to {most}"
        raise SinkjaxError(f"{name} must be an integer {bounds}, not {short(value)}")
