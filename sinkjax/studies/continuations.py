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
    given = max(START, start)

    def compute(model: Model, batch: Batch) -> xarray.Dataset:
        """How the model continues the prompts under edits."""
        import xarray

        tokenizer = model.tokenizer
        if tokenizer is None:
            raise SinkjaxError("the model has no tokenizer, so it cannot write text")
        starts = [
            row[: min(given, length)].tolist()
            for row, length in zip(np.asarray(batch.tokens), np.asarray(batch.lengths).tolist(), strict=True)
        ][:PROMPTS]
        shown = prepare(model, batch) if prepare else conditions
        apart = functools.cache(functools.partial(blocks_apart, model))  # one copy shared by all conditions
        written = [_continue(model, starts, condition, apart) for condition in shown]
        return xarray.Dataset(
            {
                "text": (("edit", "prompt"), np.array(written)),
                "start": (("prompt",), np.array([tokenizer.decode(ids) for ids in starts])),
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


def _continue(model: Model, starts: Sequence[list[int]], condition: Condition, apart: Callable[[], Unstacked]) -> list[str]:
    assert model.tokenizer is not None
    tokens = min(TOKENS, model.config.context - max(map(len, starts)))
    found = generate_all(model, starts, condition.edit, tokens, apart=apart)
    decode = model.tokenizer.decode
    return [decode([*start, *more])[len(decode(start)) :] for start, more in zip(starts, found, strict=True)]
