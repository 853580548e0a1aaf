"""The scan over the blocks: its body, the slices of stacked parameters, and the slots of captured values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from sinkjax.config_files.checks import LARGEST
from sinkjax.edits.term import Edits
from sinkjax.model.config import Config
from sinkjax.model.ops import bits_in_place
from sinkjax.model.params import Params
from sinkjax.model.site import BEFORE_BLOCKS
from sinkjax.probes.measure import capture_rows, finish, with_earlier_rows
from sinkjax.probes.probe import Probe
from sinkjax.transformer.block import block
from sinkjax.transformer.rotation import rotary, rotary_by_index
from sinkjax.transformer.spec import ForwardSpec
from sinkjax.transformer.tape import Tape


def block_step(
    spec: ForwardSpec, lengths: jax.Array, edits: Edits, h: jax.Array, first: jax.Array | int = 0
) -> Callable[..., tuple[tuple[jax.Array, dict], dict]]:
    """Make the body of `lax.scan` over the blocks, from (h, slots) to the next (h, slots) and a layer's measurements.

    h: the residual stream, for its shape and dtype only. first: the position of its first row. The body scans over layer indices,
    parameters and, if the pass continues an earlier one, caches or states (see `Tape`), and with `spec.first` another run's
    record of the layer. Slots carry captured values out of only the requested layers: a map of one layer costs the memory of one
    map.
    """
    config, probe = spec.config, spec.probe
    wide = jnp.promote_types(h.dtype, jnp.float32)
    rotate = (
        rotary(config, spec.past + lengths, first + jnp.arange(h.shape[1])[None, :], wide, edits, spec.past)
        if spec.cache_policy is None
        else rotary_by_index(config, spec.past + lengths, wide)
    )
    seen_keys = windows(config)

    def step(carry: tuple[jax.Array, dict], xs: tuple) -> tuple[tuple[jax.Array, dict], dict]:
        (h, slots), (layer, w, *past) = carry, xs
        earlier = past.pop() if spec.first else {}
        tape = Tape(spec, edits, lengths, layer, first, *past)
        tape.kept = w.get("kept")
        h, empty_rows = block(h, tape.parameters(w), None if seen_keys is None else seen_keys[layer], rotate, tape)
        if past and not spec.first:  # one of several calls of a pass, whose rows `rows.py` joins and finishes
            return (h, slots), {"record": tape.record, "cache": tape.cache, "state": tape.state}
        record = with_earlier_rows(probe, tape.record, earlier, spec.first) if spec.first else tape.record
        record = finish(probe, record, lengths)
        for capture in probe.captures:
            if capture.name in record:
                value, slot, layers = record.pop(capture.name), slots.get(capture.name), capture.layer_list(config)
                if spec.first and slot is not None:
                    value = capture_rows(capture, value, slot[jnp.argmax(jnp.asarray(layers) == layer)], spec.first)
                slots = slots | {capture.name: fill_slot(slot, value, layer, layers)}
        measured = {"record": record, "counts": tape.counts, "empty_rows": empty_rows}
        return (h, slots), measured | {"cache": tape.made or tape.cache, "state": tape.state}

    return step


def over_blocks(step: Callable[..., tuple], carry: Any, blocks: Params, spec: ForwardSpec, *inputs: Any) -> tuple[Any, Any]:
    """Scan a body over (layer index, parameters of the block, *inputs), all stacked by layer. See `ForwardSpec.in_place`.

    Blocks from `spec.depth` on are skipped: they leave the carry unchanged, and their results are 0.
    """
    layers, run = jnp.arange(spec.config.layers), step

    def until_depth(carry: Any, xs: tuple) -> tuple:
        _, results = jax.eval_shape(run, carry, xs)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), results)
        return jax.lax.cond(xs[0] < spec.depth, lambda: run(carry, xs), lambda: (carry, nothing))

    step = run if spec.depth == spec.config.layers else until_depth
    if not spec.in_place:
        return jax.lax.scan(step, carry, (layers, blocks, *inputs), unroll=spec.unroll)

    def sliced(carry: Any, xs: tuple) -> tuple:
        return step(carry, (xs[0], jax.tree.map(lambda leaf: _in_place(leaf, xs[0]), blocks), *xs[1:]))

    return jax.lax.scan(sliced, carry, (layers, *inputs), unroll=spec.unroll)


def _in_place(leaf: jax.Array, layer: jax.Array) -> jax.Array:
    """Slice one layer of a stack, without a copy of the others in float32."""
    if leaf.dtype != jnp.bfloat16:
        return leaf[layer]
    bits, layer = bits_in_place(leaf, layer)
    return jax.lax.bitcast_convert_type(bits[layer], jnp.bfloat16)


def windows(config: Config) -> jax.Array | None:
    """Return the number of most recent keys that a query sees in each layer, int [L]; None if no layer has a window."""
    return None if config.windows is None else jnp.asarray([window or LARGEST for window in config.windows])


def fill_slot(slot: jax.Array | None, value: jax.Array, layer: jax.Array, layers: tuple[int, ...]) -> jax.Array:
    """Write a layer's raw value into its slot; layers that are not captured leave the slot unchanged."""
    if slot is None:  # only during shape inference
        return jnp.zeros((len(layers), *value.shape), value.dtype)
    place = jnp.asarray([layers.index(entry) if entry in layers else -1 for entry in range(max(layers) + 1)])
    place = jnp.where(layer < place.size, place[jnp.minimum(layer, place.size - 1)], -1)
    return jax.lax.cond(place >= 0, lambda: jax.lax.dynamic_update_index_in_dim(slot, value, place, 0), lambda: slot)


def empty_slots(step: Callable, params: Params, h: jax.Array, probe: Probe) -> dict:
    """Make the slots that the scan carries (see `block_step`), filled with zeros."""
    if all(capture.site in BEFORE_BLOCKS for capture in probe.captures):
        return {}
    first = jax.tree.map(lambda leaf: leaf[0], params["layers"])
    (_, slots), _ = jax.eval_shape(step, (h, {}), (0, first))
    return jax.tree.map(lambda slot: jnp.zeros(slot.shape, slot.dtype), slots)
