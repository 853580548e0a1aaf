"""Scope: the context that gives a word its value; a word has no value without one. This module imports no JAX."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sinkjax.errors import SinkjaxError, unknown
from sinkjax.studies.words import F, Field, Number, Table, Word, as_tuple

if TYPE_CHECKING:
    import numpy as np


Cell = tuple[int, int | None]  # a layer, and one of its heads or None for all of them


@dataclass(frozen=True)
class Scope:
    """Settings, architecture and known numbers of the unedited model: the context of words.

    Attributes:
        config: The settings of the study.
        architecture: The model's, with the plain fields of its `Config` (`layers`, `heads`, ...).
        known: Numbers and arrays that are measured before the sweeps; of a plan or a report, placeholders.
        bound: The axes of a grid at one condition.
        rng: Random numbers, where controls are drawn.
    """

    config: Any
    architecture: Any
    known: Mapping[str, Any] = field(default_factory=dict)
    bound: Mapping[str, Any] = field(default_factory=dict)
    rng: np.random.Generator | None = None

    @property
    def random(self) -> np.random.Generator:
        """Random numbers, which only controls have."""
        assert self.rng is not None, "random numbers are drawn only for controls"
        return self.rng

    def at(self, bound: Mapping[str, object]) -> Scope:
        """The same scope at one condition of a grid."""
        return dataclasses.replace(self, bound={**self.bound, **bound})

    def get(self, value: object) -> Any:
        """The value of a word or a field, of a tuple each entry's, and anything else as it is.

        Raises:
            SinkjaxError: No setting, known number or axis has the name of a field.
        """
        if isinstance(value, Field):
            if value.name not in self._names:
                raise unknown("field", value.name, list(self._names))
            found = self._names[value.name]
            return found + value.plus if value.plus else found
        if isinstance(value, Word):
            return value.evaluate(self)
        if isinstance(value, Table):
            return {name: self.get(entry) for name, entry in value.items()}
        return tuple(map(self.get, value)) if isinstance(value, tuple) else value

    @property
    def _names(self) -> Mapping[str, Any]:
        return {**vars(self.config), **self.known, **self.bound}

    def knows(self, value: object) -> bool:
        """Whether a field can be read here."""
        return not isinstance(value, Field) or value.name in self._names

    def layers(self, place: object) -> list[int]:
        """The layers of a place, or of the first of several.

        Raises:
            SinkjaxError: The place has none in this model.
        """
        found = self.places(place)
        if not found:
            raise SinkjaxError(f"{place} has no layers in a model of {self.architecture.layers}")
        return sorted({layer for layer, _ in found[0].cells})

    def places(self, place: object) -> list[Placed]:
        """Every set of cells of a place, or of each of several."""
        return [found for one in as_tuple(place) for found in self.get(one)]


@dataclass(frozen=True)
class Placed:
    """One set of layers or heads.

    Attributes:
        place: The word for this set only.
        label: Label as text.
        cells: Its layers, each with one head or None for all heads.
        x: Its place along a figure's axis, or None.
    """

    place: Word
    label: str
    cells: tuple[Cell, ...]
    x: int | None = None


class Place(Word, noun="place", supplied=1):
    """A set of layers or heads, or a series of such sets; `each | prefixes` is both."""

    def __or__(self, other: Place | tuple[Place, ...]) -> tuple[Place, ...]:
        return (self, *as_tuple(other))

    def __ror__(self, other: tuple[Place, ...]) -> tuple[Place, ...]:
        return (*other, self)


if TYPE_CHECKING:
    Layers = Any
else:
    Layers = Place  # a measure's argument: written as a place, received as the numbers of its layers


class EditWord(Word, noun="edit", supplied=1):
    """An edit whose arguments may be fields."""


class Known(Word, noun="known number", supplied=2):
    """A number or an array of the unedited model, measured before the sweeps."""


class Measure(Word, noun="measure", supplied=1):
    """A number for each condition and document, made from the statistics of a sweep."""


percentage = functools.partial(Measure.define, unit="percentage points", range=(0.0, 100.0))  # a measure in per cent


class Contrast(Word, noun="contrast", supplied=1):
    """The contrast of a claim: numbers per document that the paper says are above 0."""


class FigureWord(Word, noun="figure", supplied=1):
    """A figure of a study's page."""


@Number.define()
def half_depth(scope: Scope) -> int:
    """The layer at half depth, as layer 14 of Llama-3.2-3B's 28, counted from 1 (Kiya et al. 2026, Figs. 4, 5 and 8)."""
    return max(scope.architecture.layers // 2 - 1, 0)


HALF_DEPTH = half_depth()


@Number.define()
def last_layer(scope: Scope, but: int = 0) -> int:
    """The last layer, or the one so many layers before it."""
    return max(int(scope.architecture.layers) - 1 - but, 0)


@Number.define()
def first_half(scope: Scope) -> tuple[int, ...]:
    """The positions that at least half of the queries see."""
    return tuple(range(scope.config.length // 2 + 1))


@Number.define()
def percent(scope: Scope, share: object) -> float:
    """A share in per cent."""
    return float(100 * scope.get(share))


@Number.define()
def random_position(scope: Scope, but: object = (), below: object = F.length, least: object = 0) -> int:
    """A random position that some later one sees.

    Args:
        scope: A scope with random numbers.
        but: Positions that are left out, one or several.
        below: The first position after the range; later ones are left out too.
        least: The first position that can be drawn.

    Raises:
        SinkjaxError: No position is left.
    """
    excluded = as_tuple(scope.get(but))
    last = min(scope.get(below), scope.config.length - 1)
    left = [position for position in range(scope.get(least), last) if position not in excluded]
    if not left:
        raise SinkjaxError(f"no position below {last} is left for a control, as {excluded} are left out")
    return int(scope.random.choice(left))


@Number.define()
def random_positions(scope: Scope, count: object, least: object = 0, below: object = F.length) -> tuple[int, ...]:
    """Different random positions, in ascending order.

    Args:
        scope: A scope with random numbers.
        count: How many.
        least: The first position that can be drawn.
        below: The first position after the range; later ones are left out.

    Raises:
        SinkjaxError: There are not as many.
    """
    number, first, last = scope.get(count), scope.get(least), scope.get(below)
    if last - first < number:
        raise SinkjaxError(f"positions {first} to {last - 1} are fewer than the {number} that a control draws")
    return tuple(sorted((first + scope.random.choice(last - first, number, replace=False)).tolist()))
