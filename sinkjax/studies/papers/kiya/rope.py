"""kiya/rope: is rotary index 0 a cause of the sink? First-block scores of the mean query at all pairs of rotary indices (Fig. 3).

The key is that of BOS or of the mean embedding, as in kiya/embedding; controls replace BOS by random ordinary tokens.
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
ROUNDING = 100.0  # millionths of the largest score, far above what float32 loses at these indices
AXES = ("rotary index j of the key", "rotary index i of the query", "score / sqrt(head width)")
FEW_HEADS = 9  # that three columns of maps show legibly
POINTS, DISTANCES = 48, 64  # of a line over indices, and of one over distances


@dataclass(frozen=True, kw_only=True)
class Rope(st.StudyConfig):
    """First-block scores of the mean query with the key of BOS (`bos` if a token id, else the model's own) or a mean key."""

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

    from sinkjax.studies.papers.kiya import _first_block as first_block

    (token, text), embed = _bos.require(config.bos, model), model.params["embed"]
    pair = first_block.bos_and_mean(embed, token, first_block.averaged(model, token, config.special))
    ordinary = np.flatnonzero(first_block.averaged(model, token, special=False))
    rng = intervals.generator(config.seed, "kiya/rope controls")
    drawn = rng.choice(ordinary, min(config.controls, ordinary.size), replace=False)
    vectors = jnp.concatenate([pair, embed[jnp.asarray(drawn)].astype(pair.dtype)])
    queries, keys = first_block.project(model.params, vectors, model.config)
    scores, means, received = map(np.asarray, first_block.grid(queries[1], keys, model.config, config.indices))
    variables = {
        "score": (("vector", "head", "query", "key"), scores),
        "mean_score": (("vector", "head"), means[:2]),
        "received": (("vector", "head", "key"), received[:2]),
        "control_mean_score": (("control", "head"), means[2:]),
        "control_received": (("control", "head", "key"), received[2:]),
    }
    return xarray.Dataset(variables, {"vector": [BOS, MEAN], "control": drawn}, {"bos": token, "bos_text": text})


def rows(results: st.Results) -> list[st.Row]:
    """Both keys, as means over heads ranked among random ordinary tokens; the mean key is compared with that of BOS."""
    data, found = results[GRID], []
    numbers: dict[str, Callable[[str], NDArray]] = {
        SCORE: lambda of: data[f"{of}mean_score"].values,
        RECEIVED: lambda of: 100 * data[f"{of}received"].values[..., 0],
        SINKS: lambda of: 100.0 * (data[f"{of}received"].values[..., 0] > results.config.eps),
    }
    for number, key in enumerate((BOS, MEAN)):
        for name, of in numbers.items():
            means, others = of("").mean(axis=1), of("control_").mean(axis=1)
            value, effect = st.constant(float(means[number])), st.constant(float(means[number] - means[0]))
            found.append(st.Row(key, "key", name, value, effect, st.Rank.among(means[number], others)))
    return found


def uniform(size: int) -> NDArray:
    """What each index would receive if every query spread its attention evenly: float[key]."""
    return np.cumsum(1 / np.arange(size, 0, -1))[::-1] / np.arange(size, 0, -1)


def pairs(data: Any) -> NDArray:
    """Scores averaged over heads, of the pairs key <= query: float[vector, pair]."""
    return data["score"].mean("head").values[:, np.tri(data.sizes["key"], dtype=bool)]


def drift(results: st.Results) -> float:
    """The largest change of a score when both indices move by one, in millionths of the largest score."""
    scores = results[GRID]["score"].values
    return float(1e6 * np.abs(scores[..., 1:, 1:] - scores[..., :-1, :-1]).max() / np.abs(scores).max())


def claims(config: Rope, architecture: Any) -> Iterator[st.Claim]:
    listed = partial(st.listed, exact=True)  # means over the heads of the model: numbers of its weights
    name = "the share of pairs with key <= query in which BOS scores above a mean key"
    share = st.number(name, lambda results: np.greater(*pairs(results[GRID])).mean())
    yield st.Claim(
        f"In the first layer the mean query scores the key of BOS above a mean key at {100 * MOST:g} % or more of the"
        " pairs of rotary indices.",
        st.all_of(st.at_least(share, MOST), st.above_controls(listed(BOS, SCORE))),
        given=_bos.separates(GRID),
        source="Kiya et al. 2026, Fig. 3a",
        also=(listed(MEAN, SCORE),),
    )
    moved = st.number("the largest change of a score when both indices move by one", drift, "millionths of the largest score")
    yield st.Claim(
        "A first-layer score depends on the distance of the two rotary indices alone, so that index 0 is no cause by itself.",
        st.at_most(moved, ROUNDING),
        source="Kiya et al. 2026, Fig. 3b",
        kind="identity",
        also=(listed(MEAN, SINKS), listed(MEAN, RECEIVED)),
    )


def findings(config: Rope, architecture: Any) -> Iterator[st.Quantity]:
    even = uniform(config.indices)

    def beside_even(data: Any) -> NDArray:
        return (data["received"].sel(vector=MEAN).mean("head").values / even)[: config.indices - MIN_QUERIES + 1]

    def ends(what: str, values: Callable[[Any], NDArray]) -> Iterator[st.Quantity]:
        yield st.number(f"smallest {what}", lambda results: values(results[GRID]).min())
        yield st.number(f"largest {what}", lambda results: values(results[GRID]).max())

    yield from ends("score over pairs with the key of BOS", lambda data: pairs(data)[0])
    yield from ends("score over pairs with a mean key", lambda data: pairs(data)[1])
    yield from ends("ratio, over indices, of what a mean key would receive to evenly spread attention", beside_even)
    yield st.number("largest change of a score when both indices move by one", drift, "millionths of the largest score")
    yield st.number("attention at index 0 if it were spread evenly (%)", lambda results: 100 * even[0])


def heat_maps(vector: int | None, results: st.Results) -> Picture:
    """The scores of both keys, averaged over heads, or (vector) those of one key in every head."""
    from sinkjax.report.figures import heatmaps

    data = results[GRID]
    scores = np.where(np.tri(data.sizes["key"], dtype=bool), data["score"].values, np.nan)
    if vector is None:
        return heatmaps.signed(scores.mean(axis=1), [f"{BOS}, {data.attrs['bos_text']}", MEAN], AXES)
    titles = [f"head {head}" for head in range(data.sizes["head"])]
    columns = 3 if len(titles) <= FEW_HEADS else 6
    return heatmaps.signed(scores[vector], titles, AXES, columns, float(np.nanmax(np.abs(scores))))


def figures(config: Rope, architecture: Any) -> Iterator[st.Figure]:
    curves, layer = partial(st.curves, store=GRID, over="head", text=False), "layer 0, mean over heads"
    shown = np.unique(np.linspace(0, config.indices - MIN_QUERIES, POINTS).round().astype(int)).tolist()
    for name, vector, key in (
        ("scores", None, "BOS, and of the mean embedding, at index j, averaged over the heads"),
        ("by-head-bos", 0, "BOS at index j in each head"),
        ("by-head-mean", 1, "the mean embedding at index j in each head"),
    ):
        about = f"""Score of the mean query at rotary index i with the key of {key} of layer 0, both keys on one colour
            scale; grey: keys after the query."""
        yield st.drawn(name, partial(heat_maps, vector), about, GRID, text=False)

    def by_distance(results: st.Results) -> list[list[Any]]:
        of_bos, of_mean = results[GRID]["score"].values[..., :DISTANCES, 0]  # of a key at index 0
        return [[results.panel(layer, AXES[2], {BOS: of_bos, MEAN: of_mean}, signed=True)]]

    def by_index(results: st.Results) -> list[list[Any]]:
        of_bos, of_mean = 100 * results[GRID]["received"].values[..., shown]
        even = st.Line("spread evenly", shown, [st.constant(value) for value in 100 * uniform(config.indices)[shown]])
        found = {"key of BOS": of_bos, "mean key": of_mean, "spread evenly": even}
        return [[results.panel(layer, "attention received (%)", found, shown)]]

    about = "The same scores against the distance i - j, on which alone they depend."
    yield curves("by-distance", "distance i - j of the rotary indices", by_distance, about)
    about = """Attention that one key would receive from mean queries at its own and later indices if all other keys were mean
        keys. If rotary index 0 were a cause, the mean key would stand out there."""
    yield curves("would-receive", "rotary index of the key", by_index, about)


VARIABLES = ("control_mean_score", "control_received", "mean_score", "received", "score")
STUDY = st.Study(
    name="kiya/rope",
    config=Rope,
    title="Rotary indices of the first block's scores",
    question="""Kiya et al. 2026: in the first layer the mean query's score with the key of BOS is high whatever the rotary
        indices of the two are; with a mean key it varies, and no key index is high throughout, so rotary index 0 is very probably
        not a cause.""",
    needs=("rotary positions", "plain embedding", "norm", "pre-norm", "softmax"),
    check=_bos.expect,
    more=lambda config, architecture: (st.Calculation(GRID, partial(compute, config), VARIABLES, 1, _bos.PLAIN),),
    rows=rows,
    claims=claims,
    findings=findings,
    figures=figures,
    notes=lambda config, results: (
        *_bos.about(results, GRID),
        f"""The mean embedding is {"with" if config.special else "without"} special tokens other than the BOS. Each query head is
        scored with the key-value head that it reads. Scores are divided by the square root of the head width; the paper does not
        say whether its own are.""",
        f"""The numbers come from the parameters alone, as means over all heads of the layer, so they have no intervals; bands in
        the figures show how heads differ. Percentiles are among {results.size("control", GRID)} random ordinary tokens in the
        place of BOS. Nothing is edited.""",
        "Scores depend only on the distance of the two indices, so what distinguishes index 0 is that no key precedes it.",
        f"""What an index would receive: the softmax over the keys up to the query, all of which but one are mean keys, averaged
        over the queries from that index to {config.indices - 1}; ratios are over the indices that at least {MIN_QUERIES} queries
        see.""",
    ),
    provenance=_bos.provenance,
    over="model",
)
