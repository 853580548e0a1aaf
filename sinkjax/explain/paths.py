"""Path patching: change the output of one component for one reader only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sinkjax.checkpoints.model import check_model
from sinkjax.config_files.checks import refuse
from sinkjax.edits.edit import Edit
from sinkjax.edits.term import Select
from sinkjax.errors import SinkjaxError, one_of, short
from sinkjax.explain.attribution import Prepared, donated
from sinkjax.explain.changes import READERS, SENDERS, changes, reading, reads, refuse_without_stream, written
from sinkjax.model.config import Config
from sinkjax.model.site import SITES, Site, lacks
from sinkjax.probes.probe import Probe
from sinkjax.runtime.settings import fixed_settings

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
