"""Weights divided by their row's total: sums of similarities of any sign, and p-norms.

Source: Gu et al. 2025, Tables 6 and 15, Figure 29.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sinkjax.errors import SinkjaxError, one_of
from sinkjax.model.normaliser import Given, Normaliser


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

    def features(self, x: jax.Array, params: Given, precision: str) -> jax.Array:
        return self.of.features(x, params, precision)

    def weights(self, scores: jax.Array, visible: jax.Array, params: Given) -> jax.Array:
        weights = self.of.weights(scores, visible, params)
        total = weights.sum(axis=-1, keepdims=True)
        return weights / (total + 1e-8 if self.by == "sum" else jnp.maximum(jnp.abs(total), 1))


@dataclass(frozen=True)
class PNorm(Normaliser):
    """f(s) / (sum f(s)^p)^(1/p) for f = exp (`of` "softmax"; p = 1 is softmax) or the logistic function ("sigmoid").

    In logarithms, so without a small number in the denominator.
    """

    of: str = "softmax"
    p: float = 1.0

    def __post_init__(self) -> None:
        one_of("of", self.of, ("softmax", "sigmoid"))
        if not 0 < self.p < float("inf"):
            raise SinkjaxError(f"p of a p-norm must be positive, not {self.p}")

    def weights(self, scores: jax.Array, visible: jax.Array, params: Given) -> jax.Array:
        seen = jnp.where(visible, scores, 0)
        logs = seen if self.of == "softmax" else jax.nn.log_sigmoid(seen)
        counted = visible | ~visible.any(axis=-1, keepdims=True)  # a row that sees nothing: anything finite, it becomes 0
        total = jax.nn.logsumexp(self.p * logs, axis=-1, keepdims=True, where=counted) / self.p
        return jnp.where(visible, jnp.exp(jnp.where(visible, logs - total, 0)), 0)
