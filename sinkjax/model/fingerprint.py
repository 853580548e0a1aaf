"""Digests of weights and of other values that determine the numbers."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.model.ops import bits_in_place
from sinkjax.model.params import Params


def fingerprint(params: Params) -> str:
    """Return a digest of all weights that does not depend on the devices."""
    return digest(*jax.tree.leaves(fingerprints(params)))


def digest(*parts: Any) -> str:
    """Return a digest of strings and arrays that distinguishes any two lists of them."""
    sha = hashlib.sha256()
    for part in parts:
        array = np.frombuffer(part.encode(), np.uint8) if isinstance(part, str) else np.ascontiguousarray(part)
        sha.update(f"{array.dtype.str}{array.shape}".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()[:16]


@jax.jit
def fingerprints(params: Params) -> Params:
    """Return a uint32 per leaf that depends on every bit and its place but, being exact, not on devices or summation order.

    It is summed in pieces, because XLA materialises all words of a sum at once.
    """

    def one(leaf: jax.Array) -> jax.Array:
        # No mesh splits layers or the width, which is a matrix's shorter side.
        axis = int(np.argmin(leaf.shape)) if leaf.ndim == 2 else 0
        pieces = {1: 1, 2: math.gcd(leaf.shape[axis], 32)}.get(leaf.ndim, len(leaf))
        size = leaf.shape[axis] // pieces

        def cut(leaf: jax.Array, number: jax.Array) -> jax.Array:
            piece = jax.lax.dynamic_slice_in_dim(leaf, number * size, size, axis)
            return jax.lax.bitcast_convert_type(piece, f"uint{8 * leaf.dtype.itemsize}")

        def cut_in_place(leaf: jax.Array, number: jax.Array) -> jax.Array:
            bits, number = bits_in_place(leaf, number)
            return jax.lax.dynamic_slice_in_dim(bits, number * size, size, axis)

        def add(number: jax.Array, total: jax.Array) -> jax.Array:
            bits = jax.lax.platform_dependent(leaf, number, cpu=cut_in_place, default=cut)
            words = bits.astype(jnp.uint32) ^ (bits >> (bits.dtype.itemsize * 4)).astype(jnp.uint32)
            for along in range(leaf.ndim):
                place = jax.lax.broadcasted_iota(jnp.uint32, bits.shape, along)
                words = (words ^ (place + jnp.uint32(number * size) if along == axis else place)) * jnp.uint32(0x9E3779B1)
                words ^= words >> 15
            return total + words.sum(dtype=jnp.uint32)

        return jax.lax.fori_loop(0, pieces, add, jnp.uint32(0))

    return jax.tree.map(one, params)
