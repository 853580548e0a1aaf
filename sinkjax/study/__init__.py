"""Studies as traced functions.

A study is a function of a `Lab` and its settings, which lists sweeps, claims and figures. It is called on placeholders for a
plan, with a model for a run, and on stores for a page. The names that most studies use are here; rarer ones are imported from
the modules of this folder. They are imported when first used, so that lists of studies need no JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sinkjax.study.contrasts import Contrast as Contrast
    from sinkjax.study.contrasts import difference as difference
    from sinkjax.study.contrasts import effect as effect
    from sinkjax.study.contrasts import moved as moved
    from sinkjax.study.contrasts import part as part
    from sinkjax.study.contrasts import unedited as unedited
    from sinkjax.study.figures import activations as activations
    from sinkjax.study.figures import by_layer as by_layer
    from sinkjax.study.figures import dots as dots
    from sinkjax.study.figures import lines as lines
    from sinkjax.study.figures import lines_along as lines_along
    from sinkjax.study.measures import Measure as Measure
    from sinkjax.study.measures import attention_to as attention_to
    from sinkjax.study.measures import largest_activation as largest_activation
    from sinkjax.study.measures import loss as loss
    from sinkjax.study.measures import own as own
    from sinkjax.study.measures import percentage as percentage
    from sinkjax.study.measures import sink_rate as sink_rate
    from sinkjax.study.measures import strongest_other_attention as strongest_other_attention
    from sinkjax.study.places import ALL as ALL
    from sinkjax.study.places import Case as Case
    from sinkjax.study.places import Place as Place
    from sinkjax.study.places import each as each
    from sinkjax.study.places import layer as layer
    from sinkjax.study.places import prefixes as prefixes
    from sinkjax.study.places import upto as upto
    from sinkjax.study.premises import MASSIVE_SIZE as MASSIVE_SIZE
    from sinkjax.study.premises import Premise as Premise
    from sinkjax.study.premises import all_of as all_of
    from sinkjax.study.premises import is_sink as is_sink
    from sinkjax.study.premises import reaches as reaches
    from sinkjax.study.settings import Controlled as Controlled
    from sinkjax.study.settings import Judged as Judged
    from sinkjax.study.settings import Mapped as Mapped
    from sinkjax.study.settings import OnText as OnText
    from sinkjax.study.settings import Sinks as Sinks
    from sinkjax.study.took import ISOLATED as ISOLATED
    from sinkjax.study.took import MASKED as MASKED
    from sinkjax.study.took import WRITTEN as WRITTEN
    from sinkjax.study.took import planted as planted
    from sinkjax.study.took import removed as removed
    from sinkjax.study.trace import Lab as Lab
    from sinkjax.study.trained import versus as versus
    from sinkjax.study.work import Sweep as Sweep
    from sinkjax.study.work import Where as Where

_HOME = {
    "contrasts": (
        "Contrast",
        "difference",
        "effect",
        "moved",
        "part",
        "unedited",
    ),
    "figures": (
        "activations",
        "by_layer",
        "dots",
        "lines",
        "lines_along",
    ),
    "measures": (
        "Measure",
        "attention_to",
        "largest_activation",
        "loss",
        "own",
        "percentage",
        "sink_rate",
        "strongest_other_attention",
    ),
    "places": (
        "ALL",
        "Case",
        "Place",
        "each",
        "layer",
        "prefixes",
        "upto",
    ),
    "premises": (
        "MASSIVE_SIZE",
        "Premise",
        "all_of",
        "is_sink",
        "reaches",
    ),
    "settings": (
        "Controlled",
        "Judged",
        "Mapped",
        "OnText",
        "Sinks",
    ),
    "took": (
        "ISOLATED",
        "MASKED",
        "WRITTEN",
        "planted",
        "removed",
    ),
    "trace": ("Lab",),
    "trained": ("versus",),
    "work": (
        "Sweep",
        "Where",
    ),
}
_MODULE = {name: f"sinkjax.study.{module}" for module, names in _HOME.items() for name in names}
if not TYPE_CHECKING:  # which reads the imports above, since no list of names can be computed for it
    __all__ = sorted(_MODULE)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'sinkjax.study' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE[name]), name)
