"""Made-up folders of trainings: their logs, as the trainer writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sinkjax.train.log import LOG


def line(run: int, step: int, loss: float | None, sink: float, **fields: Any) -> dict[str, Any]:
    """An evaluation of a model of two layers and two heads; what is not stated says nothing of interest."""
    return {
        "run": run,
        "seed": run,
        "learning_rate": 0.1,
        "variant": "softmax",
        "step": step,
        "status": "running",
        "loss": loss,
        "train_loss": loss,
        "gradient_norm": 1.0,
        "sink": [sink, 0.0, 0.0, 0.0, 0.0],
        "sink_share": [sink / 2, 0.0, 0.0, 0.0, 0.0],
        "sink_bias": 0.02,
        "sink_bias_share": 0.01,
        "received": [[sink, 0.1], [0.1, 0.1]],
        "share": [[sink / 2, 0.1], [0.1, 0.1]],
        "norm_ratio": [1.0, 1.0 + 10 * sink, 1.0],
        "value_ratio": [1.0, 1.0 - sink],
        "largest": [1.0, 2.0, 3.0],
        "effective_rank": [4.0, 6.0],
        "disparity": [2.0, 4.0],
        "written": [[sink / 4, 0.1], [0.1, 0.1]],
        **fields,
    }


def log(folder: Path, lines: Sequence[dict[str, Any]], steps: int = 100, normaliser: str = "softmax") -> Path:
    """A folder with this log, of as many runs as its lines name."""
    runs = sorted({entry["run"] for entry in lines})
    first = {
        "config": {"steps": steps, "normaliser": normaliser, "dtype": "float32", "text": "packaged"},
        "runs": [{"run": run, "seed": run, "learning_rate": 0.1, "variant": "softmax"} for run in runs],
        "parameters": 1234,
        "data": {"corpus": "c0de"},
        "devices": "1 x cpu",
        "versions": {"jax": "0"},
        "intervals_over": "initialisations and data",
    }
    folder.mkdir(parents=True)
    (folder / LOG).write_text("".join(json.dumps(entry) + "\n" for entry in [first, *lines]))
    return folder


def curve(run: int, losses: Sequence[float | None], sink: float = 0.0, steps: int = 100) -> list[dict[str, Any]]:
    """The evaluations of a run that are evenly spaced over its steps."""
    return [line(run, number * steps // (len(losses) - 1), loss, sink) for number, loss in enumerate(losses)]
