"""Values of one run for another, as background/patch puts them: which, and where they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.checkpoints.model import Model
from sinkjax.edits.site import Site
from sinkjax.experiments.background.patch_figures import SITES
from sinkjax.experiments.base import Batch
from sinkjax.model.config import Config
from sinkjax.probes.probe import Capture, Probe

Donor = Mapping[Site, NDArray]  # [L, B, d], or [L, B, K, D] at KEY and VALUE: what goes to a position


def put(place: int, site: Site, value: NDArray, picked: Sequence[int], label: str) -> sinkjax.Edit:
    """A donor's values at one site of a position, in the layers picked."""
    where: dict[str, Any] = {"keys" if site in (Site.KEY, Site.VALUE) else "queries": place}
    return sinkjax.edit(site, "set", value, layers=picked, label=label, **where)


def blank(architecture: Config, prompts: int) -> Donor:
    """Zeros that stand in for a donor's values."""
    L, K, D = architecture.layers, architecture.kv_heads, architecture.head_dim
    return {
        site: np.zeros((L, prompts, *((K, D) if site in (Site.KEY, Site.VALUE) else (architecture.width,)))) for site in SITES
    }


def values_of(edit: sinkjax.Edit, model: Model, batch: Batch, positions: tuple[int, ...] | None) -> dict[Site, NDArray]:
    """What an edited run has at each site of some positions, all by default: [L, B, positions, ...]."""
    probe = Probe(capture=tuple(Capture(site, positions=positions, name=f"donor_{site}") for site in SITES))
    record = sinkjax.forward(model.params, batch.tokens, model.config, edit, probe, batch.lengths, logits=False).record
    return {site: np.moveaxis(np.asarray(record[f"donor_{site}"]), 1, 0) for site in SITES}
