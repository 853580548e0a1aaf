"""Grids of conditions and their controls: words that become sweeps.

grid(mask_key(F.key), layers=each | prefixes | ALL)                       one edit in many places
grid(attend_self(F.position), layers=ALL, over={"position": F.positions})  an axis, named in the edit and in measures
draws(mask_key(random_position(but=F.key)))                                random edits of the same size, in the same places
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import Absent
from sinkjax.config_files import documents
from sinkjax.errors import SinkjaxError
from sinkjax.studies.edits import placed
from sinkjax.studies.places import ALL
from sinkjax.studies.scope import Cell, EditWord, Place, Placed, Scope
from sinkjax.studies.specs import content, without_replacement
from sinkjax.studies.study import CONTROL, NO_EDIT, Condition, Inputs
from sinkjax.studies.words import F, Field, Word, as_tuple, plain, words_in

if TYPE_CHECKING:
    from sinkjax.studies.config import Settings

SERIES = {"each": "one layer", "prefixes": "layers 0 to l", "all": "all layers"}


class Grid(Word, noun="grid", supplied=1):
    """Conditions with labels, places and axes, on one kind of prompt."""


class Draws(Word, noun="controls", supplied=1):
    """Random edits that serve as the controls of a grid."""


class At(Word, noun="choice of conditions", supplied=1):
    """A choice of conditions of a grid."""


Bound = tuple[tuple[str, object], ...]  # name and value of each axis


@dataclass(frozen=True)
class Point(Condition):
    """A condition of a grid, or a control of one.

    Attributes:
        place: Where it acts; None for no edit.
        bound: (axis, value) of each axis.
        draw: Index of a control; -1 for a condition.
        where: Label of the place.
    """

    place: Word | None = None
    bound: Bound = ()
    draw: int = -1
    where: str = ""


@Grid.define()
def grid(
    scope: Scope,
    edit: EditWord | None = None,
    layers: Place = ALL,
    heads: Place | None = None,
    over: Mapping[str, object] | None = None,
    bos: object = F.bos,
    inputs: object = "text",
    prompts: object = F.prompts,
    title: object = "",
) -> list[Point]:
    """A condition without an edit, then an edit in every place and with every value of every axis.

    Args:
        scope: The study's scope.
        edit: The edit, which may name the axes; None for only the unedited model.
        layers: Places in layers.
        heads: Places in heads, instead of places in layers.
        over: Axis -> its values.
        bos: Token before each prompt; "own" for the model's BOS or the token id that the config names.
        inputs: "text", "joined" (documents one after another, for long prompts), "random" (tokens drawn evenly) or "repeat" (one
            token throughout).
        prompts: Number of prompts.
        title: Prefix of its row labels, if several grids have the same conditions.
    """
    axes = over or {}
    values = [as_tuple(scope.get(entry)) for entry in axes.values()]
    found = [Point(sinkjax.compose(label=NO_EDIT), NO_EDIT)]
    if edit is None:
        return found
    scope = dataclasses.replace(scope, rng=intervals.generator(scope.config.seed, repr(edit)))
    seen: dict[str, Hashable] = {}
    origins = [(origin, one) for origin in as_tuple(layers if heads is None else heads) for one in scope.get(origin)]
    for origin, place in origins:
        for combination in itertools.product(*values):
            bound = tuple(zip(axes, combination, strict=True))
            label = _label(place, bound, alone=len(origins) == 1 and place.place == ALL)
            made = placed(scope.at(dict(bound)).get(edit), place.cells, scope.architecture).named(label)
            if label in seen and seen[label] == content(made):  # the same layers can be in two series, such as the first layer
                continue
            seen[label] = content(made)
            x, series = place.x if not bound else bound[-1][1], _series(origin, place, bound)
            found.append(Point(made, series, x, place=place.place, bound=bound, where=place.label))
    return found


def _series(origin: Place, place: Placed, bound: Bound) -> str:
    """Name the series of a condition; `upto` several layers is a series, and `upto` one layer is not."""
    if origin.word == "upto" and place.place != origin and not bound:
        return SERIES["prefixes"]
    return SERIES.get(origin.word, place.label if place.place == origin or not bound else "several layers")


def _label(place: Placed, bound: Bound, alone: bool) -> str:
    axes = ", ".join(f"{name} {_shown(value)}" for name, value in bound)
    return place.label if not axes else axes if alone else f"{axes} in {place.label}"


def _shown(value: object) -> str:
    """Format an axis value; strings that are not words are quoted, because spaces and line breaks are invisible."""
    quoted = isinstance(value, str) and not all(re.fullmatch(r"[\w-]+", part) for part in value.split(" "))
    return f"{value:g}" if isinstance(value, float) else repr(value) if quoted else str(value)


@Draws.define()
def draws(scope: Scope, edit: EditWord, heads: object = "same") -> EditWord:
    """Random edits of the same size as a grid's edits, in the same places.

    Args:
        scope: The study's scope.
        edit: The edit, which contains random numbers.
        heads: "same" for the condition's places, or "random" for as many random heads.
    """
    return edit


@At.define()
def at(
    scope: Scope, grid: str, place: Place | None = None, fixed: Mapping[str, object] | None = None
) -> tuple[str, Place | None, dict[str, object]]:
    """Conditions of a grid: in one place or in all, with some axes fixed and averaged over the others.

    Args:
        scope: The study's scope.
        grid: The name of the grid.
        place: A single place; None for every place.
        fixed: Axis -> its value.
    """
    return grid, place, {name: scope.get(value) for name, value in (fixed or {}).items()}


def inputs_of(grid: Grid, scope: Scope) -> Inputs:
    """Return the inputs of a grid."""
    bos = scope.get(grid.given["bos"])
    return Inputs(scope.get(grid.given["inputs"]), own_bos(scope.config) if bos == "own" else bos)


def own_bos(config: Settings) -> int:
    """Return the BOS token id from the config, else from the model's files, without reading weights.

    Raises:
        Absent: Neither names one.
    """
    from sinkjax.checkpoints.load import open_checkpoint

    if isinstance(config.bos, int):
        return int(config.bos)
    source = (config.tokenizer,) if config.tokenizer else (config.model, config.revision, config.ignore_keys)
    tokenizer = open_checkpoint(*source).tokenizer
    if tokenizer is None or tokenizer.bos is None:
        raise Absent(f"the files of {config.tokenizer or config.model} name no BOS token; give a token id as bos")
    return int(tokenizer.bos)


def matching(points: Sequence[Point], chosen: At, scope: Scope) -> list[int]:
    """Return which conditions of a grid are chosen.

    Args:
        points: The conditions.
        chosen: The choice.
        scope: The study's scope.

    Returns:
        Their indices, excluding the unedited condition unless the grid has nothing else.

    Raises:
        SinkjaxError: The grid has no such condition.
    """
    _, place, fixed = scope.get(chosen)

    def at_place(wanted: Word | None) -> list[int]:
        return [
            row
            for row, point in enumerate(points)
            if point.place is not None and wanted in (None, point.place) and fixed.items() <= dict(point.bound).items()
        ]

    rows = at_place(place) or ([0] if len(points) == 1 and place is None else [])
    if not rows and place is not None:
        rows = at_place(_written_out(place, scope))
    if not rows:
        some = ", ".join(point.label for point in points[:6]) + ", ..." * (len(points) > 6)
        raise SinkjaxError(f"no condition of the grid is {documents.flow(plain(chosen))}; it has {some}")
    return rows


def _written_out(place: Word, scope: Scope) -> Word:
    """Evaluate a place's numbers, such as `layer: 3` for `layer: last_layer`; known numbers, which a plan lacks, stay."""
    if any(isinstance(word, Field) and word.name in scope.known for word in words_in(place)):
        return place
    return place.but(**{name: scope.get(value) for name, value in place.arguments})


def controls(
    drawn: Draws, name: str, points: Sequence[Point], rows: Sequence[int], cells: Mapping[Word, Placed], scope: Scope
) -> Iterator[Point]:
    """Draw controls: no edit, then `config.controls` different random edits per condition, or all that exist.

    Args:
        drawn: The word.
        name: Name of the random stream, which depends only on (seed, name).
        points: The conditions of the grid.
        rows: Indices of the conditions that have controls.
        cells: Place -> its cells.
        scope: The study's scope.

    Yields:
        The controls, each with its condition's place and axes, and its label as budget.
    """
    rng = intervals.generator(scope.config.seed, name)
    template, heads = drawn.given["edit"], drawn.given["heads"]
    L, H = scope.architecture.layers, scope.architecture.heads
    yield Point(sinkjax.compose(label=NO_EDIT), NO_EDIT)
    for row in rows:
        point = points[row]
        assert point.place is not None
        inside = cells[point.place].cells
        here = dataclasses.replace(scope.at(dict(point.bound)), rng=rng)

        def draw(here: Scope = here, inside: tuple[Cell, ...] = inside) -> sinkjax.Edit:
            if heads == "random":
                inside = tuple(sorted(divmod(int(number), H) for number in rng.choice(L * H, len(inside), replace=False)))
            return placed(here.get(template), inside, scope.architecture)

        # Placeholders of known arrays are equal, but the labels that name their draw are not.
        drawn_edits = without_replacement(scope.config.controls, draw, lambda edit: (edit.label, content(edit)))
        for number, edit in enumerate(drawn_edits):
            label = f"control {number} of {point.label}: {edit.label}"
            yield Point(edit.named(label), CONTROL, point.x, point.label, place=point.place, bound=point.bound, draw=number)


def cells_of(grid: Grid, scope: Scope) -> dict[Word, Placed]:
    """Map every single place of a grid to its cells."""
    places = grid.given["layers" if grid.given["heads"] is None else "heads"]
    return {one.place: one for one in scope.places(places)}
