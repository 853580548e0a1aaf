"""The part of background/patch on positions: what the donor run has at each of some positions, put into the unedited run.

All sites, in all layers, one position at a time. Were the sink carried by another position than the one on which it stands, that
one's values would bring it there as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.checkpoints.model import Model
from sinkjax.edits.site import Site
from sinkjax.experiments import measures
from sinkjax.experiments.background.config import Patch
from sinkjax.experiments.background.patch_donor import blank, put, values_of
from sinkjax.experiments.background.patch_figures import NONE, SITES
from sinkjax.experiments.base import Arm, Batch, Drawing, Job
from sinkjax.experiments.captions import origin
from sinkjax.experiments.summary import Measured, Row, Table, summarise
from sinkjax.experiments.words import effect, mean
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.report.figures.points import Point, points
from sinkjax.report.table import number

if TYPE_CHECKING:
    import xarray

STORE = "positions"
STEPS = (0, 1, 2, 3, 5, 9, 17, 33)  # positions after the masked key


@dataclass(frozen=True)
class Part:
    """What positions add to the section of background/patch; fields as there."""

    findings: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    drawings: tuple[Drawing, ...] = ()


def places(config: Patch) -> list[int]:
    """The positions that are patched: the masked key, the next one, and later ones of the first two thirds of a prompt."""
    return [config.key + step for step in STEPS if step < 2 or config.key + step <= 2 * config.length // 3]


def job(config: Patch, architecture: Config, probe: Probe) -> Job:
    """Each site of each position, from the donor run, in all layers."""
    nothing = {
        site: np.stack([value] * len(places(config)), axis=2) for site, value in blank(architecture, config.prompts).items()
    }

    def prepare(model: Model, batch: Batch) -> tuple[Arm, ...]:
        return arms(config, values_of(sinkjax.mask_key(config.key), model, batch, tuple(places(config))))

    return Job(STORE, arms(config, nothing), probe, config.prompts, prepare=prepare)


def arms(config: Patch, donor: Mapping[Site, NDArray]) -> tuple[Arm, ...]:
    """No edit, and each site of each position. donor: site -> [L, B, positions, ...]."""
    found = [Arm(sinkjax.compose(label=NONE), NONE)]
    for site, name in SITES.items():
        for number_, place in enumerate(places(config)):
            edit = put(place, site, donor[site][:, :, number_], range(len(donor[site])), label(site, place))
            found.append(Arm(edit, f"{name}, one position", place))
    return tuple(found)


def label(site: Site, place: int) -> str:
    """The label of an arm."""
    return f"{SITES[site]} of position {place}, all layers"


def part(config: Patch, stores: Mapping[str, xarray.Dataset]) -> Part:
    """What the store of positions says; nothing where it is not there."""
    if STORE not in stores:
        return Part()
    data, target = stores[STORE].load(), config.key + 1
    nothing = {site: np.zeros((data.sizes["layer"], 1, len(places(config)), 1)) for site in SITES}
    measured = (measures.sink_rate(target, config.eps), measures.largest_activation(target))
    table = summarise(Measured(data, arms(config, nothing)), measured, config.seed)
    sinks = measured[0].name

    def size(edit: tuple[Site, int]) -> float:
        return abs(mean(table[label(*edit), sinks].effect))

    site, place = max(((site, place) for site in SITES for place in places(config)), key=size)
    others = [other for other in places(config) if other != place]
    most = max(((site, other) for site in SITES for other in others), key=size)
    less = f"by more than {number(size(most))} points ({label(*most)})" if size(most) else "at all"
    return Part(
        findings=(
            f"Of single positions whose values are patched in all layers, position {place} changes the heads that sink on key"
            f" {target} most: by {effect(table[label(site, place), sinks], ' percentage points')} with its {SITES[site]}. Of"
            f" positions {', '.join(map(str, others))}, none changes them {less}, whatever the site.",
        ),
        rows=tuple(row for row in table.values() if row.arm != NONE),
        drawings=(_drawing(config, data, table, sinks),),
    )


def _drawing(config: Patch, data: xarray.Dataset, table: Table, measure: str) -> Drawing:
    """Sinks on the donor's key by the position that is patched."""
    shown = [
        Point(f"position {place}", table[label(site, place), measure].value, name)
        for place in places(config)
        for site, name in SITES.items()
    ]
    caption = (
        f"Heads that sink on key {config.key + 1} when what the donor run has at one position, at one site in all layers, is put"
        " there in the unedited run; a later position acts on an earlier key through its own query alone. Bars: bootstrap 95 %"
        f" intervals over {data.sizes['prompt']} prompts. {origin(data)}."
    )
    return Drawing("by-patched-position", points({"": shown}, measure), caption)
