"""Text that a model generates under edits: a calculation available to any study, and its lines on a page."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import xarray

from sinkjax.errors import SinkjaxError
from sinkjax.generation import blocks_apart, generate_all
from sinkjax.lab.conditions import Point
from sinkjax.lab.work import TEXT, Calculation, Inputs
from sinkjax.report.section import Sample
from sinkjax.transformer.cached import Unstacked

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model
    from sinkjax.lab.work import Batch

TEXTS = "continuations"
START, TOKENS, PROMPTS = 16, 16, 3


def continuations(
    points: Callable[[Model, Batch], Sequence[Point]],
    prompts: int = PROMPTS,
    inputs: Inputs = TEXT,
    start: int = START,
) -> Calculation:
    """Generate the TOKENS most likely tokens after the first START of each prompt, under some conditions.

    Args:
        points: Returns the conditions, whose edits may hold values of the model on all `prompts`.
        prompts: Number of prompts; only the first PROMPTS are continued.
        inputs: Kind of prompts.
        start: Minimum number of given tokens, if an edit names positions beyond START.

    Returns:
        The calculation of `text` (edit, prompt) and `start`.
    """

    def compute(model: Model, batch: Batch) -> xarray.Dataset:
        """How the model continues the prompts under edits."""
        if model.tokenizer is None:
            raise SinkjaxError("the model has no tokenizer, so it cannot write text")
        decode = model.tokenizer.decode
        given = np.minimum(batch.lengths, max(START, start))
        starts = [row[:count].tolist() for row, count in zip(np.asarray(batch.tokens), given, strict=True)][:PROMPTS]
        shown = points(model, batch)
        apart = functools.cache(functools.partial(blocks_apart, model))  # one copy shared by all conditions
        tokens = min(TOKENS, model.config.context - max(map(len, starts)))
        written = []
        for point in shown:
            found = zip(starts, generate_all(model, starts, point.edit, tokens, apart=apart), strict=True)
            written.append([decode([*ids, *more])[len(decode(ids)) :] for ids, more in found])
        return xarray.Dataset(
            {
                "text": (("edit", "prompt"), np.array(written)),
                "start": (("prompt",), np.array(list(map(decode, starts)))),
            },
            {"edit": [point.label for point in shown], "prompt": np.arange(len(starts))},
        )

    return Calculation(TEXTS, compute, ("text", "start"), prompts, inputs, beside=Unstacked.copied_bytes, optional=True)


def samples(data: xarray.Dataset) -> tuple[Sample, ...]:
    """Return the lines of a page from the store of `continuations`."""
    edits, starts = map(str, data["edit"].values), data["start"].values
    return tuple(
        Sample(str(start), edit, str(text))
        for edit, row in zip(edits, data["text"].values, strict=True)
        for start, text in zip(starts, row, strict=True)
    )
