"""Digests of weights and of other values that determine the numbers, and the identity of a model."""

from __future__ import annotations

import hashlib
import json
import math
import weakref
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.model.ops import bits_in_place
from sinkjax.model.params import Params

KNOWN: dict[tuple[int, ...], str] = {}  # digests of arrays that are alive, by their ids


@dataclass(frozen=True)
class ModelIdentity:
    """The model that a file belongs to.

    Attributes:
        name: Name and dtype of the model, for messages.
        weights: `fingerprint` of the parameters.
        config: Digest of the architecture without the context.
    """

    name: str
    weights: str
    config: str

    @classmethod
    def of(cls, params: Params, config: Config, source: Mapping[str, Any] | None = None) -> ModelIdentity | None:
        """Identify a model; None inside a transformation of JAX, where its weights have no values."""
        leaves = jax.tree.leaves(params)
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            return None
        stated = {name: value for name, value in config.identity().items() if name != "context"}
        name = f"{(source or {}).get('name', 'a model without a name')} in {leaves[0].dtype}"
        return cls(name, fingerprint(params), digest(json.dumps(stated, sort_keys=True)))

    @classmethod
    def read(cls, values: Any, where: object) -> ModelIdentity:
        """Read the identity that a file states, as a mapping. Errors: it states none."""
        try:
            identity = cls(**{name: values[name] for name in cls.__dataclass_fields__})
        except (TypeError, KeyError, IndexError):
            raise SinkjaxError(f"{where} does not state its model, so it cannot be checked; make it again") from None
        return identity

    def to_json(self) -> dict[str, str]:
        """Return the fields as a mapping."""
        return asdict(self)

    def refuse_other(self, what: str, params: Params, config: Config, source: Mapping[str, Any] | None) -> None:
        """Raise if parameters with values and their config are not this model. what: a noun for what was made with it."""
        here = self.of(params, config, source)
        if here is not None and (self.weights, self.config) != (here.weights, here.config):
            raise SinkjaxError(f"{what} was made with {self}, and this is {here}: make it again with this model")

    def __str__(self) -> str:
        return f"{self.name} (weights {self.weights}, config {self.config})"


def fingerprint(params: Params) -> str:
    """Return a digest of all weights that does not depend on the devices; it is computed once for the same arrays."""
    leaves = jax.tree.leaves(params)
    key = tuple(map(id, leaves))
    if key not in KNOWN:
        numbers = jax.tree.leaves(fingerprints(params))
        # Inside jit, and only there, because it compiles each constant.
        if any(isinstance(number, jax.core.Tracer) for number in numbers):
            with jax.ensure_compile_time_eval():
                numbers = jax.tree.leaves(fingerprints(params))
        value = digest(*numbers)
        if not all(isinstance(leaf, jax.Array) for leaf in leaves):  # others may change in place
            return value
        KNOWN[key] = value
        for leaf in leaves:
            weakref.finalize(leaf, KNOWN.pop, key, None).atexit = False
    return KNOWN[key]


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

    def of_leaf(leaf: jax.Array) -> jax.Array:
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

    return jax.tree.map(of_leaf, params)
