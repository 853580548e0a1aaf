"""sweep: any list or grid of edits, written in YAML (`edits/edit_list.py`), summarised and drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tyro

import sinkjax
from sinkjax.config_files.checks import at_least, below, each_once, share
from sinkjax.studies.config import StudyConfig
from sinkjax.studies.figures import Figure, activations
from sinkjax.studies.measures import largest_activation, largest_elsewhere, loss, sink_rate
from sinkjax.studies.study import Condition, Measure, Study

DRAWN = 9  # edits of a figure, so that its panels stay legible

# statistic -> the measures that a summary takes from it, of a key and a threshold
MEASURES: dict[str, Callable[[int, float], tuple[Measure, ...]]] = {
    "attention_received": lambda key, eps: (sink_rate(key, eps),),
    "resid_max": lambda key, eps: (largest_activation(key), largest_elsewhere(key)),
    "nll": lambda key, eps: (loss(),),
}


@dataclass(frozen=True, kw_only=True)
class Sweep(StudyConfig):
    """Any list or grid of edits; the first one listed is what the others are compared with."""

    probe: tuple[str, ...] = ("attention_received", "resid_max")
    """statistics to measure"""
    key: int = 0
    """position whose sink and largest activation the summary reports"""
    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink"""
    edits: tyro.conf.Suppress[tuple[Mapping[str, Any], ...]] = ()
    """the edits, by constructor and arguments (`edits/edit_list.py`)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        each_once(self, "probe")
        at_least(self, key=0)
        below(self, "key", "length")
        share(self, "eps")


def conditions(config: Sweep, architecture: Any) -> Iterator[Condition]:
    from sinkjax.edits.edit_list import read_edits

    return (Condition(edit, "listed") for edit in read_edits(config.edits))


def measures(config: Sweep) -> tuple[Measure, ...]:
    return tuple(measure for name, make in MEASURES.items() if name in config.probe for measure in make(config.key, config.eps))


def figures(config: Sweep, architecture: Any) -> Iterator[Figure]:
    if "resid_max" in config.probe:
        yield activations("largest-activation", lambda results: {label: label for label in results.labels()[:DRAWN]})


STUDY = Study(
    name="sweep",
    config=Sweep,
    title="A sweep of edits",
    question="Effects are differences from the first edit listed.",
    probe=lambda config: sinkjax.Probe.of(*config.probe),
    conditions=conditions,
    measures=measures,
    featured=lambda results: results.labels(),
    figures=figures,
    notes=lambda config, results: ("There are no random controls but those that the list of edits holds.",),
)
