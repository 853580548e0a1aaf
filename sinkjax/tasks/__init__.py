"""Training tasks, one folder each: `train` trains the runs of a config in a folder, and `load_runs` reads them.

A task defines its configs, its data, its model and the measurements while it learns. The training loop is in `sinkjax.train`
and is the same for all tasks; `registry.py` finds the task of a config.
"""

from __future__ import annotations

from sinkjax.tasks.registry import load_runs as load_runs
from sinkjax.tasks.registry import train as train
