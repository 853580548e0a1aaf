"""Released models by a short name: their architecture ships with the package, their weights are on the hub.

So a study of a model of several gigabytes can be planned, and its random twin run, before anything is downloaded. They stand
in the families' `published`.
"""

from __future__ import annotations

import functools

from sinkjax.checkpoints.family import Published, families
from sinkjax.checkpoints.hf_config import read_config
from sinkjax.checkpoints.model import Checkpoint


@functools.cache
def architectures() -> dict[str, Published]:
    """Short name -> released model, its values with the model type."""
    return {
        name: Published(entry.hub, {"model_type": family.model_type, **entry.values})
        for family in families().values()
        for name, entry in sorted(family.published.items())
    }


def architecture(name: str) -> Checkpoint:
    """The checkpoint of a released model without weights or tokenizer."""
    values = architectures()[name].values
    config, assumed = read_config(values, f"the architecture {name}")
    family = families()[values["model_type"]]
    source = {"kind": "architecture", "name": name, "model_type": family.model_type, "assumed": assumed}
    return Checkpoint(name, config, family.names(config), {}, (), None, source, values.get("initializer_range"))
