"""The parts of a model that studies need."""

from __future__ import annotations

from sinkjax.errors import SinkjaxError
from sinkjax.model.attention_bias import ValueBias
from sinkjax.model.config import Config
from sinkjax.model.normalisers import Softmax
from sinkjax.model.norms import AfterRotation, OffsetRMSNorm, RMSNorm
from sinkjax.model.positions import AddedPosition, ScorePosition


def needs(study: str, architecture: Config, *parts: str) -> None:
    """Raise unless the model has a vocabulary, as every study on prompts needs, and these parts, the first that it lacks."""
    RMS, plain = RMSNorm | OffsetRMSNorm, architecture.normaliser == Softmax()
    scales = architecture.score_scale if isinstance(architecture.score_scale, tuple) else (architecture.score_scale,)
    usual = architecture.head_dim**-0.5
    there = {
        "vocabulary": architecture.vocab_size is not None,
        "rotary positions": architecture.rope_of(0) is not None,
        "embedding without positions": not isinstance(architecture.position, AddedPosition),
        "plain embedding": not architecture.embed_norm and architecture.embed_width is None,
        "scores without positions": not isinstance(architecture.position, ScorePosition),
        "scores without a kernel": not architecture.normaliser.kernel,
        "scores without a soft cap": architecture.caps.scores is None,
        "position vectors": isinstance(architecture.position, AddedPosition),
        "query biases": architecture.qkv_bias,
        "keys without a LayerNorm": isinstance(getattr(architecture.qk_norm, "norm", architecture.qk_norm), RMS | None),
        "rotation after all norms": not isinstance(architecture.qk_norm, AfterRotation),
        "queries without growth": not any(rope.growth for rope in architecture.ropes),
        "causal mask": architecture.prefix is None,
        "norm": architecture.norm is not None,
        "RMSNorm": isinstance(architecture.norm, RMS),
        "pre-norm": architecture.layout.inputs and not architecture.layout.parallel,  # outputs may be normed too
        "norm before attention": architecture.layout.inputs,
        "MLP": architecture.mlp_width is not None,
        "gated MLP": architecture.gated_mlp,
        "MLP without experts": architecture.experts is None,
        "concatenated heads": not architecture.summed_heads,
        "softmax": plain and isinstance(architecture.kv_bias, ValueBias | None) and architecture.caps.scores is None,
        "sliding windows": any(window is not None for window in architecture.windows or ()),
        "usual scale": all(scale is None or scale == usual for scale in scales),
    }
    detail = {
        "embedding without positions": f" but {architecture.position}",
        "scores without positions": f" but {architecture.position}",
        "scores without a kernel": f" but {architecture.normaliser}",
        "rotation after all norms": f" but {architecture.qk_norm}",
        "queries without growth": f" but {', '.join(str(rope.growth) for rope in architecture.ropes)}",
        "causal mask": f" but a prefix of {architecture.prefix}",
        "pre-norm": f" but {architecture.norm_place}",
        "norm before attention": f" but its place is {architecture.norm_place}",
        "RMSNorm": f" but {architecture.norm}",
        "softmax": f" but {architecture.normaliser}"
        if not plain
        else f" over keys alone but {architecture.kv_bias}"
        if architecture.kv_bias
        else " without a soft cap on scores",
        "usual scale": f" of scores but {', '.join(f'{scale or usual:g}' for scale in scales)}",
    }
    for part in ("vocabulary", *parts):
        if not there[part]:
            raise SinkjaxError(f"{study} cannot run: this model has no {part}{detail.get(part, '')}")
