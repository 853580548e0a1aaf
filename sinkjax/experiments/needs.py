"""What a recipe needs of a model, and the sentence for one that lacks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from sinkjax.errors import SinkjaxError

if TYPE_CHECKING:
    from sinkjax.model.config import Config

Part = Literal["rotary positions", "norm", "MLP", "softmax", "usual scale"]


def needs(experiment: str, architecture: Config, *parts: Part) -> None:
    """Raise unless the model has a vocabulary, as every recipe on prompts needs, and these parts."""
    from sinkjax.model.config import Rope
    from sinkjax.model.normalisers import Softmax

    there = {
        "vocabulary": architecture.vocab_size is not None,
        "rotary positions": isinstance(architecture.position, Rope),
        "norm": architecture.norm is not None,
        "MLP": architecture.mlp_width is not None,
        "softmax": architecture.normaliser == Softmax(),
        "usual scale": architecture.scale == architecture.head_dim**-0.5,
    }
    detail = {"softmax": f" but {architecture.normaliser}", "usual scale": f" of scores but {architecture.scale:g}"}
    for part in ("vocabulary", *parts):
        if not there[part]:
            raise SinkjaxError(f"{experiment} cannot run: this model has no {part}{detail.get(part, '')}")
