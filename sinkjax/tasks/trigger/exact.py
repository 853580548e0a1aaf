"""The trigger task solved by hand with ReLU attention: no loss, no weight on BOS (Ran-Milo 2026, Theorem 3; our construction).

The query reads the trigger flag, the key the trigger flag and the bias channel: q.k is 1 between the trigger's row and every
token but BOS, and 0 elsewhere. ReLU leaves that, the divisor max(i, 1) makes row j the mean of tokens 1 to j, and W_V = W_O = I
copy it.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.tasks.trigger.config import Trigger, TriggerTraining
from sinkjax.tasks.trigger.data import BIAS, TRIGGER_FLAG
from sinkjax.tasks.trigger.task import model


def architecture(data: Trigger) -> Config:
    """One layer and one head of ReLU attention for such sequences, row i divided by max(i, 1)."""
    return model(TriggerTraining(width=data.width, length=data.length, normalisers=("relu-index",)))


def solution(data: Trigger, dtype: Any = "float64") -> Params:
    """Parameters of `architecture` with zero loss on sequences with BOS as the one token that stands before the ordinary ones."""
    n = data.width
    query = jnp.zeros((1, n, 1, n), dtype).at[0, TRIGGER_FLAG, 0, 0].set(1)
    key = jnp.zeros((1, n, 1, n), dtype).at[0, jnp.array([TRIGGER_FLAG, n + BIAS]), 0, 0].set(1)
    copy = jnp.eye(n, dtype=dtype)
    return {"layers": {"q": query, "k": key, "v": copy[None, :, None, :], "o": copy[None, None]}}
