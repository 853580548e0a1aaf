"""Digests of weights and of other values that decide the numbers."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.model.params import Params


def fingerprint(params: Params) -> str:
    """A digest of all weights, the same on any devices."""
    return digest(*jax.tree.leaves(fingerprints(params)))


def digest(*parts: Any) -> str:
    """A digest of texts and arrays that tells apart any two lists of them."""
    sha = hashlib.sha256()
    for part in parts:
        array = np.frombuffer(part.encode(), np.uint8) if isinstance(part, str) else np.ascontiguousarray(part)
        sha.update(f"{array.dtype.str}{array.shape}".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()[:16]


@jax.jit
def fingerprints(params: Params) -> Params:
    """A uint32 for each leaf that depends on every bit and its place and, being exact, not on devices or the order of sums.

    The sum is made in pieces, because XLA holds all words that it adds up at one time.
    """

    def one(leaf: jax.Array) -> jax.Array:
        # No mesh splits layers or the width, which of a matrix is the shorter side.
        axis = int(np.argmin(leaf.shape)) if leaf.ndim == 2 else 0
        pieces = {1: 1, 2: math.gcd(leaf.shape[axis], 32)}.get(leaf.ndim, len(leaf))
        size = leaf.shape[axis] // pieces

        def add(number: jax.Array, total: jax.Array) -> jax.Array:
            piece = jax.lax.dynamic_slice_in_dim(leaf, number * size, size, axis)
            bits = jax.lax.bitcast_convert_type(piece, f"uint{8 * leaf.dtype.itemsize}")
            words = bits.astype(jnp.uint32) ^ (bits >> (bits.dtype.itemsize * 4)).astype(jnp.uint32)
            for along in range(leaf.ndim):
                place = jax.lax.broadcasted_iota(jnp.uint32, piece.shape, along)
                words = (words ^ (place + jnp.uint32(number * size) if along == axis else place)) * jnp.uint32(0x9E3779B1)
                words ^= words >> 15
            return total + words.sum(dtype=jnp.uint32)

        return jax.lax.fori_loop(0, pieces, add, jnp.uint32(0))

    return jax.tree.map(one, params)
