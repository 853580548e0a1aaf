"""Studies as traced functions.

A study is a function of a `Lab` and its settings, which lists sweeps, claims and figures. It is called on placeholders for a
plan, with a model for a run, and on stores for a page. Names are imported when first used, because lists of studies must not
import JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sinkjax.probes.probe import Probe as Probe
    from sinkjax.study.contrasts import ISOLATED as ISOLATED
    from sinkjax.study.contrasts import MASKED as MASKED
    from sinkjax.study.contrasts import WRITTEN as WRITTEN
    from sinkjax.study.contrasts import Check as Check
    from sinkjax.study.contrasts import Contrast as Contrast
    from sinkjax.study.contrasts import Parts as Parts
    from sinkjax.study.contrasts import difference as difference
    from sinkjax.study.contrasts import effect as effect
    from sinkjax.study.contrasts import facts_of as facts_of
    from sinkjax.study.contrasts import moved as moved
    from sinkjax.study.contrasts import part as part
    from sinkjax.study.contrasts import planted as planted
    from sinkjax.study.contrasts import removed as removed
    from sinkjax.study.contrasts import unedited as unedited
    from sinkjax.study.figures import LAYERS as LAYERS
    from sinkjax.study.figures import activations as activations
    from sinkjax.study.figures import by_layer as by_layer
    from sinkjax.study.figures import dots as dots
    from sinkjax.study.figures import drawable as drawable
    from sinkjax.study.figures import heatmap as heatmap
    from sinkjax.study.figures import lines as lines
    from sinkjax.study.figures import lines_along as lines_along
    from sinkjax.study.figures import series_of as series_of
    from sinkjax.study.figures import wrapped as wrapped
    from sinkjax.study.lab import HALF as HALF
    from sinkjax.study.lab import Lab as Lab
    from sinkjax.study.lab import Rows as Rows
    from sinkjax.study.lab import Study as Study
    from sinkjax.study.lab import Unedited as Unedited
    from sinkjax.study.lab import finite as finite
    from sinkjax.study.lab import onset as onset
    from sinkjax.study.layers import ALL as ALL
    from sinkjax.study.layers import Head as Head
    from sinkjax.study.layers import Layers as Layers
    from sinkjax.study.layers import each as each
    from sinkjax.study.layers import layer as layer
    from sinkjax.study.layers import prefixes as prefixes
    from sinkjax.study.layers import upto as upto
    from sinkjax.study.measures import MEAN_ATTENTION as MEAN_ATTENTION
    from sinkjax.study.measures import MEDIANS as MEDIANS
    from sinkjax.study.measures import PERCENT as PERCENT
    from sinkjax.study.measures import RECEIVED as RECEIVED
    from sinkjax.study.measures import SIZES as SIZES
    from sinkjax.study.measures import Measure as Measure
    from sinkjax.study.measures import attention_to as attention_to
    from sinkjax.study.measures import attention_to_first_behind as attention_to_first_behind
    from sinkjax.study.measures import largest_activation as largest_activation
    from sinkjax.study.measures import largest_elsewhere as largest_elsewhere
    from sinkjax.study.measures import later_attention_to as later_attention_to
    from sinkjax.study.measures import later_sink_rate as later_sink_rate
    from sinkjax.study.measures import loss as loss
    from sinkjax.study.measures import own as own
    from sinkjax.study.measures import percentage as percentage
    from sinkjax.study.measures import read_measure as read_measure
    from sinkjax.study.measures import sink_rate as sink_rate
    from sinkjax.study.measures import strongest_later_attention as strongest_later_attention
    from sinkjax.study.measures import strongest_other_attention as strongest_other_attention
    from sinkjax.study.measures import strongest_other_sink as strongest_other_sink
    from sinkjax.study.measures import typical_activation as typical_activation
    from sinkjax.study.numbers import Numbers as Numbers
    from sinkjax.study.numbers import from_results as from_results
    from sinkjax.study.parts import without_replacement as without_replacement
    from sinkjax.study.premises import CHAT as CHAT
    from sinkjax.study.premises import MASSIVE_SIZE as MASSIVE_SIZE
    from sinkjax.study.premises import Premise as Premise
    from sinkjax.study.premises import Test as Test
    from sinkjax.study.premises import all_of as all_of
    from sinkjax.study.premises import below as below
    from sinkjax.study.premises import is_sink as is_sink
    from sinkjax.study.premises import keys_without_norm as keys_without_norm
    from sinkjax.study.premises import kind_of_positions as kind_of_positions
    from sinkjax.study.premises import positions_are as positions_are
    from sinkjax.study.premises import reaches as reaches
    from sinkjax.study.premises import same as same
    from sinkjax.study.premises import unchanged as unchanged
    from sinkjax.study.premises import without_bos as without_bos
    from sinkjax.study.prose import Prose as Prose
    from sinkjax.study.settings import Controlled as Controlled
    from sinkjax.study.settings import Judged as Judged
    from sinkjax.study.settings import Mapped as Mapped
    from sinkjax.study.settings import OnText as OnText
    from sinkjax.study.settings import Sinks as Sinks
    from sinkjax.study.settings import Trains as Trains
    from sinkjax.study.settings import has_twin as has_twin
    from sinkjax.study.settings import own_bos as own_bos
    from sinkjax.study.trained import MODELS as MODELS
    from sinkjax.study.trained import alone as alone
    from sinkjax.study.trained import attains as attains
    from sinkjax.study.trained import paired as paired
    from sinkjax.study.trained import run_rows as run_rows
    from sinkjax.study.trained import versus as versus
    from sinkjax.study.work import NO_EDIT as NO_EDIT
    from sinkjax.study.work import Batch as Batch
    from sinkjax.study.work import Calculation as Calculation
    from sinkjax.study.work import Condition as Condition
    from sinkjax.study.work import Inputs as Inputs
    from sinkjax.study.work import Selection as Selection
    from sinkjax.study.work import Sweep as Sweep
    from sinkjax.study.work import TrainedModels as TrainedModels
    from sinkjax.study.work import TrainingSpec as TrainingSpec

_NAMES = {  # module -> what `from sinkjax.study import *` has
    "contrasts": ("Contrast ISOLATED MASKED Parts WRITTEN difference effect moved part planted removed unedited "),
    "figures": ("activations by_layer dots lines lines_along "),
    "lab": ("Lab Unedited "),
    "layers": ("ALL Layers each layer prefixes upto "),
    "measures": ("Measure Probe attention_to largest_activation loss own percentage sink_rate strongest_other_attention "),
    "numbers": ("Numbers from_results "),
    "premises": ("MASSIVE_SIZE Premise all_of is_sink reaches "),
    "settings": ("Controlled Judged Mapped OnText Sinks "),
    "trained": ("versus "),
    "work": ("Selection Sweep "),
}
_RARE = {  # module -> names that few studies import
    "contrasts": ("Check facts_of "),
    "figures": ("LAYERS drawable heatmap series_of wrapped "),
    "lab": ("HALF Rows Study finite onset "),
    "layers": ("Head "),
    "measures": (
        "MEAN_ATTENTION MEDIANS PERCENT RECEIVED SIZES attention_to_first_behind largest_elsewhere "
        "later_attention_to later_sink_rate read_measure strongest_later_attention strongest_other_sink "
        "typical_activation "
    ),
    "parts": ("without_replacement "),
    "premises": ("CHAT Test below keys_without_norm kind_of_positions positions_are same unchanged without_bos "),
    "prose": ("Prose "),
    "settings": ("Trains has_twin own_bos "),
    "trained": ("MODELS alone attains paired run_rows "),
    "work": ("Batch Calculation Condition Inputs NO_EDIT TrainedModels TrainingSpec "),
}
_MODULE = {name: module for table in (_NAMES, _RARE) for module, names in table.items() for name in names.split()}
if not TYPE_CHECKING:  # which reads the imports above, since no list of names can be computed for it
    __all__ = sorted(name for names in _NAMES.values() for name in names.split())  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'sinkjax.study' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sinkjax.study.{_MODULE[name]}"), name)
