"""The study `sweep`: any list or grid of edits, written in YAML (`edits/edit_list.py`), summarised and drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tyro

from sinkjax.config_files.checks import below, each_once
from sinkjax.edits.edit_list import read_edits
from sinkjax.lab.figures import activations
from sinkjax.lab.measures import Measure, largest_activation, largest_elsewhere, loss, sink_rate
from sinkjax.lab.places import Place
from sinkjax.lab.settings import OnText
from sinkjax.lab.trace import Lab
from sinkjax.probes.probe import Probe

DRAWN = 9  # maximum edits in a figure, so that its panels stay legible
SHOWN = ("attention_received", "resid_max", "nll")  # statistics that have measures in a summary
PROSE = {
    "title": "A sweep of edits",
    "question": "Effects are differences from the first edit listed.",
    "notes": ["There are no random controls except any in the list of edits."],
}


@dataclass(frozen=True, kw_only=True)
class Settings(OnText):
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
        below(self, "key", "length")


def study(lab: Lab, s: Settings) -> None:
    """A sweep of edits."""
    first, *others = read_edits(s.edits)
    columns = [one for name in SHOWN if name in s.probe for one in measures_of(name, s.key, s.eps)]
    edits = {Place(edit.label, series="listed").at(): edit for edit in others}
    sweep = lab.sweep("sweep", edits, columns, probe=Probe.of(*s.probe), baseline=first)
    if "resid_max" in s.probe:
        lab.draw(activations, *([sweep[case] for case in edits][: DRAWN - 1] or [sweep.every]))


def measures_of(statistic: str, key: int, eps: float) -> list[Measure]:
    """Return a summary's measures of a statistic, for a key and a threshold."""
    of_size = [largest_activation(key), largest_elsewhere(key)]
    return {"attention_received": [sink_rate(key, eps)], "resid_max": of_size, "nll": [loss()]}[statistic]
