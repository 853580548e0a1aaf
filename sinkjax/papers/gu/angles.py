"""gu/angles: is the first key's score high because of its angle, not its norm, and do first keys share few directions?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax import Capture, Probe, Site
from sinkjax.analysis.estimates import constant
from sinkjax.checkpoints.model import Model
from sinkjax.config_files.checks import refuse
from sinkjax.papers._shared import recorded
from sinkjax.papers.gu import _geometry as geometry
from sinkjax.report.figures.lines import Line, Panel
from sinkjax.report.figures.lines import lines as line_figure
from sinkjax.report.section import Drawing
from sinkjax.study import *
from sinkjax.study import (
    ALL,
    Batch,
    Calculation,
    Inputs,
    Layers,
    Measure,
    Numbers,
    Parts,
    from_results,
    keys_without_norm,
    without_bos,
)


@dataclass(frozen=True, kw_only=True)
class Settings(Judged):
    rank: int = 1
    """directions of the other half of the prompts into which keys are projected"""


def study(lab: Lab, s: Settings) -> None:
    """Angles and directions of the first key."""
    lab.needs("usual scale", "scores without positions", "scores without a kernel", "scores without a soft cap")
    refuse(not 0 < s.rank <= s.prompts // 2, f"rank {s.rank} must be at least 1 and at most half of the {s.prompts} prompts")
    first, others, angle, norms = first_cosine(), other_cosine(), score_gap("angle"), score_gap("norms")
    text = lab.sweep("text", measures=(first, others, angle, norms))
    positions = tuple(range(s.length // 2 + 1))

    def keys(kind: Literal["text", "random"]) -> Calculation:
        compute, declared = partial(keys_across_prompts, s.rank, positions), {"keys_across_prompts": [s.rank, kind]}
        return lab.calculate(f"{kind}-keys", compute, KEY_VARIABLES, declared, s.prompts, Inputs(kind))

    both, source = (keys("text"), keys("random")), "Gu et al. 2025, section on the sink token's keys"
    lab.claim("cosine", source, unedited(first, text, others))
    lab.claim("angle", source, unedited(angle, text, norms), keys_without_norm())
    lab.claim("low-rank", source, shared_energy(both[0]), without_bos(text), [shared_energy(both[1])])

    pairs = (first_cosine, other_cosine), (partial(score_gap, "angle"), partial(score_gap, "norms"))
    for pair in pairs:
        lab.draw(by_layer, pair, conditions=[text.every], unedited=False)
    lab.draw(key_directions, *both)


# Angles and norms in the scores of the first key, and the directions that first keys share.


BLOCK = 16  # prompts whose keys are computed at a time
COSINES = (-1.0, 1.0)
COSINE = Probe.of("query_key_cosine")
ENERGY = "energy of first keys in the leading directions of the other half of the prompts (%)"
GAP = "The gap is the key's score minus those of a query's other keys, averaged over these, later queries and heads."
KEY_VARIABLES = ("shared", "singular")


def first_cosine(layers: Layers = ALL) -> Measure:
    """Cosine between key 0 and the rotated queries after it, mean over queries, heads and layers."""
    note = "Mean over later queries and heads."
    name = f"cosine with queries, first key{layers.suffix}"
    return Measure(name, lambda data: _by_head(data, "query_key_cosine", layers)[..., 0], COSINE, range=COSINES, note=note)


def other_cosine(layers: Layers = ALL) -> Measure:
    """Like `first_cosine`, for the other keys that at least half of the queries see, mean over keys."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        found = _by_head(data, "query_key_cosine", layers)
        return np.asarray(found[..., 1 : found.shape[-1] // 2 + 1].mean(axis=-1))

    return Measure(f"cosine with queries, other keys{layers.suffix}", of, COSINE, range=COSINES)


def _by_head(data: xarray.Dataset, statistic: str, layers: Layers) -> NDArray[Any]:
    """A statistic of keys, mean over heads and layers: float64[edit, prompt, key]."""
    return np.asarray(data[statistic].values[:, :, layers.index].astype(np.float64).mean(axis=(2, 3)))


def score_gap(part: Literal["angle", "norms"], layers: Layers = ALL) -> Measure:
    """One part of the gap between the scores of key 0 and of the same query's other keys: from the angle or the norms."""
    statistic = geometry.ANGLE_PART if part == "angle" else geometry.NORM_PART
    name = f"score gap of the first key, {part}{layers.suffix}"
    of = partial(_by_head, statistic=statistic.name, layers=layers)
    return Measure(name, lambda data: of(data)[..., 0], Probe(extra=(statistic,)), unit="nats", note=GAP)


def keys_across_prompts(rank: int, positions: tuple[int, ...], model: Model, batch: Batch) -> xarray.Dataset:
    """Singular values of the keys of single positions across prompts, and the energy that one half shares with the other.

    Args:
        rank: How many directions of the other half count.
        positions: Ascending.
        model: The model.
        batch: The prompts.

    Raises:
        SinkjaxError: There are fewer prompts than the rank needs, or a prompt lacks a position.
    """
    lengths = batch.lengths
    refuse(positions[-1] >= lengths.min(), f"a prompt has {lengths.min()} tokens, and position {positions[-1]} is asked for")
    most = f"at most half of the {len(lengths)} prompts and below {model.config.head_dim}, the width of a head"
    refuse(not 0 < rank <= min(len(lengths) // 2, model.config.head_dim - 1), f"rank {rank} must be at least 1, {most}")
    captured = Probe(capture=(Capture(Site.KEY, positions=positions),))
    vectors = recorded(model, batch, captured, BLOCK)["keys"].transpose(1, 3, 2, 0, 4)  # layer, kv_head, position, prompt, dim
    values, energy = geometry.singular_values(vectors), geometry.shared_energy(vectors, rank)
    axes = ("layer", "kv_head", "position")
    arrays = {"singular": ((*axes, "component"), values), "shared": ((*axes, "prompt"), energy)}
    return xarray.Dataset(arrays, {"position": list(positions)})


@from_results
def shared_energy(read: Numbers, keys: Calculation) -> Parts:
    """The energy that first keys share across prompts, minus the energy of the other positions' keys; means over layers."""
    shared = 100 * read.data(keys.name)["shared"].mean(("layer", "kv_head")).transpose("prompt", "position").values
    first, others = shared[:, 0], shared[:, 1:].mean(axis=1)
    label = f"{keys.name}: {ENERGY} minus the same of other positions"
    why = "nothing is edited, and other positions are the comparison"
    return Parts(first - others, None, first, (0.0, 100.0), "percentage points", label, uncontrolled=why)


def key_directions(read: Numbers, *calculations: Calculation) -> Drawing:
    """Shared energy and effective rank of the keys of single positions across prompts, in each layer."""
    rows: list[list[Panel]] = [[], []]
    for calculation in calculations:
        data = read.data(calculation.name)
        shared = 100 * data["shared"].mean(("kv_head", "prompt")).values
        ranks = geometry.effective_rank(data["singular"].values).mean(axis=1)
        for row, values, label in zip(rows, (shared, ranks), ("shared energy (%)", "effective rank"), strict=True):
            curves = {"position 0": values[:, 0], "other positions, mean": values[:, 1:].mean(axis=1)}
            drawn = [Line(name, range(len(curve)), [*map(constant, curve)]) for name, curve in curves.items()]
            row.append(Panel(calculation.name, label, drawn))
    caption = """Keys of one position across prompts, means over heads: energy in the leading directions of the other half of the
        prompts (top), and effective rank (Roy and Vetterli 2007)."""
    figure = line_figure(rows, "layer (0-based)", legend="above")
    return read.drawing("key-directions", figure, caption, *(one.name for one in calculations), bands=False)
