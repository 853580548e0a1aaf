"""Text that a model generates under edits: a calculation available to any study, and its lines on a page."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sinkjax.errors import SinkjaxError
from sinkjax.generation import blocks_apart, generate_all
from sinkjax.report.section import Sample
from sinkjax.studies.study import TEXT, Batch, Calculation, Condition, Inputs
from sinkjax.transformer.cached import Unstacked

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model

START, TOKENS, PROMPTS = 16, 16, 3


def continuations(
    name: str,
    conditions: Sequence[Condition],
    prompts: int = PROMPTS,
    *,
    inputs: Inputs = TEXT,
    start: int = START,
    prepare: Callable[[Model, Batch], tuple[Condition, ...]] | None = None,
) -> Calculation:
    """Generate the TOKENS most likely tokens after the first START of each prompt, under each condition.

    The result has `text` (edit, prompt) and `start`. start: minimum number of given tokens, if an edit names positions beyond
    START. prepare: returns the conditions that replace `conditions`, from all `prompts`; only the first PROMPTS are continued.
    """

    def compute(model: Model, batch: Batch) -> xarray.Dataset:
        """How the model continues the prompts under edits."""
        import xarray

        if model.tokenizer is None:
            raise SinkjaxError("the model has no tokenizer, so it cannot write text")
        decode = model.tokenizer.decode
        given = np.minimum(batch.lengths, max(START, start))
        starts = [row[:count].tolist() for row, count in zip(np.asarray(batch.tokens), given, strict=True)][:PROMPTS]
        shown = prepare(model, batch) if prepare else conditions
        apart = functools.cache(functools.partial(blocks_apart, model))  # one copy shared by all conditions
        tokens = min(TOKENS, model.config.context - max(map(len, starts)))
        written = []
        for condition in shown:
            found = zip(starts, generate_all(model, starts, condition.edit, tokens, apart=apart), strict=True)
            written.append([decode([*ids, *more])[len(decode(ids)) :] for ids, more in found])
        return xarray.Dataset(
            {
                "text": (("edit", "prompt"), np.array(written)),
                "start": (("prompt",), np.array(list(map(decode, starts)))),
            },
            {"edit": [condition.label for condition in shown], "prompt": np.arange(len(starts))},
        )

    return Calculation(
        name, compute, ("text", "start"), prompts, inputs, beside=Unstacked.copied_bytes, passes=TOKENS * len(conditions)
    )


def samples(data: xarray.Dataset) -> tuple[Sample, ...]:
    """Return the lines of a page from the store of `continuations`."""
    edits, starts = map(str, data["edit"].values), data["start"].values
    return tuple(
        Sample(str(start), edit, str(text))
        for edit, row in zip(edits, data["text"].values, strict=True)
        for start, text in zip(starts, row, strict=True)
    )
