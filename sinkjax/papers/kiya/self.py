"""kiya/self: the query at one position attends only to itself, in some layers (Figs. 5 and 9).

Controls cut as many links at random in the same layers. Whether the query must see itself is asked by one random other key in
its place. The first token stays a sink of equal strength, so the same edit is also read with key 0 hidden from the queries behind
the position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from sinkjax import Edit, attend_self, compose, edit
from sinkjax.config_files.checks import among, positions
from sinkjax.papers._shared import cut_links, hide_behind, see_only
from sinkjax.report.figures.dots import Cloud, scatter
from sinkjax.report.section import Drawing
from sinkjax.study import *
from sinkjax.study import (
    attention_to_first_behind,
    heatmap,
    later_attention_to,
    later_sink_rate,
    series_of,
    strongest_later_attention,
)


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Sinks, Mapped):
    prompts: int = 16
    positions: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 30, 36, 42, 48)
    """where the query is"""
    ends: tuple[int, ...] = (1, 2, 5, 9, 11, 14)
    """last layers of the sets of first layers that are edited together"""
    shown: int = 8
    """the position whose maps are drawn"""

    def check(self) -> None:
        positions(self, "positions")
        among(self, "shown", "positions")


def study(lab: Lab, s: Settings) -> None:
    """A token that sees only itself."""
    half = layer(lab.half)
    sink, sink_0 = own("position", partial(later_sink_rate, eps=s.eps)), later_sink_rate(0, s.eps)
    seen, seen_0 = own("position", partial(later_attention_to, layer=lab.half)), later_attention_to(0, lab.half)
    behind = own("position", partial(attention_to_first_behind, layer=lab.half))
    size = own("position", largest_activation)
    large, large_0 = own("position", partial(largest_activation, layers=half)), largest_activation(0, half)
    columns = (sink, size, sink_0, seen, behind)

    forms = upto(lab.onset("forms", lambda layers: largest_activation(0, layers)), "the one in which it forms")
    places = [*each(lab.layers), *prefixes(lab.layers, s.ends), forms, ALL]

    def other_links(rng: np.random.Generator, case: Layers) -> Edit:
        return cut_links(rng, case["position"], s.length, layers=case.layers)

    def isolated(place: Layers) -> dict[Layers, Edit]:
        return {place.at(position=p): attend_self(p, layers=place.layers) for p in s.positions}

    alone = lab.sweep("alone", {case: edit for place in places for case, edit in isolated(place).items()}, columns, other_links)
    rng = lab.rng("see_only(F.position, key=random_position(below=F.position))")
    other_key = {ALL.at(position=p): see_only(p, lab.random_position(rng, below=p)) for p in s.positions}
    other = lab.sweep("other", other_key, columns, title="one other key")
    hidden = {case: compose(edit, hide_behind(0, case["position"])) for case, edit in (isolated(forms) | isolated(ALL)).items()}
    without_0 = lab.sweep("without-0", hidden, columns, title="key 0 hidden behind it")
    only_hidden = {ALL.at(position=p): hide_behind(0, p) for p in s.positions}
    free = lab.sweep("free", only_hidden, columns, title="not isolated, key 0 hidden behind it")
    lab.noop(edit("logits", "add", 0.0, queries=s.shown, relation="others"))

    everywhere, early = alone[ALL], alone[forms]
    sinks, massive = is_sink(seen_0, alone, strongest_later_attention(0, lab.half)), reaches(large_0, alone, MASSIVE_SIZE)
    ours, beside = "ours, on Kiya et al. 2026, Fig. 9, conclusion", [effect(sink, everywhere, sink_0)]
    lab.claim("sink", "Kiya et al. 2026, Fig. 5", moved(behind, seen, everywhere), sinks, beside, split=1 / 2, took=ISOLATED)
    unsplit = difference(seen, without_0[ALL], free.every, behind)
    lab.claim("sink-alone", "ours, on Kiya et al. 2026, Fig. 5", unsplit, sinks, took=ISOLATED)
    lab.claim("activation", "Kiya et al. 2026, Fig. 5", moved(large_0, large, everywhere), massive, took=ISOLATED)
    less, beside_0 = effect(behind, everywhere), [effect(sink_0, everywhere)]
    lab.claim("leaves", "Kiya et al. 2026, Fig. 5", less, sinks, beside_0, sign=-1, split=1 / 2, took=ISOLATED)
    both, beside = all_of(sinks, massive), [effect(sink, early, sink_0)]
    lab.claim("early", ours, moved(behind, seen, early), both, beside, split=1 / 2, took=ISOLATED)
    lab.claim("early-alone", ours, difference(seen, without_0[forms], free.every, behind), both, took=ISOLATED)
    against_other = difference(seen, everywhere, other.every, behind)
    lab.claim("other", "ours, on Kiya et al. 2026, property 3", against_other, sinks, took=ISOLATED)

    def in_layer(measure: Callable[..., Measure]) -> Callable[[Layers], Measure]:
        return lambda layers: own("position", partial(measure, layers=layers))

    rows = in_layer(partial(later_sink_rate, eps=s.eps)), in_layer(largest_activation)
    lab.draw(by_layer, *rows, conditions=[alone[layer(0)], early, everywhere])
    lab.maps(alone[forms.at(position=s.shown)], alone[ALL.at(position=s.shown)])
    lab.draw(heatmap, sink, size, over=alone, axis="position")
    lab.draw(against, sink, size, over=alone)


def against(read: Numbers, x: Measure, y: Measure, over: Sweep) -> Drawing:
    """Draw one measure against another, with a dot for the mean of each condition of a sweep."""
    clouds = []
    for title, chosen in series_of(read.conditions(over.name)).items():
        across, up = (np.array([read.value(measure, over, point.case).mean() for point in chosen]) for measure in (x, y))
        clouds.append(Cloud(title, across, up))
    figure = scatter({"": clouds}, x.name, y.name, log="y" if y.log else False)
    caption = f"Each condition: {x.name} against {y.name}, means over prompts."
    return read.drawing(f"{over.name}-scatter", figure, caption, over.name, bands=False)
