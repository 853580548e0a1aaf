"""kiya/rope: is rotary index 0 a cause of the sink (Fig. 3).

The score of a mean query at rotary index i with a key at index j, q_avg' R_i R_j' k / sqrt(head width), in every head of the
first block: for the key of BOS and for that of the mean embedding. Were index 0 a cause, a mean key there would draw attention.
What it would receive is the softmax over a row in which all other keys are mean keys. Controls put random ordinary tokens in the
place of BOS.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.config_files.checks import MIN_QUERIES
from sinkjax.experiments.base import Batch, Calculation, Claim, Inputs, Section
from sinkjax.experiments.kiya import bos, first_block
from sinkjax.experiments.kiya.config import Rope
from sinkjax.experiments.kiya.rope_figures import drawings
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import Row
from sinkjax.experiments.words import verdict
from sinkjax.model import rope
from sinkjax.model.config import Config
from sinkjax.report.table import interval, number
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model

STORES = ("grid",)
BOS, MEAN = "BOS", "mean of the others"
SCORE, RECEIVED, SINKS = "score, mean over pairs", "attention at index 0 (%)", "heads that would sink on index 0 (%)"
MOST = 0.95  # of pairs, for a score to be high everywhere
FEW = 5.0  # per cent of heads, below which an index is no sink
CLAIM = (
    "Kiya et al. 2026: in the first layer the mean query's score with the key of BOS is high whatever the rotary indices of the"
    " two are; with a mean key it varies, and no key index is high throughout, so rotary index 0 is very probably not a cause."
)


def jobs(config: Rope, architecture: Config) -> tuple[Calculation, ...]:
    """One calculation on the parameters; no text is read. Errors: a model without a BOS."""
    needs("kiya/rope", architecture, "rotary positions", "norm", "pre-norm", "softmax")
    bos.expect(config)
    return (Calculation("grid", partial(compute, config), 1, Inputs(bos="none")),)


def compute(config: Rope, model: Model, batch: Batch) -> xarray.Dataset:
    """The grid of scores and what a key at each index would receive. Errors: a model without a BOS."""
    import xarray

    found = bos.require(config.bos, model)
    embed = model.params["embed"]
    mean = first_block.mean_embedding(embed, first_block.averaged(model, found.id, config.special))
    ordinary = np.setdiff1d(np.flatnonzero(first_block.ordinary(model)), [found.id])
    drawn = intervals.generator(config.seed, "kiya/rope controls").choice(
        ordinary, min(config.controls, ordinary.size), replace=False
    )
    vectors = jnp.concatenate(
        [embed[found.id][None].astype(mean.dtype), mean[None], embed[jnp.asarray(drawn)].astype(mean.dtype)]
    )
    queries, keys = first_block.project(model.params, vectors, model.config)
    scores, means, received = grid(queries[1], keys, model.config, config.indices)
    variables = {
        "score": (("vector", "head", "query", "key"), np.asarray(scores)),
        "mean_score": (("vector", "head"), np.asarray(means[:2])),
        "received": (("vector", "head", "key"), np.asarray(received[:2])),
        "control_mean_score": (("control", "head"), np.asarray(means[2:])),
        "control_received": (("control", "head", "key"), np.asarray(received[2:])),
    }
    attributes = {"bos": found.id, "bos_text": found.text}
    return xarray.Dataset(variables, coords={"vector": [BOS, MEAN], "control": drawn}, attrs=attributes)


@partial(jax.jit, static_argnames=("config", "size"))
def grid(query_HD: jax.Array, keys_NKD: jax.Array, config: Config, size: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Scores of one query with N keys at all rotary indices 0 to size - 1 of both; the second key is the mean embedding's.

    Returns the scores of the first two keys [2, H, query index, key index]; of every key the mean score over pairs key <= query
    [N, H]; and the attention that it would receive at each index [N, H, key index].
    """
    frequencies, factor = rope.frequencies(config.rope, config.head_dim, jnp.array([size]), query_HD.dtype)
    tables = rope.tables(jnp.arange(size)[None], frequencies, factor)
    query_THD = rope.rotate(jnp.broadcast_to(query_HD, (1, size, *query_HD.shape)), *tables)[0] * config.scale
    causal = jnp.tri(size, dtype=bool)

    def scores(key_KD: jax.Array) -> jax.Array:
        key_TKD = rope.rotate(jnp.broadcast_to(key_KD, (1, size, *key_KD.shape)), *tables)[0]
        return jnp.einsum("IHD,JHD->HIJ", query_THD, jnp.repeat(key_TKD, config.group, axis=1), precision="highest")

    others = scores(keys_NKD[1])

    def one(key_KD: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = scores(key_KD)
        return jnp.where(causal, found, 0).sum(axis=(-2, -1)) / causal.sum(), received(found, others)

    means, attention = jax.lax.map(one, keys_NKD)
    return jnp.stack([scores(keys_NKD[0]), others]), means, attention


def received(scores_HIJ: jax.Array, others_HIJ: jax.Array) -> jax.Array:
    """What one key would receive at index j, the keys at all other indices <= i being others: [H, J].

    The mean over queries i >= j of exp(scores_ij) / (exp(scores_ij) + sum over j' != j of exp(others_ij')).
    """
    size = scores_HIJ.shape[-1]
    causal = jnp.tri(size, dtype=bool)
    logs = jnp.where(causal, others_HIJ, -jnp.inf)
    nothing = jnp.full_like(logs[..., :1], -jnp.inf)
    before = jnp.concatenate([nothing, jax.lax.cumlogsumexp(logs, axis=logs.ndim - 1)[..., :-1]], axis=-1)
    after = jnp.concatenate([jax.lax.cumlogsumexp(logs, axis=logs.ndim - 1, reverse=True)[..., 1:], nothing], axis=-1)
    rest = jnp.logaddexp(before, after)  # in logarithms: nothing underflows where one key outweighs all others
    return jnp.where(causal, jax.nn.sigmoid(scores_HIJ - rest), 0).sum(axis=-2) / (size - jnp.arange(size))


def section(config: Rope, stores: Mapping[str, xarray.Dataset]) -> Section:
    """The scores over heads, the figures, and what the paper's statements come to."""
    data = stores["grid"].load()
    rows = _rows(config, data)
    return Section(
        experiment="kiya/rope",
        title="Rotary indices of the first block's scores",
        claim=CLAIM,
        findings=_findings(config, data, rows),
        rows=rows,
        featured=(BOS, MEAN),
        drawings=drawings(config, data),
        notes=_notes(config, data),
        provenance=results.provenance(data) | {"BOS token": f"{data.attrs['bos_text']!r} ({data.attrs['bos']})"},
        claims=_claims(config, data, rows),
    )


def _rows(config: Rope, data: xarray.Dataset) -> tuple[Row, ...]:
    """Each measure over heads, BOS compared with the mean, and both ranked among random ordinary tokens."""
    measured = {
        SCORE: (data["mean_score"].values, data["control_mean_score"].values),
        RECEIVED: (100 * data["received"].values[..., 0], 100 * data["control_received"].values[..., 0]),
        SINKS: tuple(100.0 * (data[name].values[..., 0] > config.eps) for name in ("received", "control_received")),
    }
    rows = []
    for number_, arm in enumerate((BOS, MEAN)):
        for name, (values, controls) in measured.items():
            rank = float(intervals.percentile_among(values[number_].mean(), controls.mean(axis=-1)))
            value = intervals.interval(values[number_], seed=config.seed)
            effect = intervals.paired_differences(values[number_][None], values[0], seed=config.seed)[0]
            rows.append(Row(arm, "key", name, value, effect, rank, len(controls)))
    return tuple(rows)


def _causal(data: xarray.Dataset) -> NDArray:
    """Scores averaged over heads, of the pairs key <= query: float[vector, pair]."""
    return data["score"].mean("head").values[:, np.tri(data.sizes["key"], dtype=bool)]


def uniform(size: int) -> NDArray:
    """What each index would receive if every query spread its attention evenly: float[key]."""
    return np.cumsum(1 / np.arange(size, 0, -1))[::-1] / np.arange(size, 0, -1)


def _findings(config: Rope, data: xarray.Dataset, rows: tuple[Row, ...]) -> tuple[str, ...]:
    """What the numbers say, in sentences."""
    of_bos, of_mean = _causal(data)
    table = {(row.arm, row.measure): row for row in rows}
    size = data.sizes["key"]
    shift = data["score"].values
    drift = np.abs(shift[..., 1:, 1:] - shift[..., :-1, :-1]).max() / np.abs(shift).max()
    every = 100 * data["received"].sel(vector=MEAN).mean("head").values[: size - MIN_QUERIES + 1]
    even = 100 * uniform(size)[: every.size]
    return (
        f"Averaged over heads, the score of the mean query with the key of BOS lies between {number(of_bos.min())} and"
        f" {number(of_bos.max())} over all pairs of indices up to {size - 1} with the key not after the query, and with a mean"
        f" key between {number(of_mean.min())} and {number(of_mean.max())}; that of BOS is the larger in"
        f" {(of_bos > of_mean).mean():.1%} of pairs.",
        f"Scores depend on the distance of the two indices alone (moving both by one changes none by more than {drift:.0e} of the"
        " largest), so index 0 is set apart only by having no key before it.",
        f"With mean keys everywhere, index 0 would receive {interval(table[MEAN, RECEIVED].value)} % of attention, where evenly"
        f" spread attention gives {number(even[0])} %; over all indices that at least {MIN_QUERIES} queries see, the ratio of the"
        f" two lies between {number((every / even).min())} and {number((every / even).max())}.",
        f"With the key of BOS at index 0 and mean keys elsewhere, index 0 would receive {interval(table[BOS, RECEIVED].value)} %"
        f" (percentile {table[BOS, RECEIVED].percentile:.0f} among {table[BOS, RECEIVED].controls} random tokens), and"
        f" {interval(table[BOS, SINKS].value)} % of heads would sink on it.",
    )


def _claims(config: Rope, data: xarray.Dataset, rows: tuple[Row, ...]) -> tuple[Claim, ...]:
    """The paper's two statements."""
    of_bos, of_mean = _causal(data)
    table = {(row.arm, row.measure): row for row in rows}
    share, rank = (of_bos > of_mean).mean(), table[BOS, SCORE].percentile or 0.0
    sinks = 100 * (data["received"].sel(vector=MEAN).values > config.eps).mean(axis=0)
    return (
        Claim(
            "In the first layer the score of BOS's key is high at all rotary indices (Fig. 3a).",
            verdict(bool(share >= MOST) and rank >= 100 * MOST),
            f"Rule: averaged over heads, it is above that of a mean key in at least {MOST:.0%} of pairs with key <= query, and"
            f" its mean is at percentile {100 * MOST:g} or higher among random ordinary tokens. It is above in {share:.1%} of"
            f" pairs and at percentile {rank:.0f} of {table[BOS, SCORE].controls}; mean score over heads"
            f" {interval(table[BOS, SCORE].value)} for BOS, {interval(table[MEAN, SCORE].value)} for the mean.",
        ),
        Claim(
            "With a mean key no rotary index is high throughout, so index 0 is very probably not a cause (Fig. 3b).",
            verdict(bool(sinks[0] < FEW)),
            f"Rule: with mean keys at all indices, fewer than {FEW:g} % of heads would sink on index 0 (more than {config.eps} of"
            f" attention, averaged over queries). {number(sinks[0])} % would; it would receive"
            f" {interval(table[MEAN, RECEIVED].value)} % of attention.",
        ),
    )


def _notes(config: Rope, data: xarray.Dataset) -> tuple[str, ...]:
    """How the numbers were made."""
    inside = "in" if config.special else "out"
    return (
        f"Layer 0, {data.sizes['head']} query heads, each with the key-value head that it reads; special tokens other than the"
        f" BOS are {inside} of the mean. Scores are divided by the square root of the head width, as in attention; the paper does"
        " not say whether its own are.",
        f"Values are means over heads with bootstrap 95 % intervals over heads (BCa, 2,000 resamples). The percentiles are among"
        f" {data.sizes['control']} random ordinary tokens in the place of BOS. Nothing is edited.",
        "What an index would receive: the softmax over the keys up to the query, all of which but one are mean keys, averaged"
        f" over the queries from that index to {data.sizes['key'] - 1}.",
    )
