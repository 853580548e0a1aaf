"""Activation patching: values of an edited run, patched into the unedited one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.studies.known import Unedited
from sinkjax.studies.scope import Scope
from sinkjax.studies.vocabulary import EditWord, F, Known

SITES = ("resid", "attn_out", "mlp_out", "key", "value")  # keys before the rotation, the stream after its layer
OF_HEADS = ("key", "value")
Donor = Mapping[str, NDArray]  # site -> [L, B, T, d], or [L, B, T, K, D] of keys and values


def blank(scope: Scope, prompts: int) -> Donor:
    """Make placeholders for the values at each site."""
    shape, size = (scope.architecture.layers, prompts, scope.config.length), (scope.architecture.width,)
    heads = (scope.architecture.kv_heads, scope.architecture.head_dim)
    return {site: np.broadcast_to(np.float32(0), shape + (heads if site in OF_HEADS else size)) for site in SITES}


@Known.define(blank=blank, of_edited=True)
def values_under(scope: Scope, run: Unedited, edit: EditWord) -> Donor:
    """The values at each site and position of all prompts under an edit."""
    sites = (sinkjax.Capture(sinkjax.Site(site), name=f"donor_{site}") for site in SITES)
    return {name.removeprefix("donor_"): values for name, values in run.captured(*sites, edit=scope.get(edit)).items()}


@EditWord.define()
def put(scope: Scope, site: object, place: object = F.key + 1, donor: object = F.donor, source: str = "same") -> sinkjax.Edit:
    """Patch one site at a position with another run's values.

    Args:
        scope: The study's scope.
        site: One of `SITES`.
        place: The position.
        donor: The values of the other run.
        source: "same", or "random" for a random later position, drawn for each prompt.

    Raises:
        SinkjaxError: The position is beyond the prompts, or no later one is left.
    """
    at, where, values = scope.get(place), scope.get(site), scope.get(donor)[scope.get(site)]
    prompts, length = values.shape[1:3]
    if at + (source == "random") >= length:
        raise SinkjaxError(f"position {at} of prompts of {length} tokens cannot be patched from a {source} position")
    if source == "random":
        drawn = scope.random.integers(at + 1, length, prompts)
        chosen, label = values[:, np.arange(prompts), drawn], f"{where} of positions {', '.join(map(str, drawn))}"
    else:
        chosen, label = values[:, :, at], f"{where} of position {at}"
    return sinkjax.edit(where, "set", chosen, label=label, **{"keys" if where in OF_HEADS else "queries": at})
