"""What every projection shares."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp


def project(x: jax.Array, w: jax.Array, precision: str, contracted: int = 1, **how: Any) -> jax.Array:
    """x [B, T, ...] times w, over the last `contracted` axes of x and the first of w, as one product of two matrices.

    With tokens along two axes, XLA's CPU code transposes a copy of the gradient, which takes twice as long as the products.
    """
    rows, columns = x.shape[: x.ndim - contracted], w.shape[contracted:]
    product = jnp.matmul(x.reshape(math.prod(rows), -1), w.reshape(-1, math.prod(columns)), precision=precision, **how)
    return product.reshape(*rows, *columns)


def add_bias(x: jax.Array, bias: jax.Array | None) -> jax.Array:
    """x, with a bias if the model has one."""
    return x if bias is None else x + bias
