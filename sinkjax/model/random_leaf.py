"""Random leaves: the numbers of `jax.random.normal`, drawn in pieces, on each device those of its own shard.

JAX draws all of an array at once, for which a CPU needs three times its memory beside it. Number n of an array depends on the key
and on n alone: its bits are those of the key with n folded in. So any piece can be drawn by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

PIECE = 2**18  # numbers that a device draws at one time, with a dozen times their memory


@partial(jax.jit, static_argnames=("shape", "dtype", "place"))
def random_leaf(
    key: jax.Array, scale: jax.Array, shape: tuple[int, ...], dtype: str, place: NamedSharding | None = None
) -> jax.Array:
    """`jax.random.normal(key, shape) * scale`, drawn in float32 and cast to `dtype`, in the shards of `place`.

    scale: float32 [].

    Raises ValueError for more than 2**32 numbers, whose places a fold cannot tell apart.
    """
    if math.prod(shape) > 2**32:
        raise ValueError(f"an array of shape {shape} has more than 2**32 numbers")
    if place is None:
        return _shard(key, scale, shape, dtype, shape, (0,) * len(shape))
    local, spec = place.shard_shape(shape), place.spec

    def own(key: jax.Array, scale: jax.Array) -> jax.Array:
        first = [jax.lax.axis_index(axis) * size if axis else 0 for axis, size in zip(spec, local, strict=True)]
        return _shard(key, scale, shape, dtype, local, first)

    draw: Callable = jax.shard_map(own, mesh=place.mesh, in_specs=PartitionSpec(), out_specs=spec, check_vma=False)
    return draw(key, scale)


def _shard(
    key: jax.Array, scale: jax.Array, shape: tuple[int, ...], dtype: str, local: tuple[int, ...], first: Sequence[int | jax.Array]
) -> jax.Array:
    """The part of shape `local` that begins at `first`."""
    total = math.prod(local)
    size = min(total, PIECE)

    def draw(number: jax.Array, drawn: jax.Array) -> jax.Array:
        start = jnp.minimum(number.astype(jnp.uint32) * jnp.uint32(size), jnp.uint32(total - size))
        places = start + jnp.arange(size, dtype=jnp.uint32)
        inner = 1  # numbers of the whole leaf to one step along an axis, from the last axis on
        for axis in reversed(range(len(shape))):
            if local[axis] != shape[axis]:
                before = places // jnp.uint32(local[axis] * inner)
                places += (before * jnp.uint32(shape[axis] - local[axis]) + jnp.uint32(first[axis])) * jnp.uint32(inner)
            inner *= shape[axis]
        normal = jax.lax.optimization_barrier(_normal(key, places))  # or XLA would join the factors, and round otherwise
        piece = (normal * scale).astype(dtype)
        return jax.lax.dynamic_update_slice(drawn, piece, (start,))

    return jax.lax.fori_loop(0, -(-total // size), draw, jnp.zeros(total, dtype)).reshape(local)


def _normal(key: jax.Array, places: jax.Array) -> jax.Array:
    """The numbers at `places`, uint32 [n], of `jax.random.normal(key, (more,))`: float32 [n]."""
    words = jax.random.key_data(jax.vmap(partial(jax.random.fold_in, key))(places))
    bits = words[:, 0] ^ words[:, 1]
    from_1_to_2 = jax.lax.bitcast_convert_type((bits >> 9) | np.uint32(0x3F800000), jnp.float32)
    low, high = np.nextafter(np.float32(-1), np.float32(0)), np.float32(1)
    uniform = jnp.maximum(low, (from_1_to_2 - 1) * (high - low) + low)
    return np.float32(math.sqrt(2)) * jax.lax.erf_inv(uniform)
