"""kiya/embedding: does the BOS attract by direction before any context or position is mixed in (section 3).

e_bos is the embedding of BOS, e_avg the mean of the others; k = RMSNorm(e) W_K and q_avg = RMSNorm(e_avg) W_Q in the first block.
With grouped keys the paper's cosine and norm need a convention that it does not state, so each is given by every one of them.
The control of BOS is the vocabulary: every other token's key, in its place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import sinkjax.studies as st
from sinkjax.analysis import intervals
from sinkjax.analysis.rules import constant
from sinkjax.config_files.checks import refuse
from sinkjax.studies.papers.kiya import _bos as bos

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure as Picture

    from sinkjax.checkpoints.model import Model

STORE = "embeddings"
BOS, MEAN, PAPER_BOS, PAPER_MEAN = "BOS", "mean of the others", "BOS, in the paper", "mean of the others, in the paper"
NORMS = {"||k||, key-value heads joined": "kv", "||k||, repeated to query heads": "repeated"}
COSINES = {
    "cosine with q_avg, key-value heads joined": "cosine_kv",
    "cosine with q_avg, repeated to query heads": "cosine_repeated",
    "cosine with q_avg, mean over query heads": "cosine_heads",
}
CLOSE = 0.02  # relative difference within which a convention gives the paper's number
LLAMA_3B = {"layers": 28, "width": 3072, "heads": 24, "kv_heads": 8, "head_dim": 128, "vocab_size": 128256}
DOTS = 4000  # ordinary tokens drawn; more would only darken the cloud
PANELS = {"cosine_repeated": "query heads joined, keys repeated", "cosine_heads": "mean over query heads"}


@dataclass(frozen=True, kw_only=True)
class Embedding(st.StudyConfig):
    """Keys and queries of the first block made from embeddings alone: the BOS against the mean of the others (section 3).

    No text is read. The BOS is `bos` if that is a token id, else the one that the model's files name.
    """

    special: bool = False
    """whether special tokens other than the BOS enter the mean embedding"""
    published: tuple[float, ...] = (26.155, 100.611, 0.521, 0.010)
    """the paper's ||k_bos||, ||k_avg||, cos(q_avg, k_bos) and cos(q_avg, k_avg) of Llama-3.2-3B"""
    percentile: float = 95.0
    """among the vocabulary's tokens, where the BOS must lie for its direction to be called special"""

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(len(self.published) != 4, f"published takes four numbers, not {len(self.published)}")
        refuse(not 0 < self.percentile < 100, f"percentile must lie between 0 and 100, not {self.percentile}")


def compute(config: Embedding, model: Model, batch: st.Batch) -> xarray.Dataset:
    """Norms and cosines of BOS, of the mean embedding and of every token. Raises where the model has no BOS."""
    import jax.numpy as jnp
    import xarray

    from sinkjax.studies.papers.kiya import _first_block as first_block

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
    return xarray.Dataset(variables, coords={"vector": [BOS, MEAN]}, attrs={"bos": found.id, "bos_text": found.text})


def others(data: xarray.Dataset) -> NDArray[np.bool_]:
    """The ordinary tokens but the BOS: bool[token]."""
    return np.asarray(data["ordinary"].values & (np.arange(data.sizes["token"]) != data.attrs["bos"]))


def ranked(results: st.Results, vector: str, measure: str) -> st.Row:
    """A norm or cosine of BOS or of the mean embedding, ranked among the ordinary tokens."""
    data, architecture = results[STORE], results.architecture
    repeats = {"kv": 1.0, "repeated": (architecture.heads / architecture.kv_heads) ** 0.5}
    name, factor = ("key_norm", repeats[NORMS[measure]]) if measure in NORMS else (COSINES[measure], 1.0)
    value, tokens = float(factor * data[name].sel(vector=vector)), factor * data[f"token_{name}"].values[others(data)]
    rank = float(intervals.percentile_among(value, tokens))
    return st.Row(vector, "vector", measure, constant(value), percentile=rank, controls=len(tokens))


def rows(results: st.Results) -> list[st.Row]:
    """BOS and the mean embedding by each convention; of Llama-3.2-3B, the paper's numbers too."""
    found = [ranked(results, vector, measure) for vector in (BOS, MEAN) for measure in (*NORMS, *COSINES)]
    if is_llama_3b(results.architecture):
        k_bos, k_avg, cos_bos, cos_avg = results.config.published
        for condition, norm, cosine in ((PAPER_BOS, k_bos, cos_bos), (PAPER_MEAN, k_avg, cos_avg)):
            published = dict.fromkeys(NORMS, norm) | dict.fromkeys(COSINES, cosine)
            found += [st.Row(condition, "paper", name, constant(value)) for name, value in published.items()]
    return found


def is_llama_3b(architecture: Any) -> bool:
    """Whether a model has the architecture of Llama-3.2-3B, to which the paper's four numbers belong."""
    return all(getattr(architecture, name) == size for name, size in LLAMA_3B.items())


def number(measure: str, vector: str) -> st.Quantity:
    return st.quantity(f"{measure} ({vector})", lambda results: ranked(results, vector, measure))


def claims(config: Embedding, architecture: Any) -> Iterator[st.Claim]:
    """The paper's two statements."""
    k_bos, k_avg, cos_bos, cos_avg = config.published
    direction = [
        st.all_of(st.more_than(number(name, BOS), number(name, MEAN)), st.ranked_from(number(name, BOS), config.percentile))
        for name in COSINES
    ]
    words = f"""by every convention the cosine with k_bos is above that with k_avg and at percentile {config.percentile:g} or
        higher among the ordinary tokens"""
    yield st.Claim(
        "BOS attracts by direction: q_avg has a larger cosine with k_bos than with k_avg in the first layer (section 3).",
        dataclasses.replace(st.all_of(*direction), words=" ".join(words.split())),
        paper=f"{cos_bos} against {cos_avg} (Llama-3.2-3B)",
    )
    shorter = st.all_of(*(st.less_than(number(name, BOS), number(name, MEAN)) for name in NORMS))
    yield st.Claim(
        "BOS does not attract by size: its key is shorter than that of the mean embedding (section 3).",
        dataclasses.replace(shorter, words="||k_bos|| is below ||k_avg||"),
        paper=f"{k_bos} against {k_avg} (Llama-3.2-3B)",
    )


def findings(config: Embedding, architecture: Any) -> Iterator[st.Quantity]:
    yield from (number(name, vector) for name in (*NORMS, *COSINES) for vector in (BOS, MEAN))
    for share in (0.025, 0.5, 0.975):
        name = f"cosine with q_avg, repeated to query heads ({share:.1%} quantile of the ordinary tokens)"
        yield st.quantity(name, partial(quantile, share))
    yield st.quantity(
        f"query heads, of {architecture.heads}, in which q_avg points towards k_bos",
        lambda results: float((results[STORE]["head_cosine"].sel(vector=BOS).values >= 0).sum()),
    )
    if is_llama_3b(architecture):
        k_bos, k_avg, cos_bos, cos_avg = config.published
        for what, names, published in (("norms", NORMS, (k_bos, k_avg)), ("cosines", COSINES, (cos_bos, cos_avg))):
            rules = {f"“{name}”": fits(name, *published) for name in names}
            yield st.number_of(rules, f"conventions that give the paper's {what} within {CLOSE:.0%}")


def quantile(share: float, results: st.Results) -> float:
    data = results[STORE]
    return float(np.quantile(data["token_cosine_repeated"].values[others(data)], share))


def fits(measure: str, of_bos: float, of_mean: float) -> st.Rule:
    """Whether a convention gives the paper's two numbers."""

    def test(results: st.Results) -> tuple[bool, tuple[st.Estimate, ...]]:
        pairs = ((number(measure, BOS)(results), of_bos), (number(measure, MEAN)(results), of_mean))
        return all(abs(ours.mean - paper) <= max(CLOSE * abs(paper), 0.0005) for ours, paper in pairs), ()

    return st.Rule(f"{measure} is that of the paper", test)


def figures(config: Embedding, architecture: Any) -> Iterator[st.Figure]:
    drawn = partial(st.drawn, store=STORE, bands=False, text=False)
    yield drawn(
        *("vocabulary", vocabulary),
        """The first block's key of every token made from its embedding alone: its length (key-value heads joined) and its cosine
        with the mean query, of the joined heads and averaged over heads.""",
    )
    yield drawn(
        *("by-head", by_head),
        """Cosine of the mean query with the key of BOS and with that of the mean embedding in each query head of layer 0.""",
    )


def vocabulary(results: st.Results) -> Picture:
    """Cosine against norm: every token's key, with the BOS and the mean embedding among them."""
    from sinkjax.report.figures.scatter import Cloud, scatter

    data, ordinary = results[STORE], np.flatnonzero(others(results[STORE]))
    rng = intervals.generator(results.config.seed, "kiya/embedding dots")
    drawn = rng.choice(ordinary, min(DOTS, ordinary.size), replace=False)
    special = np.flatnonzero(~data["ordinary"].values & (np.arange(data.sizes["token"]) != data.attrs["bos"]))
    kinds = {f"{drawn.size:,} of {ordinary.size:,} ordinary tokens": drawn, "special tokens and unused rows": special}

    def clouds(name: str) -> list[Cloud]:
        norm, cosine = data["token_key_norm"].values, data[f"token_{name}"].values
        found = [Cloud(kind, norm[rows], cosine[rows], faint=rows is drawn) for kind, rows in kinds.items() if rows.size]
        pair = enumerate(vectors(data))
        return found + [Cloud(kind, data["key_norm"].values[[row]], data[name].values[[row]]) for row, kind in pair]

    titles = {title: clouds(name) for name, title in PANELS.items()}
    return scatter(titles, "||k|| in layer 0", "cosine of k with the mean query")


def by_head(results: st.Results) -> Picture:
    """Cosine of the mean query with both keys in each query head."""
    from sinkjax.report.figures.points import Point, points

    data = results[STORE]
    values = zip(vectors(data), data["head_cosine"].values.tolist(), strict=True)
    found = [Point(f"head {head}", constant(cosine), kind) for kind, row in values for head, cosine in enumerate(row)]
    return points({"layer 0": found}, "cosine of the key with the mean query", (-1, 1))


def vectors(data: xarray.Dataset) -> tuple[str, str]:
    """The BOS and the mean embedding in the legends."""
    return f"BOS, {data.attrs['bos_text']}", MEAN


def notes(config: Embedding, results: st.Results) -> tuple[str, ...]:
    data = results[STORE]
    return (
        f"""The mean is over {int(data["averaged"].sum()):,} embeddings: all tokens but the BOS; special tokens
        {"are in" if config.special else "are left out"}, and rows that no token uses are left out. Keys and queries are those of
        layer 0, with biases, before the rotation.""",
        f"""The numbers come from the parameters alone, so they have no intervals; percentiles are among the keys of all
        {int(data["ordinary"].sum()):,} ordinary tokens, each in the place of the BOS. Nothing is edited.""",
        """Key-value heads joined: the queries of a group are averaged, and the heads' vectors laid end to end. Repeated: each key
        stands once for every query head that reads it. The paper does not say which of them it used.""",
        f"""The model is taken for Llama-3.2-3B, and the paper's numbers are set beside its own, if it has
        {", ".join(f"{name} {size}" for name, size in LLAMA_3B.items())}; what its weights are is not checked.""",
    )


def provenance(results: st.Results) -> Mapping[str, Any]:
    from sinkjax.studies import folder

    data = results[STORE]
    return folder.provenance(data) | {"BOS token": f"{data.attrs['bos_text']!r} ({data.attrs['bos']})"}


STUDY = st.Study(
    name="kiya/embedding",
    config=Embedding,
    title="Direction and size of the BOS's first key",
    question="""Kiya et al. 2026: in the first layer of Llama-3.2-3B the key of BOS is shorter than that of the mean embedding but
        points where the mean query points, so BOS attracts by its direction and not by its size.""",
    needs=("norm", "pre-norm", "embedding without positions"),
    check=lambda config, architecture: bos.expect(config),
    more=lambda config, architecture: (st.Calculation(STORE, partial(compute, config), 1, st.Inputs(bos="none")),),
    rows=rows,
    claims=claims,
    findings=findings,
    figures=figures,
    notes=notes,
    provenance=provenance,
)
