"""Short names of the parts of a model, for configs. This module imports no JAX."""

from __future__ import annotations

from typing import Literal

NormaliserName = Literal[
    "softmax",
    "sink-logit",
    "off-by-one",
    "relu-none",
    "relu-index",
    "relu-count",
    "sigmoid",
    "elu",
    "softpick",
    "clipped",
]
