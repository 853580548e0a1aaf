"""The study `sweep`: any list or grid of edits, written in YAML (`edits/edit_list.py`), summarised and drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import methodcaller
from typing import TYPE_CHECKING

import numpy as np
import tyro
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import metrics
from sinkjax.config_files.checks import at_least, below, each_once, share
from sinkjax.report.section import Drawing
from sinkjax.studies.config import StudyConfig
from sinkjax.studies.folder import POSITIONS, source
from sinkjax.studies.specs import SWEEP
from sinkjax.studies.study import Condition, Measure, Study, Sweep

if TYPE_CHECKING:
    import xarray

    from sinkjax.model.config import Config
    from sinkjax.studies.results import Results


DRAWN = 9  # maximum edits in a figure, so that its panels stay legible

# statistics that have measures in a summary
MEASURES = ("attention_received", "resid_max", "nll")


def measures_of(statistic: str, key: int, eps: float) -> tuple[Measure, ...]:
    """Return a summary's measures of a statistic, for a key and a threshold."""
    if statistic == "attention_received":
        note = (
            f"A head sinks on a key if its attention to it, averaged over all queries that see the key, is above {eps:g} (Gu et"
            " al. 2025). Shares are of all heads of all layers."
        )
        of_heads = lambda data: 100 * metrics.sink_rate(data, key, eps)  # noqa: E731
        return (Measure(f"heads that sink on key {key} (%)", of_heads, unit="percentage points", note=note),)
    if statistic == "nll":
        return (Measure("loss (nats per token)", metrics.mean_nll, unit="nats"),)
    elsewhere = lambda data: np.nanmax(np.delete(_largest(data), key, -1), axis=-1)  # noqa: E731
    return largest_activation(key), Measure(f"largest |h| elsewhere than {key}", elsewhere)


def largest_activation(position: int) -> Measure:
    """Return the largest |h| at a position, over all depths and dims."""
    return Measure(f"largest |h| at position {position}", lambda data: _largest(data)[..., position])


def _largest(data: xarray.Dataset) -> NDArray:
    """Return the largest |h| over depths and dims: float[edit, prompt, position], NaN beyond a prompt."""
    return np.asarray(data["resid_max"]).max(axis=-2)


@dataclass(frozen=True, kw_only=True)
class Listed(StudyConfig):
    """Any list or grid of edits, all compared with the first."""

    probe: tuple[str, ...] = ("attention_received", "resid_max")
    """statistics to measure"""
    key: int = 0
    """position whose sink and largest activation the summary reports"""
    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink"""
    edits: tyro.conf.Suppress[tuple[Mapping[str, object], ...]] = ()
    """the edits, by constructor and arguments (`edits/edit_list.py`)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        each_once(self, "probe")
        at_least(self, key=0)
        below(self, "key", "length")
        share(self, "eps")


def conditions(config: Listed, architecture: Config) -> Iterator[Condition]:
    from sinkjax.edits.edit_list import read_edits

    return (Condition(edit, "listed") for edit in read_edits(config.edits))


def measures(config: Listed) -> tuple[Measure, ...]:
    return tuple(one for name in MEASURES if name in config.probe for one in measures_of(name, config.key, config.eps))


def activations(results: Results) -> Drawing:
    """Draw the largest |h| at each depth and position under the first edits."""
    from sinkjax.report.figures import layers

    data = results[SWEEP]
    sizes = data["resid_max"].isel(edit=slice(DRAWN), position=slice(POSITIONS)).mean("prompt").values
    caption = f"""Largest absolute value of the residual stream by depth and position (first {POSITIONS} positions at most),
        mean over prompts, one logarithmic colour scale."""
    figure = layers.activations(sizes, results.labels()[:DRAWN])
    sampled, origin = source(data, bands=False)
    return Drawing("largest-activation", figure, f"{caption}{sampled}", origin)


STUDY = Study(
    name="sweep",
    config=Listed,
    title="A sweep of edits",
    question="Effects are differences from the first edit listed.",
    probe=lambda config: sinkjax.Probe.of(*config.probe),
    sweeps=lambda config, architecture: (Sweep(SWEEP, conditions, measures(config)),),
    featured=methodcaller("labels"),
    figures=lambda config, architecture: [activations] if "resid_max" in config.probe else [],
    notes=lambda config, results: ("There are no random controls except any in the list of edits.",),
)
