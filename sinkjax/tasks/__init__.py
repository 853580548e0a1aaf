"""The tasks that can be trained, one folder each: `train(config, folder)` trains a config's runs, `load_runs(folder)` reads them.

Names are imported on first use, so that configs do not import JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sinkjax.tasks.run import load_runs as load_runs
    from sinkjax.tasks.run import train as train
    from sinkjax.train.trained import Trained as Trained

_HOME = {"train": "sinkjax.tasks.run", "load_runs": "sinkjax.tasks.run", "Trained": "sinkjax.train.trained"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sinkjax.tasks' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
