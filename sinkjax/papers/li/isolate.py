"""li/isolate: a token that attends only to itself becomes a sink (Li et al. 2026, intervention 1).

Two further edits cut the token off from its context: it sees only one other key, or attends to all keys evenly, which averages
most. The first token stays a sink of equal strength, so the paper's edit is also read with key 0 hidden from later queries.
Controls cut as many links at random in the same layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sinkjax import Edit, attend_self, compose, edit
from sinkjax.config_files.checks import MIN_QUERIES
from sinkjax.papers._shared import after, cut_links, hide_behind, mean_weight, see_only
from sinkjax.study import *
from sinkjax.study import MEAN_ATTENTION, attention_to_first_behind


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Sinks, Mapped):
    prompts: int = 16
    position: int = 10
    """the token whose attention is edited, as in the paper"""
    keys: tuple[int, ...] = (0, 5, 9)
    """earlier keys; the token sees one of them at a time"""
    even_at: tuple[int, ...] = (4, 8, 10, 16, 20, 24, 32, 42)
    """tokens whose isolation is compared with even attention, of those that enough queries see"""
    ends: tuple[int, ...] = (1, 2, 3, 5, 7, 11, 15, 23)
    """last layers of the sets of first layers that are edited together"""


def study(lab: Lab, s: Settings) -> None:
    """A token that attends only to itself."""
    lab.needs("softmax", "causal mask")
    token = s.position
    score, sink, size = later_sink_score(token), sink_rate(token, s.eps), largest_activation(token)
    score_0, sink_0, size_0 = attention_to_first_behind(token), sink_rate(0, s.eps), largest_activation(0)
    columns = (sink, sink_0, size, size_0, score, score_0)

    last, name = lab.onset("forms", lambda layers: largest_activation(0, layers)), "the one in which it forms"
    forms, later = upto(last, name), after(last, lab.layers, name)
    sets = [*prefixes(lab.layers, s.ends), forms, later, ALL]

    def other_links(rng: np.random.Generator, case: Layers) -> Edit:
        return cut_links(rng, token, s.length, layers=case.layers)

    edits = {place: attend_self(token, layers=place.layers) for place in [*each(lab.layers), *sets]}
    alone = lab.sweep("alone", edits, columns, other_links)
    seen = {place.at(seen=key): see_only(token, key, place.layers) for place in (forms, later, ALL) for key in s.keys}
    other = lab.sweep("other", seen, columns, title="only one other key")
    even = lab.sweep("even", {place: even_attention(token, place.layers) for place in sets}, columns, title="even attention")
    seen_at = [p for p in s.even_at if p + MIN_QUERIES <= s.length]
    by_way = {"isolated": attend_self, "even": even_attention}
    at = {ALL.at(way=way, position=p): make(p) for way, make in by_way.items() for p in seen_at}
    here, first = own("position", later_sink_score), own("position", attention_to_first_behind)
    along = lab.sweep("along", at, [here, first], title="by position")
    away = hide_behind(0, token)
    hidden = {ALL.at(isolated="yes"): compose(attend_self(token), away), ALL.at(isolated="no"): away}
    without_0 = lab.sweep("without-0", hidden, columns, title="key 0 hidden behind it")
    lab.noop(edit("logits", "add", 0.0, queries=token))

    def early_and_later(sweep: Sweep) -> list[Contrast]:
        """The share of key 0's attention that the token gets if the edit acts early, or later."""
        return [moved(score_0, score, sweep[place]) for place in (forms, later)]

    source, everywhere = "Li et al. 2026, intervention 1", alone[ALL]
    beside = [effect(sink, everywhere, sink_0), effect(size, everywhere), *early_and_later(alone)]
    sinks = is_sink(attention_to(0, lab.half), alone, strongest_other_attention(0, lab.half))
    lab.claim("sink", source, moved(score_0, score, everywhere), sinks, beside, split=1 / 2, took=ISOLATED)
    unsplit = difference(score, without_0.at(isolated="yes"), without_0.at(isolated="no"), score_0)
    lab.claim("sink-alone", f"ours, on {source}", unsplit, sinks, took=ISOLATED)
    beside = [effect(score, even[ALL]), effect(score, other[ALL]), *early_and_later(even), *early_and_later(other)]
    apart = difference(here, along.at(way="isolated"), along.at(way="even"), first)
    lab.claim("average", f"ours, on {source}", apart, sinks, beside, took=ISOLATED)

    lab.draw(lines_along, "position", here, over=along, by="way")
    for sweep in (alone, even):
        lab.draw(lines, score, sink, size, over=sweep)
    lab.draw(lines_along, "seen", score, sink, size, over=other)
    lab.maps(everywhere, even[ALL])
    lab.draw(activations, alone[forms], everywhere, even[ALL])


def later_sink_score(key: int) -> Measure:
    """Attention to a key in per cent, mean over the queries after it, heads and layers."""

    name = f"attention that key {key} receives from later queries (%)"
    note = "The query at the key itself, whose attention the edit decides, is left out."
    return mean_weight(name, MEAN_ATTENTION, "mean_attention", (key,), note=note, position=key, seen=True)


def even_attention(position: int, layers: Sequence[int] | None = None) -> Edit:
    """Let a query give the same weight to every key that it sees."""
    return edit("logits", "set", 0.0, queries=position, layers=layers)
