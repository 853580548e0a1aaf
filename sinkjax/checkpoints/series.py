"""Series: many checkpoints of one model, as folders below one folder.

A training writes `series/run-000/step-000100`, a folder of a model each; any folder of model folders is a series as well.
"""

from __future__ import annotations

from pathlib import Path

SERIES = "series"


def series_path(folder: Path, run: int, step: int) -> Path:
    """Where a training in `folder` keeps the model of a run after `step` steps."""
    return folder / SERIES / f"run-{run:03d}" / f"step-{step:06d}"
