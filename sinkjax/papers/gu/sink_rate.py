"""gu/sink-rate: how many heads sink on the first key of natural text, of random tokens and of one token repeated (Table 1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sinkjax.papers.gu.norms import largest_norm_ratio
from sinkjax.report.figures.lines import Line, Panel
from sinkjax.report.figures.lines import lines as line_figure
from sinkjax.report.section import Drawing
from sinkjax.study import *
from sinkjax.study import positions_are, strongest_other_sink, without_bos, wrapped


@dataclass(frozen=True, kw_only=True)
class Settings(Judged, Sinks, Mapped):
    prompts: int = 84


def study(lab: Lab, s: Settings) -> None:
    """The sink rate on text, random tokens and one token repeated."""
    sink, other = sink_rate(0, s.eps), strongest_other_sink(0, s.eps)
    lower, upper = (dataclasses.replace(sink_rate(0, eps), name=f"{sink.name}, eps {eps:g}") for eps in (0.2, 0.8))
    columns = (sink, lower, upper, other, largest_norm_ratio())
    text = lab.sweep("text", measures=columns, title="natural text")
    random = lab.sweep("random", measures=columns, inputs="random", title="random tokens")
    repeat = lab.sweep("repeat", measures=columns, inputs="repeat", title="one token repeated")

    source = "Gu et al. 2025, Table 1"
    keeps, loses = positions_are("added"), positions_are("rotary", "scores", "none")
    lab.claim("text", source, unedited(sink, text, other))
    lab.claim("random", source, unedited(sink, random, other), without_bos(random))
    lab.claim("repeat-keeps", source, unedited(sink, repeat, other), all_of(keeps, without_bos(repeat)))
    lab.claim(
        "repeat-loses",
        f"{source}, Propositions 1 to 4",
        difference(sink, text.every, repeat.every),
        all_of(loses, without_bos(repeat)),
        beside=[unedited(sink, repeat), unedited(other, repeat)],
    )

    kinds = [text.every, random.every, repeat.every]
    lab.maps(*kinds)
    lab.draw(by_layer, partial(sink_rate, 0, s.eps), conditions=kinds, unedited=False)
    by_key = {key: sink_rate(key, s.eps) for key in range(s.length // 2 + 1)}
    by_eps = {eps: sink_rate(0, eps) for eps in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)}
    lab.draw(along, "key", "heads that sink on the key (%)", by_key, kinds)
    lab.draw(along, "eps", sink.name, by_eps, kinds)


def along(read: Numbers, axis: str, name: str, measures: Mapping[Any, Measure], conditions: Sequence[Selection]) -> Drawing:
    """Draw measures against a number that they are made with, such as a key or a threshold: a line for each choice of conditions.

    Args:
        read: The stores.
        axis: Name of the number.
        name: Name of the measures, for the y axis.
        measures: Number -> measure.
        conditions: One line each.
    """
    found = []
    for one in conditions:
        means = [np.mean([read.value(part, one.sweep, case) for case in one.cases], axis=0) for part in measures.values()]
        found.append(Line(one.text, list(measures), [*read.intervals(one.sweep, np.stack(means))]))
    figure = line_figure([[Panel("", wrapped(name), found)]], axis, "above")
    stores = [read.store(one.sweep) for one in conditions]
    caption = f"{name[0].upper()}{name[1:]}, against {axis}."
    return read.drawing(f"{conditions[0].sweep.name}-along-{axis}", figure, caption, *stores)
