"""kiya/embedding: does BOS attract queries by the direction of its key, before any context or position is mixed in (section 3)?

k = RMSNorm(e) W_K of BOS against q_avg = RMSNorm(e_avg) W_Q of the mean of the others; controls are the keys of all other tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import sinkjax.studies as st
from sinkjax.analysis import intervals
from sinkjax.config_files.checks import refuse
from sinkjax.studies.papers.kiya import _bos

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
    """First-block keys of the BOS (`bos` if a token id, else the model's own) and of the mean embedding; no text is read."""

    special: bool = False
    """whether special tokens other than the BOS enter the mean embedding"""
    published: tuple[float, ...] = (26.155, 100.611, 0.521, 0.010)
    """the paper's ||k_bos||, ||k_avg||, cos(q_avg, k_bos) and cos(q_avg, k_avg) of Llama-3.2-3B"""

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(len(self.published) != 4, f"published takes four numbers, not {len(self.published)}")


def compute(config: Embedding, model: Model, batch: st.Batch) -> xarray.Dataset:
    """Norms and cosines of BOS, of the mean embedding and of every token. Raises where the model has no BOS."""
    import jax
    import xarray

    from sinkjax.studies.papers.kiya import _first_block as first_block

    token, text = _bos.require(config.bos, model)
    params, rows = model.params, first_block.averaged(model, token, config.special)
    pair = first_block.bos_and_mean(params["embed"], token, rows)
    (_, query), keys = first_block.project(params, pair, model.config)
    both, every = (jax.device_get(first_block.against(params, x, query, model.config)) for x in (pair, params["embed"]))
    variables = {name: ("vector", values) for name, values in both.items()}
    variables |= {f"token_{name}": ("token", values) for name, values in every.items()}
    variables |= {"ordinary": ("token", first_block.tokens(model)), "averaged": ("token", rows)}
    heads = np.asarray(first_block.cosine(query, keys.repeat(model.config.group, axis=1)))
    data = xarray.Dataset(variables, coords={"vector": [BOS, MEAN]}, attrs={"bos": token, "bos_text": text})
    return data.assign(head_cosine=(("vector", "head"), heads))


def others(data: xarray.Dataset, ordinary: bool = True) -> NDArray[np.intp]:
    """The ordinary tokens but the BOS, or the special ones and unused rows: int[token]."""
    return np.flatnonzero((data["ordinary"].values == ordinary) & (np.arange(data.sizes["token"]) != data.attrs["bos"]))


def published(config: Embedding) -> dict[tuple[str, str], float]:
    """The paper's numbers, the same for every convention: (vector, measure) -> number."""
    k_bos, k_avg, cos_bos, cos_avg = config.published
    pairs = {BOS: (k_bos, cos_bos), MEAN: (k_avg, cos_avg)}
    return {(vector, name): pairs[vector][name in COSINES] for vector in pairs for name in (*NORMS, *COSINES)}


def rows(results: st.Results) -> list[st.Row]:
    """Both keys by each convention, ranked among the ordinary tokens; of Llama-3.2-3B, the paper's numbers too."""
    data, architecture, paper = results[STORE], results.architecture, published(results.config)
    repeats = {"kv": 1.0, "repeated": (architecture.heads / architecture.kv_heads) ** 0.5}
    found = []
    for vector, measure in paper:
        name, factor = ("key_norm", repeats[NORMS[measure]]) if measure in NORMS else (COSINES[measure], 1.0)
        value, tokens = float(factor * data[name].sel(vector=vector)), factor * data[f"token_{name}"].values[others(data)]
        found.append(st.Row(vector, "vector", measure, st.constant(value), rank=st.Rank.among(value, tokens)))
    if is_llama_3b(architecture):
        labels = {BOS: PAPER_BOS, MEAN: PAPER_MEAN}
        found += [st.Row(labels[vector], "paper", name, st.constant(value)) for (vector, name), value in paper.items()]
    return found


def is_llama_3b(architecture: Any) -> bool:
    """Whether a model has the architecture of Llama-3.2-3B, to which the paper's four numbers belong."""
    return all(getattr(architecture, name) == size for name, size in LLAMA_3B.items())


def claims(config: Embedding, architecture: Any) -> Iterator[st.Claim]:
    k_bos, k_avg, cos_bos, cos_avg = config.published
    cosines, norms = (
        [(st.listed(BOS, name, exact=True), st.listed(MEAN, name, exact=True)) for name in names] for names in (COSINES, NORMS)
    )
    special = (st.all_of(st.above(bos, mean), st.above_controls(bos)) for bos, mean in cosines)
    criterion = """by every convention the cosine with k_bos is above that with k_avg, and among those of the ordinary tokens
        p = (1 + b) / (1 + m) is at most 0.05"""
    yield st.Claim(
        "BOS attracts by direction: in the first layer the mean query has a larger cosine with its key than with the mean key.",
        st.all_of(*special, criterion=" ".join(criterion.split())),
        given=_bos.separates(STORE),
        source="Kiya et al. 2026, section 3",
        paper=f"{cos_bos} against {cos_avg} (Llama-3.2-3B)",
    )
    yield st.Claim(
        "BOS does not attract by size: in the first layer its key is shorter than that of the mean embedding.",
        st.all_of(*(st.below(bos, mean) for bos, mean in norms), criterion="||k_bos|| is below ||k_avg||"),
        given=_bos.separates(STORE),
        source="Kiya et al. 2026, section 3",
        paper=f"{k_bos} against {k_avg} (Llama-3.2-3B)",
    )


def findings(config: Embedding, architecture: Any) -> Iterator[st.Quantity]:
    def quantile(share: float, results: st.Results) -> float:
        return float(np.quantile(results[STORE]["token_cosine_repeated"].values[others(results[STORE])], share))

    for share in (0.025, 0.5, 0.975):
        name = f"cosine with q_avg, repeated to query heads ({share:.1%} quantile of the ordinary tokens)"
        yield st.quantity(name, partial(quantile, share))
    yield st.quantity(
        f"query heads, of {architecture.heads}, in which q_avg points towards k_bos",
        lambda results: float((results[STORE]["head_cosine"].sel(vector=BOS).values >= 0).sum()),
    )
    if is_llama_3b(architecture):
        for what, names in (("norms", NORMS), ("cosines", COSINES)):
            rules = {f"“{name}”": st.all_of(*(near(config, vector, name) for vector in (BOS, MEAN))) for name in names}
            yield st.number_of(rules, f"conventions that give the paper's {what} within {CLOSE:.0%}")


def near(config: Embedding, vector: str, measure: str) -> st.Rule:
    """A convention gives the paper's number."""
    ours, paper = st.listed(vector, measure, exact=True), published(config)[vector, measure]
    slack = max(CLOSE * abs(paper), 0.0005)
    return st.all_of(st.at_least(ours, paper - slack), st.at_most(ours, paper + slack))


def figures(config: Embedding, architecture: Any) -> Iterator[st.Figure]:
    about = """First-block key of every token, made from its embedding alone: norm (key-value heads joined) and cosine with the
        mean query, of the joined heads and averaged over heads."""
    yield st.drawn("vocabulary", vocabulary, about, STORE, text=False)
    about = "Cosine of the mean query with the keys of BOS and of the mean embedding in each query head of layer 0."
    yield st.drawn("by-head", by_head, about, STORE, text=False)


def vocabulary(results: st.Results) -> Picture:
    """Cosine against norm: every token's key, with the BOS and the mean embedding among them."""
    from sinkjax.report.figures.scatter import Cloud, scatter

    data, ordinary, special = results[STORE], *(others(results[STORE], ordinary) for ordinary in (True, False))
    rng = intervals.generator(results.config.seed, "kiya/embedding dots")
    drawn = rng.choice(ordinary, min(DOTS, ordinary.size), replace=False)
    kinds = {f"{drawn.size:,} of {ordinary.size:,} ordinary tokens": drawn, "special tokens and unused rows": special}

    def clouds(name: str) -> list[Cloud]:
        norm, cosine = data["token_key_norm"].values, data[f"token_{name}"].values
        found = [Cloud(kind, norm[rows], cosine[rows], faint=rows is drawn) for kind, rows in kinds.items() if rows.size]
        pair = enumerate(legend(data))
        return found + [Cloud(kind, data["key_norm"].values[[row]], data[name].values[[row]]) for row, kind in pair]

    return scatter({title: clouds(name) for name, title in PANELS.items()}, "||k|| in layer 0", "cosine of k with the mean query")


def by_head(results: st.Results) -> Picture:
    """Cosine of the mean query with both keys in each query head."""
    from sinkjax.report.figures.points import points

    values = zip(legend(results[STORE]), results[STORE]["head_cosine"].values.tolist(), strict=True)
    found = [st.Point(f"head {head}", st.constant(cosine), kind) for kind, row in values for head, cosine in enumerate(row)]
    return points({"layer 0": found}, "cosine of the key with the mean query", (-1, 1))


def legend(data: xarray.Dataset) -> tuple[str, str]:
    return f"BOS, {data.attrs['bos_text']}", MEAN


VARIABLES = (
    "averaged", "cosine_heads", "cosine_kv", "cosine_repeated", "head_cosine", "key_norm", "ordinary", "token_cosine_heads",
    "token_cosine_kv", "token_cosine_repeated", "token_key_norm",
)  # fmt: skip
STUDY = st.Study(
    name="kiya/embedding",
    config=Embedding,
    title="Direction and size of the BOS's first key",
    question="""Kiya et al. 2026: in the first layer of Llama-3.2-3B the key of BOS is shorter than that of the mean embedding but
        points where the mean query points, so BOS attracts by its direction and not by its size.""",
    needs=("norm", "pre-norm", "embedding without positions", "plain embedding"),
    check=_bos.expect,
    more=lambda config, architecture: (st.Calculation(STORE, partial(compute, config), VARIABLES, 1, _bos.PLAIN),),
    rows=rows,
    claims=claims,
    findings=findings,
    figures=figures,
    notes=lambda config, results: (
        *_bos.about(results, STORE),
        f"""The mean is over {int(results[STORE]["averaged"].sum()):,} embeddings: all tokens but the BOS,
        {"with" if config.special else "without"} the other special tokens and without rows that no token uses. Keys and queries
        are those of layer 0, with biases, before the rotation.""",
        f"""The numbers come from the parameters alone, so they have no intervals; percentiles are among the keys of all
        {int(results[STORE]["ordinary"].sum()):,} ordinary tokens, each in the place of the BOS. Nothing is edited.""",
        """With grouped keys, norm and cosine depend on a convention that the paper does not state. Key-value heads joined: the
        queries of a group are averaged, and the vectors of the heads concatenated. Repeated: each key is repeated for every query
        head that reads it.""",
        f"""The paper's numbers are shown for a model with the architecture of Llama-3.2-3B
        ({", ".join(f"{name} {size}" for name, size in LLAMA_3B.items())}); its weights are not checked.""",
    ),
    provenance=_bos.provenance,
    over="model",
)
