"""kiya/rope: is rotary index 0 a cause of the sink (Fig. 3).

The score of a mean query at rotary index i with a key at index j, q_avg' R_i R_j' k / sqrt(head width), in every head of the
first block: for the key of BOS and for that of the mean embedding. Were index 0 a cause, a mean key there would draw attention.
What it would receive is the softmax over a row in which all other keys are mean keys. Controls put random ordinary tokens in the
place of BOS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import sinkjax.studies as st
from sinkjax.analysis import intervals
from sinkjax.config_files.checks import MIN_QUERIES, at_least, share
from sinkjax.studies.papers.kiya import _bos

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure as Picture

    from sinkjax.checkpoints.model import Model

GRID, BOS, MEAN = "grid", "BOS", "mean of the others"
SCORE, RECEIVED, SINKS = "score, mean over pairs", "attention at index 0 (%)", "heads that would sink on index 0 (%)"
MOST = 0.95  # of pairs, for a score to be high everywhere
FEW = 5.0  # per cent of heads, below which an index is no sink
AXES = ("rotary index j of the key", "rotary index i of the query", "score / sqrt(head width)")
FEW_HEADS = 9  # that three columns of maps show legibly
POINTS, DISTANCES = 48, 64  # drawn along a line, and the first ones of which every one is drawn


@dataclass(frozen=True, kw_only=True)
class Rope(st.StudyConfig):
    """Scores of the first block between a mean query at rotary index i and a BOS or mean key at index j (Fig. 3).

    No text is read. The BOS is `bos` if that is a token id, else the one that the model's files name.
    """

    special: bool = False
    """whether special tokens other than the BOS enter the mean embedding"""
    indices: int = 128
    """rotary indices of queries and keys: 0 to indices - 1"""
    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink (Gu et al. 2025)"""
    controls: int = 200
    """random ordinary tokens whose keys take the place of the BOS's"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, indices=16, controls=1)
        share(self, "eps")


def compute(config: Rope, model: Model, batch: st.Batch) -> xarray.Dataset:
    """The grid of scores and what a key at each index would receive. Raises where the model has no BOS."""
    import jax.numpy as jnp
    import xarray

    from sinkjax.studies.papers.kiya import _first_block, _rotary

    found, embed = _bos.require(config.bos, model), model.params["embed"]
    mean = _first_block.mean_embedding(embed, _first_block.averaged(model, found.id, config.special))
    ordinary = np.setdiff1d(np.flatnonzero(_first_block.ordinary(model)), [found.id])
    rng = intervals.generator(config.seed, "kiya/rope controls")
    drawn = rng.choice(ordinary, min(config.controls, ordinary.size), replace=False)
    rows = (embed[found.id][None], mean[None], embed[jnp.asarray(drawn)])
    vectors = jnp.concatenate([row.astype(mean.dtype) for row in rows])
    queries, keys = _first_block.project(model.params, vectors, model.config)
    scores, means, received = _rotary.grid(queries[1], keys, model.config, config.indices)
    variables = {
        "score": (("vector", "head", "query", "key"), np.asarray(scores)),
        "mean_score": (("vector", "head"), np.asarray(means[:2])),
        "received": (("vector", "head", "key"), np.asarray(received[:2])),
        "control_mean_score": (("control", "head"), np.asarray(means[2:])),
        "control_received": (("control", "head", "key"), np.asarray(received[2:])),
    }
    attributes = {"bos": found.id, "bos_text": found.text}
    return xarray.Dataset(variables, coords={"vector": [BOS, MEAN], "control": drawn}, attrs=attributes)


def rows(results: st.Results) -> list[st.Row]:
    """Each number of both keys over heads, ranked among random ordinary tokens; the mean is compared with BOS."""
    data, seed = results[GRID], results.config.seed
    numbers: dict[str, Callable[[str], NDArray]] = {
        SCORE: lambda of: data[f"{of}mean_score"].values,
        RECEIVED: lambda of: 100 * data[f"{of}received"].values[..., 0],
        SINKS: lambda of: 100.0 * (data[f"{of}received"].values[..., 0] > results.config.eps),
    }
    columns = [
        st.own_rows((BOS, MEAN), "key", name, of(""), seed, np.stack([of("control_").T] * 2), compared=True)
        for name, of in numbers.items()
    ]
    return [row for key in zip(*columns, strict=True) for row in key]


def uniform(size: int) -> NDArray:
    """What each index would receive if every query spread its attention evenly: float[key]."""
    return np.cumsum(1 / np.arange(size, 0, -1))[::-1] / np.arange(size, 0, -1)


def pairs(data: Any) -> NDArray:
    """Scores averaged over heads, of the pairs key <= query: float[vector, pair]."""
    return data["score"].mean("head").values[:, np.tri(data.sizes["key"], dtype=bool)]


def above_mean(data: Any) -> float:
    """Share of pairs in which the score of BOS is above that of the mean key."""
    return float(np.greater(*pairs(data)).mean())


def drift(data: Any) -> float:
    """The largest change of a score when both indices move by one, in millionths of the largest score."""
    scores = data["score"].values
    return float(1e6 * np.abs(scores[..., 1:, 1:] - scores[..., :-1, :-1]).max() / np.abs(scores).max())


def beside_even(data: Any) -> NDArray:
    """What a mean key would receive at each index that enough queries see, over evenly spread attention: float[key]."""
    every = data["received"].sel(vector=MEAN).mean("head").values[: data.sizes["key"] - MIN_QUERIES + 1]
    return every / uniform(data.sizes["key"])[: every.size]


def claims(config: Rope, architecture: Any) -> Iterator[st.Claim]:
    """The paper's two statements."""
    name = "the share of pairs with key <= query in which BOS scores above a mean key"
    share = st.number(name, lambda results: above_mean(results[GRID]))
    yield st.Claim(
        "In the first layer the score of BOS's key is high at all rotary indices (Fig. 3a).",
        st.all_of(st.at_least(share, MOST), st.ranked_from(st.listed(BOS, SCORE), 100 * MOST)),
        also=(st.listed(MEAN, SCORE),),
    )
    yield st.Claim(
        "With a mean key no rotary index is high throughout, so index 0 is very probably not a cause (Fig. 3b).",
        st.less_than(st.listed(MEAN, SINKS), FEW),
        also=(st.listed(MEAN, RECEIVED),),
    )


def findings(config: Rope, architecture: Any) -> Iterator[st.Quantity]:
    def ends(what: str, values: Callable[[Any], NDArray]) -> Iterator[st.Quantity]:
        yield st.number(f"smallest {what}", lambda results: values(results[GRID]).min())
        yield st.number(f"largest {what}", lambda results: values(results[GRID]).max())

    yield from ends("score over pairs with the key of BOS", lambda data: pairs(data)[0])
    yield from ends("score over pairs with a mean key", lambda data: pairs(data)[1])
    change = "largest change of a score when both indices move by one"
    yield st.number(change, lambda results: drift(results[GRID]), "millionths of the largest score")
    yield st.number("attention at index 0 if it were spread evenly (%)", lambda results: 100 * uniform(config.indices)[0])
    yield from ends("ratio, over indices, of what a mean key would receive to evenly spread attention", beside_even)
    yield from (st.listed(BOS, RECEIVED), st.listed(BOS, SINKS))


def places(size: int) -> list[int]:
    """Which of `size` points of a line are drawn."""
    return list(range(size)) if size <= DISTANCES else np.unique(np.linspace(0, size - 1, POINTS).round().astype(int)).tolist()


def heat_maps(vector: int | None, results: st.Results) -> Picture:
    """The scores of both keys, averaged over heads, or (vector) those of one key in every head."""
    from sinkjax.report.figures import heatmaps

    scores = results[GRID]["score"]
    hidden = ~np.tri(scores.sizes["key"], dtype=bool)
    if vector is None:
        titles = [f"{BOS}, {results[GRID].attrs['bos_text']}", MEAN]
        return heatmaps.signed(np.where(hidden, np.nan, scores.mean("head").values), titles, AXES)
    heads, every = scores.sizes["head"], np.where(hidden, np.nan, scores.values)
    columns, limit = 3 if heads <= FEW_HEADS else 6, float(np.nanmax(np.abs(every)))
    return heatmaps.signed(every[vector], [f"head {head}" for head in range(heads)], AXES, columns, limit)


def figures(config: Rope, architecture: Any) -> Iterator[st.Figure]:
    drawn = partial(st.drawn, store=GRID, bands=False, text=False)
    curves = partial(st.curves, store=GRID, over="head", text=False)
    layer, shown = "layer 0, mean over heads", places(config.indices - MIN_QUERIES + 1)

    def by_distance(results: st.Results) -> list[list[Any]]:
        scores = results[GRID]["score"].values[..., :DISTANCES, 0]  # the key is at index 0, so the query's index is the distance
        return [[results.panel(layer, AXES[2], {BOS: scores[0], MEAN: scores[1]}, signed=True)]]

    def by_index(results: st.Results) -> list[list[Any]]:
        of_bos, of_mean = 100 * results[GRID]["received"].values[..., shown]
        even = st.Line("spread evenly", shown, [st.constant(value) for value in 100 * uniform(config.indices)[shown]])
        found = {"key of BOS": of_bos, "mean key": of_mean, "spread evenly": even}
        return [[results.panel(layer, "attention received (%)", found, shown)]]

    yield drawn(
        *("scores", partial(heat_maps, None)),
        """Score of the mean query at rotary index i with the key of BOS, and with the mean key, at index j, averaged over the
        heads of layer 0, on one colour scale; grey: keys after the query.""",
    )
    yield curves(
        *("by-distance", "distance i - j of the rotary indices", by_distance),
        "The same scores against the distance i - j, on which alone they depend.",
    )
    yield curves(
        *("would-receive", "rotary index of the key", by_index),
        """Attention that one key would receive from mean queries at its own and later indices if all other keys were mean keys.
        Were rotary index 0 a cause, the mean key would stand out there.""",
    )
    for vector, (short, key) in enumerate((("bos", "BOS"), ("mean", "the mean embedding"))):
        yield drawn(
            *(f"by-head-{short}", partial(heat_maps, vector)),
            f"""Score of the mean query at rotary index i with the key of {key} at index j in each head of layer 0, on the colour
            scale of both figures; grey: keys after the query.""",
        )


def notes(config: Rope, results: st.Results) -> tuple[str, ...]:
    data = results[GRID]
    return (
        f"""Layer 0, {data.sizes["head"]} query heads, each with the key-value head that it reads; special tokens other than the
        BOS are {"in" if config.special else "out"} of the mean. Scores are divided by the square root of the head width, as in
        attention; the paper does not say whether its own are.""",
        f"""Values are means over heads with bootstrap 95 % intervals over heads (BCa, {intervals.RESAMPLES:,} resamples). The
        percentiles are among {data.sizes["control"]} random ordinary tokens in the place of BOS. Nothing is edited.""",
        """Scores depend on the distance of the two indices alone, so index 0 is set apart only by having no key before it.""",
        f"""What an index would receive: the softmax over the keys up to the query, all of which but one are mean keys, averaged
        over the queries from that index to {config.indices - 1}; ratios are over the indices that at least {MIN_QUERIES} queries
        see.""",
    )


STUDY = st.Study(
    name="kiya/rope",
    config=Rope,
    title="Rotary indices of the first block's scores",
    question="""Kiya et al. 2026: in the first layer the mean query's score with the key of BOS is high whatever the rotary
        indices of the two are; with a mean key it varies, and no key index is high throughout, so rotary index 0 is very probably
        not a cause.""",
    needs=("rotary positions", "norm", "pre-norm", "softmax"),
    check=lambda config, architecture: _bos.expect(config),
    more=lambda config, architecture: (st.Calculation(GRID, partial(compute, config), 1, _bos.PLAIN),),
    rows=rows,
    claims=claims,
    findings=findings,
    figures=figures,
    notes=notes,
    provenance=_bos.provenance,
    over="heads",
)
