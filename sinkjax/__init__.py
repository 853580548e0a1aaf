"""sinkjax: why language models have attention sinks and massive activations, by causal intervention, in JAX.

Names are imported when first used, so `import sinkjax` and `sinkjax --help` are quick.
"""

from __future__ import annotations

import os
import sys

# With `python -m sinkjax`, Python looks for modules in the current folder first, where other people's files may lie.
if sys.argv[:1] == ["-m"] and sys.path and sys.path[0] == os.getcwd():  # noqa: PTH109 - pathlib is such a module
    del sys.path[0]

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkjax.version import __version__ as __version__

if TYPE_CHECKING:  # type checkers read these imports, and `_homes` makes of them the table of lazy imports
    from sinkjax import plot as plot
    from sinkjax.analysis import intervals as intervals
    from sinkjax.analysis import metrics as metrics
    from sinkjax.analysis.frame import to_frame as to_frame
    from sinkjax.cards.card import Card as Card
    from sinkjax.cards.card import card as card
    from sinkjax.cards.compare import compare_cards as compare_cards
    from sinkjax.cards.files import load_clamp as load_clamp
    from sinkjax.cards.files import load_sinks as load_sinks
    from sinkjax.cards.files import sink_mask as sink_mask
    from sinkjax.cards.shared import read_card as read_card
    from sinkjax.checkpoints.export import export as export
    from sinkjax.checkpoints.flax_trees import from_flax as from_flax
    from sinkjax.checkpoints.in_memory import from_arrays as from_arrays
    from sinkjax.checkpoints.in_memory import from_transformers as from_transformers
    from sinkjax.checkpoints.in_memory import to_arrays as to_arrays
    from sinkjax.checkpoints.load import load as load
    from sinkjax.checkpoints.load import verify as verify
    from sinkjax.checkpoints.model import Model as Model
    from sinkjax.checkpoints.native import save as save
    from sinkjax.data.prompts import encode as encode
    from sinkjax.edits.edit import Edit as Edit
    from sinkjax.edits.edit import compose as compose
    from sinkjax.edits.edit import edit as edit
    from sinkjax.edits.named import *  # noqa: F403
    from sinkjax.edits.term import per_prompt as per_prompt
    from sinkjax.errors import SinkjaxError as SinkjaxError
    from sinkjax.evaluation import evaluate as evaluate
    from sinkjax.explain.attribution import attribute as attribute
    from sinkjax.explain.edges import attribute_edges as attribute_edges
    from sinkjax.explain.forms import spike_forms as spike_forms
    from sinkjax.explain.gradients import gradient_norms as gradient_norms
    from sinkjax.explain.head_types import head_types as head_types
    from sinkjax.explain.logits import explain_logit as explain_logit
    from sinkjax.explain.logits import logit_lens as logit_lens
    from sinkjax.explain.patching import patch as patch
    from sinkjax.explain.paths import path as path
    from sinkjax.explain.scan import scan as scan
    from sinkjax.explain.scores import explain_score as explain_score
    from sinkjax.explain.scores import explain_value as explain_value
    from sinkjax.explain.sink_prefix import SinkPrefix as SinkPrefix
    from sinkjax.explain.sink_prefix import load_prefix as load_prefix
    from sinkjax.explain.sink_prefix import sink_prefix as sink_prefix
    from sinkjax.explain.super_weights import super_weights as super_weights
    from sinkjax.explorer.launch import explore as explore
    from sinkjax.generation import Generated as Generated
    from sinkjax.generation import generate as generate
    from sinkjax.model.config import Config as Config
    from sinkjax.model.site import Site as Site
    from sinkjax.probes.probe import Capture as Capture
    from sinkjax.probes.probe import Probe as Probe
    from sinkjax.probes.record import Record as Record
    from sinkjax.probes.record import to_dataset as to_dataset
    from sinkjax.probes.statistics import Statistic as Statistic
    from sinkjax.report.figures.dots import draw_attribution as draw_attribution
    from sinkjax.report.figures.dots import draw_parts as draw_parts
    from sinkjax.report.figures.heatmaps import draw_patch as draw_patch
    from sinkjax.retrofitting import retrofit as retrofit
    from sinkjax.showing import show as show
    from sinkjax.study.run import run as run
    from sinkjax.sweeps.models import sweep_models as sweep_models
    from sinkjax.sweeps.run import sweep as sweep
    from sinkjax.transformer.eviction import Streaming as Streaming
    from sinkjax.transformer.forward import forward as forward
    from sinkjax.transformer.scored_caches import H2O as H2O
    from sinkjax.transformer.scored_caches import KeyNorm as KeyNorm
    from sinkjax.transformer.scored_caches import SnapKV as SnapKV

_SUBMODULES = {"intervals": "sinkjax.analysis.intervals", "metrics": "sinkjax.analysis.metrics", "plot": "sinkjax.plot"}


def _tree(*parts: str) -> ast.Module:
    """Parse a file of the package."""
    return ast.parse(Path(__file__).parent.joinpath(*parts).read_text(encoding="utf-8"))


def _named_edits() -> tuple[str, ...]:
    """Read `__all__` of `edits/named.py` without an import of JAX."""
    (names,) = (node.value for node in _tree("edits", "named.py").body if isinstance(node, ast.Assign))
    return tuple(ast.literal_eval(names))


def _homes() -> dict[str, str]:
    """Map each public name to its module, from the imports above."""
    listed = next(
        node for node in _tree("__init__.py").body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imports = [(str(node.module), node.names) for node in listed.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: module for module, names in imports for alias in names}
    of_named = homes.pop("*")
    return homes | dict.fromkeys(_named_edits(), of_named)


_HOME = {name: module for name, module in _homes().items() if name not in _SUBMODULES}
__all__ = sorted([*_HOME, *_SUBMODULES])  # noqa: PLE0605 - a list, made from the imports above


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(_SUBMODULES[name])
    if name not in _HOME:
        raise AttributeError(f"module 'sinkjax' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
