"""Normalisers: from scores to attention weights, each a frozen record behind the one signature `weights`.

What they share: an invisible weight is exactly 0, a row that sees nothing is 0, and gradients are finite under any mask, whatever
the hidden scores are. A learned sink logit or a 1 in the denominator takes its share outside of the keys; `bias` tells how much.

Sources. Softmax-off-by-one: Xiao et al. 2024; learned sink logit: gpt-oss; sigmoid and elu + 1 without a row sum: Gu et al. 2025,
Table 6; ReLU: Ran-Milo 2026; softpick: arXiv 2504.20966; clipped: Bondarenko et al. 2023.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from sinkjax.errors import SinkjaxError, one_of

Given = Mapping[str, jax.Array]


class Normaliser(ABC):
    """What makes weights of scores.

    LEARNED: names of its parameters, one number for each layer and head, 0 at first: leaves `layers/normaliser/NAME` [L, H].
    """

    LEARNED: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def weights(self, scores: jax.Array, visible: jax.Array, params: Given) -> jax.Array:
        """Weights of the shape and dtype of the scores.

        scores: float [..., H, Q, S]. visible: bool, broadcastable to them. params: the layer's learned values, [H] each, and
        "rows", int [Q], the positions of the queries.
        """

    def bias(self, scores: jax.Array, visible: jax.Array, params: Given) -> jax.Array | None:
        """The share of each row that goes to no key, [..., H, Q]; None if there is never one. Arguments as for `weights`."""
        return None


@dataclass(frozen=True)
class Softmax(Normaliser):
    """exp(s) / sum exp(s)."""

    def weights(self, scores: jax.Array, visible: jax.Array, params: Given) -> jax.Array:
        return softmax(scores, visible)


@dataclass(frozen=True)
class SinkLogit(Normaliser):
    """exp(s) / (exp(b) + sum exp(s)) with a learned b for each layer and head."""

    LEARNED: ClassVar[tuple[str, ...]] = ("sink",)

    def weights(self, scores: jax.Array, visible: jax.Array, params: Given) -> jax.Array:
        return softmax(scores, visible, _per_head(params["sink"], scores))

    def bias(self, scores: jax.Array, visible: jax.Array, params: Given) -> jax.Array:
        return sink_share(scores, visible, _per_head(params["sink"], scores))


@dataclass(frozen=True)
class OffByOne(Normaliser):
    """exp(s) / (1 + sum exp(s)): a sink logit that stays 0."""

    def weights(self, scores: jax.Array, visible: jax.Array, params: Given) -> jax.Array:
        return softmax(scores, visible, jnp.zeros((), scores.dtype))

    def bias(self, scores: jax.Array, visible: jax.Array, params: Given) -> jax.Array:
        return sink_share(scores, visible, jnp.zeros((), scores.dtype))


@dataclass(frozen=True)
class ReLU(Normaliser):
    """max(s, 0), row i divided by 1 ("none"), by max(i, 1) ("index", as in Ran-Milo's code) or by i + 1 ("count").

    i is the query's position, so a key that an edit hides leaves the other weights of the row alone.
    """

    divisor: str = "index"

    def __post_init__(self) -> None:
        one_of("divisor", self.divisor, ("none", "index", "count"))

    def weights(self, scores: jax.Array, visible: jax.Array, params: Given) -> jax.Array:
        raw = jnp.where(visible, jax.nn.relu(scores), 0)
        if self.divisor == "none":
            return raw
        rows = params["rows"] if self.divisor == "index" else params["rows"] + 1
        return raw / jnp.maximum(rows, 1).astype(scores.dtype)[:, None]


@dataclass(frozen=True)
class Sigmoid(Normaliser):
    """1 / (1 + exp(-(s + shift))), not divided by anything; Gu et al. have no shift."""

    shift: float = 0.0

    def weights(self, scores: jax.Array, visible: jax.Array, params: Given) -> jax.Array:
        return jnp.where(visible, jax.nn.sigmoid(jnp.where(visible, scores, 0) + self.shift), 0)


@dataclass(frozen=True)
class EluPlusOne(Normaliser):
    """s + 1 above 0, exp(s) below; not divided by anything."""

    def weights(self, scores: jax.Array, visible: jax.Array, params: Given) -> jax.Array:
        seen = jnp.where(visible, scores, 0)
        return jnp.where(visible, jnp.where(seen > 0, seen + 1, jnp.exp(jnp.minimum(seen, 0))), 0)


@dataclass(frozen=True)
class Softpick(Normaliser):
    """max(exp(s) - 1, 0) / (sum |exp(s) - 1| + eps). eps keeps rows of zeros finite; it is taken after the shift by max(s, 0)."""

    eps: float = 1e-8

    def weights(self, scores: jax.Array, visible: jax.Array, params: Given) -> jax.Array:
        seen = jnp.where(visible, scores, 0)
        top = jax.lax.stop_gradient(jnp.maximum(seen.max(axis=-1, keepdims=True), 0))
        above, below = jnp.maximum(seen, 0), jnp.minimum(seen, 0)  # exp(s) - 1, over exp(top), without cancellation near 0
        picked = jnp.exp(above - top) * -jnp.expm1(-above)
        total = (picked - jnp.exp(-top) * jnp.expm1(below)).sum(axis=-1, keepdims=True)
        return picked / (total + self.eps)


@dataclass(frozen=True)
class ClippedSoftmax(Normaliser):
    """clip((zeta - gamma) softmax(s) + gamma, 0, 1), zeta >= 1 and gamma <= 0: weights that can be exactly 0 and 1."""

    zeta: float = 1.0
    gamma: float = -0.03

    def __post_init__(self) -> None:
        if not (self.zeta >= 1 and self.gamma <= 0):
            raise SinkjaxError(f"a clipped softmax needs zeta >= 1 and gamma <= 0, not {self.zeta} and {self.gamma}")

    def weights(self, scores: jax.Array, visible: jax.Array, params: Given) -> jax.Array:
        stretched = (self.zeta - self.gamma) * softmax(scores, visible) + self.gamma
        return jnp.where(visible, jnp.clip(stretched, 0, 1), 0)


# The short names that configs use; `sinkjax/model/names.py` lists them for modules that import no JAX.
NAMED: dict[str, Normaliser] = {
    "softmax": Softmax(),
    "sink-logit": SinkLogit(),
    "off-by-one": OffByOne(),
    "relu-none": ReLU("none"),
    "relu-index": ReLU("index"),
    "relu-count": ReLU("count"),
    "sigmoid": Sigmoid(),
    "elu": EluPlusOne(),
    "softpick": Softpick(),
    "clipped": ClippedSoftmax(),
}


@jax.custom_jvp
def softmax(scores: jax.Array, visible: jax.Array, sink: jax.Array | None = None) -> jax.Array:
    """Weights of every row over its visible keys; invisible ones are exactly 0, and so is a row that sees nothing.

    sink: a logit [..., 1, 1] that takes part in each row and has no column. The derivative is p (ds - sum p ds) in terms of the
    weights p, so it is finite under any mask, and half the work of that of the terms which make them.
    """
    powers, of_sink = _powers(scores, visible, sink)
    total = powers.sum(axis=-1, keepdims=True)
    if of_sink is not None:
        return powers / (total + of_sink)
    return powers / jnp.where(total > 0, total, 1)


@softmax.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (scores, visible, sink), (change, _, of_sink) = primals, tangents
    weights = softmax(scores, visible, sink)
    mean = (weights * change).sum(axis=-1, keepdims=True)
    if sink is not None:
        mean += sink_share(scores, visible, sink)[..., None] * of_sink
    return weights, weights * (change - mean)


def sink_share(scores: jax.Array, visible: jax.Array, sink: jax.Array) -> jax.Array:
    """What the sink logit of `softmax` takes of each row: [..., Q]."""
    powers, of_sink = _powers(scores, visible, sink)
    assert of_sink is not None
    return (of_sink / (powers.sum(axis=-1, keepdims=True) + of_sink))[..., 0]


def _powers(scores: jax.Array, visible: jax.Array, sink: jax.Array | None) -> tuple[jax.Array, jax.Array | None]:
    """exp of the visible scores and of the sink, over that of the largest."""
    seen = jnp.where(visible, scores, -jnp.inf)
    top = jax.lax.stop_gradient(seen.max(axis=-1, keepdims=True))
    if sink is not None:
        top = jnp.maximum(top, jax.lax.stop_gradient(sink))
        return jnp.exp(seen - top), jnp.exp(sink - top)
    return jnp.exp(seen - jnp.where(top > -jnp.inf, top, 0)), None


def _per_head(values: jax.Array, scores: jax.Array) -> jax.Array:
    return values.astype(scores.dtype)[:, None, None]
