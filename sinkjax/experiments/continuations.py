"""What an edit does to the text that a model writes: a calculation that any recipe can offer, and its lines on a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sinkjax.errors import SinkjaxError
from sinkjax.experiments.base import Arm, Batch, Calculation, Sample
from sinkjax.generation import generate

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.load import Model

START, TOKENS, PROMPTS = 16, 16, 3


def continuations(name: str, arms: Sequence[Arm], prompts: int = PROMPTS) -> Calculation:
    """The likeliest TOKENS tokens after the first START of each prompt, under each arm: `text` (edit, prompt) and `start`."""

    def compute(model: Model, batch: Batch) -> xarray.Dataset:
        import xarray

        tokenizer = model.tokenizer
        if tokenizer is None:
            raise SinkjaxError("the model has no tokenizer, so it cannot write text")
        starts = [
            row[: min(START, length)].tolist()
            for row, length in zip(np.asarray(batch.tokens), np.asarray(batch.lengths).tolist(), strict=True)
        ]
        written = [[_continue(model, start, arm) for start in starts] for arm in arms]
        return xarray.Dataset(
            {
                "text": (("edit", "prompt"), np.array(written)),
                "start": (("prompt",), np.array([tokenizer.decode(start) for start in starts])),
            },
            {"edit": [arm.edit.label for arm in arms], "prompt": np.arange(len(starts))},
        )

    return Calculation(name, compute, prompts)


def samples(data: xarray.Dataset) -> tuple[Sample, ...]:
    """The lines of a page, from the store of `continuations`."""
    edits, starts = map(str, data["edit"].values), data["start"].values
    return tuple(
        Sample(str(start), edit, str(text))
        for edit, row in zip(edits, data["text"].values, strict=True)
        for start, text in zip(starts, row, strict=True)
    )


def _continue(model: Model, start: list[int], arm: Arm) -> str:
    assert model.tokenizer is not None
    found = generate(model, start, arm.edit, min(TOKENS, model.config.context - len(start)))
    return model.tokenizer.decode([*start, *found])[len(model.tokenizer.decode(start)) :]
