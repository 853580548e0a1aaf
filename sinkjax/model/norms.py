"""Norms, as functions of arrays, and where a block has them.

"pre": before attention, before the MLP and after the last block. "sandwich": after attention and after the MLP too, before the
sum (Gemma 2). "post": after each sum alone, so that the last block is followed by none (Vaswani et al. 2017; Gu et al. 2025).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from sinkjax.model.config import Config


def before(h: jax.Array, w: dict[str, Any], gain: str, config: Config) -> jax.Array:
    """The residual stream as the next part of the model reads it."""
    return rms_norm(h, w[gain], config.norm.eps) if config.norm is not None and config.norm_place != "post" else h


def after(change: jax.Array, w: dict[str, Any], gain: str, config: Config) -> jax.Array:
    """What attention or the MLP gives, as it goes to the residual stream."""
    return rms_norm(change, w[gain], config.rms_norm.eps) if config.norm_place == "sandwich" else change


def add(h: jax.Array, change: jax.Array, w: dict[str, Any], gain: str, config: Config) -> jax.Array:
    """The residual stream with a change."""
    h = h + change if config.residual else change
    return rms_norm(h, w[gain], config.rms_norm.eps) if config.norm_place == "post" else h


def rms_norm(x: jax.Array, gain: jax.Array, eps: float) -> jax.Array:
    """x * gain / sqrt(mean(x^2) + eps) over the last axis, in at least float32; returned in the dtype of x."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    scaled = wide * jax.lax.rsqrt(jnp.square(wide).mean(axis=-1, keepdims=True) + eps)
    return (scaled * gain).astype(x.dtype)
