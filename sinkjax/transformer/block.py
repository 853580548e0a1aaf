"""One block of a transformer: attention, the MLP, and the norms around them.

The config's layout specifies where the norms are, and whether the MLP reads the block's input or attention's result
(sinkjax/model/config.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from sinkjax.edits import apply
from sinkjax.model import experts
from sinkjax.model.config import Config
from sinkjax.model.heads import gated_outputs, gated_values, normed_outputs
from sinkjax.model.norms import normed_heads, normed_late
from sinkjax.model.ops import add_bias, project, whole_matrix
from sinkjax.model.params import Params
from sinkjax.model.site import Site
from sinkjax.model.xielu import XIELU
from sinkjax.transformer.attention import HeadInputs, attend_evicting
from sinkjax.transformer.implementations import implementation
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
    or by `rotary_by_index` under a cache policy (rotation.py).
    """
    config, layout = tape.spec.config, tape.spec.config.layout
    out, empty_rows = attention(tape.inputs(Site.ATTN_IN, reading(h, w, "attn_norm", config)), w, window, rotate, tape)
    mid = add_to_residual(h, tape(Site.ATTN_OUT, as_added(out, w, "attn_out_norm", config)), w, "attn_norm", config)
    if config.mlp_width is None:
        return tape(Site.RESID, mid), empty_rows

    mid = tape(Site.RESID_MID, mid)
    mlp_input = reading(h if layout.parallel else mid, w, "attn_norm" if layout.shared else "mlp_norm", config)
    out = mlp(tape.inputs(Site.MLP_IN, mlp_input).x, w, tape)  # NEURON
    h = add_to_residual(mid, tape(Site.MLP_OUT, as_added(out, w, "mlp_out_norm", config)), w, "mlp_norm", config)
    return tape(Site.RESID, h), empty_rows


def attention(inputs: Input, w: Params, window: jax.Array | None, rotate: Callable, tape: Tape) -> tuple[jax.Array, jax.Array]:
    """Return attention's output (including W_O) on the normed residual stream [B, T, d], and how many rows see no key."""
    config, precision, x = tape.spec.config, tape.spec.precision, inputs.x
    inputs = inputs._replace(x=tape.quantised(x))
    edited = {name: partial(edited_by_head, inputs=inputs, w=w[name], site=site, tape=tape) for name, site in READ_AT.items()}
    q, k, v = (vectors(inputs.x, w, name, config, precision, edited[name]) for name in READ_AT)  # Q_IN, K_IN, V_IN
    v = gated_values(v, x, w, config.gate, precision)
    q, k, v = tape(Site.QUERY, q), tape(Site.KEY, k), tape(Site.VALUE, v)
    if tape.spec.cache_policy is None:
        q, k = rotate(tape, q, k)  # POSITION
        q, k = (normed_late(each, w, f"{name}_norm", config.qk_norm) for name, each in (("q", q), ("k", k)))
        k, v = (tape.quantised(each, "kv", config.kv_heads) for each in (k, v))
        by_head = values_by_head(v, tape)  # HEAD_VALUE
        if by_head is not None and tape.cache is not None:  # the cache then holds the values of each query head
            v, by_head = by_head, None
        k, v = tape.with_cached(k, v)
        # LOGITS, WEIGHTS
        heads, empty_rows = implementation(tape.spec.attention_impl).attend(HeadInputs(q, k, v, by_head, window, w), tape)
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


def edited_by_head(product: jax.Array, inputs: Input, w: jax.Array, site: Site, tape: Tape) -> jax.Array:
    """Return the product of read.x [B, T, d] and w [d, heads, D], recomputed for heads whose copy of x was edited.

    The copies exist only if something is edited or measured at `site`.
    """
    if not tape.watches(site):
        return product
    x, stream = (jnp.broadcast_to(each[:, :, None], (*each.shape[:2], w.shape[1], each.shape[-1])) for each in inputs[:2])
    edited_x = tape.inputs(site, Input(x, stream, inputs.norm)).x
    if not tape.at(site):
        return product
    changed = (edited_x != x).any(axis=-1, keepdims=True)
    return apply.where_changed(
        changed, jnp.einsum("BTHd,dHD->BTHD", edited_x, whole_matrix(w), precision=tape.spec.precision), product
    )


def values_by_head(v: jax.Array, tape: Tape) -> jax.Array | None:
    """Return each query head's values [B, S, H, D], copied from v [B, S, K, D]; None unless an edit acts at HEAD_VALUE."""
    if not tape.watches(Site.HEAD_VALUE):
        return None
    by_head = tape(Site.HEAD_VALUE, jnp.repeat(v, tape.spec.config.heads // v.shape[2], axis=2))
    return by_head if tape.at(Site.HEAD_VALUE) else None


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
        units, taken = (experts.units(each, chosen, config.experts.count) for each in (every, jnp.ones_like(every, bool)))
        whole = *x.shape[:2], units.shape[-1]
        units = tape(Site.NEURON, units.reshape(whole), taken.reshape(whole))
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
