"""First-block keys of the BOS and of the mean embedding, as computations: their norms, cosines and scores (section 3, Fig. 3)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import constant
from sinkjax.analysis.summary import Rank, Row
from sinkjax.checkpoints.model import Model
from sinkjax.config_files.checks import MIN_QUERIES, refuse
from sinkjax.papers.kiya import _first_block as first_block
from sinkjax.report.figures import heatmaps
from sinkjax.report.figures.dots import Cloud, Mark, points, scatter
from sinkjax.report.figures.lines import Line, Panel, lines
from sinkjax.report.section import Drawing
from sinkjax.study import Batch, Calculation, Numbers, OnText, own_bos

BOS, MEAN = "BOS", "mean of the others"


@dataclass(frozen=True, kw_only=True)
class Averaged(OnText):
    """Settings of a study of the mean embedding."""

    special: bool = False
    """whether special tokens other than the BOS enter the mean embedding"""


@dataclass(frozen=True, kw_only=True)
class Scored(Averaged):
    """Settings of a study of the first block's scores."""

    indices: int = 128
    """rotary indices of queries and keys in the first block's scores"""


NUMBERS = {  # of keys: kind -> name by each convention for grouped keys -> variable
    "direction": {
        "cosine with q_avg, key-value heads joined": "cosine_kv",
        "cosine with q_avg, repeated to query heads": "cosine_repeated",
        "cosine with q_avg, mean over query heads": "cosine_heads",
    },
    "size": dict.fromkeys(("||k||, key-value heads joined", "||k||, repeated to query heads"), "key_norm"),
}
PANELS = {"cosine_repeated": "query heads joined, keys repeated", "cosine_heads": "mean over query heads"}
DOTS = 4000  # ordinary tokens drawn; more would only darken the cloud
AXES = ("rotary index j of the key", "rotary index i of the query", "score / sqrt(head width)")
POINTS, DISTANCES = 48, 64  # points of a line over indices and over distances
ROUNDING = 1e-4  # relative to the largest score, and far above float32 rounding at these indices


def bos_and_mean(settings: Averaged, model: Model) -> tuple[jax.Array, NDArray[np.bool_], dict[str, Any]]:
    """Return the embedding of the BOS and the mean of the others [2, d], which rows enter it, and the id and text of the BOS.

    Raises:
        Absent: Neither the config nor the model's files name one.
        SinkjaxError: It is not in the vocabulary.
    """
    token, size = own_bos(settings), model.config.vocab_size or 0
    refuse(not 0 <= token < size, f"bos is the token id {token}, but the model's vocabulary has {size} tokens")
    rows = first_block.averaged(model, token, settings.special)
    text = model.tokenizer.decode([token]) if model.tokenizer else str(token)
    return first_block.bos_and_mean(model.params["embed"], token, rows), rows, {"bos": token, "bos_text": text}


OF_KEYS = ("key_norm", "cosine_kv", "cosine_repeated", "cosine_heads")  # of both vectors' keys, and of every token's
NORM_VARIABLES = ("averaged", "ordinary", "head_cosine", *OF_KEYS, *(f"token_{name}" for name in OF_KEYS))


def first_keys(settings: Averaged, model: Model, batch: Batch) -> xarray.Dataset:
    """Norms and cosines of the first-block keys of BOS, of the mean embedding and of every token.

    Args:
        settings: The study's settings.
        model: The model; it must have a BOS.
        batch: Not read.
    """
    params, (pair, rows, about) = model.params, bos_and_mean(settings, model)
    (_, query), keys = first_block.project(params, pair, model.config)
    both, every = (first_block.against(params, x, query, model.config) for x in (pair, params["embed"]))
    variables: dict[str, Any] = {name: ("vector", values) for name, values in both.items()}
    variables |= {f"token_{name}": ("token", values) for name, values in every.items()}
    variables |= {"ordinary": ("token", first_block.tokens(model)), "averaged": ("token", rows)}
    heads = np.asarray(first_block.cosine(query, keys.repeat(model.config.group, axis=1)))
    variables["head_cosine"] = (("vector", "head"), heads)
    return xarray.Dataset(variables, {"vector": [BOS, MEAN]}, about)


def others(data: xarray.Dataset, ordinary: bool = True) -> NDArray[np.intp]:
    """Return the ordinary tokens except the BOS, or the special ones and unused rows: int[token]."""
    return np.flatnonzero((data["ordinary"].values == ordinary) & (np.arange(data.sizes["token"]) != data.attrs["bos"]))


def key_rows(read: Numbers, of: Calculation, kind: Literal["direction", "size"]) -> list[Row]:
    """Cosines of the mean query with both keys, or their norms (`NUMBERS`), ranked among the ordinary tokens."""
    data, rows = read.data(of.name), []
    repeated = (read.architecture.heads / read.architecture.kv_heads) ** 0.5  # norm of a key repeated to query heads over its own
    for vector, (name, variable) in itertools.product((BOS, MEAN), NUMBERS[kind].items()):
        factor = repeated if kind == "size" and "repeated" in name else 1.0
        value = float(factor * data[variable].sel(vector=vector))
        rank = Rank.among(value, factor * data[f"token_{variable}"].values[others(data)])
        rows.append(Row(vector, "vector", name, constant(value), rank=rank))
    return rows


def vocabulary(read: Numbers, of: Calculation) -> Drawing:
    """Cosine against norm: every token's key, with the BOS and the mean embedding among them."""
    data = read.data(of.name)
    ordinary, special = (others(data, kind) for kind in (True, False))
    rng = intervals.generator(read.settings.seed, "kiya/embedding dots")
    drawn = rng.choice(ordinary, min(DOTS, ordinary.size), replace=False)
    kinds = {f"{drawn.size:,} of {ordinary.size:,} ordinary tokens": drawn, "special tokens and unused rows": special}

    def clouds(name: str) -> list[Cloud]:
        norm, cosine = data["token_key_norm"].values, data[f"token_{name}"].values
        found = [Cloud(kind, norm[rows], cosine[rows], faint=rows is drawn) for kind, rows in kinds.items() if rows.size]
        pair = enumerate(_names(data))
        return found + [Cloud(kind, data["key_norm"].values[[row]], data[name].values[[row]]) for row, kind in pair]

    panels = {title: clouds(name) for name, title in PANELS.items()}
    figure = scatter(panels, "||k|| in layer 0", "cosine of k with the mean query")
    caption = "First-block key of every token, from its embedding only: norm, and cosine with the mean query, joined and by head."
    return read.drawing("vocabulary", figure, caption, of.name)


def key_cosine_by_head(read: Numbers, of: Calculation) -> Drawing:
    """Cosine of the mean query with both keys in each query head."""
    data = read.data(of.name)
    values = zip(_names(data), data["head_cosine"].values.tolist(), strict=True)
    found = [Mark(f"head {head}", constant(cosine), kind) for kind, row in values for head, cosine in enumerate(row)]
    figure = points({"layer 0": found}, "cosine of the key with the mean query", (-1, 1))
    caption = "Cosine of the mean query with the keys of BOS and of the mean embedding in each query head of layer 0."
    return read.drawing("by-head", figure, caption, of.name)


def _names(data: xarray.Dataset) -> tuple[str, str]:
    return f"BOS, {data.attrs['bos_text']}", MEAN


# Scores at all rotary indices (Fig. 3).


SCORE_VARIABLES = ("control_mean_score", "control_received", "mean_score", "received", "score")


def first_scores(settings: Scored, tokens: int, model: Model, batch: Batch) -> xarray.Dataset:
    """Scores of the mean query with the keys of BOS and of the mean embedding, at all pairs of rotary indices.

    Args:
        settings: The study's settings.
        tokens: How many random ordinary tokens take the place of the BOS.
        model: The model; it must have a BOS.
        batch: Not read.
    """
    pair, _, about = bos_and_mean(settings, model)
    ordinary = np.flatnonzero(first_block.averaged(model, about["bos"], special=False))
    drawn = intervals.generator(settings.seed, "kiya/rope controls").choice(ordinary, min(tokens, ordinary.size), replace=False)
    vectors = jnp.concatenate([pair, model.params["embed"][jnp.asarray(drawn)].astype(pair.dtype)])
    queries, keys = first_block.project(model.params, vectors, model.config)
    scores, means, received = map(np.asarray, first_block.grid(queries[1], keys, model.config, settings.indices))
    variables = {
        "score": (("vector", "head", "query", "key"), scores),
        "mean_score": (("vector", "head"), means[:2]),
        "received": (("vector", "head", "key"), received[:2]),
        "control_mean_score": (("control", "head"), means[2:]),
        "control_received": (("control", "head", "key"), received[2:]),
    }
    return xarray.Dataset(variables, {"vector": [BOS, MEAN], "control": drawn}, about)


def scores_of_bos(read: Numbers, of: Calculation) -> list[Row]:
    """The mean score of both keys, and the attention that each would receive at index 0, ranked among random ordinary tokens."""
    data, rows = read.data(of.name), []

    def numbers(kind: str) -> dict[str, NDArray[Any]]:
        score, received = data[f"{kind}mean_score"].values, data[f"{kind}received"].values[..., 0]
        by_name = {"score, mean over pairs": score, "attention at index 0 (%)": 100 * received}
        return by_name | {"heads that would sink on index 0 (%)": 100.0 * (received > read.settings.eps)}

    for name, values in numbers("").items():
        means, random = values.mean(axis=1), numbers("control_")[name].mean(axis=1)
        for key, mean in zip((BOS, MEAN), means, strict=True):
            rows.append(Row(key, "key", name, constant(float(mean)), constant(float(mean - means[0])), Rank.among(mean, random)))
    of_pairs = data["score"].mean("head").values[:, np.tri(data.sizes["key"], dtype=bool)]  # key <= query
    above = constant(100 * float(np.greater(*of_pairs).mean()))
    return [*rows, Row(BOS, "key", "pairs of indices in which BOS scores above the mean key (%)", above)]


def depends_on_distance(read: Numbers, of: Calculation) -> tuple[bool, str]:
    """A first-layer score stays the same when both rotary indices move by one."""
    scores = read.data(of.name)["score"].values
    drift = float(np.abs(scores[..., 1:, 1:] - scores[..., :-1, :-1]).max() / np.abs(scores).max())
    return drift <= ROUNDING, f"largest change of a score when both indices move by one: {drift:.1g} of the largest score"


def score_maps(read: Numbers, of: Calculation) -> Drawing:
    """The scores of both keys at all pairs of rotary indices, averaged over heads (Fig. 3)."""
    data = read.data(of.name)
    scores = np.where(np.tri(data.sizes["key"], dtype=bool), data["score"].values, np.nan)
    maps, (x, y, label) = np.moveaxis(scores.mean(axis=1), 2, 1), AXES
    indices, most = list(map(str, range(maps.shape[1]))), float(np.nanmax(np.abs(maps)))
    columns = [heatmaps.MapColumn(name, indices, x) for name in _names(data)]
    figure = heatmaps.grids(columns, [heatmaps.MapRow([*maps], label, (-most, most), signed=True)], indices, y, height=3.3)
    caption = "Score of the mean query at index i with the key of BOS, and of the mean embedding, at index j; mean over heads."
    return read.drawing("scores", figure, caption, of.name)


def would_receive(read: Numbers, of: Calculation) -> Drawing:
    """The attention that one key would receive from mean queries if all other keys were mean keys, by its rotary index."""
    data, size = read.data(of.name), read.settings.indices
    shown = np.unique(np.linspace(0, size - MIN_QUERIES, POINTS).round().astype(int)).tolist()
    bos, mean = (intervals.intervals(values.T) for values in 100 * data["received"].values[..., shown])
    even = 100 * (np.cumsum(1 / np.arange(size, 0, -1))[::-1] / np.arange(size, 0, -1))[shown]
    curves: dict[str, Any] = {"key of BOS": bos, "mean key": mean, "spread evenly": map(constant, even)}
    rows = [Line(name, shown, [*values]) for name, values in curves.items()]
    figure = lines([[Panel("layer 0, mean over heads", "attention received (%)", rows)]], "rotary index of the key")
    caption = """Attention that one key would receive from mean queries if all other keys were mean keys. If rotary index 0 were a
        cause, the mean key would stand out there. Bands: 95% intervals over heads."""
    return read.drawing("would-receive", figure, caption, of.name)
