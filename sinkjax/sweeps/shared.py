"""The two jitted functions of a sweep: a base, and a stack of edits that start from its residual stream. `each` runs them.

The base is the unedited run, or the run of an edit. Blocks before the first one where an edit differs from it would only repeat
the base. The scan skips them with a `lax.cond` on an *unbatched start*, so that it stays a branch under vmap, one compilation
serves every start, and reverse mode still works. In `each`, every device has its own start, and none waits for another.

By causality, rows before the first one where an edit acts would repeat the base too, in every block. With `spec.first`, only the
rows from there on are computed, on the base's keys and values of the rows before, and their measurements join the base's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sinkjax.edits.term import Edits
from sinkjax.model.params import Params
from sinkjax.model.site import BEFORE_BLOCKS, Site
from sinkjax.probes.record import Record
from sinkjax.probes.statistics import NON_FINITE
from sinkjax.runtime.hardware import data_axes
from sinkjax.transformer.embed import embed
from sinkjax.transformer.layers import block_step, empty_slots, over_blocks
from sinkjax.transformer.output import Trace, complete
from sinkjax.transformer.sink_token import with_sink_token
from sinkjax.transformer.spec import ForwardSpec
from sinkjax.transformer.tape import Cache

SCORES = ("nll", "logits_of")  # entries of a record that follow from logits


@struct.dataclass
class Base:
    """A run that others start from: inputs [L, B, T, d], the residual stream before each block, and the measurements.

    cache: keys and values [L, B, T, K, D] for runs of fewer rows, or None. scores: for these, `nll` and `logits_of`, if measured.
    """

    inputs: jax.Array
    trace: Trace
    cache: Cache | None = None
    scores: dict[str, jax.Array] = struct.field(default_factory=dict)

    def counting(self, edits: Edits) -> Base:
        """Add cell counts for each term of these edits (0 in the unedited run), so that the base's tree matches their kind."""
        layers = self.trace.layers
        if layers["counts"]:
            return self
        rows = layers["empty_rows"]
        if isinstance(rows, jax.core.Tracer):
            none: Any = jnp.zeros(rows.shape, jnp.float32)
        else:  # where the base's own arrays are, so that nothing compiles
            where = rows.sharding if isinstance(rows.sharding, NamedSharding) else None
            none = jax.device_put(np.zeros(rows.shape, np.float32), where)
        counts = {number: (none, none) for number, term in enumerate(edits) if term.site not in BEFORE_BLOCKS}
        return dataclasses.replace(self, trace=dataclasses.replace(self.trace, layers=layers | {"counts": counts}))


@partial(jax.jit, static_argnames="spec")
def baseline(
    params: Params, tokens: jax.Array, lengths: jax.Array, edits: Edits = (), *, spec: ForwardSpec
) -> tuple[Base, Record]:
    """Run the model unedited, or with the given edit. Returns the part that other runs share, and the record."""
    params = with_sink_token(params, spec)
    h, before = embed(params, tokens, lengths, edits, spec)
    step = block_step(spec, lengths, edits, h)

    def keep_input(carry: tuple, xs: tuple) -> tuple[tuple, tuple]:
        after, measured = step(carry, xs)
        return after, (carry[0], measured)

    carry = (h, empty_slots(step, params, h, spec.probe))
    (h, slots), (inputs, layers) = over_blocks(keep_input, carry, params["layers"], spec)
    cache, trace = layers.pop("cache"), Trace(before, layers, slots)
    record = complete(params, h, tokens, lengths, edits, trace, spec).record
    return Base(inputs, trace, cache, {name: record[name] for name in SCORES if spec.cuts and name in record}), record


@partial(jax.jit, static_argnames="spec")
def edited(
    params: Params, tokens: jax.Array, lengths: jax.Array, edits: Edits, start: jax.Array, base: Base, *, spec: ForwardSpec
) -> Record:
    """Run a stack of edits of one kind that all start at block `start` (int) of the base.

    edits: resolved, each leaf with a leading axis over edits. base: `counting` them. Returns a record with that leading axis.
    """
    chex.assert_rank(start, 0)  # with one start per edit, vmap would turn `lax.cond` into a select that runs both branches
    chex.assert_shape(base.inputs, (spec.config.layers, *tokens.shape[:2], spec.config.width))
    chex.assert_equal_shape_prefix(jax.tree.leaves(edits), 1)
    params = with_sink_token(params, spec)

    first, T = spec.first, tokens.shape[1]
    names = spec.probe.dims().keys() | {NON_FINITE.name}  # without sums over some rows

    def one(edits: Edits) -> Record:
        edits = tuple(term.for_rows(first, T - first) for term in edits) if first else edits
        if any(term.site in BEFORE_BLOCKS for term in edits):
            earlier = (first, T, base.trace.before["record"]) if first else ()
            h, before = embed(params, tokens[:, first:], lengths, edits, spec, *earlier)
        else:
            h, before = base.inputs[start][:, first:], base.trace.before
        step, cached = block_step(spec, lengths, edits, h, first), base.cache if first else None
        if cached is not None and any(term.site == Site.HEAD_VALUE for term in edits):  # then with the values of each query head
            cached = cached[0], jnp.repeat(cached[1], spec.config.group, axis=3)

        def skip_or_run(carry: tuple, xs: tuple[jax.Array, dict[str, Any]]) -> tuple[tuple, dict]:
            layer, of_base = xs
            kept = of_base | {"record": {name: x for name, x in of_base["record"].items() if name in names}}

            def run() -> tuple[tuple, dict]:  # slice arrays inside the branch, so that a skipped block does not read them
                w, cache = jax.tree.map(lambda leaf: leaf[layer], (params["layers"], cached))
                after, measured = step(carry, (layer, w, *((cache, of_base["record"]) if first else ())))
                return after, {name: measured[name] for name in kept}

            outside = (layer < start) | (layer >= spec.depth)
            return jax.lax.cond(outside, lambda: (carry, kept), run)

        xs = (jnp.arange(spec.config.layers), base.trace.layers)
        (h, slots), layers = jax.lax.scan(skip_or_run, (h, base.trace.slots), xs)
        record = complete(params, h, tokens[:, first:], lengths - first, edits, Trace(before, layers, slots), spec).record
        scores = base.scores if first else {}
        if "nll" in scores:
            record["nll"] = jnp.concatenate([scores["nll"][:, :first], record["nll"]], axis=1)
        if "logits_of" in scores:  # of a prompt that ends before these rows, the base's
            record["logits_of"] = jnp.where(lengths[:, None] > first, record["logits_of"], scores["logits_of"])
        return record

    return jax.vmap(one)(edits)


@partial(jax.jit, static_argnames=("function", "mesh", "spec"))
def each(params: Params, *inputs: Any, function: Callable, mesh: Mesh | None, spec: ForwardSpec) -> Any:
    """Run `baseline` or `edited` on each device, with a leading device axis on inputs and results.

    mesh: all axes except "model" count as devices, each a group of devices that shard the parameters; None: a single device.
    """

    def one(params: Params, *inputs: Any) -> Any:
        found = function(params, *jax.tree.map(lambda leaf: leaf[0], inputs), spec=spec)
        return jax.tree.map(lambda leaf: leaf[None], found)

    if not (axes := data_axes(mesh)):
        return one(params, *inputs)
    each_own = (PartitionSpec(axes),) * len(inputs)
    specs = {"in_specs": (PartitionSpec(), *each_own), "out_specs": PartitionSpec(axes)}
    return jax.shard_map(one, mesh=mesh, **specs, axis_names=set(axes), check_vma=False)(params, *inputs)
