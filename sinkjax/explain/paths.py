"""Path patching: change the output of one component for one reader only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from sinkjax.checkpoints.model import check_model
from sinkjax.edits.edit import Edit, edit, resolve
from sinkjax.edits.site import SITES, Site, lacks
from sinkjax.edits.term import Select
from sinkjax.errors import SinkjaxError, one_of, short
from sinkjax.explain.attribution import Prepared, donated
from sinkjax.model.batch import check_batch
from sinkjax.model.config import Config
from sinkjax.probes.probe import Capture, Probe

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model

SENDERS = (Site.ATTN_OUT, Site.MLP_OUT)
READERS = (Site.ATTN_IN, Site.Q_IN, Site.K_IN, Site.V_IN, Site.MLP_IN, Site.RESID)


def path(
    model: Model,
    tokens: Any,
    sender: tuple[str, int],
    receiver: tuple[str, int],
    replace: str | Any = "zero",
    positions: Select = None,
    heads: Select = None,
    lengths: Any = None,
    precision: str = "highest",
) -> Edit:
    """Make the edit that patches one path: the receiver reads the stream as if the sender had written something else.

    The receiver's own output changes with its input, and so does everything after it; every other reader still reads the
    sender's output. Paths compose: the paths to all readers after a sender, and to the last residual stream, together replace it.

    Args:
        model: The model.
        tokens: int [B, T], padded on the right, or float [B, T, d]; the edit is for these prompts.
        sender: ("attn_out" or "mlp_out", layer).
        receiver: ("attn_in", "q_in", "k_in", "v_in" or "mlp_in", layer), or ("resid", layer): all that reads the stream after
            the block.
        replace: The sender's replacement output: "zero", "mean" or tokens of other prompts, as for `sinkjax.attribute`.
        positions: Where: an int, a sequence, a slice, `per_prompt`, or None for all positions; from 0.
        heads: At "q_in" the query heads, at "k_in" and "v_in" the key-value heads that read it; None: all.
        lengths: int [B], by default T for all.
        precision: Matrix product precision, as in `sinkjax.forward`.

    Returns:
        An edit, which adds the change to the stream that the receiver reads.

    Raises:
        SinkjaxError: A site, layer, head or position is unknown; the receiver does not read after the sender; the model
            has norms after its sums, or no residual stream, so that nothing passes a block unchanged.
    """
    check_model(model)
    config = model.config
    if config.layout.sums or not config.residual:
        missing = "no residual stream" if not config.residual else "norms after its sums"
        raise SinkjaxError(f"paths are defined where a block adds to its input, and this model has {missing}")
    (source, first), (reader, last) = as_end("sender", sender, SENDERS, config), as_end("receiver", receiver, READERS, config)
    here = reader == Site.RESID or (reader == Site.MLP_IN and source == Site.ATTN_OUT and not config.layout.parallel)
    if last < first or (last == first and not here):
        raise SinkjaxError(f"{reader} of layer {last} does not read what {source} of layer {first} writes")
    tokens, lengths, known = check_batch(tokens, lengths, config, model.tokenizer)
    run = Prepared(model.params, config, tokens, lengths, positions, Probe(), lambda record: record, precision)
    donors, _ = donated(run, [source], replace)
    own = run.record(probe=Probe(capture=(Capture(source, layers=(first,), name="own"),)))["own"][:, 0]
    donor = donors[source][first] if np.ndim(donors[source]) else 0.0
    change = jnp.nan_to_num(donor - own)[None]  # [1, B, T, d]
    spec = SITES[reader]
    chosen: dict[str, Any] = {spec.positions[0]: positions}
    if spec.heads is not None:
        change = change[:, :, :, None]
        chosen["heads" if spec.heads == "head" else "kv_heads"] = heads
    elif heads is not None:
        raise SinkjaxError(f"heads does not act at {reader.name}")
    label = f"{source} {first} -> {reader} {last}"
    made = edit(reader, "add" if reader == Site.RESID else "inject", np.asarray(change), layers=last, label=label, **chosen)
    resolve(made, config, known, tokens.shape[1])
    return made


def as_end(what: str, given: Any, allowed: tuple[Site, ...], config: Config) -> tuple[Site, int]:
    """A site and a layer. Errors: this is not such a pair; the model lacks the site or the layer."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise SinkjaxError(f"{what} must be a site and a layer, such as ({str(allowed[-1])!r}, 0), not {short(given)}")
    name, layer = given
    one_of(what, name, [str(site) for site in allowed])
    if missing := lacks(config, Site(name)):
        raise SinkjaxError(f"{what} {name}: this model has {missing}")
    one_of(f"layer of the {what}", layer, range(config.layers))
    return Site(name), int(layer)
