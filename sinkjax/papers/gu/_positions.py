"""Positions exchanged between tokens: learned vectors as in Table 7, or rotary indices."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from sinkjax import Edit, compose, edit, set_positions
from sinkjax.analysis.estimates import Absent
from sinkjax.errors import SinkjaxError
from sinkjax.lab import Lab, Sweep
from sinkjax.lab.baseline import Unedited
from sinkjax.lab.numbers import Deferred, Numbers, Stored
from sinkjax.lab.premises import kind_of_positions
from sinkjax.model.positions import AddedPosition


def no_vectors(lab: Lab) -> NDArray[np.float32]:
    """Placeholders of `position_vectors`."""
    added = kind_of_positions(lab.architecture) == "added"
    return np.zeros((lab.settings.length, lab.architecture.width) if added else (0, 0), np.float32)


def position_vectors(lab: Lab, run: Unedited) -> NDArray[np.float32]:
    """The vectors that a model adds to the embedding: float[position, width]; empty if it adds none."""
    blank = no_vectors(lab)
    if not blank.size:
        return blank
    model, _ = run.loaded
    assert isinstance(model.config.position, AddedPosition)
    return np.asarray(model.config.position.vectors(len(blank), blank.shape[1], model.params), np.float32)


def exchanged(lab: Lab, changed: Mapping[int, int], vectors: NDArray[np.float32]) -> Edit:
    """Give tokens other positions; the causal mask does not change.

    Args:
        lab: The lab.
        changed: Position of a token -> the position that it gets.
        vectors: `position_vectors` of the model.
    """
    kind = kind_of_positions(lab.architecture)
    if kind == "rotary":
        indices = np.arange(lab.settings.length)
        indices[list(changed)] = list(changed.values())
        return set_positions(query=indices, key=indices)
    if kind != "added":
        raise SinkjaxError(f"positions are {kind}, and only rotary ones or vectors added to the embedding can be exchanged")
    return compose(*(edit("embed", "add", vectors[j] - vectors[i], queries=i) for i, j in changed.items()))


def alike(read: Numbers, sweep: Sweep, within: float) -> tuple[bool, str]:
    """If one token is repeated, the largest |h| is the same at all positions and under every exchange of rotary indices.

    Args:
        read: The stores.
        sweep: The sweep.
        within: The largest relative difference that rounding explains.

    Raises:
        Absent: Positions are not rotary, or a BOS makes the first token another one.
    """
    if not isinstance(read, Stored):
        raise Deferred(sweep.name)
    data, kind = read[read.store(sweep)], kind_of_positions(read.architecture)
    if kind != "rotary" or data.attrs["study"]["bos"] != "none":
        raise Absent(f"positions are {kind} and bos is {data.attrs['study']['bos']}, and must be rotary and none")
    largest = data["resid_max"].max("depth").values  # edit, prompt, position
    apart = float((largest.max(axis=(0, 2)) / largest.min(axis=(0, 2)) - 1).max())
    return apart <= within, f"largest relative difference of the largest |h| between positions and exchanges: {apart:.2g}"
