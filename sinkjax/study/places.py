"""Places: sets of layers or heads in which an edit acts, with the labels and the order that figures use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

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


def each(layers: int) -> list[Place]:
    """Return every layer of a model on its own."""
    return [layer(number) for number in range(layers)]


def prefixes(layers: int, ends: Iterable[int] | None = None) -> list[Place]:
    """Return layers 0 to l for each l of `ends` that is not the last layer; by default from 1 on."""
    chosen = range(1, layers - 1) if ends is None else [end for end in ends if end < layers - 1]
    return [Place(one.label, one.layers, series=FIRST_LAYERS, x=one.x, grouped=True) for one in map(upto, chosen)]
