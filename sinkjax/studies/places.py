"""Places: words for sets of layers and heads, and for series of such sets. This module does not import JAX."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sinkjax.errors import SinkjaxError
from sinkjax.studies.scope import Cell, Place, Placed, Scope
from sinkjax.studies.words import Field, as_tuple


def _whole(layers: range) -> tuple[Cell, ...]:
    return tuple((number, None) for number in layers)


def _first(last: int) -> str:
    return "layer 0" if last == 0 else f"layers 0 to {last}"


def _known(scope: Scope, number: object) -> str:
    """Return the name of a known number; "" for any other number."""
    return number.name if isinstance(number, Field) and number.name in scope.known else ""


@Place.define()
def layer(scope: Scope, number: object) -> list[Placed]:
    """One layer, or each of several."""
    found = scope.get(number)
    if not isinstance(found, tuple):
        known = _known(scope, number)
        name = f"the layer in which it {known}" if known else f"layer {found}"
        return [Placed(layer(number), name, _whole(range(found, found + 1)), found)]
    return [Placed(layer(one), f"layer {one}", ((one, None),), one) for one in found if one < scope.architecture.layers]


@Place.define()
def upto(scope: Scope, last: object) -> list[Placed]:
    """Layers 0 to `last`, inclusive; for several numbers, one set for each that is not the last layer."""
    found, L = scope.get(last), scope.architecture.layers
    if isinstance(found, tuple):
        return [Placed(upto(end), _first(end), _whole(range(end + 1)), end) for end in found if end < L - 1]
    name = f"layers 0 to the one in which it {known}" if (known := _known(scope, last)) else _first(found)
    return [Placed(upto(last), name, _whole(range(found + 1)), None if isinstance(last, Field) else found)]


@Place.define()
def between(scope: Scope, first: object, last: object) -> list[Placed]:
    """Layers `first` to `last`, inclusive."""
    start, end = scope.get(first), scope.get(last)
    known = _known(scope, first)
    name = f"the layers from the one in which it {known}" if known else f"layers {start} to {end}"
    return [Placed(between(first, last), name, _whole(range(start, end + 1)), end)]


@Place.define()
def after(scope: Scope, number: object) -> list[Placed]:
    """The layers after one; the last layer if there are none."""
    L, first = scope.architecture.layers, scope.get(number) + 1
    known = _known(scope, number)
    name = f"layers after the one in which it {known}" if known else f"layers from {first} on"
    return [Placed(after(number), name, _whole(range(min(first, L - 1), L)), None if known else first)]


@Place.define("each")
def each_(scope: Scope) -> list[Placed]:
    """Every layer on its own."""
    return [found for number in range(scope.architecture.layers) for found in scope.get(layer(number))]


@Place.define("prefixes")
def prefixes_(scope: Scope) -> list[Placed]:
    """Layers 0 to 1, 0 to 2, and so on, but not all of them."""
    return [found for last in range(1, scope.architecture.layers - 1) for found in scope.get(upto(last))]


@Place.define("all")
def all_(scope: Scope) -> list[Placed]:
    """All layers."""
    L = scope.architecture.layers
    return [Placed(ALL, "all layers", _whole(range(L)), L - 1)]


each, prefixes, ALL = each_(), prefixes_(), all_()


def _sizes(scope: Scope, shares: object) -> dict[int, float]:
    """Return head set sizes for shares (whole layers, neither none nor all), and the first share that gives each size."""
    L, H = scope.architecture.layers, scope.architecture.heads
    found: dict[int, float] = {}
    for share in as_tuple(scope.get(shares)):
        if not 0 < share < 1:
            raise SinkjaxError(f"a share of heads must lie between 0 and 1, not {share:g}")
        found.setdefault(H * min(max(round(share * L), 1), max(L - 1, 1)), share)
    return dict(sorted(found.items()))


@Place.define()
def top(scope: Scope, scores: Field, share: object) -> list[Placed]:
    """The heads with the largest scores.

    Args:
        scope: The study's scope.
        scores: A known array, float[layer * head].
        share: One or several shares of all heads, rounded to whole layers.
    """
    order, H = np.argsort(-np.asarray(scope.get(scores)), kind="stable"), scope.architecture.heads
    return [
        Placed(top(scores, part), f"the {size} heads with the largest {scores.name}", _heads(order[:size], H), size)
        for size, part in _sizes(scope, share).items()
    ]


@Place.define()
def first_heads(scope: Scope, share: object) -> list[Placed]:
    """The heads of the first layers, as many as in `top`."""
    H = scope.architecture.heads
    return [
        Placed(first_heads(part), f"the {size} heads of {_first(size // H - 1)}", _heads(np.arange(size), H), size)
        for size, part in _sizes(scope, share).items()
    ]


def _heads(numbers: NDArray, heads: int) -> tuple[Cell, ...]:
    """Convert head numbers, layer * H + head, to cells."""
    return tuple((int(number) // heads, int(number) % heads) for number in numbers)
