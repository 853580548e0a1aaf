"""Places: sets of layers or heads in which an edit acts, with the labels and the order that figures use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkjax.errors import SinkjaxError

ONE_LAYER, FIRST_LAYERS, SEVERAL = "one layer", "layers 0 to l", "several layers"
Head = tuple[int, int]  # layer, head


@dataclass(frozen=True)
class Place:
    """Layers or heads, known by their label.

    Attributes:
        label: Label as text, unique in a model.
        layers: The layers; None for all.
        heads: Heads in these layers, (layer, head); None for all of them.
        series: The series of places that it belongs to; "": the label.
        x: Its position along the axis of a figure; None if it has none.
        grouped: Whether it belongs to several places that share a series where a sweep has further axes.
    """

    label: str
    layers: tuple[int, ...] | None = field(default=None, compare=False)
    heads: tuple[Head, ...] | None = field(default=None, compare=False)
    series: str = field(default="", compare=False)
    x: int | None = field(default=None, compare=False)
    grouped: bool = field(default=False, compare=False)

    def at(self, **axes: object) -> Case:
        """Return this place with a value on each further axis, such as `ALL.at(position=8)`."""
        return Case(self, tuple(axes.items()))


@dataclass(frozen=True)
class Case:
    """What distinguishes one condition of a sweep: its place, and its value on each further axis, (name, value)."""

    place: Place
    axes: tuple[tuple[str, Any], ...] = ()

    def __getitem__(self, axis: str) -> Any:
        """Return its value on an axis."""
        return dict(self.axes)[axis]


ALL = Place("all layers")


def layer(number: int, name: str = "") -> Place:
    """Return one layer. name: a label in place of its number, such as "the layer in which it forms"."""
    return Place(name or f"layer {number}", (number,), series="" if name else ONE_LAYER, x=number)


def upto(last: int, name: str = "") -> Place:
    """Return layers 0 to `last`, inclusive. name: a label in place of the number, such as "the one in which it forms"."""
    label = f"layers 0 to {name}" if name else "layer 0" if last == 0 else f"layers 0 to {last}"
    return Place(label, tuple(range(last + 1)), x=None if name else last)


def after(last: int, layers: int, name: str = "") -> Place:
    """Return the layers after `last` of a model with `layers` layers; the last layer if there are none."""
    first = min(last + 1, layers - 1)
    return Place(
        f"layers after {name}" if name else f"layers from {first} on", tuple(range(first, layers)), x=None if name else first
    )


def each(layers: int) -> list[Place]:
    """Return every layer of a model on its own."""
    return [layer(number) for number in range(layers)]


def prefixes(layers: int, ends: Iterable[int] | None = None) -> list[Place]:
    """Return layers 0 to l for each l of `ends` that is not the last layer; by default from 1 on."""
    chosen = range(1, layers - 1) if ends is None else [end for end in ends if end < layers - 1]
    return [Place(one.label, one.layers, series=FIRST_LAYERS, x=one.x, grouped=True) for one in map(upto, chosen)]


def top_heads(scores: ArrayLike, shares: Sequence[float], what: str) -> list[Place]:
    """Return the heads with the largest scores, for each share of all heads, rounded to whole layers.

    Args:
        scores: float[layer, head].
        shares: Shares of all heads, between 0 and 1.
        what: The name of the scores.
    """
    values = np.asarray(scores)
    order = np.argsort(-values.ravel(), kind="stable")
    return [
        _heads(f"the {size} heads with the largest {what}", order[:size], values.shape[1])
        for size in _sizes(len(values), values.shape[1], shares)
    ]


def first_heads(layers: int, heads: int, shares: Sequence[float]) -> list[Place]:
    """Return the heads of the first layers, as many as in `top_heads`."""
    sizes = _sizes(layers, heads, shares)
    return [_heads(f"the {size} heads of {upto(size // heads - 1).label}", np.arange(size), heads) for size in sizes]


def _heads(label: str, numbers: NDArray[np.intp], heads: int) -> Place:
    """Return a place of heads with numbers layer * H + head."""
    found = tuple((int(number) // heads, int(number) % heads) for number in numbers)
    return Place(label, tuple(sorted({one for one, _ in found})), found, x=len(found))


def _sizes(layers: int, heads: int, shares: Sequence[float]) -> list[int]:
    """Return the number of heads of each share, in whole layers, but neither none nor all of them."""
    for share in shares:
        if not 0 < share < 1:
            raise SinkjaxError(f"a share of heads must lie between 0 and 1, not {share:g}")
    return sorted({heads * min(max(round(share * layers), 1), max(layers - 1, 1)) for share in shares})
