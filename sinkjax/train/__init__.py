"""Training, by one loop for every task: `train(config, folder)` trains many runs at once, `load_runs(folder)` reads them.

Names are imported when first used, so that a config costs no JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sinkjax.train.loop import train as train
    from sinkjax.train.trained import Trained as Trained
    from sinkjax.train.trained import load_runs as load_runs

_HOME = {"train": "loop", "Trained": "trained", "load_runs": "trained"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sinkjax.train' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sinkjax.train.{_HOME[name]}"), name)
