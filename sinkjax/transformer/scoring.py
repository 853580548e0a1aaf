"""The scores of each prompt's last tokens, without the logits of the tokens before them."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from sinkjax.edits.term import Edits
from sinkjax.model.params import Params
from sinkjax.transformer.block import final_normed
from sinkjax.transformer.embed import embed
from sinkjax.transformer.layers import block_step, over_blocks
from sinkjax.transformer.output import token_logits, token_nll, unembedded_width
from sinkjax.transformer.sink_token import with_sink_token
from sinkjax.transformer.spec import ForwardSpec


@partial(jax.jit, static_argnames=("spec", "last"))
def last_scores(
    params: Params, tokens: jax.Array, lengths: jax.Array, edits: Edits, *, spec: ForwardSpec, last: int
) -> dict[str, jax.Array]:
    """Score the last tokens of prompts.

    tokens: int [B, T + 1]; a prompt has `lengths` of them and one more, which is only predicted. Returns "scores", float
    [B, last, 2]: -log p in nats, and whether the token is the likeliest. Entries before a prompt's second token are arbitrary.
    """
    params, config = with_sink_token(params, spec), spec.config
    h, _ = embed(params, tokens[:, :-1], lengths, edits, spec)
    step = block_step(spec, lengths, edits, h)
    (h, _), _ = over_blocks(step, (h, {}), params["layers"], spec)
    rows = jnp.maximum(lengths[:, None] - last + jnp.arange(last), 0)
    x = final_normed(jnp.take_along_axis(h, rows[..., None], axis=1), params, config)
    x = unembedded_width(x, params, config, spec.precision)
    to_logits = partial(token_logits, params=params, config=config, precision=spec.precision)
    return {"scores": token_nll(to_logits, x, jnp.take_along_axis(tokens, rows + 1, axis=1), greedy=True)}
