"""The interface of a normaliser, and the softmax that several of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import jax
import jax.numpy as jnp

Learned = Mapping[str, jax.Array]


class Normaliser(ABC):
    """A function from scores to attention weights."""

    def learned(self) -> Mapping[str, tuple[str, ...]]:
        """Axes of its parameters per layer, by name: leaves `layers/normaliser/NAME` [L, ...].

        ("heads",) is one number per head, initially 0; ("head_dim", "feature") is a matrix of the head width on both sides.
        """
        return {}

    @property
    def rows_sum_to_1(self) -> bool:
        """Whether a row's weights sum to 1, or to less because some goes to no key, so that each is a share of its row."""
        return False

    @property
    def kernel(self) -> bool:
        """Whether `features` changes its input."""
        return False

    def features(self, x: jax.Array, params: Learned, precision: str) -> jax.Array:
        """Map a rotated query or key [..., D] before the product that makes the scores; by default the identity."""
        return x

    @abstractmethod
    def weights(self, scores: jax.Array, visible: jax.Array, params: Learned) -> jax.Array:
        """Return weights with the shape and dtype of the scores.

        scores: float [..., H, Q, S]. visible: bool, broadcastable to them. params: the layer's learned values and "rows", int
        [Q], the positions of the queries.
        """

    def undivided(self, scores: jax.Array, visible: jax.Array, params: Learned) -> tuple[jax.Array, jax.Array | None]:
        """Return numerators [..., H, Q, S] and divisors [..., H, Q, 1] of the weights; divisors of None mean no division.

        `weights` describes the arguments. A product with the numerators can be divided afterwards, which is less work.
        """
        return self.weights(scores, visible, params), None

    def bias(self, scores: jax.Array, visible: jax.Array, params: Learned) -> jax.Array | None:
        """Return the share of each row that goes to no key, [..., H, Q], or None if none ever does."""
        return None


@jax.custom_jvp
def softmax(scores: jax.Array, visible: jax.Array, sink: jax.Array | None = None) -> jax.Array:
    """Return softmax weights over visible keys; invisible keys, and rows that see nothing, are exactly 0.

    sink: a logit [..., 1, 1] that enters each row's sum without a column. The derivative is p (ds - sum p ds) in terms of the
    weights p, so it is finite under any mask, and half the work of differentiating the terms that make them.
    """
    powers, total = undivided_softmax(scores, visible, sink)
    return powers / total


@softmax.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (scores, visible, sink), (change, _, of_sink) = primals, tangents
    weights = softmax(scores, visible, sink)
    mean = (weights * change).sum(axis=-1, keepdims=True)
    if sink is not None:
        mean += sink_share(scores, visible, sink)[..., None] * of_sink
    return weights, weights * (change - mean)


def undivided_softmax(scores: jax.Array, visible: jax.Array, sink: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
    """Return the numerators of `softmax`, at most 1, and the divisors, [..., Q, 1]."""
    powers, of_sink = _powers(scores, visible, sink)
    total = powers.sum(axis=-1, keepdims=True)
    return powers, jnp.where(total > 0, total, 1) if of_sink is None else total + of_sink


def sink_share(scores: jax.Array, visible: jax.Array, sink: jax.Array) -> jax.Array:
    """Return the sink logit's share of each row of `softmax`: [..., Q]."""
    powers, of_sink = _powers(scores, visible, sink)
    assert of_sink is not None
    return (of_sink / (powers.sum(axis=-1, keepdims=True) + of_sink))[..., 0]


def _powers(scores: jax.Array, visible: jax.Array, sink: jax.Array | None) -> tuple[jax.Array, jax.Array | None]:
    """Return exp of the visible scores and of the sink, divided by exp of the largest."""
    seen = jnp.where(visible, scores, -jnp.inf)
    top = jax.lax.stop_gradient(seen.max(axis=-1, keepdims=True))
    if sink is not None:
        top = jnp.maximum(top, jax.lax.stop_gradient(sink))
        return jnp.exp(seen - top), jnp.exp(sink - top)
    return jnp.exp(seen - jnp.where(top > -jnp.inf, top, 0)), None
