"""Sets of layers or heads in which an edit acts, with the labels and the order that figures use."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

ONE_LAYER, FIRST_LAYERS, SEVERAL = "one layer", "layers 0 to l", "several layers"
Head = tuple[int, int]  # layer, head


@dataclass(frozen=True)
class Layers:
    """Layers or heads, identified by their label; in a sweep with further axes, with a value on each.

    Attributes:
        label: Label as text, unique in a model.
        layers: The layers; None for all.
        heads: Heads in these layers, (layer, head); None for all of them.
        series: The series of conditions to which it belongs; "": the label.
        x: Position along the axis of a figure, or None.
        grouped: Whether it shares a series with similar ones in a sweep with further axes.
        axes: Value on each further axis of a sweep, (name, value).
    """

    label: str
    layers: tuple[int, ...] | None = field(default=None, compare=False)
    heads: tuple[Head, ...] | None = field(default=None, compare=False)
    series: str = field(default="", compare=False)
    x: Any = field(default=None, compare=False)
    grouped: bool = field(default=False, compare=False)
    axes: tuple[tuple[str, Any], ...] = ()

    def at(self, **axes: object) -> Layers:
        """Return these layers with a value on each further axis, such as `ALL.at(position=8)`."""
        series = SEVERAL if self.grouped and axes else self.series
        return dataclasses.replace(self, axes=tuple(axes.items()), x=[self.x, *axes.values()][-1], series=series)

    def __getitem__(self, axis: str) -> Any:
        """Return the value on an axis."""
        return dict(self.axes)[axis]

    @property
    def index(self) -> Any:
        """The index of these layers along a layer axis."""
        return slice(None) if self.layers is None else [*self.layers]

    @property
    def suffix(self) -> str:
        """The end of a measure's name: " in layer 3", "" for all layers."""
        return "" if self.label == ALL.label else f" in {self.label}"


ALL = Layers("all layers")


def layer(number: int, name: str = "") -> Layers:
    """Return one layer. name: a label in place of its number, such as "the layer in which it forms"."""
    return Layers(name or f"layer {number}", (number,), series="" if name else ONE_LAYER, x=number)


def upto(last: int, name: str = "") -> Layers:
    """Return layers 0 to `last`, inclusive. name: a label in place of the number, such as "the one in which it forms"."""
    label = f"layers 0 to {name}" if name else "layer 0" if last == 0 else f"layers 0 to {last}"
    return Layers(label, tuple(range(last + 1)), x=None if name else last)


def each(layers: int) -> list[Layers]:
    """Return each layer of a model as a separate entry."""
    return [layer(number) for number in range(layers)]


def prefixes(layers: int, ends: Iterable[int] | None = None) -> list[Layers]:
    """Return layers 0 to l for each l of `ends` that is not the last layer; by default from 1."""
    chosen = range(1, layers - 1) if ends is None else [end for end in ends if end < layers - 1]
    return [dataclasses.replace(upto(end), series=FIRST_LAYERS, grouped=True) for end in chosen]
