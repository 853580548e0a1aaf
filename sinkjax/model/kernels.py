"""Weights that are the scores themselves: linear attention, of queries and keys as they are or mapped by a kernel.

The kernel acts on rotated queries and keys, and the scale of the scores stays. Source: Gu et al. 2025, Tables 6 and 15.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sinkjax.model.normaliser import Given, Normaliser


@dataclass(frozen=True)
class Identity(Normaliser):
    """s, of either sign; not divided by anything."""

    def weights(self, scores: jax.Array, visible: jax.Array, params: Given) -> jax.Array:
        return jnp.where(visible, scores, 0)


@dataclass(frozen=True)
class EluKernel(Identity):
    """The products of elu(q) + 1 and elu(k) + 1."""

    @property
    def kernel(self) -> bool:
        return True

    def features(self, x: jax.Array, params: Given, precision: str) -> jax.Array:
        return elu_plus_one(x)


@dataclass(frozen=True)
class MlpKernel(Identity):
    """The products of max(q A, 0) B and max(k A, 0) B, with one learned A and B [D, D] in each layer, for all its heads."""

    def learned(self) -> Mapping[str, tuple[str, ...]]:
        return {"inner": ("head_dim", "feature"), "outer": ("feature", "head_dim")}

    @property
    def kernel(self) -> bool:
        return True

    def features(self, x: jax.Array, params: Given, precision: str) -> jax.Array:
        hidden = jax.nn.relu(jnp.einsum("...D,DF->...F", x, params["inner"], precision=precision))
        return jnp.einsum("...F,FD->...D", hidden, params["outer"], precision=precision)


def elu_plus_one(x: jax.Array) -> jax.Array:
    """x + 1 above 0, exp(x) below."""
    return jnp.where(x > 0, x + 1, jnp.exp(jnp.minimum(x, 0)))
