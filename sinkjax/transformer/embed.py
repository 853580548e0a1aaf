"""The residual stream before the first block: embedding rows, position vectors and the norm after them."""

from __future__ import annotations

from typing import Any

import chex
import jax
import jax.numpy as jnp

from sinkjax.edits.term import Edits
from sinkjax.model import positions
from sinkjax.model.ops import project
from sinkjax.model.params import Params
from sinkjax.model.site import Site
from sinkjax.probes.measure import capture_rows, finish, with_earlier_rows
from sinkjax.transformer.spec import ForwardSpec
from sinkjax.transformer.tape import Tape


def embed(
    params: Params,
    tokens: jax.Array,
    lengths: jax.Array,
    edits: Edits,
    spec: ForwardSpec,
    first: jax.Array | int = 0,
    total: int | None = None,
    earlier: dict[str, jax.Array] | None = None,
) -> tuple[jax.Array, dict[str, Any]]:
    """Return the residual stream at depth 0, [B, T, d], and its measurements and counts of edits. first, total: see
    `positions.vectors`. earlier: of the rows before `first`, another run's record."""
    vectors = () if spec.config.vocab_size else (spec.config.width,)  # checked here because every jitted caller passes through
    chex.assert_shape(tokens, (None, None, *vectors))
    chex.assert_shape(lengths, tokens.shape[:1])
    tape = Tape(spec, edits, lengths, layer=jnp.int32(0), first=first)
    h = tape(Site.EMBED, tokens if jnp.issubdtype(tokens.dtype, jnp.floating) else embedding(params, tokens, spec))
    if spec.past:
        first, total = first + spec.past, spec.past + (total or tokens.shape[1])
    added = positions.vectors(h, spec.config.position, params, first, total)
    if added is not None and tape.watches(Site.POSITION_VECTOR):
        added = tape(Site.POSITION_VECTOR, jnp.broadcast_to(added, h.shape))
    h = h if added is None else h + added
    h = spec.config.norm(h, params, "embed_norm") if spec.config.norm is not None and spec.config.embed_norm else h
    tape.measure(Site.RESID, h, depth_only=True)
    record = with_earlier_rows(spec.probe, tape.record, earlier, spec.first) if earlier else tape.record
    record = finish(spec.probe, record, lengths)
    for capture in spec.probe.captures:
        if earlier and capture.name in record:
            record[capture.name] = capture_rows(capture, record[capture.name], earlier[capture.name], spec.first)
    return h, {"record": record, "counts": tape.counts}


def embedding(params: Params, tokens: jax.Array, spec: ForwardSpec) -> jax.Array:
    """Return the embedding rows as they enter the residual stream, [B, T, d]."""
    rows: jax.Array = params["embed"][tokens]
    factor = spec.config.multipliers.embedding
    if spec.config.embed_width is not None:
        rows = project(rows, params["embed_in"], spec.precision)
    return rows if factor == 1 else rows * jnp.asarray(factor, rows.dtype)
