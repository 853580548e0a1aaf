"""A forward that goes on from an earlier one, whose keys and values were kept: how `generate` gets from a token to the next.

Every row is computed once, in the block of `forward`, so this is exact where no later token and no later length changes an
earlier row, and where a row needs no other but by their keys and values; `why_not` names what is otherwise. Edits act on the rows
that they select, wherever these are.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.edits.term import Edits
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.model.rotary import DynamicScaling, LongScaling
from sinkjax.transformer.block import block_step
from sinkjax.transformer.forward import embed, with_sink_token
from sinkjax.transformer.output import Trace, complete
from sinkjax.transformer.spec import ForwardSpec
from sinkjax.transformer.tape import Kept


@partial(jax.jit, static_argnames=("spec", "total"), donate_argnames="kept")
def go_on(
    params: Params,
    tokens: jax.Array,
    first: jax.Array | int,
    kept: Kept | None,
    edits: Edits,
    *,
    spec: ForwardSpec,
    total: int,
) -> tuple[jax.Array, Kept]:
    """The next rows of prompts that may grow to `total` tokens.

    tokens: int [B, T], those at positions first to first + T - 1. kept: rotated keys and values [L, B, total, K, D] of the
    positions before, as an earlier call returned them; None of the first call. edits: resolved for `total` positions.
    Returns the logits [B, V] after the last row, and what is kept now.
    """
    config, (B, T) = spec.config, tokens.shape
    lengths = jnp.full(B, first + T)
    params, edits = with_sink_token(params, spec), tuple(term.for_rows(first, T) for term in edits)
    h, start = embed(params, tokens, lengths, edits, spec, first, total)
    if kept is None:
        nothing = jnp.zeros((config.layers, B, total, config.kv_heads, config.head_dim), h.dtype)
        kept = (nothing, nothing)
    step = block_step(spec, lengths, edits, T, h.dtype, first)
    xs = (jnp.arange(config.layers), params["layers"], kept)
    (h, _), layers = jax.lax.scan(lambda carry, xs: step(*carry, *xs), (h, {}), xs)
    logits = complete(params, h[:, -1:], tokens, lengths, edits, Trace(start, layers, {}), spec).logits
    assert logits is not None  # there is a vocabulary
    return logits[:, 0], layers["kept"]


def why_not(config: Config, edits: Edits, first: int, total: int) -> str | None:
    """Why prompts of `first` tokens or more cannot go on from what was kept, until they have `total`; None: they can.

    edits: resolved for `total` positions.
    """
    if config.prefix is not None and config.prefix > first:
        return f"a new token changes the rows before it, within a prefix of {config.prefix} tokens"
    for scaling in [rope.scaling for rope in config.ropes]:
        last = total - 1  # the last token is not read
        dynamic = isinstance(scaling, DynamicScaling) and last > scaling.original_context
        if dynamic or (isinstance(scaling, LongScaling) and first <= scaling.original_context < last):
            return "rotary frequencies change as the prompt grows"
    for term in edits:
        if term.centre == "positions" and np.asarray(term.query)[:, first:].any():
            return "an edit centred over positions acts on what is generated"
        if term.op == "swap" and np.asarray(term.value).max() >= first:
            return "an edit swaps positions that not all prompts have"
    return None
