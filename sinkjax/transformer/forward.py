"""The forward pass of every model here: a pure function of arrays.

    h = embed(tokens) (+ positions)            EMBED, before the positions
    in each block
        h = h + W_O attend(norm(h))            QUERY KEY VALUE, POSITION, LOGITS, WEIGHTS, HEAD_OUT, ATTN_OUT
        h = h + mlp(norm(h))                   NEURON, MLP_OUT, RESID
    logits = unembed(norm(h))

A config may lack the norm, the rotation, the MLP, the sum or the unembedding: then so does this, and the sites that go with it.
What may be otherwise has a file of its own: positions.py (position biases are in LOGITS), masks.py, normalisers.py, heads.py,
mlp.py, norms.py (where norms stand elsewhere, ATTN_OUT and MLP_OUT are what is added, RESID what the next block gets).

Edits are data that go in, measurements are data that come out, and `tape(Site.X, x)` marks each place where both happen. The
blocks are stacked and run by one `lax.scan`. Shape suffixes: B prompts, T positions, H query heads, K key-value heads, D head
width, d residual width, F MLP width, V vocabulary, L blocks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp

from sinkjax.edits.edit import Edit
from sinkjax.edits.resolve import Edits, resolve
from sinkjax.edits.site import Site
from sinkjax.errors import SinkjaxError, one_of
from sinkjax.model import norms, positions, rope
from sinkjax.model.batch import check_batch
from sinkjax.model.bias import SinkToken
from sinkjax.model.config import Config, NoPosition, Rope
from sinkjax.model.heads import gated_outputs, gated_values, normed_outputs, normed_queries_keys
from sinkjax.model.linear import add_bias, project
from sinkjax.model.params import Params
from sinkjax.model.params import check as check_params
from sinkjax.probes.measure import finish, measure
from sinkjax.probes.probe import Capture, Probe
from sinkjax.probes.statistics import View
from sinkjax.transformer.attention import attend
from sinkjax.transformer.fused import IMPLEMENTATIONS, check_fused
from sinkjax.transformer.mlp import mlp
from sinkjax.transformer.output import Output, Trace, next_token_nll, output
from sinkjax.transformer.tape import Tape

PRECISIONS = ("highest", "high", "default")


def forward(
    params: Params,
    tokens: Any,
    config: Config,
    edits: Edit | Sequence[Edit] = (),
    probe: Probe = Probe(attention_received=True),
    lengths: Any = None,
    logits: bool = True,
    precision: str = "highest",
    unroll: bool = False,
    remat: bool = False,
    attention_impl: str = "sinkjax",
) -> Output:
    """Run a model on a batch of right-padded prompts, edited and measured.

    tokens: int [B, T], or float [B, T, d] for a config without a vocabulary. edits: one, or a sequence applied left to right.
    probe: what to measure. lengths: int [B], by default T for all; what lies beyond a prompt's length changes nothing.
    logits: whether to compute them. precision: of every matrix product ("highest": full float32 on every device).
    unroll: compile the blocks one after the other and not as a loop, which copies what the gradient needs of each: for training
    a few small blocks. remat: compute what is inside a block once more for its gradient, instead of keeping it.
    attention_impl: "sinkjax", or "fused", faster on GPUs, which refuses edits and what needs scores and weights (model/fused.py).
    May be traced (jit, grad, vmap) in params, tokens, lengths and the values of edits; what is traced is not checked.
    Errors: parameters that do not fit the config; a token outside of the vocabulary; a prompt empty or longer than the context;
    a probe or edits that do not fit (`Probe.check`, `resolve`); an unknown precision.
    """
    one_of("precision", precision, PRECISIONS)
    one_of("attention_impl", attention_impl, IMPLEMENTATIONS)
    if not isinstance(probe, Probe):
        raise SinkjaxError(f"probe must be a Probe, not {probe!r}; Probe.of(*names) makes one from names")
    check_params(params, config)
    tokens, lengths, known_lengths = check_batch(tokens, lengths, config)
    probe.check(config, tokens.shape[1])
    resolved = resolve(edits, config, known_lengths, tokens.shape[1])
    if attention_impl == "fused":
        check_fused(config, bool(resolved), probe)
    how: dict[str, Any] = {"precision": precision, "unroll": unroll, "remat": remat, "attention_impl": attention_impl}
    return run(params, tokens, lengths, resolved, config=config, probe=probe, logits=logits, **how)


@partial(jax.jit, static_argnames=("config", "probe", "logits", "precision", "unroll", "remat", "attention_impl"))
def run(
    params: Params,
    tokens: jax.Array,
    lengths: jax.Array,
    edits: Edits,
    *,
    config: Config,
    probe: Probe,
    logits: bool,
    precision: str,
    unroll: bool = False,
    remat: bool = False,
    attention_impl: str = "sinkjax",
) -> Output:
    """The jitted core of `forward`: arrays in, arrays out."""
    params = with_sink_token(params, config, precision)
    h, start = embed(params, tokens, edits, config, probe, lengths)
    step = block_step(config, probe, lengths, edits, tokens.shape[1], h.dtype, precision, attention_impl)
    slots = empty_slots(step, params, h, config, probe)
    step = jax.checkpoint(step, prevent_cse=unroll) if remat else step
    (h, slots), layers = jax.lax.scan(
        lambda carry, xs: step(*carry, *xs), (h, slots), (jnp.arange(config.layers), params["layers"]), unroll=unroll
    )
    return complete(params, h, tokens, Trace(start, layers, slots), edits, config, probe, lengths, logits, precision)


def with_sink_token(params: Params, config: Config, precision: str) -> Params:
    """The parameters, with the keys and values that a sink token has in each layer, if the model has one (see `SinkToken`)."""
    if not isinstance(config.attention_bias, SinkToken):
        return params
    position = NoPosition() if isinstance(config.position, positions.AddedPosition) else config.position
    alone = dataclasses.replace(config, attention_bias=None, vocab_size=None, position=position)
    probe = Probe(capture=(Capture(Site.KEY, name="key"), Capture(Site.VALUE, name="value")))
    vector, one = params["sink_token"][None, None], jnp.ones(1, jnp.int32)
    record = run(params, vector, one, (), config=alone, probe=probe, logits=False, precision=precision).record
    return params | {"layers": params["layers"] | {"attention_bias": {name: record[name][0, :, 0] for name in ("key", "value")}}}


def embed(
    params: Params, tokens: jax.Array, edits: Edits, config: Config, probe: Probe, lengths: jax.Array
) -> tuple[jax.Array, dict]:
    """The residual stream at depth 0, [B, T, d], and what was measured there."""
    vectors = () if config.vocab_size else (config.width,)  # checked here, where every jitted caller passes
    chex.assert_shape(tokens, (None, None, *vectors))
    chex.assert_shape(lengths, tokens.shape[:1])
    tape = Tape(edits, probe, lengths, layer=jnp.int32(0))
    h = tape(Site.EMBED, tokens if jnp.issubdtype(tokens.dtype, jnp.floating) else params["embed"][tokens])
    h = positions.add_vectors(h, config.position, params)
    tape.record |= measure(probe, Site.RESID, h, View(lengths), depth_only=True)
    return h, {"record": finish(probe, tape.record, lengths), "counts": tape.counts}


def block(
    h: jax.Array,
    w: Params,
    window: jax.Array | None,
    rotate: Callable,
    tape: Tape,
    config: Config,
    precision: str,
    attention_impl: str,
) -> tuple[jax.Array, jax.Array]:
    """One transformer block: the residual stream h [B, T, d] in and out, and the number of rows that see no key, [B]."""
    x = norms.before(h, w, "attn_norm", config)
    q = add_bias(project(x, w["q"], precision), w.get("q_bias"))
    k = add_bias(project(x, w["k"], precision), w.get("k_bias"))
    v = add_bias(project(x, w["v"], precision), w.get("v_bias"))
    if config.qk_norm is not None:
        q, k = normed_queries_keys(q, k, w, config.qk_norm.eps)
    v = gated_values(v, x, w, config.gate, precision)
    q, k, v = tape(Site.QUERY, q), tape(Site.KEY, k), tape(Site.VALUE, v)
    q, k = rotate(tape, q, k)  # POSITION
    heads, empty_rows = attend(q, k, v, window, w, tape, config, precision, attention_impl)  # LOGITS, WEIGHTS
    heads = tape(Site.HEAD_OUT, heads)
    if config.head_norm is not None:
        heads = normed_outputs(heads, w, config.head_norm)
    heads = gated_outputs(heads, x, w, config.gate, precision)
    heads = heads.sum(axis=2) if config.summed_heads else heads
    out = add_bias(project(heads, w["o"], precision, contracted=w["o"].ndim - 1), w.get("o_bias"))
    h = norms.add(h, tape(Site.ATTN_OUT, norms.after(out, w, "attn_out_norm", config)), w, "attn_norm", config)
    if config.mlp_width is None:
        return tape(Site.RESID, h), empty_rows

    out = mlp(norms.before(h, w, "mlp_norm", config), w, tape, config, precision)  # NEURON
    h = norms.add(h, tape(Site.MLP_OUT, norms.after(out, w, "mlp_out_norm", config)), w, "mlp_norm", config)
    return tape(Site.RESID, h), empty_rows


def block_step(
    config: Config,
    probe: Probe,
    lengths: jax.Array,
    edits: Edits,
    T: int,
    dtype: jnp.dtype,
    precision: str,
    attention_impl: str = "sinkjax",
) -> Callable[[jax.Array, dict, jax.Array, Params], tuple[tuple[jax.Array, dict], dict]]:
    """The body of the scan: (h, slots), layer and its parameters to the next (h, slots) and what was measured in this block.

    Slots carry raw values out of the few layers that were asked for, so that a map of one layer costs one map.
    """
    rotate = rotary(config, lengths, T, jnp.promote_types(dtype, jnp.float32), edits)
    windows = None if config.windows is None else jnp.asarray([window or T for window in config.windows])

    def step(h: jax.Array, slots: dict, layer: jax.Array, w: Params) -> tuple[tuple[jax.Array, dict], dict]:
        tape = Tape(edits, probe, lengths, layer)
        h, empty_rows = block(h, w, None if windows is None else windows[layer], rotate, tape, config, precision, attention_impl)
        record = finish(probe, tape.record, lengths)
        for capture in probe.captures:
            if capture.name in record:
                slots = slots | {
                    capture.name: fill_slot(slots.get(capture.name), record.pop(capture.name), layer, capture.layer_list(config))
                }
        return (h, slots), {"record": record, "counts": tape.counts, "empty_rows": empty_rows}

    return step


def rotary(config: Config, lengths: jax.Array, T: int, dtype: jnp.dtype, edits: Edits) -> Callable[..., tuple]:
    """A function of the tape, queries and keys that rotates them; its tables are made once unless POSITION is edited."""
    if not isinstance(config.position, Rope):
        return lambda tape, q, k: (q, k)
    frequencies, factor = rope.frequencies(config.position, config.head_dim, lengths, dtype)
    index = jnp.arange(T)[None, :]
    if not any(term.site == Site.POSITION for term in edits):
        same = rope.tables(index, frequencies, factor)
        return lambda tape, q, k: (rope.rotate(q, *same), rope.rotate(k, *same))

    def edited(tape: Tape, q: jax.Array, k: jax.Array) -> tuple:
        for_queries, for_keys = (rope.tables(chosen, frequencies, factor) for chosen in tape.positions(index, index))
        return rope.rotate(q, *for_queries), rope.rotate(k, *for_keys)

    return edited


def fill_slot(slot: jax.Array | None, value: jax.Array, layer: jax.Array, layers: tuple[int, ...]) -> jax.Array:
    """Write a layer's raw value into its place among the captured layers; other layers leave the slot alone."""
    if slot is None:  # only while shapes are worked out
        return jnp.zeros((len(layers), *value.shape), value.dtype)
    place = jnp.asarray([layers.index(entry) if entry in layers else -1 for entry in range(max(layers) + 1)])
    place = jnp.where(layer < place.size, place[jnp.minimum(layer, place.size - 1)], -1)
    return jax.lax.cond(place >= 0, lambda: jax.lax.dynamic_update_index_in_dim(slot, value, place, 0), lambda: slot)


def empty_slots(step: Callable, params: Params, h: jax.Array, config: Config, probe: Probe) -> dict:
    """The carried slots, before the first block."""
    if all(capture.site == Site.EMBED for capture in probe.captures):
        return {}
    first = jax.tree.map(lambda leaf: leaf[0], params["layers"])
    (_, slots), _ = jax.eval_shape(step, h, {}, 0, first)
    return jax.tree.map(lambda slot: jnp.zeros(slot.shape, slot.dtype), slots)


def complete(
    params: Params,
    h: jax.Array,
    tokens: jax.Array,
    trace: Trace,
    edits: Edits,
    config: Config,
    probe: Probe,
    lengths: jax.Array,
    logits: bool,
    precision: str,
) -> Output:
    """From the last residual stream and all that was measured to the `Output`."""
    x = norms.before(h, params, "final_norm", config)
    if config.vocab_size is None:
        return output(None, x, None, trace, edits, probe)
    unembed = params["embed"].T if config.tied else params["unembed"]
    wide = jnp.promote_types(x.dtype, jnp.float32)
    to_logits = lambda x: project(x, unembed, precision, preferred_element_type=wide)  # noqa: E731
    nll = next_token_nll(to_logits, x, tokens, lengths, config.prefix) if probe.nll else None
    return output(to_logits(x) if logits else None, None, nll, trace, edits, probe)
