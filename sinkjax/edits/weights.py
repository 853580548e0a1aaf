"""Terms that edit parameters: entries, rows, columns or a low-rank part of a matrix, or entries of a vector.

A weight edit is a term like any other: it composes, is batched in sweeps, and starts at its first layer. The changed matrix is
never built: `Corrected` stores the change, and `project` adds its effect to the product.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from sinkjax.config_files.checks import refuse
from sinkjax.edits.apply import at_layer
from sinkjax.edits.term import Along, as_numbers, selected
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.model import params
from sinkjax.model.attention_bias import SinkToken
from sinkjax.model.config import Config
from sinkjax.model.ops import Corrected, entries
from sinkjax.model.quantisation import MATRICES

OPS = ("set", "add", "scale")


@struct.dataclass
class WeightTerm:
    """One operation on a parameter of the blocks. `value` is the only pytree leaf, or the two factors of a low-rank change."""

    value: Any
    name: str = struct.field(pytree_node=False)
    op: str = struct.field(pytree_node=False)
    layers: Along = struct.field(pytree_node=False, default=None)
    rows: Along = struct.field(pytree_node=False, default=None)
    cols: Along = struct.field(pytree_node=False, default=None)

    @property
    def site(self) -> str:
        """The parameter, which takes the place of a site."""
        return f"weights {self.name}"

    def resolve(self, config: Config) -> ResolvedWeight:
        """Resolve the term to arrays. Errors: the model lacks the parameter, or it cannot be edited; rows, columns or layers are
        out of range; the value has the wrong shape or is not finite; the model has a sink token.
        """
        made = "whose keys and values are made before the edits"
        refuse(isinstance(config.kv_bias, SinkToken), f"edit_weights is not for models with a sink token, {made}")
        rows, cols = shape_of(self.name, config)
        if rows is None and self.rows is not None:
            raise SinkjaxError(f"{self.name} is a vector of {cols} entries, which cols selects; it has no rows")
        layers = selected("layer", self.layers, config.layers)
        inputs, outputs = _indices("row", self.rows, rows or 1), _indices("column", self.cols, cols)
        value = _value(self, config.layers, len(inputs), len(outputs), vector=rows is None)
        return ResolvedWeight(layers[:, None], inputs, outputs, value, self.name, self.op)


@struct.dataclass
class ResolvedWeight:
    """A weight term as arrays.

    layer_head: bool [L, 1]. rows: int [r], inputs of the matrix ([0] of a vector). cols: int [c], its outputs. value: float
    [L or 1, r or 1, c or 1], or the factors of a low-rank change, [L or 1, r, k] and [L or 1, k, c].
    """

    layer_head: Any
    rows: Any
    cols: Any
    value: Any
    name: str = struct.field(pytree_node=False)
    op: str = struct.field(pytree_node=False)

    by_position, centre, first_row = False, None, 0  # for terms at sites, which may act on some positions only

    @property
    def site(self) -> str:
        return f"weights {self.name}"

    def for_prompts(self, *_: Any) -> ResolvedWeight:
        """Return this term: all prompts and all positions share the parameters."""
        return self

    for_rows = padded = for_prompts

    def where(self, active: jax.Array) -> ResolvedWeight:
        """Return the same term if `active`, bool [], is true, else one that selects nothing."""
        return dataclasses.replace(self, layer_head=self.layer_head & active)

    def applied(self, w: Any, layer: jax.Array | int) -> tuple[Any, tuple[jax.Array, jax.Array]]:
        """Return a layer's edited parameter, and the numbers of entries that the term addresses and changes, float [] each."""
        on = self.layer_head[layer, 0]
        count = self.rows.shape[0] * self.cols.shape[0]
        addressed = jnp.where(on, jnp.float32(count), 0)
        if isinstance(self.value, tuple):
            factors = tuple(jnp.where(on, at_layer(each, layer), 0.0) for each in self.value)
            left, right = ((each != 0).astype(jnp.float32) for each in factors)
            counts = addressed, (left @ right > 0).sum().astype(jnp.float32)
            return Corrected(w, self.rows, self.cols, factors, inputs_of(self.name, w.ndim)), counts
        inputs = inputs_of(self.name, w.ndim)
        old = entries(w, self.rows, self.cols, inputs)
        value = at_layer(self.value, layer).astype(old.dtype)
        new = {"set": jnp.broadcast_to(value, old.shape), "add": old + value, "scale": old * value}[self.op]
        difference = jnp.where(on, new - old, 0.0)
        counts = addressed, (difference != 0).sum().astype(jnp.float32)
        if inputs:
            return Corrected(w, self.rows, self.cols, (difference,), inputs), counts
        flat = w.reshape(-1)
        return flat.at[self.cols].set(jnp.where(on, new[0].astype(w.dtype), flat[self.cols])).reshape(w.shape), counts


def inputs_of(name: str, ndim: int) -> int:
    """Return how many leading axes of a layer's parameter are inputs; 0 for a vector."""
    return min(MATRICES[name], ndim - 1) if name in MATRICES else 0


def _indices(what: str, chosen: Along, size: int) -> np.ndarray:
    """Return the chosen rows or columns, in the order given."""
    mask = selected(what, chosen, size)
    refuse(isinstance(chosen, tuple) and len(set(chosen)) < len(chosen), f"a {what} is chosen twice")
    return np.array(chosen, np.int32) if isinstance(chosen, tuple) else np.flatnonzero(mask).astype(np.int32)


def _value(term: WeightTerm, L: int, rows: int, cols: int, vector: bool) -> Any:
    """Return the value as [L or 1, rows or 1, cols or 1], or both factors with a layer axis."""
    if isinstance(term.value, tuple):
        refuse(vector, f"{term.name} is a vector, so it cannot take a low-rank change")
        left, right = (_number(part) for part in term.value)
        if left.ndim not in (2, 3) or right.ndim != left.ndim:
            raise SinkjaxError(f"a low-rank change needs factors [rows, k] and [k, cols], not {left.shape} and {right.shape}")
        left, right = (part.reshape((1,) * (3 - part.ndim) + part.shape) for part in (left, right))
        fits = (left.shape[1:], right.shape[1:]) == ((rows, left.shape[-1]), (left.shape[-1], cols))
        change = f"the factors of a low-rank change of {rows} rows and {cols} columns do not have shapes"
        refuse(not fits or bool({len(left), len(right)} - {1, L}), f"{change} {left.shape[1:]} and {right.shape[1:]}")
        return left, right
    value = _number(term.value)
    if vector and value.ndim in (1, 2):
        value = value.reshape(*value.shape[:-1], 1, value.shape[-1])
    value = value.reshape((1,) * max(3 - value.ndim, 0) + value.shape)
    fits = value.ndim == 3 and all(size in (1, whole) for size, whole in zip(value.shape, (L, rows, cols), strict=True))
    wanted = f"is a number or has shape [{rows}, {cols}] or [{L}, {rows}, {cols}], where sizes may be 1"
    refuse(not fits, f"a value for {rows} rows and {cols} columns of {term.name} {wanted}, not {np.shape(term.value)}")
    return value


def _number(value: Any) -> Any:
    array = as_numbers(value)
    if not isinstance(array, jax.core.Tracer) and not np.isfinite(np.asarray(array)).all():
        raise SinkjaxError("the value of a weight edit must be finite")
    return array


def shape_of(name: str, config: Config) -> tuple[int | None, int]:
    """Return (inputs, outputs) of a matrix of the blocks, or (None, entries) of a vector.

    Errors: the model has no such parameter, or it cannot be edited.
    """
    layers, allowed = params.abstract(config)["layers"], editable(config)
    if name not in layers:
        raise unknown("parameter of the blocks", name, allowed)
    if name not in allowed:
        kind = "experts" if config.experts is not None and name in (*MATRICES, "router") else "other parts"
        raise SinkjaxError(f"edit_weights does not edit the parameter {name} of {kind}; allowed: {', '.join(allowed)}")
    shape = layers[name].shape[1:]
    inputs = inputs_of(name, len(shape))
    return math.prod(shape[:inputs]) if inputs else None, math.prod(shape[inputs:])


def editable(config: Config) -> list[str]:
    """Return the names of the blocks' parameters that an edit can change."""
    leaves = {name: leaf for name, leaf in params.abstract(config)["layers"].items() if isinstance(leaf, params.Leaf)}
    vectors = {name for name in leaves if name.endswith(("_norm", "_bias"))} - {"relative_bias"}
    return [name for name, leaf in leaves.items() if (name in MATRICES or name in vectors) and "expert" not in leaf.axes]
