"""Positions exchanged between tokens: learned vectors as in Table 7, or rotary indices, as words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis.estimates import Absent
from sinkjax.errors import SinkjaxError
from sinkjax.studies.known import Unedited
from sinkjax.studies.premises import kind_of_positions
from sinkjax.studies.vocabulary import EditWord, Identity, Known, Readings

if TYPE_CHECKING:
    from sinkjax.studies.scope import Scope


def _blank(scope: Scope, prompts: int) -> NDArray[np.float32]:
    shape = (scope.config.length, scope.architecture.width) if kind_of_positions(scope.architecture) == "added" else (0, 0)
    return np.zeros(shape, np.float32)


@Known.define(blank=_blank)
def position_vectors(scope: Scope, run: Unedited) -> NDArray[np.float32]:
    """The vectors that a model adds to the embedding: float[position, width]; empty if it adds none."""
    from sinkjax.model.positions import AddedPosition  # deferred because it imports JAX

    blank = _blank(scope, 1)
    if not blank.size:
        return blank
    model, _ = run.loaded
    assert isinstance(model.config.position, AddedPosition)
    return np.asarray(model.config.position.vectors(len(blank), blank.shape[1], model.params), np.float32)


@EditWord.define()
def take_position(scope: Scope, i: object, j: object, vectors: object) -> sinkjax.Edit:
    """Give the token at position i the position of the one at j; the causal mask does not change.

    Args:
        scope: The study's scope.
        i: The position of the token.
        j: The position that it gets.
        vectors: `position_vectors` of the model.
    """
    return _moved(scope, {scope.get(i): scope.get(j)}, scope.get(vectors))


@EditWord.define()
def swap_positions(scope: Scope, i: object, j: object, vectors: object) -> sinkjax.Edit:
    """Exchange the positions of two tokens; the arguments are as in `take_position`."""
    one, other = scope.get(i), scope.get(j)
    return _moved(scope, {one: other, other: one}, scope.get(vectors))


def _moved(scope: Scope, changed: dict[int, int], vectors: NDArray) -> sinkjax.Edit:
    """Move tokens to other positions. changed: token -> position."""
    kind = kind_of_positions(scope.architecture)
    if kind == "rotary":
        indices = np.arange(scope.config.length)
        indices[list(changed)] = list(changed.values())
        return sinkjax.set_positions(query=indices, key=indices)
    if kind != "added":
        raise SinkjaxError(f"positions are {kind}, and only rotary ones or vectors added to the embedding can be exchanged")
    return sinkjax.compose(*(sinkjax.edit("embed", "add", vectors[j] - vectors[i], queries=i) for i, j in changed.items()))


@Identity.define()
def alike(read: Readings, grid: str, within: float) -> tuple[bool, str]:
    """If one token is repeated, the largest |h| is the same at all positions and under every exchange of rotary indices.

    Args:
        read: The stores.
        grid: The name of the grid.
        within: The largest relative difference that rounding explains.

    Raises:
        Absent: Positions are not rotary, or a BOS makes the first token another one.
    """
    data, kind = read.results[read.store(grid)], kind_of_positions(read.scope.architecture)
    if kind != "rotary" or data.attrs["study"]["bos"] != "none":
        raise Absent(f"positions are {kind} and bos is {data.attrs['study']['bos']}, and must be rotary and none")
    largest = data["resid_max"].max("depth").values  # edit, prompt, position
    apart = float((largest.max(axis=(0, 2)) / largest.min(axis=(0, 2)) - 1).max())
    return apart <= within, f"largest relative difference of the largest |h| between positions and exchanges: {apart:.2g}"
