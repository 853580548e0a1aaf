"""What senders write to the residual stream, and what would change if they were replaced; and the readers of the stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.edits.edit import Edit, edit
from sinkjax.edits.term import Select
from sinkjax.errors import SinkjaxError
from sinkjax.explain.attribution import Prepared
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.model.site import SITES, Site
from sinkjax.probes.probe import Capture
from sinkjax.probes.record import Record
from sinkjax.transformer.block import as_added, before_joined, joined

SENDERS = (Site.ATTN_OUT, Site.HEAD_OUT, Site.MLP_OUT)
READERS = (Site.ATTN_IN, Site.Q_IN, Site.K_IN, Site.V_IN, Site.MLP_IN, Site.RESID)


def refuse_without_stream(config: Config) -> None:
    """Raise if a block does not add to its input, so that nothing passes it unchanged."""
    if config.layout.sums or not config.residual:
        missing = "no residual stream" if not config.residual else "norms after its sums"
        raise SinkjaxError(f"paths are defined where a block adds to its input, and this model has {missing}")


def reads(reader: Site, last: int, sender: Site, first: int, config: Config) -> bool:
    """Whether a reader of a layer reads the stream after a sender of a layer has written."""
    here = reader == Site.RESID or (reader == Site.MLP_IN and sender != Site.MLP_OUT and not config.layout.parallel)
    return last > first or (last == first and here)


def written(run: Prepared, senders: Iterable[Site], edits: Any = ()) -> Record:
    """Run the prompts, and record also what `changes` needs: the senders' outputs, and attention's input for heads."""
    sites = [*senders]
    captures = [*sites, *([Site.ATTN_IN] if Site.HEAD_OUT in sites else [])]
    added = tuple(Capture(site, name=_own(site)) for site in captures)
    return run.record(edits, probe=dataclasses.replace(run.probe, capture=(*run.probe.captures, *added)))


def _own(site: Site) -> str:
    """The name of a capture that no probe of a user has."""
    return f"of edges: {site}"


def changes(run: Prepared, sender: Site, donor: Any, record: Record, layer: int, head: int | None = None) -> jax.Array:
    """Return how the stream changes if senders of a layer are replaced, each alone: [senders, B, T, d].

    donor: 0, or the new value of all senders of the site, [L, 1, (H,) dims] or [L, B, T, (H,) dims]. record: from `written`.
    head: only this one of the heads.
    """
    output = jnp.nan_to_num(record[_own(sender)][:, layer])
    new = jnp.broadcast_to(donor[layer] if np.ndim(donor) else jnp.zeros((), output.dtype), output.shape)
    if sender != Site.HEAD_OUT:
        return (new - output)[None]
    heads = jnp.arange(run.config.heads) if head is None else jnp.array([head])
    w = jax.tree.map(lambda leaf: leaf[layer], run.params["layers"])
    return _by_head(output, new, jnp.nan_to_num(record[_own(Site.ATTN_IN)][:, layer]), w, heads, run.config, run.precision)


def _by_head(
    outputs_now: jax.Array, new: jax.Array, x: jax.Array, w: Params, heads: jax.Array, config: Config, precision: str
) -> jax.Array:
    """The same for heads. Their outputs pass norms, a gate and W_O together, so each is replaced among the others."""

    def added(outputs: jax.Array) -> jax.Array:
        out = joined(before_joined(outputs, x, w, config, precision), w, precision)
        return as_added(out, w, "attn_out_norm", config)

    def replaced(head: jax.Array) -> jax.Array:
        chosen = (jnp.arange(config.heads) == head)[:, None]
        return added(jnp.where(chosen, new, outputs_now)) - added(outputs_now)

    moved: jax.Array = jax.lax.map(replaced, heads)
    return moved


def reading(reader: Site, change: Any, positions: Select, layers: Select = None, heads: Select = None, label: str = "") -> Edit:
    """Make the edit that adds a change to the stream that a reader reads: [L or 1, B, T, (readers of a layer or 1,) d]."""
    spec = SITES[reader]
    chosen: dict[str, Any] = {spec.positions[0]: positions}
    if spec.heads is not None:
        chosen["heads" if spec.heads == "head" else "kv_heads"] = heads
    elif heads is not None:
        raise SinkjaxError(f"heads does not act at {reader.name}")
    return edit(reader, "add" if reader == Site.RESID else "inject", change, layers=layers, label=label, **chosen)
