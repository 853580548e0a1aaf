"""Norms, as functions of arrays."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def rms_norm(x: jax.Array, gain: jax.Array, eps: float) -> jax.Array:
    """x * gain / sqrt(mean(x^2) + eps) over the last axis, in at least float32; returned in the dtype of x."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    scaled = wide * jax.lax.rsqrt(jnp.square(wide).mean(axis=-1, keepdims=True) + eps)
    return (scaled * gain).astype(x.dtype)
