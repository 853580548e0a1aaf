"""Four-bit floats in blocks that share a scale, as recent GPUs compute them: NVFP4 and MXFP4.

An element is E2M1: 0, 0.5, 1, 1.5, 2, 3, 4 or 6, with a sign. MXFP4 (OCP Microscaling Formats, version 1.0) has blocks of 32 with
a power of two as scale (E8M0), so that the largest element lies in the top binade, where values above 6 saturate. NVFP4 has
blocks of 16 with a scale in E4M3, times one float32 scale of the tensor that maps its largest value to 448 times 6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

LARGEST, LARGEST_SCALE = 6.0, 448.0  # E2M1's and E4M3's


@dataclass(frozen=True)
class BlockFormat:
    """A format: the size of its blocks along the last axis, and the scale of each block.

    scale: Maps the largest |x| of each block, and of the whole tensor, to the scales of the blocks.
    """

    block: int
    scale: Callable[[jax.Array, jax.Array], jax.Array]

    def rounded(self, x: jax.Array, axes: tuple[int, ...], counts: jax.Array | None = None) -> jax.Array:
        """Round x, float [..., D], and compute in at least float32; a last block may be shorter.

        axes: the axes of one tensor, the last included. counts: the entries that are rounded, broadcast against x; others do not
        affect the scale of the tensor.
        """
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        blocks = jnp.pad(wide, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % self.block)])
        blocks = blocks.reshape(*x.shape[:-1], -1, self.block)
        size = jnp.abs(wide) if counts is None else jnp.where(counts, jnp.abs(wide), 0)
        whole = size.max(axis=axes, keepdims=True)[..., None]
        scale = self.scale(jnp.abs(blocks).max(axis=-1, keepdims=True), whole)
        return (e2m1(blocks / jnp.where(scale > 0, scale, 1)) * scale).reshape(*x.shape[:-1], -1)[..., : x.shape[-1]]


def e2m1(x: jax.Array) -> jax.Array:
    """Round to the nearest E2M1 value, ties to the even one; larger values saturate."""
    size = jnp.minimum(jnp.abs(x), LARGEST)
    step = jnp.where(size < 2, 0.5, jnp.where(size < 4, 1.0, 2.0))
    return jnp.sign(x) * jnp.round(size / step) * step


def _mx(top: jax.Array, whole: jax.Array) -> jax.Array:
    del whole
    _, exponent = jnp.frexp(top)  # top = m 2^exponent with m in [0.5, 1); the top binade of E2M1 begins at 2^2
    return jnp.where(top > 0, jnp.ldexp(jnp.ones_like(top), jnp.clip(exponent - 3, -127, 127)), 0)


def _nv(top: jax.Array, whole: jax.Array) -> jax.Array:
    tensor = whole / (LARGEST * LARGEST_SCALE)
    tensor = jnp.where(tensor > 0, tensor, 1)
    scale = jnp.minimum(top / LARGEST / tensor, LARGEST_SCALE)
    return scale.astype(jnp.float8_e4m3fn).astype(top.dtype) * tensor


BLOCK_FORMATS = {"nvfp4": BlockFormat(16, _nv), "mxfp4": BlockFormat(32, _mx)}
