"""Rotary positions: one frequency table per scaling kind, cosines and sines, and the rotation itself.

Frequencies are computed by NumPy in float64 and rounded once; only `dynamic` and LongRoPE depend on a prompt's length, and are
chosen on the device. Shape suffixes: B prompts, T positions, H heads, D head width, P rotary pairs, D / 2 or fewer.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.model.rotary import DynamicScaling, LinearScaling, Llama3Scaling, LongScaling, Rope, Scaling, YarnScaling


def frequencies(rope: Rope, head_dim: int, lengths: jax.Array, dtype: jnp.dtype) -> tuple[jax.Array, float]:
    """Return the angle per index step of each rotary pair, and the factor on the cosine and sine tables.

    lengths: int [B], used only by `DynamicScaling` and `LongScaling` (each prompt's own length, regardless of the batch).
    Returns float [B or 1, P] radians and a Python float (1 except for YaRN).
    """
    dims = head_dim if rope.dims is None else rope.dims
    exponents = np.arange(0, dims, 2) / dims
    if isinstance(rope.scaling, DynamicScaling):
        return _dynamic(rope.scaling, rope.theta, exponents, lengths, dtype), 1.0
    plain = rope.theta**-exponents
    if isinstance(rope.scaling, LongScaling):
        short, long = (jnp.asarray(plain / np.asarray(divisors), dtype) for divisors in (rope.scaling.short, rope.scaling.long))
        return jnp.where((lengths > rope.scaling.original_context)[:, None], long, short), rope.scaling.factor
    scaled, factor = _scaled(rope.scaling, plain, rope.theta, dims)
    return jnp.asarray(scaled[None], dtype), factor


def tables(positions_BT: jax.Array, frequencies_BP: jax.Array, factor: jax.Array | float) -> tuple[jax.Array, jax.Array]:
    """Return cosines and sines, each [B or 1, T, P], of rotary indices `positions_BT` (int), in the dtype of the frequencies."""
    angles_BTP = positions_BT[..., None].astype(frequencies_BP.dtype) * frequencies_BP[:, None, :]
    return jnp.cos(angles_BTP) * factor, jnp.sin(angles_BTP) * factor


def rotate(x_BTHD: jax.Array, cos_BTP: jax.Array, sin_BTP: jax.Array) -> jax.Array:
    """Rotate each pair (i, i + P) of every head by its angle, in the tables' dtype; returned in the dtype of `x`.

    Dims from 2 P on are unchanged.
    """
    cos, sin, pairs = cos_BTP[:, :, None], sin_BTP[:, :, None], cos_BTP.shape[-1]
    wide = x_BTHD.astype(cos.dtype)
    first, second, rest = wide[..., :pairs], wide[..., pairs : 2 * pairs], wide[..., 2 * pairs :]
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)
    return turned.astype(x_BTHD.dtype)


def grown(q_BTHD: jax.Array, positions_BT: jax.Array, rope: Rope) -> jax.Array:
    """Multiply rotated queries by the growth of rotary indices `positions_BT` (int), if the rotation has one."""
    if rope.growth is None:
        return q_BTHD
    wide = q_BTHD.astype(jnp.promote_types(q_BTHD.dtype, jnp.float32))
    contexts_BT = (positions_BT // rope.growth.original_context).astype(wide.dtype)
    return (wide * (1 + rope.growth.beta * jnp.log1p(contexts_BT))[..., None, None]).astype(q_BTHD.dtype)


def _scaled(scaling: Scaling | None, plain: np.ndarray, theta: float, dims: int) -> tuple[np.ndarray, float]:
    """Return the frequencies that do not depend on a prompt's length, and the factor on both tables."""
    match scaling:
        case LinearScaling():
            return plain / scaling.factor, 1.0
        case Llama3Scaling():
            turns = scaling.original_context * plain / (2 * math.pi)  # full turns within the original context
            keep = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
            keep = np.clip(keep, 0.0, 1.0)
            return keep * plain + (1 - keep) * plain / scaling.factor, 1.0
        case YarnScaling():
            return _yarn(scaling, plain, theta, dims), _yarn_factor(scaling)
    return plain, 1.0


def _yarn(scaling: YarnScaling, plain: np.ndarray, theta: float, head_dim: int) -> np.ndarray:
    def pair_with(turns: float) -> float:
        """Return the (fractional) pair index that makes this many turns within the original context."""
        return head_dim * math.log(scaling.original_context / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair_with(scaling.beta_fast), pair_with(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    width = high - low or 0.001
    interpolate = np.clip((np.arange(head_dim // 2) - low) / width, 0.0, 1.0)
    return interpolate * plain / scaling.factor + (1 - interpolate) * plain


def _yarn_factor(scaling: YarnScaling) -> float:
    """Return the factor on both tables (its square acts on the scores): as stated, or 0.1 m log(factor) + 1 as in the paper."""

    def growth(m: float) -> float:
        return 0.1 * m * math.log(scaling.factor) + 1.0 if scaling.factor > 1 else 1.0

    if scaling.attention_factor is not None:
        return scaling.attention_factor
    if scaling.mscale and scaling.mscale_all_dim:
        return growth(scaling.mscale) / growth(scaling.mscale_all_dim)
    return growth(1.0)


def _dynamic(scaling: DynamicScaling, theta: float, exponents: np.ndarray, lengths: jax.Array, dtype: jnp.dtype) -> jax.Array:
    head_dim = 2 * len(exponents)
    stretch = jnp.maximum(lengths, scaling.original_context).astype(dtype) / scaling.original_context
    base = theta * (scaling.factor * stretch - (scaling.factor - 1)) ** (head_dim / (head_dim - 2))
    return base[:, None] ** -jnp.asarray(exponents, dtype)
