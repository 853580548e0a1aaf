"""Figures of planted stores: what they draw, before it is drawn."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from sinkjax import mask_key
from sinkjax.report.figures import dots as marks
from sinkjax.report.figures import heatmaps
from sinkjax.report.figures import lines as picture
from sinkjax.report.section import Drawing
from sinkjax.study import (
    ALL,
    Controlled,
    Lab,
    Layers,
    attention_to,
    dots,
    each,
    lines,
    lines_along,
    loss,
    prefixes,
)
from sinkjax.study.lab import Study
from sinkjax.study.prose import Prose
from sinkjax.study.work import Condition
from tests.study.planted import axes, planted
from tests.study.stores import Values

N = 8
LOSS, SEEN = loss(), attention_to(0, 0)


@dataclass
class Drawn:
    """What the functions that draw were given."""

    given: list[Any] = field(default_factory=list)
    rest: list[Any] = field(default_factory=list)

    def __call__(self, found: Any, *rest: Any, **options: Any) -> None:
        self.given.append(found)
        self.rest.append(rest)


@pytest.fixture
def drawn(monkeypatch) -> Drawn:
    found = Drawn()
    for module, name in ((picture, "lines"), (heatmaps, "grids"), (marks, "points")):
        monkeypatch.setattr(module, name, found)
    return found


def draw(figure: Callable[[Lab, Any], None], numbers: Callable[[str, Condition], Values], L: int, way: Any = (1, 2)) -> Drawing:
    """The figure of a study of two sweeps: key 0 masked in all places, and in several ways."""

    def study(lab: Lab, s: Any) -> None:
        def another_key(rng: np.random.Generator, case: Layers) -> Any:
            return mask_key(lab.random_position(rng, but=(0,)))

        places = (*each(L), *prefixes(L), ALL)
        lab.sweep("masks", {place: mask_key(0, layers=place.layers) for place in places})
        lab.sweep("ways", {ALL.at(way=one): mask_key(0) for one in way}, control=another_key, title="keys hidden")
        figure(lab, lab.sweeps)

    mine = Study("own/drawn", study, Controlled, Prose(), False, "")
    about = {"text": "of one book", "bos": "none"}
    settings = {"prompts": N, "control_prompts": N, "controls": 3, "length": 12}
    lab, read = planted(mine, numbers, layers=L, heads=2, about=about, **settings)
    for one in read.stores.values():
        one.attrs["sweep"] |= {"model": {"name": "m"}, "dtype": "float32"}
    made: Any = lab.figures[0](read)
    return made


def by_row(L: int) -> Callable[[str, Condition], Values]:
    """A number of its own for each set of layers: the sum of 2^l over its layers; 0 without an edit."""

    def numbers(store: str, point: Condition) -> Values:
        chosen = [] if point.case is None else point.case.layers or range(L)
        total = sum(2**one for one in chosen)
        return {("seen", 0): total, ("loss",): total}

    return numbers


@pytest.mark.parametrize("effect", [False, True])
def test_lines_of_layers_end_at_all_layers_and_begin_with_the_first(drawn, effect):
    made = draw(lambda lab, s: lab.draw(lines, LOSS, over=s["masks"], effect=effect), by_row(4), 4)
    ((one, first),) = drawn.given[0]
    assert [panel.title for panel in (one, first)] == ["one layer", "layers 0 to l"]
    for panel, values in ((one, [1, 2, 4, 8]), (first, [1, 3, 7, 15])):
        (line,) = panel.lines
        assert list(line.x) == [0, 1, 2, 3]
        assert [value.mean for value in line.values] == values
        assert line.reference == (None if effect else 0)
        assert " ".join(panel.ylabel.split()) == ("effect on " if effect else "") + "loss (nats per token)"
    assert re.match(rf"Loss \(nats per token\), .*layers\. .*no edit\. .*95% intervals over {N} documents\.$", made.caption)


@pytest.mark.parametrize(("way", "order"), [(("self", "even", "all"), ["self", "even", "all"]), ((8, 1, 4), [1, 4, 8])])
def test_names_keep_their_order_along_an_axis_and_numbers_are_sorted(drawn, way, order):
    def numbers(store: str, point: Condition) -> Values:
        return {("loss",): 1 + way.index(axes(point)["way"]) if axes(point) else 0}

    made = draw(lambda lab, s: lab.draw(lines_along, "way", LOSS, over=s["ways"]), numbers, 4, way)
    (((panel,),),) = drawn.given
    (line,) = panel.lines
    assert line.x == order
    assert [interval.mean for interval in line.values] == [1 + way.index(one) for one in order]
    assert line.reference == 0
    assert re.match(r"Keys hidden: loss \(nats per token\), .*way\. ", made.caption)


def test_each_control_is_a_mark_of_its_own(drawn):
    def numbers(store: str, point: Condition) -> Values:
        return {("loss",): 10 + point.draw if point.draw >= 0 else axes(point).get("way", 0)}

    made = draw(lambda lab, s: lab.draw(dots, LOSS, over=s["ways"]), numbers, 4)
    found = [(one.name, one.value.mean) for one in drawn.given[0]["loss (nats per token)"]]
    random = [(label, 10.0 + number) for label in ("way 1", "way 2") for number in range(3)]
    assert found == [("no edit", 0.0), ("way 1", 1.0), ("way 2", 2.0), *random]
    assert "random controls" in made.caption
