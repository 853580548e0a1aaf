"""background/stages: the largest dim clamped in one stage of the massive activation (ours, on Sun et al. 2024, section 4).

Sink and activation may come, go and come again along the layers. If each stage's sink needs its own activation, then clamping
the first token's largest dim where one stage grows ends that stage's sink and leaves the other's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax import Edit, edit
from sinkjax.analysis import metrics
from sinkjax.analysis.summary import Row
from sinkjax.config_files.checks import MIN_QUERIES
from sinkjax.papers._shared import exact_rows
from sinkjax.papers.background import _massive as massive
from sinkjax.papers.background.massive import SPARED, set_dims, stream_at
from sinkjax.study import *
from sinkjax.study import RECEIVED, Check


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Sinks):
    """Settings of background/stages."""


def study(lab: Lab, s: Settings) -> None:
    """The largest dim, clamped in one stage."""
    L, width = lab.layers, lab.architecture.width
    found = lab.value("stages", stages_of, [[0, 0, 0], [0, 0, 0]])
    of_stage = {"first": found[0], "last": found[-1]}
    stream = lab.donor("stream", partial(stream_at, 0), np.zeros((1, L, width)), of_edited=True)
    order = np.argsort(-np.abs(stream).mean(axis=0), axis=-1)  # [layer, rank]: each layer's dims by size

    def clamp(grows: int, dims: NDArray[Any]) -> Edit:
        return set_dims(stream, dims, "zero", 0, (grows,))

    def random_dim(rng: np.random.Generator, case: Layers) -> Edit:
        return clamp(of_stage[case["stage"]][1], order[:, [int(rng.integers(SPARED, width))]])

    places = {name: readers(f"the {name} stage", one, L) for name, one in of_stage.items()}
    (early, early_other), (late, late_other) = ((attention_in(0, place), strongest_in(0, place)) for place in places.values())
    clamps = {ALL.at(stage=name): clamp(one[1], order[:, :1]) for name, one in of_stage.items()}
    columns = (early, late, sink_rate(0, s.eps), massive.massive_prompts(0), loss())
    clamped = lab.sweep("clamped", clamps, columns, random_dim, title="largest dim to zero")
    lab.noop(edit("resid", "scale", 1.0, queries=0))

    def took(stage: str) -> Check:
        return removed(largest_activation(0, places[stage]), clamped.at(stage=stage))

    counted = f"the first token's activation has {len(found)} stage{'s' * (len(found) != 1)}, and must have two"
    one, two = massive.massive(clamped, 0), Premise(lambda read: (len(found) > 1, counted))
    late_sinks, early_sinks = is_sink(late, clamped, late_other), is_sink(early, clamped, early_other)
    source = "ours, on Sun et al. 2024, section 4"
    lab.describe("stages", "ours, on Sun et al. 2024, section 2", lambda read: described(found))
    at_first, at_last = (clamped.at(stage=name) for name in of_stage)
    lab.claim("late-dies", source, effect(late, at_last), all_of(one, late_sinks), sign=-1, took=took("last"))
    lab.claim("early-dies", source, effect(early, at_first), all_of(two, early_sinks), sign=-1, took=took("first"))
    lab.claim("late-stays", source, effect(late, at_first), all_of(two, late_sinks), stays=True, took=took("first"))
    lab.draw(by_layer, partial(attention_in, 0), partial(largest_activation, 0), conditions=[at_first, at_last])


def stages_of(run: Unedited) -> list[list[int]]:
    """Return the stages of the first token's activation: first layer, layer where it grows most, last layer.

    A stage is a run of layers that leave most prompts an activation above 100 and 100 times the median, a tenth of Sun et al.'s
    ratio. If there is none, the layer where the activation is largest is the only stage.
    """
    data = run.data(massive.STATES).isel(edit=0)
    sizes = data["resid_max"].values[..., 0].mean(axis=0)
    inside = (metrics.massive_activations(data, 0, ratio=massive.STAGE_RATIO) == 1).mean(axis=0)[1:] > 1 / 2
    grown = np.diff(sizes)
    if not inside.any():
        inside[sizes[1:].argmax()] = True
    return [[first, first + int(grown[first : last + 1].argmax()), last] for first, last in massive.stages(inside)]


def readers(name: str, stage: list[int], layers: int) -> Layers:
    """Return the layers that read a stage's activation where a clamp acts: from the layer after its largest growth on."""
    return Layers(name, tuple(one for one in range(stage[1] + 1, stage[2] + 2) if one < layers) or (layers - 1,), x=stage[2])


def attention_in(key: int, layers: Layers = ALL) -> Measure:
    """Attention to a key, mean over some layers and their heads, in per cent."""

    name = f"attention to key {key}, mean over heads (%){layers.suffix}"
    return percentage(name, lambda data: 100 * received_in(data, layers)[..., key], RECEIVED, position=key)


def strongest_in(key: int, layers: Layers) -> Measure:
    """Attention to whichever other key receives most, among keys that enough queries see, mean over some layers and heads."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        seen = received_in(data, layers)[..., : data.sizes["key"] - MIN_QUERIES + 1]
        return np.asarray(100 * np.delete(seen, key, axis=-1).max(axis=-1))

    return percentage(f"attention to the strongest key but {key}, mean over heads (%){layers.suffix}", of, RECEIVED, position=key)


def received_in(data: xarray.Dataset, layers: Layers) -> NDArray[Any]:
    """Attention to each key, mean over some layers and their heads: float[edit, prompt, key]."""
    return np.asarray(data["attention_received"].values[..., layers.index, :, :].mean(axis=(-3, -2)))


def described(found: list[list[int]]) -> list[Row]:
    """List the layers of every stage."""
    names = ("first layer", "layer of the largest growth", "last layer")
    stages = [exact_rows(f"stage {number}", "stages", dict(zip(names, one, strict=True))) for number, one in enumerate(found, 1)]
    return [row for rows in stages for row in rows]
