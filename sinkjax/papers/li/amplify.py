"""li/amplify: a token whose head outputs are pushed away from their mean becomes a sink (Li et al. 2026, interventions 2 and 3).

The paper's control scales the outputs about 0, which changes their norm only. Further controls add a change of the same size in a
random direction.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax import Capture, Edit, Site, compose, edit, scale_head_output
from sinkjax.config_files.checks import refuse
from sinkjax.model.config import Config
from sinkjax.papers._shared import mean_weight, recorded
from sinkjax.study import *
from sinkjax.study import RECEIVED, facts_of, heatmap

PROMPTS, EVERYWHERE, NORM = "over prompts", "over prompts and positions", "left out"
CENTRES = {"over positions": "positions", "over dims": "dims", NORM: None}  # from one forward pass; None: no mean
MEANS = (PROMPTS, EVERYWHERE, *CENTRES)
BLOCK = 8  # prompts whose head outputs are in memory at the same time


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Sinks, Mapped):
    prompts: int = 16
    positions: tuple[int, ...] = (4, 10, 16, 24, 36)
    """tokens whose head outputs are amplified, one at a time"""
    token: int = 10
    """the token whose layers are amplified one at a time, as in the paper, and whose maps are drawn"""
    factors: tuple[float, ...] = (2.0, 5.0, 10.0, 20.0, 50.0)
    """factors s of the dose-response"""
    factor: float = 10.0
    """the factor for comparing layers and means"""
    last: int = 2
    """last of the first layers that are amplified together"""
    single: tuple[int, ...] = (0, 1, 2)
    """layers that are amplified one at a time, at every position"""
    ends: tuple[int, ...] = (5, 11)
    """last layers of further sets of first layers that are amplified together"""


def study(lab: Lab, s: Settings) -> None:
    """Head outputs pushed away from their mean."""
    score, sink = own("position", sink_score), own("position", partial(sink_rate, eps=s.eps))
    size, score_0, sink_0 = own("position", largest_activation), sink_score(0), sink_rate(0, s.eps)
    columns = (sink, sink_0, score, size)

    one = lab.architecture
    blank = np.zeros((one.layers, s.length, one.heads, one.head_dim), np.float32)
    sizes = np.ones((one.layers, lab.prompts, s.length, one.heads), np.float32)  # 1, so that no two random directions coincide
    means, distances = lab.donor("outputs", of_outputs, ({PROMPTS: blank, EVERYWHERE: blank}, sizes), of_edited=True)

    def amplified(place: Layers, mean: str, position: int, factor: float = s.factor) -> Edit:
        """Replace a token's head outputs o by mu + factor (o - mu), or by factor o if the mean is left out."""
        scaled = scale_head_output(position, factor, centre=CENTRES.get(mean), layers=place.layers)
        if mean in CENTRES:
            return scaled
        back = (1 - factor) * means[mean][:, None, position]
        return compose(scaled, edit("head_out", "add", back, queries=position, layers=place.layers))

    def random_direction(rng: np.random.Generator, case: Layers) -> Edit:
        """Add a change of the size that `amplified` makes, in a random direction for each layer, prompt and head."""
        size = (case["factor"] - 1) * distances[:, :, case["position"], :, None]
        direction = rng.normal(size=(*size.shape[:-1], one.head_dim))
        change = (size * direction / np.linalg.norm(direction, axis=-1, keepdims=True)).astype(np.float32)
        return edit("head_out", "add", change, queries=case["position"], layers=case.layers, label="random direction")

    first = upto(s.last)
    combinations = itertools.product(MEANS, s.positions, s.factors)
    doses = {first.at(mean=mean, position=p, factor=x): amplified(first, mean, p, x) for mean, p, x in combinations}
    factors = lab.sweep("factors", doses, columns, random_direction)

    def at_factor(*axes: Sequence[Any]) -> dict[Layers, Edit]:
        """The edits with the factor `s.factor`, in all combinations of some places, means and positions."""
        return {place.at(mean=mean, position=p): amplified(place, mean, p) for place, mean, p in itertools.product(*axes)}

    places = [*(layer(number) for number in s.single if number < lab.layers), *prefixes(lab.layers, s.ends), ALL]
    windows = lab.sweep("windows", at_factor(places, MEANS, s.positions), columns, title="windows")
    layers = lab.sweep("layers", at_factor(each(lab.layers), (PROMPTS, NORM), [s.token]), columns, title="one token")
    lab.noop(*(amplified(first, mean, s.token, 1.0).named(f"mean {mean}") for mean in MEANS))

    source, pushed, scaled = "Li et al. 2026, Figs. 5-6", *(factors.at(mean=mean, factor=s.factor) for mean in (PROMPTS, NORM))
    beside = [*(effect(measure, pushed) for measure in (score, sink, size)), unedited(sink_0, factors)]
    lab.claim("sink", source, difference(score, pushed, scaled), attention_unnormed(), beside, took=WRITTEN)
    lab.claim("rises", source, slope(score, factors.at(mean=PROMPTS), "factor"), took=WRITTEN)
    beside = [effect(measure, scaled, controls=False) for measure in (sink, size)]
    no_sink = effect(score, scaled, whole=score_0, controls=False)
    sinks = is_sink(attention_to(0, lab.half), factors, strongest_other_attention(0, lab.half))
    lab.claim("norm", source, no_sink, all_of(attention_unnormed(), sinks), beside, stays=True, took=WRITTEN)

    lab.draw(lines_along, "factor", score, sink, size, over=factors, by="mean", log_x=True)
    for sweep in (windows, layers):
        lab.draw(heatmap, score, sink, size, over=sweep, axis="mean")
    lab.maps(*(factors.at(mean=mean, factor=s.factor, position=s.token) for mean in (PROMPTS, NORM)))


def sink_score(key: int) -> Measure:
    """Attention to a key in per cent, mean over its own and all later queries, heads and layers."""

    name = f"attention that key {key} receives (%)"
    return mean_weight(name, RECEIVED, "attention_received", (key,), (-2, -1), position=key, seen=True)


def attention_unnormed() -> Premise:
    """Return the premise that no norm comes between head outputs and the stream, so that a change of their size has an effect."""

    def fits(architecture: Config) -> bool:
        place = getattr(architecture, "norm_place", "pre")  # a store omits defaults
        return place not in ("sandwich", "output") and getattr(architecture, "head_norm", None) is None

    why = "no norm may follow head outputs or W_O, as it undoes a scaling of head outputs"
    return Premise(lambda read: (fits(read.architecture), why), fits)


def of_outputs(run: Unedited) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """Return means of unedited head outputs, and how far these are from their mean.

    Returns:
        Mean over prompts at each position, and over all positions, by name: float[layer, position, head, dim]. Distance of each
        head output from the mean over prompts at its position: float[layer, prompt, position, head].
    """
    batch, probe = run.batch, Probe(capture=(Capture(Site.HEAD_OUT),))
    values = recorded(run.model, batch, probe, BLOCK)["head_out"].astype(np.float32)  # [prompt, layer, position, head, dim]
    real = np.arange(batch.tokens.shape[1]) < batch.lengths[:, None]
    there = real[:, None, :, None, None]
    kept = np.where(there, values, 0)
    at_each = kept.sum(axis=0) / np.maximum(there.sum(axis=0), 1)
    everywhere = kept.sum(axis=(0, 2)) / real.sum()
    distances = np.linalg.norm(values - at_each, axis=-1).swapaxes(0, 1)
    return {PROMPTS: at_each, EVERYWHERE: np.broadcast_to(everywhere[:, None], at_each.shape)}, distances


@from_results
def slope(read: Numbers, measure: Measure, where: Selection, along: str) -> Parts:
    """Return the rise of a measure along an axis, from first to last value, by a straight line over their order.

    where: The conditions, with every value of the axis; the values of other axes are samples.
    """
    cases = [case for case in where.cases if case is not None]
    values, order = np.unique(np.array([case[along] for case in cases]), return_inverse=True)
    refuse(len(values) < 2, f"a slope needs two values of {along}, and {where.text} has {len(values)}")
    kept = [(case.label, *(entry for entry in case.axes if entry[0] != along)) for case in cases]
    lines = list(dict.fromkeys(kept))  # one for each value of the other axes
    centred = np.arange(len(values)) - (len(values) - 1) / 2
    centred *= (len(values) - 1) / (centred**2).sum()
    weights = np.zeros((len(cases), len(lines)))
    weights[np.arange(len(cases)), [lines.index(line) for line in kept]] = centred[order]
    found, (span, unit) = read.edited(measure, where) @ weights, facts_of(measure)
    found = found[..., 0] if found.shape[-1] == 1 else found
    steepest = None if span is None else (centred.clip(0).sum() * span[0], centred.clip(0).sum() * span[1])
    label, why = f"rise of {measure.name} along {along}", "the other values of the axis are the comparison"
    return Parts(found, None, None, steepest, unit, label, where=where, uncontrolled=why)
