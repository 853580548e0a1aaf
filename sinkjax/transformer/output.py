"""The result of a forward pass: logits and the record, assembled from the scan's results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from sinkjax.edits.term import Edits
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.model.ops import add_bias, project, soft_cap, wide_product
from sinkjax.model.params import Params
from sinkjax.model.site import BEFORE_BLOCKS
from sinkjax.probes.probe import Probe
from sinkjax.probes.record import Record
from sinkjax.probes.statistics import NON_FINITE, Statistic
from sinkjax.transformer.block import final_normed
from sinkjax.transformer.spec import ForwardSpec

NLL_TOKENS = 128  # tokens whose logits exist at the same time if only their loss is requested


@struct.dataclass
class Output:
    """The result of a forward pass.

    Attributes:
        logits: float [B, T, V]; None if not requested, or without a vocabulary.
        output: float [B, T, d], the normed last residual stream of a model without a vocabulary, else None.
        record: The probe's statistics and, in a run with edits, `cells_addressed` and `cells_changed` (prompt, term) and
            `empty_rows` (prompt), the number of attention rows left without a key.
        lengths: int [B], number of tokens of each prompt; later rows of `logits` are padding.
    """

    logits: jax.Array | None
    output: jax.Array | None
    record: Record
    lengths: jax.Array | None = None

    @property
    def last_logits(self) -> jax.Array:
        """Logits of the token after each prompt, float [B, V]; an error if there are no logits."""
        if self.logits is None or self.lengths is None:
            raise SinkjaxError("last_logits needs logits: pass logits=True to forward, and a model with a vocabulary")
        return jnp.take_along_axis(self.logits, self.lengths[..., None, None] - 1, axis=-2)[..., 0, :]


@struct.dataclass
class Trace:
    """The measurements as the scan leaves them.

    before: {"record", "counts"} of the sites before the blocks. layers: {"record", "counts", "empty_rows", "cache", "state"}
    with a leading layer axis. slots: captured raw values with a leading axis over the captured layers. "counts" maps a
    term's number to (addressed, changed).
    """

    before: dict[str, Any]
    layers: dict[str, Any]
    slots: dict[str, jax.Array]


def complete(
    params: Params, h: jax.Array, tokens: jax.Array, lengths: jax.Array, edits: Edits, trace: Trace, spec: ForwardSpec
) -> Output:
    """Build the `Output` from the last residual stream and all measurements."""
    config, probe = spec.config, spec.probe
    x = final_normed(h, params, config)
    if config.vocab_size is None:
        return output(None, x, {}, trace, edits, probe)
    x = unembedded_width(x, params, config, spec.precision)
    to_logits = partial(token_logits, params=params, config=config, precision=spec.precision)
    scores = {"nll": next_token_nll(to_logits, x, tokens, lengths, config.prefix)} if probe.nll else {}
    if probe.logits_of:
        last = jnp.take_along_axis(x, jnp.maximum(lengths - 1, 0)[:, None, None], axis=1)[:, 0]
        scores["logits_of"] = token_logits(last, params, config, spec.precision, probe.logits_of)
    return output(to_logits(x) if spec.logits else None, None, scores, trace, edits, probe)


def logits_of(x: jax.Array, params: Params, config: Config, precision: str) -> jax.Array:
    """Return the logits [..., V] of the normed last residual stream [..., d]."""
    return token_logits(unembedded_width(x, params, config, precision), params, config, precision)


def unembedded_width(x: jax.Array, params: Params, config: Config, precision: str) -> jax.Array:
    """Project the normed last residual stream [..., d] to the unembedding's width, [..., e]; return it unchanged if they are
    equal."""
    return x if config.embed_width is None else project(x, params["embed_out"], precision)


def token_logits(x: jax.Array, params: Params, config: Config, precision: str, ids: tuple[int, ...] | None = None) -> jax.Array:
    """Return vocabulary logits, or those of some tokens, at least float32: x [..., e] to [..., V]."""
    if ids is not None:
        axes = {"embed": 0, "unembed": 1, "unembed_bias": 0}
        params = {name: jnp.take(params[name], np.array(ids), axis) for name, axis in axes.items() if name in params}
    if config.tied:  # not by `project`: XLA would copy a transposed embedding in 16 bits twice
        flat = wide_product("RE,VE->RV", x.reshape(-1, x.shape[-1]), params["embed"], precision)
        logits = flat.reshape(*x.shape[:-1], -1)
    else:
        logits = project(x, params["unembed"], precision, wide=True)
    logits = add_bias(logits, params.get("unembed_bias"))
    logits = logits if config.multipliers.logits == 1 else logits * config.multipliers.logits
    return soft_cap(logits, config.caps.logits)


def output(
    logits: jax.Array | None,
    hidden: jax.Array | None,
    scores: Mapping[str, jax.Array],
    trace: Trace,
    edits: Edits,
    probe: Probe,
) -> Output:
    """Stack depths and layers, move the prompt axis first, and sum the counts of each edit. scores: what follows from logits."""
    values, dims = {}, probe.dims()
    for entry in probe.statistics:
        array = _up_to(probe.until, trace.layers["record"][entry.name], entry)
        if entry.dims[1] == "depth":
            array = jnp.concatenate([trace.before["record"][entry.name][None], array])
        values[entry.name] = jnp.moveaxis(array, 0, 1)
    for capture in probe.captures:
        name, before = capture.name, capture.site in BEFORE_BLOCKS
        values[name] = trace.before["record"][name] if before else jnp.moveaxis(trace.slots[name], 0, 1)
    values |= scores
    if edits:
        summed = {number: [cells.sum(axis=0) for cells in counts] for number, counts in trace.layers["counts"].items()}
        counts = [trace.before["counts"].get(number) or summed[number] for number in range(len(edits))]
        values["cells_addressed"], values["cells_changed"] = (jnp.stack(column, axis=-1) for column in zip(*counts, strict=True))
        values["empty_rows"] = trace.layers["empty_rows"].sum(axis=0)
        dims |= {"cells_addressed": ("prompt", "term"), "cells_changed": ("prompt", "term"), "empty_rows": ("prompt",)}
    return Output(logits, hidden, Record(values, dims))


def _up_to(last: int | None, array: jax.Array, entry: Statistic) -> jax.Array:
    """Return a statistic [L, ...] with NaN (-1) in the layers after the last one that is read; they overflow nowhere."""
    if last is None:
        return array
    read = (jnp.arange(len(array)) <= last).reshape(-1, *[1] * (array.ndim - 1))
    return jnp.where(read, array, 0 if entry is NON_FINITE else jnp.nan if jnp.issubdtype(array.dtype, jnp.floating) else -1)


def next_token_nll(to_logits: Callable, x: jax.Array, tokens: jax.Array, lengths: jax.Array, prefix: int | None) -> jax.Array:
    """-log p(tokens[i + 1]) in nats at position i: float [B, T], in blocks of tokens.

    NaN from length - 1 on, and where the next token is in the prefix and therefore visible; see `scored`.
    """
    nll = token_nll(to_logits, x, jnp.roll(tokens, -1, axis=1))
    target = jnp.arange(1, x.shape[1] + 1)[None, :]
    return scored(nll, (target < lengths[:, None]) & (target >= (prefix or 0)))


def scored(nll: jax.Array, predicted: Any) -> jax.Array:
    """Return losses with NaN only where no token is predicted: one that overflowed is infinite, so that no mean leaves it out."""
    return jnp.where(predicted, jnp.where(jnp.isnan(nll), jnp.inf, nll), jnp.nan)


def token_nll(to_logits: Callable, x: jax.Array, targets: jax.Array, greedy: bool = False) -> jax.Array:
    """-log p(targets) in nats, [B, T], of the last normed residual stream x [B, T, e], in blocks of tokens.

    greedy: also return, as second on a last axis of two, whether the target has the largest logit.
    """
    B, T = x.shape[:2]
    size = min(T, max(1, NLL_TOKENS // B))
    blocks = -(-T // size)

    def split(array: jax.Array) -> jax.Array:
        padded = jnp.pad(array, ((0, 0), (0, blocks * size - T), *[(0, 0)] * (array.ndim - 2)))
        return padded.reshape(B, blocks, size, *array.shape[2:]).swapaxes(0, 1)

    def score(block: tuple[jax.Array, jax.Array]) -> jax.Array:
        logits = to_logits(block[0])
        chosen = jnp.take_along_axis(logits, block[1][..., None], axis=-1)[..., 0]
        nll = jax.nn.logsumexp(logits, axis=-1) - chosen
        return jnp.stack([nll, logits.argmax(axis=-1) == block[1]], axis=-1) if greedy else nll

    found = jax.lax.map(score, (split(x), split(targets))).swapaxes(0, 1)
    return found.reshape(B, blocks * size, *found.shape[3:])[:, :T]
