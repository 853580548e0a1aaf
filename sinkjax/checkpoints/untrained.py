"""`untrained:SOURCE`: the architecture and tokenizer of a model with random weights, as its pretraining starts.

The control of a study on a trained model: what shows here too is the work of the architecture, not of training.
"""

from __future__ import annotations

import dataclasses
import hashlib

import jax
import numpy as np
from jax.sharding import Mesh

from sinkjax.checkpoints.model import Checkpoint
from sinkjax.model import params

PREFIX = "untrained:"
SEED = 0
INITIALIZER_RANGE = 0.02  # what the key's absence means in transformers, for Llama, Mistral and Qwen2 alike


def untrained(checkpoint: Checkpoint, name: str) -> Checkpoint:
    """The same checkpoint under the name `untrained:SOURCE`, its stored tensors, if any, left out."""
    assumed = dict(checkpoint.source["assumed"])
    if checkpoint.initializer_range is None:
        assumed["initializer_range"] = INITIALIZER_RANGE
    source = {**checkpoint.source, "kind": "untrained", "name": name, "assumed": assumed, "stored": None, "title": None}
    return dataclasses.replace(checkpoint, tensors={}, source=source)


def draw_params(checkpoint: Checkpoint, dtype: str, mesh: Mesh | None = None) -> tuple[params.Params, str]:
    """Random parameters, and the SHA-256 of their bytes in the order of the tree; arguments as for `stream.load_params`.

    Matrices and embeddings: normal with the standard deviation that the model's files state as `initializer_range`, by default
    INITIALIZER_RANGE. Norms: 1. Biases: 0. Each leaf draws from (SEED, its name).
    """
    std = INITIALIZER_RANGE if checkpoint.initializer_range is None else checkpoint.initializer_range
    drawn = params.init(checkpoint.config, SEED, dtype, std)
    sha = hashlib.sha256()
    for leaf in jax.tree.leaves(drawn):
        sha.update(np.ascontiguousarray(leaf).view(np.uint8).data)
    if mesh is not None:
        auto = Mesh(mesh.devices, mesh.axis_names)  # an explicit mesh would want a sharding for every intermediate
        place = jax.tree.map(lambda leaf: params.sharding(leaf, auto), params.abstract(checkpoint.config))
        drawn = jax.device_put(drawn, place)
    return drawn, sha.hexdigest()
