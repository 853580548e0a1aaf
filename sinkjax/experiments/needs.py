"""What a recipe needs of a model, and the sentence for one that lacks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from sinkjax.errors import SinkjaxError

if TYPE_CHECKING:
    from sinkjax.model.config import Config

Part = Literal[
    "rotary positions",
    "embedding without positions",
    "scores without positions",
    "scores without a kernel",
    "keys without a norm",
    "causal mask",
    "norm",
    "pre-norm",
    "MLP",
    "gated MLP",
    "concatenated heads",
    "softmax",
    "usual scale",
]


def needs(experiment: str, architecture: Config, *parts: Part) -> None:
    """Raise unless the model has a vocabulary, as every recipe on prompts needs, and these parts, the first that it lacks."""
    from sinkjax.model.attention_bias import ValueBias
    from sinkjax.model.config import Rope
    from sinkjax.model.normalisers import Softmax
    from sinkjax.model.positions import AddedPosition, ScorePosition

    plain = architecture.normaliser == Softmax()
    there = {
        "vocabulary": architecture.vocab_size is not None,
        "rotary positions": isinstance(architecture.position, Rope),
        "embedding without positions": not isinstance(architecture.position, AddedPosition),
        "scores without positions": not isinstance(architecture.position, ScorePosition),
        "scores without a kernel": not architecture.normaliser.kernel,
        "keys without a norm": architecture.qk_norm is None,
        "causal mask": architecture.prefix is None,
        "norm": architecture.norm is not None,
        "pre-norm": architecture.norm_place == "pre",
        "MLP": architecture.mlp_width is not None,
        "gated MLP": architecture.gated_mlp,
        "concatenated heads": not architecture.summed_heads,
        "softmax": plain and isinstance(architecture.attention_bias, ValueBias | None),
        "usual scale": architecture.scale == architecture.head_dim**-0.5,
    }
    detail = {
        "embedding without positions": f" but {architecture.position}",
        "scores without positions": f" but {architecture.position}",
        "scores without a kernel": f" but {architecture.normaliser}",
        "causal mask": f" but a prefix of {architecture.prefix}",
        "pre-norm": f" but {architecture.norm_place}",
        "softmax": f" over keys alone but {architecture.attention_bias}" if plain else f" but {architecture.normaliser}",
        "usual scale": f" of scores but {architecture.scale:g}",
    }
    for part in ("vocabulary", *parts):
        if not there[part]:
            raise SinkjaxError(f"{experiment} cannot run: this model has no {part}{detail.get(part, '')}")
