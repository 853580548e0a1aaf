"""Normalisers, from scores to attention weights: frozen records with a common method `weights`.

In all of them an invisible weight is exactly 0, a row that sees nothing is 0, and gradients are finite under any mask and any
hidden scores. (Gu et al.'s mask of unnormalised attention, a factor of 0 after the non-linearity, is therefore equivalent.) A
learned sink logit or a 1 in the denominator takes its share outside the keys; `bias` returns it.

A kernel maps rotated queries and keys before their product; the scale of the scores stays.

Sources. Softmax-off-by-one: Xiao et al. 2024; learned sink logit: gpt-oss; sigmoid and elu + 1 without a row sum, rows that sum
to alpha: Gu et al. 2025, Tables 6 and 14; linear attention and rows divided by a sum of any sign or by a p-norm: Tables 6 and 15,
Figure 29; ReLU: Ran-Milo 2026; softpick: arXiv 2504.20966; clipped: Bondarenko et al. 2023.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sinkjax.config_files.checks import refuse
from sinkjax.errors import one_of
from sinkjax.model.normaliser import Learned, Normaliser, sink_share, softmax, undivided_softmax
from sinkjax.model.ops import wide_product


@dataclass(frozen=True)
class Softmax(Normaliser):
    """exp(s) / sum exp(s)."""

    rows_sum_to_1 = True

    def weights(self, scores: jax.Array, visible: jax.Array, params: Learned) -> jax.Array:
        return softmax(scores, visible)

    def undivided(self, scores: jax.Array, visible: jax.Array, params: Learned) -> tuple[jax.Array, jax.Array]:
        return undivided_softmax(scores, visible)


@dataclass(frozen=True)
class ScaledSoftmax(Normaliser):
    """alpha exp(s) / sum exp(s): rows that sum to alpha."""

    alpha: float = 0.1

    def __post_init__(self) -> None:
        refuse(not 0 < self.alpha < float("inf"), f"alpha, the row sum of a scaled softmax, must be positive, not {self.alpha}")

    def weights(self, scores: jax.Array, visible: jax.Array, params: Learned) -> jax.Array:
        return self.alpha * softmax(scores, visible)


class WithLogit(Normaliser):
    """A softmax in which a logit of no key enters each row's sum."""

    rows_sum_to_1 = True

    @abstractmethod
    def logit(self, scores: jax.Array, params: Learned) -> jax.Array:
        """Return the logit in the dtype of the scores, broadcastable to [..., H, 1, 1]."""

    def weights(self, scores: jax.Array, visible: jax.Array, params: Learned) -> jax.Array:
        return softmax(scores, visible, self.logit(scores, params))

    def undivided(self, scores: jax.Array, visible: jax.Array, params: Learned) -> tuple[jax.Array, jax.Array]:
        return undivided_softmax(scores, visible, self.logit(scores, params))

    def bias(self, scores: jax.Array, visible: jax.Array, params: Learned) -> jax.Array:
        return sink_share(scores, visible, self.logit(scores, params))


@dataclass(frozen=True)
class SinkLogit(WithLogit):
    """exp(s) / (exp(b) + sum exp(s)) with a learned b per layer and head."""

    def learned(self) -> Mapping[str, tuple[str, ...]]:
        return {"sink": ("heads",)}

    def logit(self, scores: jax.Array, params: Learned) -> jax.Array:
        return params["sink"].astype(scores.dtype)[:, None, None]


@dataclass(frozen=True)
class OffByOne(WithLogit):
    """exp(s) / (1 + sum exp(s)): a sink logit fixed at 0."""

    def logit(self, scores: jax.Array, params: Learned) -> jax.Array:
        return jnp.zeros((), scores.dtype)


@dataclass(frozen=True)
class ReLU(Normaliser):
    """max(s, 0), row i divided by 1 ("none"), by max(i, 1) ("index", as in Ran-Milo's code) or by i + 1 ("count").

    i is the query's position, so hiding a key does not change the other weights of the row.
    """

    divisor: str = "index"

    def __post_init__(self) -> None:
        one_of("divisor", self.divisor, ("none", "index", "count"))

    def weights(self, scores: jax.Array, visible: jax.Array, params: Learned) -> jax.Array:
        raw = jnp.where(visible, jax.nn.relu(scores), 0)
        if self.divisor == "none":
            return raw
        rows = params["rows"] if self.divisor == "index" else params["rows"] + 1
        return raw / jnp.maximum(rows, 1).astype(scores.dtype)[:, None]


@dataclass(frozen=True)
class Sigmoid(Normaliser):
    """1 / (1 + exp(-(s + shift))), without normalisation; Gu et al. use no shift."""

    shift: float = 0.0

    def weights(self, scores: jax.Array, visible: jax.Array, params: Learned) -> jax.Array:
        return jnp.where(visible, jax.nn.sigmoid(jnp.where(visible, scores, 0) + self.shift), 0)


@dataclass(frozen=True)
class EluPlusOne(Normaliser):
    """s + 1 above 0, exp(s) below, without normalisation."""

    def weights(self, scores: jax.Array, visible: jax.Array, params: Learned) -> jax.Array:
        return jnp.where(visible, elu_plus_one(jnp.where(visible, scores, 0)), 0)


@dataclass(frozen=True)
class Softpick(Normaliser):
    """max(exp(s) - 1, 0) / (sum |exp(s) - 1| + eps). eps keeps rows of zeros finite; it is taken after the shift by max(s, 0)."""

    eps: float = 1e-8

    rows_sum_to_1 = True

    def weights(self, scores: jax.Array, visible: jax.Array, params: Learned) -> jax.Array:
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
        fits = self.zeta >= 1 and self.gamma <= 0
        refuse(not fits, f"a clipped softmax needs zeta >= 1 and gamma <= 0, not {self.zeta} and {self.gamma}")

    rows_sum_to_1 = True

    def weights(self, scores: jax.Array, visible: jax.Array, params: Learned) -> jax.Array:
        stretched = (self.zeta - self.gamma) * softmax(scores, visible) + self.gamma
        return jnp.where(visible, jnp.clip(stretched, 0, 1), 0)


@dataclass(frozen=True)
class Identity(Normaliser):
    """The scores themselves, of either sign, without normalisation."""

    def weights(self, scores: jax.Array, visible: jax.Array, params: Learned) -> jax.Array:
        return jnp.where(visible, scores, 0)


@dataclass(frozen=True)
class EluKernel(Identity):
    """The products of elu(q) + 1 and elu(k) + 1."""

    kernel = True

    def features(self, x: jax.Array, params: Learned, precision: str) -> jax.Array:
        return elu_plus_one(x)


@dataclass(frozen=True)
class MlpKernel(Identity):
    """The products of max(q A, 0) B and max(k A, 0) B, with one learned A and B [D, D] per layer, shared by its heads."""

    def learned(self) -> Mapping[str, tuple[str, ...]]:
        return {"inner": ("head_dim", "feature"), "outer": ("feature", "head_dim")}

    kernel = True

    def features(self, x: jax.Array, params: Learned, precision: str) -> jax.Array:
        inner, outer = params["inner"], params["outer"]
        hidden = jax.nn.relu(wide_product("...D,DF->...F", x.astype(inner.dtype), inner, precision))
        return wide_product("...F,FD->...D", hidden.astype(outer.dtype), outer, precision)


def elu_plus_one(x: jax.Array) -> jax.Array:
    """x + 1 above 0, exp(x) below."""
    return jnp.where(x > 0, x + 1, jnp.exp(jnp.minimum(x, 0)))


@dataclass(frozen=True)
class Divided(Normaliser):
    """Another normaliser's weights w over their row: w / (sum w + 1e-8) ("sum"), or w / max(|sum w|, 1) ("max", for any sign)."""

    of: Normaliser
    by: str = "sum"

    def __post_init__(self) -> None:
        one_of("by", self.by, ("sum", "max"))

    def learned(self) -> Mapping[str, tuple[str, ...]]:
        return self.of.learned()

    @property
    def rows_sum_to_1(self) -> bool:
        return self.by == "sum"

    @property
    def kernel(self) -> bool:
        return self.of.kernel

    def features(self, x: jax.Array, params: Learned, precision: str) -> jax.Array:
        return self.of.features(x, params, precision)

    def weights(self, scores: jax.Array, visible: jax.Array, params: Learned) -> jax.Array:
        weights = self.of.weights(scores, visible, params)
        total = weights.sum(axis=-1, keepdims=True)
        return weights / (total + 1e-8 if self.by == "sum" else jnp.maximum(jnp.abs(total), 1))


@dataclass(frozen=True)
class PNorm(Normaliser):
    """f(s) / (sum f(s)^p)^(1/p) for f = exp (`of` "softmax"; p = 1 is softmax) or the logistic function ("sigmoid").

    It is computed in logarithms, so it needs no small number in the denominator.
    """

    of: str = "softmax"
    p: float = 1.0

    def __post_init__(self) -> None:
        one_of("of", self.of, ("softmax", "sigmoid"))
        refuse(not 0 < self.p < float("inf"), f"p of a p-norm must be positive, not {self.p}")

    def weights(self, scores: jax.Array, visible: jax.Array, params: Learned) -> jax.Array:
        seen = jnp.where(visible, scores, 0)
        logs = seen if self.of == "softmax" else jax.nn.log_sigmoid(seen)
        counted = visible | ~visible.any(axis=-1, keepdims=True)  # a row that sees nothing becomes 0, so any finite value works
        total = jax.nn.logsumexp(self.p * logs, axis=-1, keepdims=True, where=counted) / self.p
        return jnp.where(visible, jnp.exp(jnp.where(visible, logs - total, 0)), 0)


# Short names for configs; `sinkjax/model/names.py` lists them for modules that do not import JAX.
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
    "scaled": ScaledSoftmax(),
    "softmax-p": PNorm("softmax", 0.5),
    "sigmoid-p": PNorm("sigmoid", 2.0),
    "sigmoid-sum": Divided(Sigmoid()),
    "elu-sum": Divided(EluPlusOne()),
    "elu-kernel": EluKernel(),
    "elu-kernel-sum": Divided(EluKernel()),
    "identity": Identity(),
    "identity-max": Divided(Identity(), "max"),
    "mlp-kernel": MlpKernel(),
    "mlp-kernel-max": Divided(MlpKernel(), "max"),
}
