"""Path patching: change the output of one component for one reader only."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.checkpoints.model import check_model
from sinkjax.config_files.checks import refuse
from sinkjax.edits.edit import Edit, edit
from sinkjax.edits.term import Select
from sinkjax.errors import SinkjaxError, one_of, short
from sinkjax.explain.attribution import Prepared, donated
from sinkjax.model.config import Config
from sinkjax.model.site import SITES, Site, lacks
from sinkjax.probes.probe import Capture, Probe
from sinkjax.probes.record import Record
from sinkjax.runtime.settings import fixed_settings
from sinkjax.transformer.block import as_added, before_joined, joined

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model


@fixed_settings
def path(
    model: Model,
    tokens: Any,
    sender: tuple[str, int] | tuple[str, int, int],
    receiver: tuple[str, int],
    replace: str | Any = "zero",
    positions: Select = None,
    heads: Select = None,
    lengths: Any = None,
    precision: str = "highest",
) -> Edit:
    """Return the edit that patches one path: the receiver reads the stream as if the sender had written something else.

    The receiver's own output changes with its input, and so does everything after it; every other reader still reads the
    sender's output. Paths compose: the paths to all readers after a sender, and to the last residual stream, together replace it.

    Args:
        model: The model.
        tokens: int [B, T], padded on the right, or float [B, T, d]; the edit is for these prompts.
        sender: ("attn_out" or "mlp_out", layer), or ("head_out", layer, head).
        receiver: ("attn_in", "q_in", "k_in", "v_in" or "mlp_in", layer), or ("resid", layer): everything that reads the stream
            after the block.
        replace: The sender's replacement output: "zero", "mean" or tokens of other prompts, as for `sinkjax.attribute`.
        positions: Positions of the patch: an int, a sequence, a slice, `per_prompt`, or None for all positions; from 0.
        heads: The heads that read the patched stream: query heads at "q_in", key-value heads at "k_in" and "v_in"; None: all.
        lengths: int [B], by default T for all.
        precision: Matrix product precision, as in `sinkjax.forward`.

    Returns:
        An edit that adds the change to the stream that the receiver reads.

    Raises:
        SinkjaxError: A site, layer, head or position is unknown; the receiver does not read after the sender; the model
            has norms after its sums, or no residual stream, so that nothing passes a block unchanged.
    """
    check_model(model)
    config = model.config
    refuse_without_stream(config)
    source, first, head = as_end("sender", sender, SENDERS, config)
    reader, last, _ = as_end("receiver", receiver, READERS, config)
    if not reads(reader, last, source, first, config):
        raise SinkjaxError(f"{reader} of layer {last} does not read what {source} of layer {first} writes")
    run = Prepared.of(model, tokens, lengths, positions, Probe(), lambda record: record, precision)
    donors, _ = donated(run, [source], replace)
    change = changes(run, source, donors[source], written(run, [source]), first, head)  # [1, B, T, d]
    change = change if SITES[reader].heads is None else change[:, :, :, None]
    label = f"{source} {first}{'' if head is None else f'.{head}'} -> {reader} {last}"
    made = reading(reader, np.asarray(change), positions, last, heads, label)
    run.resolve(made)
    return made


def as_end(what: str, given: Any, allowed: tuple[Site, ...], config: Config) -> tuple[Site, int, int | None]:
    """A site, a layer and, for a head's output, a head. Errors: they are not these; the model lacks the site, layer or head."""
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        raise SinkjaxError(f"{what} must be a site and a layer, such as ({str(allowed[-1])!r}, 0), not {short(given)}")
    name, layer, *head = given
    one_of(what, name, [str(site) for site in allowed])
    if missing := lacks(config, Site(name)):
        raise SinkjaxError(f"{what} {name}: this model has {missing}")
    one_of(f"layer of the {what}", layer, range(config.layers))
    refuse(
        (name == Site.HEAD_OUT) != bool(head), f"{what} {name}: a head stands behind the layer of {Site.HEAD_OUT}, and only there"
    )
    if head:
        one_of(f"head of the {what}", head[0], range(config.heads))
    return Site(name), int(layer), int(head[0]) if head else None


# Senders and readers of the residual stream, and how the stream changes if senders are replaced.


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
    w = jax.tree.map(lambda leaf: leaf[layer], run.params["layers"])
    x = jnp.nan_to_num(record[_own(Site.ATTN_IN)][:, layer])

    def added(outputs: jax.Array) -> jax.Array:
        out = joined(before_joined(outputs, x, w, run.config, run.precision), w, run.precision)
        return as_added(out, w, "attn_out_norm", run.config)

    def replaced(head: jax.Array) -> jax.Array:
        """Replace one head among the others: their outputs pass norms, a gate and W_O together."""
        chosen = (jnp.arange(run.config.heads) == head)[:, None]
        return added(jnp.where(chosen, new, output)) - added(output)

    moved: jax.Array = jax.lax.map(replaced, jnp.arange(run.config.heads) if head is None else jnp.array([head]))
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
