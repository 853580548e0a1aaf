"""Random bits for training data: a generator that is cheap even compared with a small model.

`key(seed, name, bits)` makes a key for `jax.random`, of JAX's threefry or of `HASH`, which hashes a counter with the two words of
a key by the 32-bit mixer "lowbias32" (C. Wellons, 2018, public domain). It is not cryptographic and used for data only, never for
parameters. Its statistics are tested, and each word depends on (key, index) alone, also under vmap.
Time saved: docs/benchmarks.md, "Random bits for training data" (scripts/bench_batches.py).
"""

from __future__ import annotations

import math
import zlib

import jax
import jax.numpy as jnp
from jax.extend.random import define_prng_impl

GOLDEN = 0x9E3779B9  # 2^32 over the golden ratio: an odd number without a pattern
WORDS = {8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}


def key(seed: int, name: str, generator: str) -> jax.Array:
    """The key of a stream: `generator` is "threefry" or "hash"."""
    impl = HASH if generator == "hash" else "threefry2x32"
    return jax.random.fold_in(jax.random.key(seed, impl=impl), zlib.crc32(name.encode()))


def mix(x: jax.Array) -> jax.Array:
    """A permutation of the 32-bit words where every input bit flips about half of the output bits."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def _seed(seed: jax.Array) -> jax.Array:
    word = jnp.asarray(seed).astype(jnp.uint32)
    return jnp.stack([mix(word ^ jnp.uint32(GOLDEN)), mix(mix(word) + jnp.uint32(GOLDEN))])


def _fold_in(words: jax.Array, data: jax.Array | int) -> jax.Array:
    first = mix(words[0] ^ mix(jnp.asarray(data).astype(jnp.uint32) + jnp.uint32(GOLDEN)))
    return jnp.stack([first, mix(words[1] + first)])


def _split(words: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    numbers = jax.lax.iota(jnp.uint32, math.prod(shape))
    return jax.vmap(lambda number: _fold_in(words, number))(numbers).reshape(*shape, 2)


def _bits(words: jax.Array, width: int, shape: tuple[int, ...]) -> jax.Array:
    if width == 64:
        high, low = (_bits(_fold_in(words, half), 32, shape).astype(jnp.uint64) for half in (0, 1))
        return (high << 32) | low
    index = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    return mix(mix(index ^ words[0]) + words[1]).astype(WORDS[width])


HASH = define_prng_impl(
    key_shape=(2,), seed=_seed, split=_split, random_bits=_bits, fold_in=_fold_in, name="sinkjax_hash32", tag="hash"
)
