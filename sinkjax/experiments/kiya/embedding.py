"""kiya/embedding: does the BOS attract by direction before any context or position is mixed in (section 3).

e_bos is the embedding of BOS, e_avg the mean of the others; k = RMSNorm(e) W_K and q_avg = RMSNorm(e_avg) W_Q in the first block.
With grouped keys the paper's cosine and norm need a convention that it does not state, so each is given by every one of them.
The control of BOS is the vocabulary: every other token's key, in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.base import Batch, Calculation, Claim, Inputs, Section
from sinkjax.experiments.kiya import bos
from sinkjax.experiments.kiya.config import Embedding
from sinkjax.experiments.kiya.embedding_figures import drawings
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import LEVEL, Row
from sinkjax.experiments.words import verdict
from sinkjax.model.config import Config
from sinkjax.report.table import number
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model

STORES = ("embeddings",)
BOS, MEAN, PAPER_BOS, PAPER_MEAN = "BOS", "mean of the others", "BOS, in the paper", "mean of the others, in the paper"
NORMS = {"||k||, key-value heads joined": "kv", "||k||, repeated to query heads": "repeated"}
COSINES = {
    "cosine with q_avg, key-value heads joined": "cosine_kv",
    "cosine with q_avg, repeated to query heads": "cosine_repeated",
    "cosine with q_avg, mean over query heads": "cosine_heads",
}
CLOSE = 0.02  # relative difference within which a convention gives the paper's number
LLAMA_3B = {"layers": 28, "width": 3072, "heads": 24, "kv_heads": 8, "head_dim": 128, "vocab_size": 128256}
CLAIM = (
    "Kiya et al. 2026: in the first layer of Llama-3.2-3B the key of BOS is shorter than that of the mean embedding but points"
    " where the mean query points, so BOS attracts by its direction and not by its size."
)


def jobs(config: Embedding, architecture: Config) -> tuple[Calculation, ...]:
    """One calculation on the parameters; no text is read. Errors: a model without a BOS."""
    needs("kiya/embedding", architecture, "norm", "pre-norm", "embedding without positions")
    bos.expect(config)
    return (Calculation("embeddings", partial(compute, config), 1, Inputs(bos="none")),)


def compute(config: Embedding, model: Model, batch: Batch) -> xarray.Dataset:
    """Norms and cosines of BOS, of the mean embedding and of every token. Errors: a model without a BOS."""
    import jax.numpy as jnp
    import xarray

    from sinkjax.experiments.kiya import first_block

    found = bos.require(config.bos, model)
    embed, rows = model.params["embed"], first_block.averaged(model, found.id, config.special)
    mean = first_block.mean_embedding(embed, rows)
    pair = jnp.stack([embed[found.id].astype(mean.dtype), mean])
    queries, keys = first_block.project(model.params, pair, model.config)
    heads = first_block.by_head(queries[1], keys, model.config)
    pairs = first_block.against(model.params, pair, queries[1], model.config)
    tokens = first_block.against(model.params, embed, queries[1], model.config)
    variables: dict[str, Any] = {name: ("vector", np.asarray(array)) for name, array in pairs.items()}
    variables |= {f"token_{name}": ("token", np.asarray(array)) for name, array in tokens.items()}
    variables |= {
        "head_cosine": (("vector", "head"), np.asarray(heads["cosine"])),
        "head_norm": (("vector", "kv_head"), np.asarray(heads["norm"])),
        "query_norm": ("head", np.asarray(heads["query_norm"])),
        "embedding_norm": ("vector", np.linalg.norm(np.asarray(pair), axis=-1)),
        "ordinary": ("token", first_block.ordinary(model)),
        "averaged": ("token", rows),
    }
    attributes = {"bos": found.id, "bos_text": found.text}
    return xarray.Dataset(variables, coords={"vector": [BOS, MEAN]}, attrs=attributes)


def section(config: Embedding, stores: Mapping[str, xarray.Dataset]) -> Section:
    """The norms and cosines, by each convention, and what the paper's statements come to."""
    data = stores["embeddings"].load()
    same = is_llama_3b(data)
    rows = _rows(config, data, same)
    return Section(
        experiment="kiya/embedding",
        title="Direction and size of the BOS's first key",
        claim=CLAIM,
        findings=_findings(config, data, rows, same),
        rows=rows,
        featured=tuple(dict.fromkeys(row.arm for row in rows)),
        drawings=drawings(config, data),
        notes=_notes(config, data),
        provenance=results.provenance(data) | {"BOS token": f"{data.attrs['bos_text']!r} ({data.attrs['bos']})"},
        claims=_claims(config, rows),
    )


def is_llama_3b(data: xarray.Dataset) -> bool:
    """Whether a store's model has the architecture of Llama-3.2-3B, to which the paper's four numbers belong."""
    architecture = data.attrs["sweep"]["config"]
    return all(architecture[name] == size for name, size in LLAMA_3B.items())


def _exact(value: float) -> Interval:
    """A number that comes from parameters alone, so that no interval belongs to it."""
    return Interval(value, None, None, 1, 0, LEVEL, "none")


def _rows(config: Embedding, data: xarray.Dataset, same: bool) -> tuple[Row, ...]:
    """BOS and the mean embedding by each convention, ranked among the ordinary tokens."""
    architecture = data.attrs["sweep"]["config"]
    others = data["ordinary"].values & (np.arange(data.sizes["token"]) != data.attrs["bos"])
    factor = {"kv": 1.0, "repeated": (architecture["heads"] / architecture["kv_heads"]) ** 0.5}
    columns = {name: ("key_norm", factor[kind]) for name, kind in NORMS.items()} | {
        name: (of, 1.0) for name, of in COSINES.items()
    }
    rows = []
    for arm in (BOS, MEAN):
        for measure, (name, times) in columns.items():
            value = float(times * data[name].sel(vector=arm))
            rank = float(intervals.percentile_among(value, times * data[f"token_{name}"].values[others]))
            rows.append(Row(arm, "vector", measure, _exact(value), percentile=rank, controls=int(others.sum())))
    if same:
        k_bos, k_avg, cos_bos, cos_avg = config.published
        for arm, norm, cosine in ((PAPER_BOS, k_bos, cos_bos), (PAPER_MEAN, k_avg, cos_avg)):
            rows += [Row(arm, "paper", name, _exact(norm)) for name in NORMS]
            rows += [Row(arm, "paper", name, _exact(cosine)) for name in COSINES]
    return tuple(rows)


def _value(rows: tuple[Row, ...], arm: str, measure: str) -> tuple[float, float]:
    """Value and percentile of a row."""
    row = next(row for row in rows if (row.arm, row.measure) == (arm, measure))
    return row.value.mean or 0.0, row.percentile or 0.0


def _findings(config: Embedding, data: xarray.Dataset, rows: tuple[Row, ...], same: bool) -> tuple[str, ...]:
    """What the numbers say, in sentences."""
    joined, repeated = NORMS
    others = data["ordinary"].values & (np.arange(data.sizes["token"]) != data.attrs["bos"])
    low, middle, high = np.quantile(data["token_cosine_repeated"].values[others], [0.025, 0.5, 0.975])
    cosines = "; ".join(
        f"{name.removeprefix('cosine with q_avg, ')}: {number(_value(rows, BOS, name)[0])} against"
        f" {number(_value(rows, MEAN, name)[0])} (BOS at percentile {_value(rows, BOS, name)[1]:.0f} of the ordinary tokens)"
        for name in COSINES
    )
    negative = [head for head, cosine in enumerate(data["head_cosine"].sel(vector=BOS).values) if cosine < 0]
    heads = data.sizes["head"]
    return (
        f"||k_bos|| is {number(_value(rows, BOS, joined)[0])} and ||k_avg|| {number(_value(rows, MEAN, joined)[0])}, key-value"
        f" heads joined ({number(_value(rows, BOS, repeated)[0])} and {number(_value(rows, MEAN, repeated)[0])} when they are"
        " repeated to query heads).",
        f"Cosine of q_avg with k_bos against that with k_avg. {cosines[0].upper()}{cosines[1:]}.",
        f"Of the ordinary tokens' cosines (repeated to query heads) 95 % lie between {number(low)} and {number(high)}, the median"
        f" is {number(middle)}.",
        f"Head by head, q_avg points towards k_bos in {heads - len(negative)} of {heads} query heads and away from it in"
        f" {len(negative)}.",
        *([_beside(config, rows)] if same else []),
    )


def _beside(config: Embedding, rows: tuple[Row, ...]) -> str:
    """Which conventions give the paper's numbers, for the model that has them."""
    k_bos, k_avg, cos_bos, cos_avg = config.published

    def fitting(names: Mapping[str, str], of_bos: float, of_avg: float) -> str:
        def near(ours: float, paper: float) -> bool:
            return abs(ours - paper) <= max(CLOSE * abs(paper), 0.0005)

        fits = [name for name in names if near(_value(rows, BOS, name)[0], of_bos) and near(_value(rows, MEAN, name)[0], of_avg)]
        return " and ".join(f"“{name}”" for name in fits) or "none of these conventions"

    return (
        f"The model has the architecture of Llama-3.2-3B, for which the paper gives ||k_bos|| {k_bos}, ||k_avg|| {k_avg}, cosines"
        f" {cos_bos} and {cos_avg}: its norms come from {fitting(NORMS, k_bos, k_avg)}, its cosines from"
        f" {fitting(COSINES, cos_bos, cos_avg)} (within {CLOSE:.0%})."
    )


def _claims(config: Embedding, rows: tuple[Row, ...]) -> tuple[Claim, ...]:
    """The paper's two statements."""
    k_bos, k_avg, cos_bos, cos_avg = config.published
    pairs = {name: (_value(rows, BOS, name), _value(rows, MEAN, name)) for name in (*NORMS, *COSINES)}
    direction = all(ours > mean and rank >= config.percentile for (ours, rank), (mean, _) in (pairs[name] for name in COSINES))
    shorter = all(ours < mean for (ours, _), (mean, _) in (pairs[name] for name in NORMS))

    def words(names: Mapping[str, str]) -> str:
        return "; ".join(
            f"{name}: {number(pairs[name][0][0])} against {number(pairs[name][1][0])}, percentile {pairs[name][0][1]:.1f}"
            for name in names
        )

    return (
        Claim(
            "BOS attracts by direction: q_avg has a larger cosine with k_bos than with k_avg in the first layer (section 3).",
            verdict(direction),
            f"Rule: by every convention the cosine with k_bos is above that with k_avg and at percentile {config.percentile:g} or"
            f" higher among ordinary tokens. BOS against mean: {words(COSINES)}.",
            f"{cos_bos} against {cos_avg} (Llama-3.2-3B)",
        ),
        Claim(
            "BOS does not attract by size: its key is shorter than that of the mean embedding (section 3).",
            verdict(shorter),
            f"Rule: ||k_bos|| is below ||k_avg||. BOS against mean: {words(NORMS)}.",
            f"{k_bos} against {k_avg} (Llama-3.2-3B)",
        ),
    )


def _notes(config: Embedding, data: xarray.Dataset) -> tuple[str, ...]:
    """How the numbers were made."""
    inside = "are in" if config.special else "are left out"
    return (
        f"The mean is over {int(data['averaged'].sum()):,} embeddings: all tokens but the BOS; special tokens {inside}, and rows"
        " that no token uses are left out. Keys and queries are those of layer 0, biases in, before the rotation.",
        "The numbers come from the parameters alone, so they have no intervals; percentiles are among the keys of all"
        f" {int(data['ordinary'].sum()):,} ordinary tokens, each in the place of the BOS. Nothing is edited.",
        "Key-value heads joined: the queries of a group are averaged, and the heads' vectors laid end to end. Repeated: each key"
        " stands once for every query head that reads it. The paper does not say which of them it used.",
        "The model is taken for Llama-3.2-3B, and the paper's numbers are set beside its own, if it has "
        + ", ".join(f"{name} {size}" for name, size in LLAMA_3B.items())
        + "; what its weights are is not checked.",
    )
