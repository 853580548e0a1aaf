"""The speed of trainings on tokens: tokens per second, and the fraction of the devices' peak FLOP/s.

It is stored in `speed.jsonl` next to the log, whose content does not depend on interruptions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from sinkjax.config_files.files import cannot_write
from sinkjax.model import params
from sinkjax.model.config import Config
from sinkjax.runtime.hardware import PLATFORMS
from sinkjax.train.task import Task, TokenTask

SPEED = "speed.jsonl"

# Names of devices in JAX, and their platforms, whose peak is the rate of dense bfloat16 products.
KNOWN = {
    "NVIDIA L4": "l4",
    "NVIDIA A100-SXM4-40GB": "a100-40",
    "NVIDIA A100-SXM4-80GB": "a100-80",
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA H200": "h200",
    "TPU v4": "tpu-v4",
    "TPU v5 lite": "tpu-v5e",
    "TPU v5p": "tpu-v5p",
    "TPU v6 lite": "tpu-v6e",
}


def token_flops(config: Config) -> float:
    """Return the training FLOPs per token.

    These are 6 per parameter, excluding the embedding but including the head, plus causal attention: 2 T H D per layer, three
    times (once forward, twice backward)."""
    assert config.vocab_size is not None
    embedding = 0 if config.tied else config.vocab_size * config.width
    attention = 6 * config.layers * config.context * config.heads * config.head_dim
    return float(6 * (params.count(config) - embedding) + attention)


def measured(task: Task, steps: int, seconds: float, devices: int, kind: str) -> dict[str, float]:
    """Return tokens_per_second and, if the device's peak is known, flop_utilisation for `steps` steps of all runs; otherwise
    {}."""
    if not isinstance(task, TokenTask) or not steps or not seconds:
        return {}
    tokens = steps * task.tokens_per_step() / seconds
    pace = {"tokens_per_second": tokens}
    if kind in KNOWN:
        peak = PLATFORMS[KNOWN[kind]].rates["bfloat16"]
        pace["flop_utilisation"] = tokens * task.flops_per_token() / (devices * peak)
    return pace


def note(folder: Path, step: int, pace: Mapping[str, float]) -> None:
    """Append a line to the folder's file. Errors: no space."""
    if pace:
        line = json.dumps({"step": step, **pace}) + "\n"
        try:
            with (folder / SPEED).open("a") as file:
                file.write(line)
        except OSError as error:
            raise cannot_write(folder / SPEED, error, len(line)) from error
