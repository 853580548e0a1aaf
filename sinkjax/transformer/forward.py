"""The forward pass of every model: a pure function of arrays.

                                               sites, in order:
    h = embed(tokens) (+ positions)            EMBED, POSITION_VECTOR; then a norm, if any
    in each block
        h = h + W_O attend(norm(h))            ATTN_IN, Q_IN K_IN V_IN, QUERY KEY VALUE, POSITION, HEAD_VALUE, LOGITS,
                                               WEIGHTS, HEAD_OUT, ATTN_OUT, RESID_MID
        h = h + mlp(norm(h))                   MLP_IN, ROUTER, NEURON, MLP_OUT, RESID
    logits = unembed(norm(h))

The first line is embed.py, a block is block.py and attention.py, and the last line is output.py. `run` connects them: one
`lax.scan` over stacked blocks (layers.py), after sink_token.py has made the keys and values of a sink token. sweeps/shared.py
scans the same blocks, and skips those before the first edited one. past.py puts keys and values of earlier tokens in front of a
prompt.

A config may lack the norm, the rotation, the MLP, the residual addition or the unembedding; the pass then skips it and its
sites. Each part that varies has its own file in sinkjax/model/: norms.py, positions.py (position biases are in LOGITS),
normalisers.py, heads.py, and config.py for where the norms are. In every layout ATTN_OUT and MLP_OUT are the vectors that are
added to the stream, and RESID is the next block's input.

Edits are input data and measurements are output data. Both happen where a tape (tape.py) is called: `tape(Site.X, x)` at nearly
every site, `tape.inputs` at the inputs of a block's parts, `tape.positions`, `tape.logits` and `tape.weights` in attention. Shape
suffixes: B prompts, T positions, S keys, H query heads, K key-value heads, D head width, d residual width, F MLP width, V
vocabulary, L blocks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol, cast

import jax
import jax.numpy as jnp

from sinkjax.config_files.checks import refuse
from sinkjax.edits.edit import Edit, resolve
from sinkjax.edits.term import Edits
from sinkjax.errors import SinkjaxError
from sinkjax.model.batch import check_batch
from sinkjax.model.config import Config
from sinkjax.model.params import Params, dtype_of
from sinkjax.model.params import check as check_params
from sinkjax.probes.probe import Probe
from sinkjax.runtime.hardware import Hardware
from sinkjax.runtime.settings import fixed_settings
from sinkjax.transformer.embed import embed
from sinkjax.transformer.implementations import AUTO, Derivative, chosen
from sinkjax.transformer.layers import block_step, empty_slots, over_blocks
from sinkjax.transformer.output import Output, Trace, complete
from sinkjax.transformer.past import Past, put_in_front
from sinkjax.transformer.sink_token import with_sink_token
from sinkjax.transformer.spec import ForwardSpec


class Loaded(Protocol):
    """Parameters with their architecture, as `sinkjax.load` returns them."""

    @property
    def params(self) -> Params: ...

    @property
    def config(self) -> Config: ...


@fixed_settings
def forward(
    params: Params | Loaded,
    tokens: Any,
    config: Config | None = None,
    edits: Edit | Sequence[Edit] = (),
    probe: Probe = Probe(attention_received=True),
    lengths: Any = None,
    logits: bool = True,
    precision: str = ForwardSpec.precision,
    unroll: bool = ForwardSpec.unroll,
    remat: bool = ForwardSpec.remat,
    attention_impl: str = AUTO,
    attention_mask: Any = None,
    past: Past | None = None,
) -> Output:
    """Run a model on a batch of right-padded prompts, with edits and measurements.

    Params, tokens, lengths and the values of edits may be traced (jit, grad, vmap); traced values are not checked.

    Args:
        params: A model from `sinkjax.load`, or only its parameters, in the tree of `params.abstract(config)`.
        tokens: int [B, T], or float [B, T, d] for a config without a vocabulary.
        config: The architecture, if `params` is not a model.
        edits: An edit, or a sequence applied left to right.
        probe: The measurements to make.
        lengths: Prompt lengths, int [B], by default T for all; tokens beyond a prompt's length have no effect.
        logits: Whether to compute the logits, float32 [B, T, V], which may not fit in memory for a long prompt.
        precision: Precision of every matrix product: "highest" (full float32 on every device), "high" or "default".
        unroll: Whether to unroll the loop over blocks. The loop copies each block's inputs for the gradient, so unrolling helps
            when training a few small blocks.
        remat: Whether to recompute the inside of a block for its gradient instead of keeping it.
        attention_impl: "auto" or one of three. "sinkjax" supports every request. "fused" (`transformer/fused.py`) is cuDNN's on
            GPUs in 16 bits. "pallas" (`transformer/flash.py`) has kernels for GPUs and TPUs that also support edits of the
            scores and measure the attention that keys receive, but have no derivative. The last two raise an error for requests
            that need the weights themselves. "auto" is "pallas" if that is faster and supports the request (on NVIDIA's
            data-centre GPUs, in 16 bits, from 512 positions), unless parameters, edits or float tokens are traced and may
            therefore be differentiated; otherwise it is "sinkjax".
        attention_mask: In place of `lengths`, the mask [B, T] that a transformers tokenizer returns with the tokens, 1 for
            tokens and 0 for padding.
        past: Keys and values in front of every prompt (`sinkjax.sink_prefix`). The result equals a run with the past's tokens in
            front of each prompt, without their rows: positions of edits, keys and measurements count the prompt's own tokens.
            `Probe(attention_received_past=True)` measures what the past receives. May be traced.

    Returns:
        Logits (`last_logits` has each prompt's last row), or the normed last residual stream of a model without a vocabulary, and
        the record of the probe's statistics.

    Raises:
        SinkjaxError: Parameters have no config, or do not fit it; a token is outside the vocabulary; a prompt is empty, longer
            than the context, or padded on the left; a mask has a hole; a probe or edits do not fit (`Probe.check`,
            `Edit.resolve`); the precision is unknown, or `attention_impl` does not support the request; the past does not fit
            the model, was made with another model, or its keys would depend on the prompt.
    """
    tokenizer, source = getattr(params, "tokenizer", None), getattr(params, "source", None)
    params, config = _parts(params, config)
    spec = ForwardSpec(config=config, probe=probe, logits=logits, precision=precision, unroll=unroll, remat=remat)
    check_params(params, config)
    tokens, lengths, known_lengths = check_batch(tokens, lengths, config, tokenizer, attention_mask)
    probe.check(config, tokens.shape[1])
    dtype, T = str(dtype_of(params)), tokens.shape[1]
    resolved = resolve(edits, config, known_lengths, T, dtype)
    hardware = Hardware.holding(params)
    params, P = put_in_front(params, past, config, T, source)
    derivative: Derivative = "any" if _differentiable((params, tokens, resolved)) else "none"
    how = chosen(attention_impl, config, [resolved], probe, T, dtype, hardware, derivative, P)
    in_place = derivative == "none" and hardware.kind == "cpu"
    spec = dataclasses.replace(spec, attention_impl=how, past=P, in_place=in_place)
    out: Output = run(params, tokens, lengths, resolved, spec=spec)
    return dataclasses.replace(out, lengths=lengths)


def _differentiable(tree: Any) -> bool:
    """Return whether a number in the tree is traced, so that a transformation of JAX may differentiate it."""
    return any(isinstance(x, jax.core.Tracer) and jnp.issubdtype(x.dtype, jnp.inexact) for x in jax.tree.leaves(tree))


def _parts(params: Params | Loaded, config: Config | None) -> tuple[Params, Config]:
    """Return parameters and architecture, from a model or as given."""
    if not isinstance(params, Mapping) and hasattr(params, "params") and hasattr(params, "config"):
        refuse(config not in (None, params.config), "pass config only with bare parameters: a model has its own")
        return params.params, params.config
    if config is None:
        raise SinkjaxError("parameters need their config: forward(params, tokens, config), or forward(model, tokens)")
    return cast(Params, params), config


@partial(jax.jit, static_argnames="spec")
def run(params: Params, tokens: jax.Array, lengths: jax.Array, edits: Edits, *, spec: ForwardSpec) -> Output:
    """Run the jitted core of `forward`: arrays in, arrays out."""
    params = with_sink_token(params, spec)
    h, before_blocks = embed(params, tokens, lengths, edits, spec)
    step = block_step(spec, lengths, edits, h)
    slots = empty_slots(step, params, h, spec.probe)
    step = jax.checkpoint(step, prevent_cse=spec.unroll) if spec.remat else step
    (h, slots), by_layer = over_blocks(step, (h, slots), params["layers"], spec)
    return complete(params, h, tokens, lengths, edits, Trace(before_blocks, by_layer, slots), spec)
