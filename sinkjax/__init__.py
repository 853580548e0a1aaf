"""sinkjax: why language models have attention sinks and massive activations, by causal intervention, in JAX.

Names are imported when first used, so `import sinkjax` and `sinkjax --help` are quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sinkjax import plot as plot
    from sinkjax.analysis import intervals as intervals
    from sinkjax.analysis import metrics as metrics
    from sinkjax.analysis.frame import to_frame as to_frame
    from sinkjax.cards.card import Card as Card
    from sinkjax.cards.card import card as card
    from sinkjax.cards.files import load_clamp as load_clamp
    from sinkjax.cards.files import load_sinks as load_sinks
    from sinkjax.cards.files import sink_mask as sink_mask
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
    from sinkjax.edits.named import add_logit as add_logit
    from sinkjax.edits.named import attend_self as attend_self
    from sinkjax.edits.named import drop_mlp as drop_mlp
    from sinkjax.edits.named import edit_weights as edit_weights
    from sinkjax.edits.named import mask_key as mask_key
    from sinkjax.edits.named import scale_head_output as scale_head_output
    from sinkjax.edits.named import set_positions as set_positions
    from sinkjax.edits.named import set_residual as set_residual
    from sinkjax.edits.named import set_weights as set_weights
    from sinkjax.edits.named import shift_positions as shift_positions
    from sinkjax.edits.named import swap_embeddings as swap_embeddings
    from sinkjax.edits.site import Site as Site
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
    from sinkjax.explain.paths import path as path
    from sinkjax.explain.scan import scan as scan
    from sinkjax.explain.scores import explain_score as explain_score
    from sinkjax.explain.scores import explain_value as explain_value
    from sinkjax.explain.sink_prefix import SinkPrefix as SinkPrefix
    from sinkjax.explain.sink_prefix import load_prefix as load_prefix
    from sinkjax.explain.sink_prefix import sink_prefix as sink_prefix
    from sinkjax.explain.super_weights import super_weights as super_weights
    from sinkjax.explorer.launch import explore as explore
    from sinkjax.generation import generate as generate
    from sinkjax.model.config import Config as Config
    from sinkjax.probes.probe import Capture as Capture
    from sinkjax.probes.probe import Probe as Probe
    from sinkjax.probes.record import Record as Record
    from sinkjax.probes.record import to_dataset as to_dataset
    from sinkjax.probes.statistics import Statistic as Statistic
    from sinkjax.report.figures.explained import draw_attribution as draw_attribution
    from sinkjax.report.figures.explained import draw_parts as draw_parts
    from sinkjax.showing import show as show
    from sinkjax.study.run import run as run
    from sinkjax.sweeps.models import sweep_models as sweep_models
    from sinkjax.sweeps.run import sweep as sweep
    from sinkjax.transformer.eviction import Streaming as Streaming
    from sinkjax.transformer.forward import forward as forward
    from sinkjax.transformer.scored_caches import H2O as H2O
    from sinkjax.transformer.scored_caches import KeyNorm as KeyNorm
    from sinkjax.transformer.scored_caches import SnapKV as SnapKV

__version__ = "0.4.0"

_HOME = {
    "sinkjax.analysis.frame": ("to_frame",),
    "sinkjax.cards.card": ("Card", "card"),
    "sinkjax.cards.files": ("load_clamp", "load_sinks", "sink_mask"),
    "sinkjax.checkpoints.export": ("export",),
    "sinkjax.checkpoints.flax_trees": ("from_flax",),
    "sinkjax.checkpoints.in_memory": ("from_arrays", "from_transformers", "to_arrays"),
    "sinkjax.checkpoints.load": ("Model", "load", "verify"),
    "sinkjax.checkpoints.native": ("save",),
    "sinkjax.data.prompts": ("encode",),
    "sinkjax.edits.edit": ("Edit", "compose", "edit"),
    "sinkjax.edits.named": (
        "add_logit",
        "attend_self",
        "drop_mlp",
        "edit_weights",
        "mask_key",
        "scale_head_output",
        "set_positions",
        "set_residual",
        "set_weights",
        "shift_positions",
        "swap_embeddings",
    ),
    "sinkjax.edits.site": ("Site",),
    "sinkjax.edits.term": ("per_prompt",),
    "sinkjax.errors": ("SinkjaxError",),
    "sinkjax.evaluation": ("evaluate",),
    "sinkjax.explain.attribution": ("attribute",),
    "sinkjax.explain.edges": ("attribute_edges",),
    "sinkjax.explain.forms": ("spike_forms",),
    "sinkjax.explain.gradients": ("gradient_norms",),
    "sinkjax.explain.logits": ("explain_logit", "logit_lens"),
    "sinkjax.explain.paths": ("path",),
    "sinkjax.explain.scan": ("scan",),
    "sinkjax.explain.scores": ("explain_score", "explain_value"),
    "sinkjax.explain.sink_prefix": ("SinkPrefix", "load_prefix", "sink_prefix"),
    "sinkjax.explain.super_weights": ("super_weights",),
    "sinkjax.explorer.launch": ("explore",),
    "sinkjax.generation": ("generate",),
    "sinkjax.model.config": ("Config",),
    "sinkjax.transformer.eviction": ("Streaming",),
    "sinkjax.transformer.forward": ("forward",),
    "sinkjax.transformer.scored_caches": ("H2O", "KeyNorm", "SnapKV"),
    "sinkjax.probes.probe": ("Capture", "Probe"),
    "sinkjax.probes.statistics": ("Statistic",),
    "sinkjax.probes.record": ("Record", "to_dataset"),
    "sinkjax.report.figures.explained": ("draw_attribution", "draw_parts"),
    "sinkjax.showing": ("show",),
    "sinkjax.study.run": ("run",),
    "sinkjax.explain.head_types": ("head_types",),
    "sinkjax.sweeps.models": ("sweep_models",),
    "sinkjax.sweeps.run": ("sweep",),
}
_SUBMODULES = {"intervals": "sinkjax.analysis.intervals", "metrics": "sinkjax.analysis.metrics", "plot": "sinkjax.plot"}
_MODULE = {name: module for module, names in _HOME.items() for name in names}
__all__ = sorted([*_MODULE, *_SUBMODULES])  # noqa: PLE0605 - a list, made from the table above


def __getattr__(name: str) -> Any:
    if name not in _MODULE and name not in _SUBMODULES:
        raise AttributeError(f"module 'sinkjax' has no attribute {name!r}")
    if name in _SUBMODULES:
        return importlib.import_module(_SUBMODULES[name])
    return getattr(importlib.import_module(_MODULE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
