"""Released models by short name: the architecture ships with the package, the weights are on the Hub.

This lets you plan a study of a multi-gigabyte model, or run it on the same architecture with random weights, before downloading
anything. The relevant parts of their config.json are in `released.json`, by family.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sinkjax.checkpoints.family import families
from sinkjax.checkpoints.hf_config import read_config
from sinkjax.checkpoints.model import Checkpoint


@dataclass(frozen=True)
class Published:
    """A released model. hub: the id of its weights. values: the relevant part of its config.json, with the model type."""

    hub: str
    values: Mapping[str, Any]


@functools.cache
def architectures() -> dict[str, Published]:
    """Map short names to released models. "shared" in the file has the values common to a family."""
    released = {}
    for model_type, entries in json.loads(Path(__file__).with_name("released.json").read_text(encoding="utf-8")).items():
        shared = {"model_type": model_type, **entries.pop("shared", {})}
        for name, values in entries.items():
            released[name] = Published(values.pop("hub"), shared | values)
    return released


def with_tokenizer(model_type: object, vocab_size: int | None) -> str:
    """Say where a model without a tokenizer may find one: a released model of its type and vocabulary; "" if there is none."""
    asked = {"model_type": model_type, "vocab_size": vocab_size}
    hub = next((one.hub for one in architectures().values() if asked.items() <= one.values.items()), None)
    return f", such as {hub!r}, whose vocabulary has as many tokens" if hub else ""


def architecture(name: str) -> Checkpoint:
    """Return the checkpoint of a released model, without weights or tokenizer."""
    values = architectures()[name].values
    config, assumed = read_config(values, f"the architecture {name}")
    family = families()[values["model_type"]]
    source = {"kind": "architecture", "name": name, "model_type": family.model_type, "assumed": assumed}
    return Checkpoint(name, config, family.names(config), {}, (), None, source, values.get("initializer_range"))
