"""The study `sweep`: a list or grid of edits in a YAML file, with measures and claims by name (docs/add-a-study.md)."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import tyro

from sinkjax.config_files import documents
from sinkjax.config_files.checks import below, check_keys, each_once
from sinkjax.edits.edit_list import read_edits
from sinkjax.errors import SinkjaxError, one_of
from sinkjax.probes.probe import Probe
from sinkjax.study import contrasts, measures
from sinkjax.study.figures import activations
from sinkjax.study.lab import Lab
from sinkjax.study.layers import Layers, layer
from sinkjax.study.measures import Measure, largest_activation, largest_elsewhere, loss, sink_rate
from sinkjax.study.settings import OnText
from sinkjax.study.work import Selection, Sweep

DRAWN = 9  # maximum edits in a figure, so that its panels stay legible
SHOWN = ("attention_received", "resid_max", "nll")  # statistics that have measures in a summary
PROSE = {
    "title": "A sweep of edits",
    "question": "Effects are differences from the first edit listed.",
    "notes": ["There are no random controls except any in the list of edits."],
}
# What `measures` and `claims` may name: functions of the lab whose arguments YAML can write.
MEASURES = (
    *("attention_to", "later_attention_to", "strongest_other_attention", "strongest_later_attention", "sink_rate"),
    *("later_sink_rate", "strongest_other_sink", "largest_activation", "largest_elsewhere", "typical_activation", "loss"),
)
CHECKS = ("removed", "planted")
CONTRASTS = ("compared", "difference", "effect", "moved", "part", "recovered", "unedited")


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
    measures: tyro.conf.Suppress[tuple[Any, ...]] = field(default=(), metadata=documents.LATER)
    """columns of the summary, by name and arguments; if none, those of the statistics"""
    claims: tyro.conf.Suppress[Mapping[str, Any]] = field(default_factory=dict, metadata=documents.LATER)
    """statement -> its contrast by name and arguments, its source, sign, readouts beside it, and the check that its edit took"""

    def __post_init__(self) -> None:
        super().__post_init__()
        each_once(self, "probe")
        below(self, "key", "length")


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """A claim of a sweep file; its fields are the arguments of `Lab.claim`."""

    contrast: Any
    source: str = "ours"
    sign: int = 1
    stays: bool = False
    beside: tuple[Any, ...] = ()
    took: Any = ""


def study(lab: Lab, s: Settings) -> None:
    """A sweep of edits."""
    first, *others = read_edits(s.edits)
    edits = {Layers(edit.label, series="listed"): edit for edit in others}
    usual = [one for name in SHOWN if name in s.probe for one in measures_of(name, s.key, s.eps)]
    columns = [_call(node, MEASURES, "measures") for node in s.measures] or usual
    sweep = lab.sweep("sweep", edits, columns, probe=Probe.of(*s.probe), baseline=first)
    for statement, node in s.claims.items():
        what = f"claims: {statement}"
        one = documents.build(Claimed, node if isinstance(node, Mapping) else {"contrast": node}, what)
        contrast, *beside = (_call(each, CONTRASTS, what, sweep) for each in (one.contrast, *one.beside))
        check = _call(one.took, CHECKS, f"{what}: took", sweep) if isinstance(one.took, Mapping) else str(one.took)
        lab.claim(statement, one.source, contrast, None, beside, one.sign, one.stays, took=check)
    if "resid_max" in s.probe:
        lab.draw(activations, *([sweep[case] for case in edits][: DRAWN - 1] or [sweep.every]))


def measures_of(statistic: str, key: int, eps: float) -> list[Measure]:
    """Return a summary's measures of a statistic, for a key and a threshold."""
    of_size = [largest_activation(key), largest_elsewhere(key)]
    of_key = dataclasses.replace(sink_rate(key, eps), seen=False)  # any key of a prompt may be asked for
    return {"attention_received": [of_key], "resid_max": of_size, "nll": [loss()]}[statistic]


def _call(node: Any, names: tuple[str, ...], what: str, sweep: Sweep | None = None) -> Any:
    """Call one of some functions: `name`, or {name: {argument: value}}.

    Raises:
        SinkjaxError: The node is something else; the name or an argument is unknown, missing or of the wrong type.
    """
    node = {node: {}} if isinstance(node, str) else node
    if not isinstance(node, Mapping) or len(node) != 1:
        raise SinkjaxError(f"{what} takes a name with its arguments, such as {{{names[0]}: {{...}}}}, not {str(node)[:60]!r}")
    ((name, given),) = node.items()
    one_of(f"name in {what}:", name, names)
    make: Callable[..., Any] = getattr(measures if name in MEASURES else contrasts, name)
    hints, parameters, given = get_type_hints(make), inspect.signature(make).parameters, given or {}
    check_keys(given, [key for key in parameters if hints[key] is not Sweep], f"{what}: {name}")
    arguments: dict[str, Any] = {}
    for key, parameter in parameters.items():
        if hints[key] is Sweep:
            arguments[key] = sweep
        elif key in given:
            arguments[key] = _argument(given[key], hints[key], f"{what}: {name}: {key}", sweep)
        elif parameter.default is inspect.Parameter.empty:
            raise SinkjaxError(f"{what}: {name} lacks {key}")
    return make(**arguments)


def _argument(value: Any, hint: Any, what: str, sweep: Sweep | None) -> Any:
    """Read an argument: a measure, the label of a listed edit, layers, or a number."""
    options = documents.options(hint)
    if Measure in options:
        return _call(value, MEASURES, what)
    if Selection in options and sweep is not None:
        return sweep[Layers(documents.convert(value, str, what))]
    if Layers in options:
        layers = documents.convert([value] if isinstance(value, int) else value, tuple[int, ...], what)
        return layer(*layers) if len(layers) == 1 else Layers(f"layers {', '.join(map(str, layers))}", layers)
    return documents.convert(value, hint, what)
