"""Angles and norms in the scores of the first key, and the directions that first keys share, as words."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.report.section import Drawing
from sinkjax.studies.places import ALL
from sinkjax.studies.scope import Layers
from sinkjax.studies.vocabulary import Computation, Contrast, F, FigureWord, Measure, Parts, Readings

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model
    from sinkjax.report.figures.layers import Panel
    from sinkjax.studies.config import Settings
    from sinkjax.studies.scope import Scope
    from sinkjax.studies.study import Batch

BLOCK = 16  # prompts whose keys are computed at a time
COSINES = (-1.0, 1.0)
ENERGY = "energy of first keys in the leading directions of the other half of the prompts (%)"


@Measure.define(
    label="cosine with queries, first key", range=COSINES, asks=("query_key_cosine",), note="Mean over later queries and heads."
)
def first_cosine(data: xarray.Dataset, layers: Layers = ALL) -> NDArray:
    """Cosine between key 0 and the rotated queries after it, mean over queries, heads and layers."""
    return _by_head(data, "query_key_cosine", layers)[..., 0]


@Measure.define(label="cosine with queries, other keys", range=COSINES, asks=("query_key_cosine",))
def other_cosine(data: xarray.Dataset, layers: Layers = ALL) -> NDArray:
    """Like `first_cosine`, for the other keys that at least half of the queries see, mean over keys."""
    found = _by_head(data, "query_key_cosine", layers)
    return np.asarray(found[..., 1 : found.shape[-1] // 2 + 1].mean(axis=-1))


def _by_head(data: xarray.Dataset, statistic: str, layers: list[int]) -> NDArray:
    """A statistic of keys, mean over heads and layers: float64[edit, prompt, key]."""
    return np.asarray(data[statistic].values[:, :, layers].astype(np.float64).mean(axis=(2, 3)))


def gap_statistic(part: str = "", **others: object) -> sinkjax.Probe:
    """Ask for one part of a key's score gap."""
    from sinkjax.papers.gu import _geometry as geometry

    return sinkjax.Probe(extra=(geometry.ANGLE_PART if part == "angle" else geometry.NORM_PART,))


@Measure.define(
    label="score gap of the first key, {part}",
    unit="nats",
    asks=gap_statistic,
    note="The gap is the key's score minus those of a query's other keys, averaged over these, later queries and heads.",
)
def score_gap(data: xarray.Dataset, part: str, layers: Layers = ALL) -> NDArray:
    """One part of the gap between the scores of key 0 and of the same query's other keys: from the "angle" or the "norms"."""
    return _by_head(data, f"{part.removesuffix('s')}_part", layers)[..., 0]


def _enough(config: Settings) -> None:
    rank = getattr(config, "rank", 1)
    if not 0 < rank <= config.prompts // 2:
        raise SinkjaxError(f"rank {rank} must be at least 1 and at most half of the {config.prompts} prompts")


@Computation.define(variables=("shared", "singular"), prompts=F.prompts, check=_enough)
def keys_across_prompts(
    scope: Scope, model: Model, batch: Batch, rank: int, positions: tuple[int, ...], inputs: str = "text"
) -> xarray.Dataset:
    """Singular values of the keys of single positions across prompts, and the energy that one half shares with the other.

    Args:
        scope: The study's scope.
        model: The model.
        batch: The prompts.
        rank: How many directions of the other half count.
        positions: Ascending.
        inputs: "text" or "random".

    Raises:
        SinkjaxError: There are fewer prompts than the rank needs, or a prompt lacks a position.
    """
    import xarray

    from sinkjax.papers.gu import _geometry as geometry
    from sinkjax.probes.probe import Capture, Probe

    lengths = batch.lengths
    if positions[-1] >= lengths.min():
        raise SinkjaxError(f"a prompt has {lengths.min()} tokens, and position {positions[-1]} is asked for")
    if not 0 < rank <= min(len(lengths) // 2, model.config.head_dim - 1):
        raise SinkjaxError(
            f"rank {rank} must be at least 1, at most half of the {len(lengths)} prompts and below {model.config.head_dim}, the"
            " width of a head"
        )
    captured = Probe(capture=(Capture(sinkjax.Site.KEY, positions=positions),))
    run = partial(sinkjax.forward, model.params, config=model.config, probe=captured, logits=False)
    parts = [np.asarray(run(tokens=tokens, lengths=few).record["keys"]) for tokens, few in batch.blocks(BLOCK)]
    vectors = np.concatenate(parts).transpose(1, 3, 2, 0, 4)  # layer, kv_head, position, prompt, dim
    places = ("layer", "kv_head", "position")
    arrays = {
        "singular": ((*places, "component"), geometry.singular_values(vectors)),
        "shared": ((*places, "prompt"), geometry.shared_energy(vectors, rank)),
    }
    return xarray.Dataset(arrays, {"position": list(positions)})


@Contrast.define(uncontrolled="nothing is edited, and other positions are the comparison")
def shared_energy(read: Readings, computation: str) -> Parts:
    """The energy that first keys share across prompts, minus the energy of the other positions' keys; means over layers."""
    data = read.results[read.store(computation)]
    shared = 100 * data["shared"].mean(("layer", "kv_head")).transpose("prompt", "position").values
    first, others = shared[:, 0], shared[:, 1:].mean(axis=1)
    label = f"{computation}: {ENERGY} minus the same of other positions"
    return Parts(first - others, None, first, (0.0, 100.0), "percentage points", label)


@FigureWord.define()
def key_directions(read: Readings, computations: tuple[str, ...]) -> Drawing:
    """Shared energy and effective rank of the keys of single positions across prompts, in each layer."""
    from sinkjax.analysis.estimates import constant
    from sinkjax.papers.gu._geometry import effective_rank
    from sinkjax.report.figures.layers import Line, Panel, lines

    rows: list[list[Panel]] = [[], []]
    for name in computations:
        data = read.results[name]
        shared = 100 * data["shared"].mean(("kv_head", "prompt")).values
        ranks = effective_rank(data["singular"].values).mean(axis=1)
        for row, values, label in zip(rows, (shared, ranks), ("shared energy (%)", "effective rank"), strict=True):
            x = range(len(values))
            found = [
                Line("position 0", x, [constant(value) for value in values[:, 0]]),
                Line("other positions, mean", x, [constant(value) for value in values[:, 1:].mean(axis=1)]),
            ]
            row.append(Panel(name, label, found))
    caption = """Keys of single positions across prompts, means over key-value heads. Top: energy in the leading directions of
        the other half of the prompts. Bottom: effective rank, from 1 to the number of prompts or dimensions (Roy and Vetterli
        2007)."""
    return read.drawing("key-directions", lines(rows, "layer (0-based)", legend_above=True), caption, *computations, bands=False)
