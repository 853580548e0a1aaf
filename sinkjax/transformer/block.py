"""One block of a transformer, and the body of the scan over all of them.

The config's layout specifies where the norms are, and whether the MLP reads the block's input or attention's result
(sinkjax/model/config.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from sinkjax.config_files.checks import LARGEST
from sinkjax.edits import apply
from sinkjax.edits.site import BEFORE_BLOCKS, Site
from sinkjax.edits.term import Edits
from sinkjax.model import experts, rope
from sinkjax.model.config import Config
from sinkjax.model.heads import gated_outputs, gated_values, normed_outputs
from sinkjax.model.norms import normed_heads, normed_late
from sinkjax.model.ops import add_bias, bits_in_place, project, whole_matrix
from sinkjax.model.params import Params
from sinkjax.model.rotary import LayerRopes
from sinkjax.model.xielu import XIELU
from sinkjax.probes.measure import finish
from sinkjax.probes.probe import Probe
from sinkjax.transformer.attention import attend_evicting
from sinkjax.transformer.implementations import implementation
from sinkjax.transformer.spec import ForwardSpec
from sinkjax.transformer.tape import Input, Tape

ACTIVATION: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "gelu_bloom": lambda x: 0.5 * x * (1 + jnp.tanh(0.79788456 * x * (1 + 0.044715 * x * x))),  # sqrt(2 / pi), truncated
    "relu": jax.nn.relu,
    "relu2": lambda x: jnp.square(jax.nn.relu(x)),
}

READ_AT = {"q": Site.Q_IN, "k": Site.K_IN, "v": Site.V_IN}


def block(h: jax.Array, w: Params, window: jax.Array | None, rotate: Callable, tape: Tape) -> tuple[jax.Array, jax.Array]:
    """Apply one block to the residual stream h [B, T, d]; return the new stream and the number of rows that see no key, [B].

    w: the block's parameters. window: int, the number of most recent keys that a query sees, or None. rotate: made by `rotary`,
    or by `rotary_by_index` under a cache policy.
    """
    config, layout = tape.spec.config, tape.spec.config.layout
    out, empty_rows = attention(tape.read(Site.ATTN_IN, reading(h, w, "attn_norm", config)), w, window, rotate, tape)
    mid = add_to_residual(h, tape(Site.ATTN_OUT, as_added(out, w, "attn_out_norm", config)), w, "attn_norm", config)
    if config.mlp_width is None:
        return tape(Site.RESID, mid), empty_rows

    mid = tape(Site.RESID_MID, mid)
    read = reading(h if layout.parallel else mid, w, "attn_norm" if layout.shared else "mlp_norm", config)
    out = mlp(tape.read(Site.MLP_IN, read).x, w, tape)  # NEURON
    h = add_to_residual(mid, tape(Site.MLP_OUT, as_added(out, w, "mlp_out_norm", config)), w, "mlp_norm", config)
    return tape(Site.RESID, h), empty_rows


def attention(read: Input, w: Params, window: jax.Array | None, rotate: Callable, tape: Tape) -> tuple[jax.Array, jax.Array]:
    """Return attention's output (including W_O) on the normed residual stream [B, T, d], and how many rows see no key."""
    config, precision, x = tape.spec.config, tape.spec.precision, read.x
    read = read._replace(x=tape.quantised(x))
    edited = {name: partial(edited_by_head, read=read, w=w[name], site=site, tape=tape) for name, site in READ_AT.items()}
    q, k, v = (vectors(read.x, w, name, config, precision, edited[name]) for name in READ_AT)  # Q_IN, K_IN, V_IN
    v = gated_values(v, x, w, config.gate, precision)
    q, k, v = tape(Site.QUERY, q), tape(Site.KEY, k), tape(Site.VALUE, v)
    if tape.spec.cache_policy is None:
        q, k = rotate(tape, q, k)  # POSITION
        q, k = (normed_late(each, w, f"{name}_norm", config.qk_norm) for name, each in (("q", q), ("k", k)))
        k, v = (tape.quantised(each, "kv", config.kv_heads) for each in (k, v))
        own = own_values(v, tape)  # HEAD_VALUE
        if own is not None and tape.cache is not None:  # the cache then holds the values of each query head
            v, own = own, None
        k, v = tape.with_cached(k, v)
        heads, empty_rows = implementation(tape.spec.attention_impl).attend(q, k, v, own, window, w, tape)  # LOGITS, WEIGHTS
    else:
        k, v = (tape.quantised(each, "kv", config.kv_heads) for each in (k, v))
        heads, empty_rows = attend_evicting(q, k, v, window, w, tape, rotate)
    heads = tape(Site.HEAD_OUT, heads)
    return joined(tape.quantised(before_joined(heads, x, w, config, precision)), w, precision), empty_rows


def before_joined(heads: jax.Array, x: jax.Array, w: Params, config: Config, precision: str) -> jax.Array:
    """Apply what acts on head outputs [B, T, H, D] before W_O: a norm, a gate by attention's input x [B, T, d], a sum."""
    if config.head_norm is not None:
        heads = normed_outputs(heads, w, config.head_norm)
    heads = gated_outputs(heads, x, w, config.gate, precision)
    return heads.sum(axis=2) if config.summed_heads else heads


def joined(heads: jax.Array, w: Params, precision: str) -> jax.Array:
    """Apply W_O: attention's output [B, T, d]."""
    return add_bias(project(heads, w["o"], precision, contracted=w["o"].ndim - 1), w.get("o_bias"))


def vectors(
    x: jax.Array, w: Params, name: str, config: Config, precision: str, edited: Callable[[jax.Array], jax.Array] | None = None
) -> jax.Array:
    """Compute queries, keys or values (name: "q", "k" or "v") of x [..., d], with bias, clip and norm: [..., heads, D].

    edited: applies edits to the product, before the bias.
    """
    product = project(x, w[name], precision)
    out = add_bias(product if edited is None else edited(product), w.get(f"{name}_bias"))
    if config.qkv_clip is not None:
        out = jnp.clip(out, -config.qkv_clip, config.qkv_clip)
    return out if config.qk_norm is None or name == "v" else normed_heads(out, w, f"{name}_norm", config.qk_norm)


def edited_by_head(product: jax.Array, read: Input, w: jax.Array, site: Site, tape: Tape) -> jax.Array:
    """Return the product of read.x [B, T, d] and w [d, heads, D], recomputed for heads whose copy of x was edited.

    The copies exist only if something is edited or measured at `site`.
    """
    if not tape.watches(site):
        return product
    x, stream = (jnp.broadcast_to(each[:, :, None], (*each.shape[:2], w.shape[1], each.shape[-1])) for each in read[:2])
    own = tape.read(site, Input(x, stream, read.norm)).x
    if not tape.at(site):
        return product
    changed = (own != x).any(axis=-1, keepdims=True)
    return apply.where_changed(
        changed, jnp.einsum("BTHd,dHD->BTHD", own, whole_matrix(w), precision=tape.spec.precision), product
    )


def own_values(v: jax.Array, tape: Tape) -> jax.Array | None:
    """Return each query head's values [B, S, H, D], copied from v [B, S, K, D]; None unless an edit acts at HEAD_VALUE."""
    if not tape.watches(Site.HEAD_VALUE):
        return None
    own = tape(Site.HEAD_VALUE, jnp.repeat(v, tape.spec.config.heads // v.shape[2], axis=2))
    return own if tape.at(Site.HEAD_VALUE) else None


def block_step(
    spec: ForwardSpec, lengths: jax.Array, edits: Edits, h: jax.Array, first: jax.Array | int = 0
) -> Callable[..., tuple[tuple[jax.Array, dict], dict]]:
    """Make the body of `lax.scan` over the blocks, from (h, slots) to the next (h, slots) and a layer's measurements.

    h: the residual stream, for its shape and dtype only. first: the position of its first row. The body scans over layer indices,
    parameters and, if the pass continues an earlier one, caches or states (see `Tape`). Slots carry captured values out of only
    the requested layers: a map of one layer costs the memory of one map.
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
        tape = Tape(spec, edits, lengths, layer, first, *past)
        tape.kept = w.get("kept")
        h, empty_rows = block(h, tape.parameters(w), None if seen_keys is None else seen_keys[layer], rotate, tape)
        record = finish(probe, tape.record, lengths)
        for capture in probe.captures:
            if capture.name in record:
                slots = slots | {
                    capture.name: fill_slot(slots.get(capture.name), record.pop(capture.name), layer, capture.layer_list(config))
                }
        measured = {"record": record, "counts": tape.counts, "empty_rows": empty_rows}
        return (h, slots), measured | {"cache": tape.cache, "state": tape.state}

    return step


def over_blocks(step: Callable[..., tuple], carry: Any, blocks: Params, spec: ForwardSpec, *inputs: Any) -> tuple[Any, Any]:
    """Scan a body over (layer index, parameters of the block, *inputs), all stacked by layer. See `ForwardSpec.in_place`."""
    layers = jnp.arange(spec.config.layers)
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


def rotary(
    config: Config, lengths: jax.Array, index: jax.Array, dtype: jnp.dtype, edits: Edits, past: int = 0
) -> Callable[..., tuple]:
    """Make a function of (tape, queries, keys) that rotates them at positions past + `index` [1 or B, T].

    The tables are computed once unless POSITION is edited. Edits count positions without the past.
    """
    if not config.ropes:
        return lambda tape, q, k: (q, k)
    first = config.ropes[0]
    kinds = rotations(config, lengths, dtype)
    if not any(term.site == Site.POSITION for term in edits):
        placed = past + index
        made = [rope.tables(placed, *kind) for kind in kinds]

        def same(tape: Tape, q: jax.Array, k: jax.Array) -> tuple:
            tables = of_layer(made, config, tape.layer)
            return rope.grown(rope.rotate(q, *tables), placed, first), rope.rotate(k, *tables)

        return same

    def edited(tape: Tape, q: jax.Array, k: jax.Array) -> tuple:
        kind = of_layer(kinds, config, tape.layer)
        of_queries, of_keys = (past + each for each in tape.positions(index, index))
        q = rope.grown(rope.rotate(q, *rope.tables(of_queries, *kind)), of_queries, first)
        return q, rope.rotate(k, *rope.tables(of_keys, *kind))

    return edited


def rotary_by_index(config: Config, lengths: jax.Array, dtype: jnp.dtype) -> Callable[..., jax.Array]:
    """Make a function that rotates vectors [B, S, heads, D] by rotary indices [S] in a layer, if the model uses rotation."""
    kinds = rotations(config, lengths, dtype)

    def rotate(x: jax.Array, index: jax.Array, layer: jax.Array) -> jax.Array:
        if not kinds:
            return x
        return rope.rotate(x, *rope.tables(index[None], *of_layer(kinds, config, layer)))

    return rotate


def rotations(config: Config, lengths: jax.Array, dtype: jnp.dtype) -> list[tuple[jax.Array, jax.Array]]:
    """Return the frequencies and the factor of each kind of rotary positions, then 0 and 1 for layers without rotation."""
    kinds = [rope.frequencies(kind, config.head_dim, lengths, dtype) for kind in config.ropes]
    return [(each, jnp.asarray(factor, dtype)) for each, factor in [*kinds, *((0 * each, 1.0) for each, _ in kinds[:1])]]


def of_layer(by_kind: list[tuple[jax.Array, jax.Array]], config: Config, layer: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Select a layer's pair of arrays from a list with a pair for each kind of rotation."""
    if not isinstance(config.position, LayerRopes):
        return by_kind[0]
    kind = jnp.asarray([len(by_kind) - 1 if kind is None else kind for kind in config.position.layers])[layer]
    first, second = (jnp.stack(jnp.broadcast_arrays(*each))[kind] for each in zip(*by_kind, strict=True))
    return first, second


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


def mlp(x: jax.Array, w: Params, tape: Tape) -> jax.Array:
    """Compute the output of the MLP, or of each token's experts: [B, T, d] to [B, T, d], with NEURON in between."""
    config, precision = tape.spec.config, tape.spec.precision
    if config.experts is None:
        x = tape.quantised(x)
        neurons = hidden(lambda name: add_bias(project(x, w[name], precision), w.get(f"{name}_bias")), w, config)
        neurons = tape.quantised(tape(Site.NEURON, neurons))
        return add_bias(project(neurons, w["down"], precision), w.get("down_bias"))

    logits = tape(Site.ROUTER, add_bias(project(x, w["router"], precision), w.get("router_bias")))
    chosen, weights = (each.reshape(-1, config.experts.active) for each in experts.route(logits, config.experts))
    times = experts.by_expert(chosen.reshape(-1), config.experts.count)
    rows = jnp.repeat(tape.quantised(x).reshape(-1, x.shape[-1]), config.experts.active, axis=0)  # the router reads x unrounded
    neurons = hidden(lambda name: times(rows, w[name], w.get(f"{name}_bias"), precision), w, config)
    if tape.watches(Site.NEURON) or tape.spec.quantisation is not None:
        every = neurons.reshape(*chosen.shape, -1)
        units, read = (experts.units(each, chosen, config.experts.count) for each in (every, jnp.ones_like(every, bool)))
        whole = *x.shape[:2], units.shape[-1]
        units = tape(Site.NEURON, units.reshape(whole), read.reshape(whole))
        units = tape.quantised(units, groups=config.experts.count).reshape(len(chosen), -1)
        neurons = experts.taken_units(units, chosen, config.experts.count).reshape(neurons.shape)
    out = times(neurons, w["down"], w.get("down_bias"), precision).reshape(*chosen.shape, -1)
    return (out * weights.astype(out.dtype)[..., None]).sum(axis=1).reshape(x.shape)


def hidden(product: Callable[[str], jax.Array], w: Params, config: Config) -> jax.Array:
    """Compute the hidden units of an MLP. product: multiplies the input by the named matrix."""
    if isinstance(config.activation, XIELU):
        return config.activation(product("up"), w)
    if not config.gated_mlp:
        return ACTIVATION[str(config.activation)](product("up"))
    gate, up = product("gate"), product("up")
    return ACTIVATION[config.activation](gate) * up if isinstance(config.activation, str) else config.activation(gate, up)


def reading(h: jax.Array, w: dict[str, Any], name: str, config: Config) -> Input:
    """Norm the residual stream as the next part of a block reads it."""

    def norm(stream: jax.Array) -> jax.Array:
        return config.norm(stream, w, name) if config.norm is not None and config.layout.inputs else stream

    return Input(norm(h), h, norm)


def as_added(out: jax.Array, w: dict[str, Any], name: str, config: Config, at: jax.Array | None = None) -> jax.Array:
    """Apply the post-norm and residual factor, if any, to the output of attention or the MLP. at: see `Norm`."""
    out = config.norm(out, w, name, at) if config.norm is not None and config.layout.outputs else out
    return out if config.multipliers.residual == 1 else out * config.multipliers.residual


def add_to_residual(
    h: jax.Array, change: jax.Array, w: dict[str, Any], name: str, config: Config, at: jax.Array | None = None
) -> jax.Array:
    """Add a change to the residual stream."""
    h = h + change if config.residual else change
    return config.norm(h, w, name, at) if config.norm is not None and config.layout.sums else h


def final_normed(h: jax.Array, params: Params, config: Config, at: jax.Array | None = None) -> jax.Array:
    """Norm the last residual stream as the unembedding reads it."""
    return config.norm(h, params, "final_norm", at) if config.norm is not None and not config.layout.sums else h
