"""Attention in a prompt of one token repeated, in closed form, and the bound on it (Gu et al. 2025, Propositions 1 to 4).

Without absolute positions all hidden states of such a prompt are equal (attention then averages equal values), so all queries are
the same q and all keys the same k before the rotation, and the score of a query for the key `back` positions before it is a
function s(back) of the distance alone. With |s| <= xi, and t keys to see, no weight exceeds e^{2 xi} / (e^{2 xi} + t - 1).

The closed form is in float64, with NumPy. Shape suffixes: D head width, N tokens; leading axes are free.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sinkjax.errors import SinkjaxError
from sinkjax.model import rope
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.model.positions import AddedPosition, PowerAlibi, ScorePosition
from sinkjax.model.rotary import DynamicScaling, LayerRopes, LongScaling, Rope

Floats = NDArray[np.float64]
STEP = 4  # from one length to the next


def scores(query: NDArray[Any], key: NDArray[Any], frequencies: NDArray[Any], factor: float, tokens: int) -> Floats:
    """Scores q R(back) k / sqrt(D) for back = 0 to tokens - 1: float64[..., tokens].

    query, key: [..., D], before the rotation. frequencies: [P], radians per index, of the pairs (i, i + P); dims from 2 P
    on are not rotated. factor: the rotary tables' factor (YaRN's).
    """
    (q1, q2, q3), (k1, k2, k3) = (_split(x, len(frequencies), factor) for x in (query, key))
    angles = np.asarray(frequencies, np.float64)[:, None] * np.arange(tokens)
    turned = (q1 * k1 + q2 * k2) @ np.cos(angles) + (q1 * k2 - q2 * k1) @ np.sin(angles)
    return np.asarray((turned + (q3 * k3).sum(axis=-1, keepdims=True)) / np.sqrt(np.shape(query)[-1]))


def _split(x: NDArray[Any], pairs: int, factor: float) -> tuple[Floats, Floats, Floats]:
    """Return the first and second entries of the rotary pairs, times the factor, and the dims that are not rotated."""
    wide = np.asarray(x, np.float64)
    return wide[..., :pairs] * factor, wide[..., pairs : 2 * pairs] * factor, wide[..., 2 * pairs :]


def largest_scores(query: NDArray[Any], key: NDArray[Any], pairs: int, factor: float) -> Floats:
    """Bounds xi on the absolute scores, from the norms and from the rotary pairs: float64[..., 2].

    From the norms (the paper's): |q| |k| / sqrt(D). From the rotary pairs: the sum over pairs of |q_p| |k_p| / sqrt(D), which is
    never larger, as a rotation mixes only the two entries of a pair.
    """
    q, k = (_split(x, pairs, factor) for x in (query, key))
    norms = np.sqrt(np.square(np.concatenate(q, axis=-1)).sum(axis=-1) * np.square(np.concatenate(k, axis=-1)).sum(axis=-1))
    by_pair = (np.hypot(q[0], q[1]) * np.hypot(k[0], k[1])).sum(axis=-1) + np.abs((q[2] * k[2]).sum(axis=-1))
    return np.asarray(np.stack([norms, by_pair], axis=-1) / np.sqrt(np.shape(query)[-1]))


def weights(by_distance: Floats, tokens: int) -> Floats:
    """Attention of each query to each key, 0 where it sees none: float64[..., tokens, tokens]. by_distance: `scores`."""
    back = np.arange(tokens)[:, None] - np.arange(tokens)
    shown = np.where(back >= 0, by_distance[..., np.maximum(back, 0)], -np.inf)
    powers = np.exp(shown - shown.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def to_first(by_distance: Floats) -> Floats:
    """Attention of each query to key 0: float64[..., N]."""
    return np.exp(by_distance - np.logaddexp.accumulate(by_distance, axis=-1))


def largest_weight(by_distance: Floats) -> Floats:
    """The largest weight in each query's row: float64[..., N]."""
    return np.asarray(np.exp(np.maximum.accumulate(by_distance, axis=-1) - np.logaddexp.accumulate(by_distance, axis=-1)))


def bound(xi: NDArray[Any], tokens: int) -> Floats:
    """e^{2 xi} / (e^{2 xi} + t - 1) for t = 1 to tokens: float64[..., tokens]."""
    return 1 / (1 + np.arange(tokens, dtype=np.float64) * np.exp(-2 * np.asarray(xi, np.float64))[..., None])


def running_mean(values: Floats, tokens: NDArray[Any]) -> Floats:
    """Running means along the last axis (alpha of Gu et al.): float64[..., tokens]."""
    return np.asarray(values.cumsum(axis=-1)[..., tokens - 1] / tokens)


def reach(config: Config, longest: int) -> int:
    """The longest prompt where the closed form is valid: all layers must see all keys, with the same rotary table."""
    scaling = config.position.scaling if isinstance(config.position, Rope) else None
    rescaled = [scaling.original_context] if isinstance(scaling, DynamicScaling | LongScaling) else []
    return min([longest, config.context, *windows(config), *rescaled])


def windows(config: Config) -> list[int]:
    """The numbers of keys seen by the layers that do not see all."""
    return [window for window in config.windows or () if window is not None]


def lengths(shortest: int, longest: int) -> NDArray[Any]:
    """Lengths starting with the shortest, each STEP times the one before."""
    found = [shortest]
    while found[-1] * STEP <= longest:
        found.append(found[-1] * STEP)
    return np.array(found)


def biases(config: Config, params: Params, tokens: int) -> Floats:
    """Biases of the scores at distances 0 to tokens - 1: float64[layer, head, tokens].

    Params are the model's; a layer's own are found by their leading axis.
    """
    found = np.zeros((config.layers, config.heads, tokens))
    if isinstance(config.position, ScorePosition):
        for layer in range(config.layers):
            own = {name: values[layer] for name, values in params["layers"].items() if name == "relative_bias"}
            found[layer] = np.asarray(config.position.by_distance(tokens, config.heads, own), np.float64)
    return found


def by_distance(
    config: Config, params: Params, query: NDArray[Any], key: NDArray[Any], prompt: int, tokens: int
) -> tuple[Floats, Floats]:
    """Scores at distances 0 to tokens - 1, and xi: float64[..., tokens] and float64[..., 2], NaN if there is no closed form.

    query, key: [..., layer, head, D] of the first position. prompt: tokens of a prompt, which the rotary table may depend on.
    Vectors added to the embedding make hidden states differ; numbers added to the scores have no bound.

    Errors: rotary positions that differ between layers; rounded biases.
    """
    position, frequencies, factor = config.position, np.zeros(0), 1.0
    if isinstance(position, LayerRopes):
        raise SinkjaxError("the closed form of attention needs the same rotary positions in all layers")
    if isinstance(position, PowerAlibi) and position.rounded:
        raise SinkjaxError("the closed form of attention needs biases of the distance, not rounded ones")
    if isinstance(position, AddedPosition):
        return np.full((*query.shape[:-1], tokens), np.nan), np.full((*query.shape[:-1], 2), np.nan)
    if isinstance(position, Rope):
        table, factor = rope.frequencies(position, config.head_dim, jnp.array([prompt]), jnp.dtype("float32"))
        frequencies = np.asarray(table[0])
    xi = largest_scores(query, key, len(frequencies), factor)
    unbounded = np.nan if isinstance(position, ScorePosition) else 0.0
    return scores(query, key, frequencies, factor, tokens) + biases(config, params, tokens), xi + unbounded
