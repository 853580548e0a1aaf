"""What every projection shares."""

from __future__ import annotations

import jax


def add_bias(x: jax.Array, bias: jax.Array | None) -> jax.Array:
    """x, with a bias if the model has one."""
    return x if bias is None else x + bias
