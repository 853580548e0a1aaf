"""The interface of a normaliser, and the softmax that several are made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import jax
import jax.numpy as jnp

Given = Mapping[str, jax.Array]


class Normaliser(ABC):
    """How scores become attention weights."""

    def learned(self) -> Mapping[str, tuple[str, ...]]:
        """Name -> axes of its parameters in a layer: leaves `layers/normaliser/NAME` [L, ...].

        ("heads",) is a number for each head, 0 at first; ("head_dim", "feature") is a matrix of the head width on both sides.
        """
        return {}

    @property
    def rows_sum_to_1(self) -> bool:
        """Whether the weights of a row sum to 1, or to less because some goes to no key, so that each is a share of its row."""
        return False

    @property
    def kernel(self) -> bool:
        """Whether `features` does anything."""
        return False

    def features(self, x: jax.Array, params: Given, precision: str) -> jax.Array:
        """What stands for a rotated query or key [..., D] in the product that makes the scores: by default itself."""
        return x

    @abstractmethod
    def weights(self, scores: jax.Array, visible: jax.Array, params: Given) -> jax.Array:
        """Weights of the shape and dtype of the scores.

        scores: float [..., H, Q, S]. visible: bool, broadcastable to them. params: the layer's learned values and "rows", int
        [Q], the positions of the queries.
        """

    def undivided(self, scores: jax.Array, visible: jax.Array, params: Given) -> tuple[jax.Array, jax.Array | None]:
        """Numbers [..., H, Q, S] that are the weights once divided by others [..., H, Q, 1]; None: they are the weights.

        Arguments as for `weights`. A product with them can be divided afterwards, which is less work.
        """
        return self.weights(scores, visible, params), None

    def bias(self, scores: jax.Array, visible: jax.Array, params: Given) -> jax.Array | None:
        """The share of each row that goes to no key, [..., H, Q]; None if there is never one. Arguments as for `weights`."""
        return None


@jax.custom_jvp
def softmax(scores: jax.Array, visible: jax.Array, sink: jax.Array | None = None) -> jax.Array:
    """Weights of every row over its visible keys; invisible ones are exactly 0, and so is a row that sees nothing.

    sink: a logit [..., 1, 1] that takes part in each row and has no column. The derivative is p (ds - sum p ds) in terms of the
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
    """What `softmax` divides, at most 1, and by what, [..., Q, 1]."""
    powers, of_sink = _powers(scores, visible, sink)
    total = powers.sum(axis=-1, keepdims=True)
    return powers, jnp.where(total > 0, total, 1) if of_sink is None else total + of_sink


def sink_share(scores: jax.Array, visible: jax.Array, sink: jax.Array) -> jax.Array:
    """The sink logit's share of each row of `softmax`: [..., Q]."""
    powers, of_sink = _powers(scores, visible, sink)
    assert of_sink is not None
    return (of_sink / (powers.sum(axis=-1, keepdims=True) + of_sink))[..., 0]


def _powers(scores: jax.Array, visible: jax.Array, sink: jax.Array | None) -> tuple[jax.Array, jax.Array | None]:
    """exp of the visible scores and of the sink, over exp of the largest."""
    seen = jnp.where(visible, scores, -jnp.inf)
    top = jax.lax.stop_gradient(seen.max(axis=-1, keepdims=True))
    if sink is not None:
        top = jnp.maximum(top, jax.lax.stop_gradient(sink))
        return jnp.exp(seen - top), jnp.exp(sink - top)
    return jnp.exp(seen - jnp.where(top > -jnp.inf, top, 0)), None
