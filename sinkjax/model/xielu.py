"""xIELU, an activation with two learned numbers per layer (Huang and Schlag 2024, arXiv 2411.13010)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

BETA, EPS = 0.5, 1e-6
INITIAL = 0.8  # of both factors


@dataclass(frozen=True)
class XIELU:
    """p x^2 + x / 2 for x > 0, else n (exp(x) - 1 - x) + x / 2, of an MLP's hidden units without a gate (Apertus).

    The factors are positive: p = softplus(xielu_p) and n = 1 / 2 + softplus(xielu_n). Parameters: layers/xielu_p and
    layers/xielu_n [L, 1].
    """

    learned: ClassVar[Mapping[str, float]] = {
        "xielu_p": math.log(math.expm1(INITIAL)),
        "xielu_n": math.log(math.expm1(INITIAL - BETA)),
    }

    def __call__(self, x: jax.Array, w: Mapping[str, jax.Array]) -> jax.Array:
        wide = jnp.promote_types(x.dtype, jnp.float32)
        x_wide, p, n = x.astype(wide), *(jax.nn.softplus(w[name].astype(wide)) for name in self.learned)
        below = (jnp.expm1(jnp.minimum(x_wide, -EPS)) - x_wide) * (n + BETA)
        return (jnp.where(x_wide > 0, p * jnp.square(x_wide), below) + BETA * x_wide).astype(x.dtype)
