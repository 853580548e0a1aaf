"""gu/angles: whether norm or angle makes the first key's scores high, and how few directions first keys take (Gu et al. 2025)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.config_files.checks import at_least, refuse
from sinkjax.studies.papers.gu._first_token import FirstTokenSinks, beside, curves, note, own_first_tokens, positions

KEYS = {"natural text": "keys-text", "random tokens": "keys-random"}  # kind of inputs -> store
COSINE, REST = "cosine of queries with key 0", "the same of other keys"
ANGLE, NORM = "score gap from the angle", "score gap from the norms"
SHARE = "energy of key 0 shared by prompts (%)"
SINKS, EVERY = "heads that sink on key 0", "all heads"
HELD = 90.0  # per cent of the energy that a subspace of low rank holds
COMPONENTS = 16  # singular values that are drawn
LAYER, GAP = "layer (0-based)", "score gap (nats)"


@dataclass(frozen=True, kw_only=True)
class Angles(FirstTokenSinks):
    """The first key's scores split into norms and cosines, and how few directions first keys take."""

    rank: int = 1
    """directions of the other half of the prompts into which keys are projected"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, rank=1, prompts=2)
        few = self.rank > self.prompts // 2
        refuse(few, f"rank {self.rank} needs at least {2 * self.rank} prompts, not {self.prompts}: half give directions")

    @property
    def directions(self) -> str:
        return "one direction" if self.rank == 1 else f"{self.rank} directions"


def check(config: Angles, architecture: Any) -> None:
    width = architecture.head_dim
    refuse(config.rank >= width, f"rank {config.rank} must be below the width of a head, {width}")


def probe(config: Angles) -> sinkjax.Probe:
    from sinkjax.studies.papers.gu import _geometry as geometry

    return sinkjax.Probe(attention_received=True, query_key_cosine=True, extra=(geometry.ANGLE_PART, geometry.NORM_PART))


def keys(config: Angles, model: Any, batch: st.Batch) -> Any:
    from sinkjax.studies.papers.gu._geometry import keys_across_prompts

    return keys_across_prompts(model, batch.tokens, batch.lengths, positions(config), config.rank)


def rows(results: st.Results) -> Iterator[st.Row]:
    """Means over all heads, over the heads that sink in a prompt (undefined in one that has none), and over each layer."""
    config, scores = results.config, results["scores"].isel(edit=0)
    sinks = scores["attention_received"].values[..., 0] > config.eps  # prompt, layer, head
    layers = np.eye(sinks.shape[1])[:, None, :, None] + np.zeros(sinks.shape)
    labels = (EVERY, SINKS, *(f"layer {number}" for number in range(len(layers))))
    weights = np.stack([np.ones(sinks.shape), sinks, *layers])  # label, prompt, layer, head
    total = weights.sum(axis=(2, 3))[..., None]
    named = {COSINE: "query_key_cosine", ANGLE: "angle_part", NORM: "norm_part"}
    measures = {measure: scores[name].values[..., list(positions(config))] for measure, name in named.items()}
    energy = 100 * results["keys-text"]["shared"].transpose("prompt", "layer", "kv_head", "position").values
    measures[SHARE] = np.repeat(energy, sinks.shape[2] // energy.shape[2], axis=2)
    for measure, values in measures.items():
        summed = np.einsum("anlh,nlhp->anp", weights, values.astype(np.float64))
        means = np.divide(summed, total, out=np.full(summed.shape, np.nan), where=total > 0)
        seen = {measure: means[..., 0]} | ({REST: means[..., 1:].mean(axis=-1)} if measure == COSINE else {})
        for name, own in seen.items():
            elsewhere, clusters = means[..., 1:] if name == measure else None, results.clusters(own.shape[1])
            yield from st.own_rows(labels, "heads", name, own, config.seed, elsewhere, clusters=clusters)


def claims(config: Angles, architecture: Any) -> Iterator[st.Claim]:
    def of_sinks(measure: str, name: str, unit: str = "", signed: bool = False) -> st.Quantity:
        return st.listed(SINKS, measure, f"{name} in heads that sink", unit, signed)

    cosine, others = of_sinks(COSINE, "the cosine of queries with key 0"), of_sinks(REST, "the cosine of queries with other keys")
    angle = of_sinks(ANGLE, "the angle's part in the score gap", "nats", signed=True)
    norm = of_sinks(NORM, "the norms' part in the score gap", "nats", signed=True)
    share = of_sinks(SHARE, f"the energy of key 0 in {config.directions} of the other half of the prompts", "%")
    seen = st.quantity(
        f"the share of prompts with a head that sinks on key 0 at eps {config.eps:g}",
        lambda results: 100.0 * np.isfinite(results.own[SINKS, COSINE].value.samples),
        "%",
    )
    apart = st.all_of(st.above(cosine, others), st.above_controls(cosine))
    by_angle = st.all_of(st.above(angle), st.above(angle, norm), st.above_controls(angle))
    low_rank = st.all_of(st.above(share, HELD), st.above_controls(share))
    sinking, where, source = st.above(seen, 50), "In heads that sink on the first key", "Gu et al. 2025"
    yield st.Claim(
        f"{where}, the cosine of queries with that key is larger than with other keys.",
        apart,
        sinking,
        source,
        "LLaMA3-8B, read off a figure: about 0.5",
    )
    yield st.Claim(f"{where}, its angle raises its score, and by more than its norm does.", by_angle, sinking, source)
    yield st.Claim(
        f"{where}, the first keys of all prompts have more than {HELD:g} % of their energy in {config.directions}.",
        low_rank,
        own_first_tokens(config, sinking),
        source,
    )


def shared(data: Any) -> NDArray:
    """Shared energy of the keys of one position, in per cent: float[layer, position]."""
    return 100 * data["shared"].mean(("kv_head", "prompt")).values


def spectrum(data: Any) -> NDArray:
    """Singular values over the largest one, means over layers and key-value heads: float[component, position]."""
    values = data["singular"].values
    return (values / values[..., :1]).mean(axis=(0, 1))[:, :COMPONENTS].T


def ranks(data: Any) -> NDArray:
    """Effective rank of the keys of one position across prompts: float[layer, position]."""
    from sinkjax.studies.papers.gu._geometry import effective_rank

    return effective_rank(data["singular"].values).mean(axis=1)


def findings(config: Angles, architecture: Any) -> Iterator[st.Quantity]:
    energy = f"energy of keys in {config.directions} of the other half of the prompts"
    numbers = ((energy, shared, "%"), ("effective rank of keys across prompts", ranks, ""))
    places: dict[str, Callable[[NDArray], float]] = {
        "position 0": lambda values: values[0],
        "lowest of the other positions": lambda values: values[1:].min(),
        "highest of the other positions": lambda values: values[1:].max(),
    }

    def number(store: str, of: Callable[[Any], NDArray], choose: Callable[[NDArray], float], results: st.Results) -> float:
        return choose(of(results[store]).mean(axis=0))  # over layers

    for kind, store in KEYS.items():
        for (what, of, unit), (place, choose) in itertools.product(numbers, places.items()):
            yield st.quantity(f"{what}, {place}, {kind}", functools.partial(number, store, of, choose), unit)
        first = functools.partial(lambda store, results: results[store]["distinct"].values[0], store)
        yield st.quantity(f"different first tokens of the {config.prompts} prompts, {kind}", first)


def figures(config: Angles, architecture: Any) -> Iterator[st.Figure]:
    def by_layer(ylabel: str, titles: dict[str, str], results: st.Results) -> Any:
        """Statistics of the scores by their titles, means over heads."""
        scores = results["scores"].isel(edit=0, key=list(positions(config)))
        means = {title: scores[name].mean("head", dtype=np.float64).values for name, title in titles.items()}
        return [[beside(results, title, ylabel, values, signed=True) for title, values in means.items()]]

    def by_kind(results: st.Results, ylabel: str, of: Callable[[Any], NDArray], start: int = 0, **options: Any) -> list[Any]:
        """A panel for each kind of inputs. of: keys of a store -> float[x, position]. start: the first x."""
        return [beside(results, kind, ylabel, of(results[store])[None], start, **options) for kind, store in KEYS.items()]

    received = {"attention_received": "attention received", "query_key_cosine": "cosine of queries with the key"}
    yield curves(
        "cosine-by-layer",
        LAYER,
        functools.partial(by_layer, "share of attention,\nor cosine (no unit)", received),
        "Attention that a key receives, and its cosine with the queries that see it (after the rotation). Means over heads.",
        "scores",
    )
    yield curves(
        "score-gap-by-layer",
        LAYER,
        functools.partial(by_layer, GAP, {"angle_part": "from the angle", "norm_part": "from the norms"}),
        "How far a key's score lies above those of the same query's other keys, by angle and by norms. Means over heads.",
        "scores",
    )
    yield st.drawn(
        "angle-and-norm-by-head",
        by_head,
        "Score gap of key 0 in each layer and head, by angle and by norms, on one scale; 0 is white. Means over prompts.",
        "scores",
        bands=False,
    )
    yield curves(
        "key-spectrum",
        "singular value, counted from 1",
        lambda results: [by_kind(results, "singular value\nover the largest one", spectrum, 1, log=True)],
        "Singular values (not centred) of the keys of one position, over the largest. Means over layers and key-value heads.",
        tuple(KEYS.values()),
        bands=False,
    )
    energy, rank = f"energy in {config.directions}\nof the other half (%)", "effective rank\nacross prompts"
    yield curves(
        "key-rank-by-layer",
        LAYER,
        lambda results: [by_kind(results, energy, shared), by_kind(results, rank, ranks)],
        """Top: shared energy of the keys of one position. Bottom: their effective rank across prompts, from 1 to the number of
        prompts or dimensions. Means over key-value heads.""",
        tuple(KEYS.values()),
        bands=False,
    )


def by_head(results: st.Results) -> Any:
    """The parts of key 0's score gap, for each layer and head."""
    from sinkjax.report.figures import grid

    scores = results["scores"].isel(edit=0)
    maps = {part: scores[name].values[..., 0].mean(axis=0) for part, name in (("angle", "angle_part"), ("norms", "norm_part"))}
    largest = max(float(np.abs(values).max()) for values in maps.values())
    layers, heads = ([str(number) for number in range(scores.sizes[axis])] for axis in ("layer", "head"))
    columns = [grid.Column(f"score gap of key 0 from the {part}", layers, LAYER) for part in maps]
    row = grid.Row(list(maps.values()), GAP, (-largest, largest), signed=True)
    return grid.grids(columns, [row], heads, "query head (0-based)")


VARIABLES = ("distinct", "shared", "singular")
STUDY = st.Study(
    name="gu/angles",
    config=Angles,
    title="Angle and norm in the first key's scores",
    question="""Gu et al. 2025: queries attend to the first token because of the angle and not the norm: cos(q, k_0) lies far
        above cos(q, k_j) while the first key is short; and the first keys of all prompts lie in a subspace of low rank.""",
    needs=("usual scale", "scores without positions", "scores without a kernel"),
    check=check,
    probe=probe,
    more=lambda config, architecture: (
        st.unedited("scores"),
        st.Calculation("keys-text", functools.partial(keys, config), VARIABLES, config.prompts),
        st.Calculation("keys-random", functools.partial(keys, config), VARIABLES, config.prompts, st.Inputs("random")),
    ),
    rows=rows,
    claims=claims,
    findings=findings,
    featured=lambda results: (EVERY, SINKS),
    figures=figures,
    shown=lambda config, architecture: st.Shown((st.NO_EDIT,), sweeps=("scores",), texts=False),
    notes=lambda config, results: (
        """A score q.k / sqrt(D) is N c, with N the product of the norms over sqrt(D) and c the cosine. The gap between the scores
        of key 0 and of another key j splits exactly into (c_0 - c_j)(N_0 + N_j) / 2, the angle's part, and (N_0 - N_j)(c_0 +
        c_j) / 2, the norms' part. Parts are means over a query's other keys, then over all later queries, in nats.""",
        f"""Heads that sink: attention to key 0 above {config.eps:g} on average (Gu et al. 2025), in that prompt. Claims need such
        a head in more than half of the prompts.""",
        """Shared energy: the share of the squared norm of one half of the prompts' keys that lies in the singular directions (not
        centred) of the other half's, at one position, layer and key-value head. For heads that sink it is that of the key-value
        heads they read. Keys are taken before the rotation, which turns all keys of a position alike.""",
        note(config),
        """The paper calls the cosine with the first key far larger, without giving a number; the claim tests whether it is
        larger.""",
        """Prompts that begin with the same token have the same first key. Random tokens, whose first tokens differ, show whether
        that is the reason. With a BOS in front all prompts begin alike, and their first keys are not judged by their rank.""",
    ),
)
