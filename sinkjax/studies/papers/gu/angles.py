"""gu/angles: what makes the first key's scores high, its norm or its angle to the queries, and how few directions it takes.

Nothing is edited. Position 0 is ranked among other, random positions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.config_files.checks import at_least, refuse
from sinkjax.studies.papers.gu._first_token import OTHERS, FirstTokenSinks, beside, note, positions

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
    """The scores of the first key split into norms and cosines, and how few directions its vectors take."""

    rank: int = 1
    """directions of the other half of the prompts into which keys are projected"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, rank=1, prompts=2)
        few = self.rank > self.prompts // 2
        refuse(few, f"rank {self.rank} needs at least {2 * self.rank} prompts, not {self.prompts}: half find directions")


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
    """Rows of all heads, of the heads that sink in a prompt, and of each layer."""
    config, scores, shared = results.config, results["scores"].isel(edit=0), results["keys-text"]["shared"]
    sinks = scores["attention_received"].values[..., 0] > config.eps  # prompt, layer, head
    layers = np.eye(sinks.shape[1])[:, None, :, None] + np.zeros(sinks.shape)
    heads = {EVERY: np.ones(sinks.shape), SINKS: sinks, **{f"layer {layer}": one for layer, one in enumerate(layers)}}

    def ranked(measure: str, values: NDArray) -> Iterator[st.Row]:
        """float[prompt, layer, head, position]: means over the heads of each label, position 0 among the others."""
        found = np.stack([mean_over(values.astype(np.float64), chosen.astype(float)) for chosen in heads.values()])
        yield from st.own_rows(tuple(heads), "heads", measure, found[..., 0], config.seed, elsewhere=found[..., 1:])
        if measure == COSINE:
            yield from st.own_rows(tuple(heads), "heads", REST, found[..., 1:].mean(axis=-1), config.seed)

    for measure, name in ((COSINE, "query_key_cosine"), (ANGLE, "angle_part"), (NORM, "norm_part")):
        yield from ranked(measure, scores[name].values[..., list(positions(config))])
    energy = 100 * shared.transpose("prompt", "layer", "kv_head", "position").values
    yield from ranked(SHARE, np.repeat(energy, sinks.shape[2] // energy.shape[2], axis=2))


def mean_over(values: NDArray, weights: NDArray) -> NDArray:
    """Weighted mean over layers and heads: float[prompt, position], NaN in a prompt without weight."""
    total = weights.sum(axis=(1, 2))[:, None]
    summed = np.einsum("nlh,nlhp->np", weights, values)
    return np.divide(summed, total, out=np.full(summed.shape, np.nan), where=total > 0)


def of_sinks(measure: str, name: str, unit: str = "", signed: bool = False) -> st.Quantity:
    return st.as_point(st.listed(SINKS, measure, f"{name} in heads that sink", unit, signed))


def claims(config: Angles, architecture: Any) -> Iterator[st.Claim]:
    cosine, others = of_sinks(COSINE, "the cosine of queries with key 0"), of_sinks(REST, "the cosine of queries with other keys")
    angle = of_sinks(ANGLE, "the angle's part in the score gap", "nats", signed=True)
    norm = of_sinks(NORM, "the norms' part in the score gap", "nats", signed=True)
    share = of_sinks(SHARE, f"the energy of key 0 in {directions(config)} of the other half of the prompts", "%")
    seen = st.quantity(
        f"the share of prompts with a head that sinks on key 0 at eps {config.eps:g}",
        lambda results: 100 * results.own[SINKS, COSINE].value.n / results.size("prompt", "scores"),
        "%",
    )
    present = st.at_least(seen, 50)
    yield st.Claim(
        "Where a head sinks, cos(q, k_0) lies far above cos(q, k_j) (Gu et al. 2025).",
        st.all_of(st.above_all_of(cosine, others), st.above_controls(cosine)),
        given=present,
        paper="LLaMA3-8B, read off a figure: about 0.5",
    )
    yield st.Claim(
        "The angle and not the norm makes the sink (Gu et al. 2025).",
        st.all_of(st.above(angle), st.above_all_of(angle, norm), st.above_controls(angle)),
        given=present,
    )
    yield st.Claim(
        "The first keys of all prompts lie in a subspace of low rank (Gu et al. 2025).",
        st.all_of(st.above(share, HELD), st.above_controls(share)),
        given=present,
    )


def findings(config: Angles, architecture: Any) -> Iterator[st.Quantity]:
    """Of the keys of one position, means over layers and heads; and how many first tokens differ."""
    across_prompts: dict[tuple[str, str], Callable[[Any], NDArray]] = {
        (f"energy of keys in {directions(config)} of the other half of the prompts", "%"): lambda data: (
            100 * data["shared"].mean(("layer", "kv_head", "prompt")).values
        ),
        ("effective rank of keys across prompts", ""): lambda data: ranks(data).mean(axis=(0, 1)),
    }
    places = {
        "position 0": lambda values: values[0],
        "lowest of the other positions": lambda values: values[1:].min(),
        "highest of the other positions": lambda values: values[1:].max(),
    }
    for kind, store in KEYS.items():
        for (what, unit), of in across_prompts.items():
            for place, one in places.items():
                number = functools.partial(lambda store, of, one, results: one(of(results[store])), store, of, one)
                yield st.quantity(f"{what}, {place}, {kind}", number, unit)
        first = functools.partial(lambda store, results: results[store]["distinct"].values[0], store)
        yield st.quantity(f"different first tokens of the {config.prompts} prompts, {kind}", first)


def directions(config: Angles) -> str:
    return "one direction" if config.rank == 1 else f"{config.rank} directions"


def ranks(data: Any) -> NDArray:
    """Effective rank of the keys of one position: float[layer, kv_head, position]."""
    from sinkjax.studies.papers.gu._geometry import effective_rank

    return effective_rank(data["singular"].values)


def figures(config: Angles, architecture: Any) -> Iterator[st.Figure]:
    def by_layer(ylabel: str, titles: Mapping[str, str]) -> Callable[[st.Results], Any]:
        """Statistics of the scores, means over heads, by their titles."""

        def panel(results: st.Results, name: str, title: str) -> Any:
            values = results["scores"][name].isel(edit=0).mean("head", dtype=np.float64).values  # prompt, layer, position
            others = values[..., list(positions(config))[1:]].mean(axis=0)
            return beside(results, title, ylabel, values[..., 0], others, signed=True)

        return lambda results: [[panel(results, name, title) for name, title in titles.items()]]

    received = {"attention_received": "attention received", "query_key_cosine": "cosine of queries with the key"}
    yield st.curves(
        *("cosine-by-layer", LAYER, by_layer("share of attention,\nor cosine (no unit)", received)),
        f"""Attention that a key receives and its cosine with the queries that see it, rotated, by layer. Means over heads.
        {OTHERS}""",
        store="scores",
        legend_above=True,
    )
    yield st.curves(
        *("score-gap-by-layer", LAYER, by_layer(GAP, {"angle_part": "from the angle", "norm_part": "from the norms"})),
        f"""How far the score of a key lies above those of the other keys of the same query, through the angle (left) and through
        the norms (right); the two add up to the whole gap. Means over heads. {OTHERS}""",
        store="scores",
        legend_above=True,
    )
    yield st.drawn(
        *("angle-and-norm-by-head", by_head),
        """How far the score of key 0 lies above those of the other keys, for each layer and head, split into the part of the
        angle and the part of the norms; both parts on one scale, white: nothing. Means over prompts.""",
        store="scores",
        bands=False,
    )

    def spectra(results: st.Results) -> Any:
        def relative(data: Any) -> NDArray:
            values = data["singular"].values
            return (values / values[..., :1]).mean(axis=(0, 1))[:, :COMPONENTS].T

        found = {kind: relative(results[store]) for kind, store in KEYS.items()}
        label = "singular value\nover the largest one"
        return [
            [beside(results, kind, label, one[:, 0], one[:, 1:], range(1, len(one) + 1), log=True) for kind, one in found.items()]
        ]

    def shares_and_ranks(results: st.Results) -> Any:
        numbers: dict[str, Callable[[Any], NDArray]] = {
            f"energy in {directions(config)}\nof the other half (%)": lambda data: (
                100 * data["shared"].mean(("kv_head", "prompt")).values
            ),
            "effective rank\nacross prompts": lambda data: ranks(data).mean(axis=1),
        }
        found = {label: {kind: of(results[store]) for kind, store in KEYS.items()} for label, of in numbers.items()}
        return [
            [beside(results, kind, label, one[:, 0], one[:, 1:]) for kind, one in row.items()] for label, row in found.items()
        ]

    yield st.curves(
        *("key-spectrum", "singular value, counted from 1", spectra),
        f"""Singular values of all prompts' keys at one position, not centred, over the largest one; mean over layers and
        key-value heads. {OTHERS}""",
        store=tuple(KEYS.values()),
        bands=False,
        legend_above=True,
    )
    yield st.curves(
        *("key-rank-by-layer", LAYER, shares_and_ranks),
        f"""Top: share of the squared norm of one half of the prompts' keys that lies in the first singular directions of the
        other half's. Bottom: effective rank of the keys of one position across all prompts. Means over key-value heads.
        {OTHERS}""",
        store=tuple(KEYS.values()),
        bands=False,
        legend_above=True,
    )


def by_head(results: st.Results) -> Any:
    """The parts of key 0's score gap, for each layer and head."""
    from sinkjax.report.figures import grid

    scores = results["scores"].isel(edit=0)
    maps = {part: scores[f"{part}_part"].values[..., 0].mean(axis=0) for part in ("angle", "norm")}
    largest = max(float(np.abs(values).max()) for values in maps.values())
    layers, heads = ([str(number) for number in range(scores.sizes[axis])] for axis in ("layer", "head"))
    return grid.grids(
        [grid.Column(f"score gap of key 0 from the {part}{'s' * (part == 'norm')}", layers, LAYER) for part in maps],
        [grid.Row(list(maps.values()), GAP, (-largest, largest), signed=True)],
        *(heads, "query head (0-based)"),
    )


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
        st.Calculation("keys-text", functools.partial(keys, config), config.prompts),
        st.Calculation("keys-random", functools.partial(keys, config), config.prompts, st.Inputs("random")),
    ),
    rows=rows,
    claims=claims,
    findings=findings,
    featured=lambda results: (EVERY, SINKS),
    figures=figures,
    shown=lambda config, architecture: st.Shown((st.NO_EDIT,), sweeps=("scores",), texts=False),
    notes=lambda config, results: (
        """A score q.k / sqrt(D) is the product N of the norms over sqrt(D), times the cosine c. The gap between the scores of key
        0 and of another key j splits exactly into (c_0 - c_j)(N_0 + N_j) / 2, the angle's part, and (N_0 - N_j)(c_0 + c_j) / 2,
        the norms'. Parts are means over a query's other keys, then over all later queries; units are those of a logit (nats).""",
        f"""Heads that sink: attention to key 0 above {config.eps:g} on average (Gu et al. 2025), in that prompt. Claims need such
        a head in at least half of the prompts.""",
        """Shared energy: the singular directions of the keys of one half of the prompts, at one position, layer and key-value
        head, not centred, and the share of the squared norm of the other half's keys that lies in them. It counts a head that
        sinks by the key-value head that it reads. Keys are taken before the rotation, which turns all keys of a position
        alike.""",
        note(config),
        """Prompts that begin with the same token have the same first key: random tokens, whose first tokens differ, tell that
        apart.""",
    ),
)
