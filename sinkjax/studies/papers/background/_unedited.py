"""What edits take from the unedited model, on the prompts of the controls: the first ones, which every sweep of a study has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st


def record(config: Any, model: Any, batch: st.Batch, probe: sinkjax.Probe) -> Mapping[Any, Any]:
    """The record of the unedited model on the first `config.control_prompts` prompts, or fewer if there are not as many."""
    tokens, lengths = batch.tokens[: config.control_prompts], batch.lengths[: config.control_prompts]
    return sinkjax.forward(model.params, tokens, model.config, (), probe, lengths, logits=False).record


def growth(values: NDArray, position: int) -> int:
    """The layer in which a position's value grows most, by the mean over prompts. values: float[prompt, depth, position]."""
    return int(np.diff(values[:, :, position].mean(axis=0)).argmax())


def layer_of_growth(statistic: str) -> st.Values:
    """The layer in which a statistic of the residual stream grows most at `config.position`."""

    def compute(config: Any, model: Any, batch: st.Batch) -> int:
        return growth(np.asarray(record(config, model, batch, sinkjax.Probe.of(statistic))[statistic]), config.position)

    return st.Values(lambda config, architecture, prompts: 0, compute)
