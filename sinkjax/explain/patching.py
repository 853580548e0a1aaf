"""Activation patching: where the activations of a clean run bring its answer back into a corrupted one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray

from sinkjax.analysis.metrics import logit_difference
from sinkjax.checkpoints.model import check_model
from sinkjax.config_files.checks import refuse
from sinkjax.edits.edit import compose, edit
from sinkjax.errors import SinkjaxError, one_of
from sinkjax.model.batch import as_indices
from sinkjax.model.site import SITES, Site, lacks
from sinkjax.probes.probe import Capture, Probe
from sinkjax.runtime.settings import fixed_settings
from sinkjax.sweeps.run import sweep
from sinkjax.transformer.forward import forward

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model

PATCHED = (Site.RESID, Site.ATTN_OUT, Site.MLP_OUT, Site.HEAD_OUT)


@fixed_settings
def patch(
    model: Model,
    clean: Any,
    corrupted: Any,
    right: Any,
    wrong: Any,
    site: str = "resid",
    layers: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    lengths: Any = None,
    progress: bool = True,
) -> xarray.Dataset:
    """Run corrupted prompts with one activation at a time replaced by the clean prompts' (activation patching).

    Args:
        model: The model.
        clean: int [B, T], the prompts that end with the right answer, padded on the right.
        corrupted: int [B, T], prompts with the same lengths.
        right: Token id of the clean prompts' answer, int or int [B].
        wrong: Token id of the corrupted prompts' answer, int or int [B].
        site: "resid", "attn_out" or "mlp_out", patched at one layer and position; or "head_out", patched at all positions of one
            layer and head.
        layers: Layers to patch, by default all.
        positions: Positions to patch, by default all that every prompt has; not for "head_out".
        lengths: int [B], by default T for all.
        progress: Whether to show a progress bar.

    Returns:
        `logit_difference` (prompt, layer, position) or (prompt, layer, head), the logit of `right` minus that of `wrong` after
        the prompt; the same without a patch as `clean` and `corrupted` (prompt); and `restored`, the share of their difference
        that a patch brings back: 0 for none, 1 for all, not finite if the two are equal. `draw_patch` draws it.

    Raises:
        SinkjaxError: The site is unknown, or the model lacks it; a layer, position or token is out of range; the two batches have
            different shapes.
    """
    check_model(model)
    one_of("site", site, [str(each) for each in PATCHED])
    if missing := lacks(model.config, Site(site)):
        raise SinkjaxError(f"site {site}: this model has {missing}")
    shapes = np.shape(clean), np.shape(corrupted)
    refuse(shapes[0] != shapes[1], f"clean and corrupted prompts have different shapes, {shapes[0]} and {shapes[1]}")
    T = shapes[0][-1]
    ends = np.full(shapes[0][0], T) if lengths is None else np.asarray(lengths)
    by_head = SITES[Site(site)].heads is not None
    if by_head:
        refuse(positions is not None, "head_out is patched at all positions of a head, so it takes no positions")
    rows = as_indices("layer", range(model.config.layers) if layers is None else layers)
    columns = (
        range(model.config.heads) if by_head else as_indices("position", range(ends.min()) if positions is None else positions)
    )
    tokens = tuple(sorted({int(token) for token in (*np.ravel(right), *np.ravel(wrong))}))
    probe = Probe(logits_of=tokens, capture=(Capture(Site(site), layers=rows, name="donor"),))
    run = forward(model, clean, probe=probe, lengths=lengths, logits=False).record
    donors = np.array(run["donor"])  # [B, layer, T, (H,) dims]
    np.moveaxis(donors, 2, 1)[np.arange(T) >= ends[:, None]] = 0  # padding is NaN
    edits = [
        edit(site, "set", donors[None, :, row, :, column : column + 1], layers=layer, heads=column)
        if by_head
        else edit(site, "set", donors[:, row, column], layers=layer, queries=column)
        for row, layer in enumerate(rows)
        for column in columns
    ]
    named = [each.named(str(number)) for number, each in enumerate(edits)]
    data = sweep(model, corrupted, [compose(label="none"), *named], Probe(logits_of=tokens), lengths, progress=progress)
    before, *patched = logit_difference(data, right, wrong)
    of_clean = logit_difference(
        xarray.Dataset({"logits_of": (("prompt", "token"), run["logits_of"])}, {"token": [*tokens]}), right, wrong
    )
    axes = ("prompt", "layer", "head" if by_head else "position")
    values = np.moveaxis(np.reshape(patched, (len(rows), len(columns), -1)), -1, 0)
    found = xarray.Dataset(
        {"logit_difference": (axes, values), "clean": ("prompt", of_clean), "corrupted": ("prompt", before)},
        {"layer": [*rows], axes[2]: [*columns]},
        {"site": site},
    )
    return found.assign(restored=(found.logit_difference - found.corrupted) / (found.clean - found.corrupted))
