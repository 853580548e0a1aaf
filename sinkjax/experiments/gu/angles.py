"""gu/angles: what makes the first key's scores high, its norm or its angle to the queries, and how few directions it takes.

Nothing is edited. Position 0 is ranked among other, random positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.checkpoints.model import Model
from sinkjax.edits.site import Site
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.base import Batch, Calculation, Claim, Inputs, Job, Section, unedited
from sinkjax.experiments.gu import geometry
from sinkjax.experiments.gu.angles_figures import drawings
from sinkjax.experiments.gu.config import Angles
from sinkjax.experiments.gu.first_token import alone, control_positions, ranked
from sinkjax.experiments.illustrations import MAPS, maps
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import Row, Table
from sinkjax.experiments.words import high, low, verdict
from sinkjax.model.config import Config
from sinkjax.probes.probe import Capture, Probe
from sinkjax.report.table import interval
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

STORES = ("scores", "keys-text", "keys-random")
EXTRAS = (MAPS,)
BLOCK = 16  # prompts whose keys are computed at a time
COSINE, OTHERS = "cosine of queries with key 0", "the same of other keys"
ANGLE, NORM = "score gap from the angle", "score gap from the norms"
SHARE = "energy of key 0 shared by prompts (%)"
SINKS, EVERY = "heads that sink on key 0", "all heads"
HELD = 90.0  # per cent of the energy that a subspace of low rank holds
CLAIM = (
    "Gu et al. 2025: queries attend to the first token because of the angle and not the norm: cos(q, k_0) lies far above cos(q,"
    " k_j) while the first key is short; and the first keys of all prompts lie in a subspace of low rank."
)


def jobs(config: Angles, architecture: Config) -> tuple[Job | Calculation, ...]:
    """One unedited run for the scores, and the keys of text and of random tokens."""
    needs("gu/angles", architecture, "usual scale", "scores without positions", "scores without a kernel")
    if config.rank >= architecture.head_dim:
        raise SinkjaxError(f"rank {config.rank} must be below the width of a head, {architecture.head_dim}")
    probe = Probe(attention_received=True, query_key_cosine=True, extra=(geometry.ANGLE_PART, geometry.NORM_PART))
    compute = partial(keys, config)
    return (
        Job("scores", unedited(), probe, config.prompts),
        Calculation("keys-text", compute, config.prompts),
        Calculation("keys-random", compute, config.prompts, Inputs("random")),
        maps(config, architecture, unedited()),
    )


def keys(config: Angles, model: Model, batch: Batch) -> xarray.Dataset:
    """Singular values and shared energy of the keys of position 0 and of the controls, across prompts.

    Errors: a prompt too short to have the control positions.
    """
    import xarray

    positions = chosen(config)
    if positions[-1] >= batch.lengths.min():
        raise SinkjaxError(f"a prompt has {batch.lengths.min()} tokens, and position {positions[-1]} is asked for")
    probe = Probe(capture=(Capture(Site.KEY, positions=positions),))
    run = partial(sinkjax.forward, model.params, config=model.config, probe=probe, logits=False)
    blocks = [slice(start, start + BLOCK) for start in range(0, len(batch.lengths), BLOCK)]
    captured = [np.asarray(run(tokens=batch.tokens[block], lengths=batch.lengths[block]).record["keys"]) for block in blocks]
    vectors = np.concatenate(captured).transpose(1, 3, 2, 0, 4)  # layer, kv_head, position, prompt, dim
    places = ("layer", "kv_head", "position")
    return xarray.Dataset(
        {
            "singular": ((*places, "component"), geometry.singular_values(vectors)),
            "shared": ((*places, "prompt"), geometry.shared_energy(vectors, config.rank)),
            "distinct": ("position", geometry.distinct(batch.tokens, positions)),
        },
        coords={"position": list(positions)},
    )


def chosen(config: Angles) -> tuple[int, ...]:
    """Position 0 and its controls."""
    return (0, *control_positions(config.length, config.controls, config.seed))


def section(config: Angles, stores: Mapping[str, xarray.Dataset]) -> Section:
    """Cosines, gaps and shared energy over all heads, over those that sink, and by layer."""
    data, text, random = (stores[name].load() for name in STORES)
    scores = data.isel(edit=0)
    rows = summary(config, scores, text)
    table = {(row.arm, row.measure): row for row in rows}
    return Section(
        experiment="gu/angles",
        title="Angle and norm in the first key's scores",
        claim=CLAIM,
        findings=_findings(config, table, text, random),
        rows=tuple(rows),
        featured=(EVERY, SINKS),
        drawings=drawings(config, scores, text, random),
        notes=_notes(config, len(chosen(config)) - 1),
        provenance=results.provenance(stores["scores"]),
        claims=_claims(config, table, scores),
    )


def summary(config: Angles, scores: Any, text: Any) -> list[Row]:
    """Rows of all heads, of the heads that sink, and of each layer."""
    positions = list(chosen(config))
    sinks = scores["attention_received"].values[..., 0] > config.eps  # prompt, layer, head
    group = scores.sizes["head"] // text.sizes["kv_head"]
    layers = range(scores.sizes["layer"])
    labels = (EVERY, SINKS, *(f"layer {layer}" for layer in layers))
    weights = [
        np.ones(sinks.shape),
        sinks.astype(float),
        *(np.broadcast_to(_only(layer, sinks), sinks.shape) for layer in layers),
    ]

    def over_heads(values: NDArray) -> NDArray:
        """float[prompt, layer, head, position] to float[label, prompt, position]: means over the heads of each label."""
        return np.stack([_weighted(values, weight) for weight in weights])

    cosine, angle, norms = (
        over_heads(scores[name].values[..., positions].astype(np.float64))
        for name in ("query_key_cosine", "angle_part", "norm_part")
    )
    shared = over_heads(np.repeat(100 * text["shared"].transpose("prompt", "layer", "kv_head", "position").values, group, axis=2))
    put: Callable[..., list[Row]] = partial(ranked, labels, "heads")
    return [
        *put(COSINE, cosine, config.seed),
        *alone(labels, "heads", OTHERS, cosine[..., 1:].mean(axis=-1), config.seed),
        *put(ANGLE, angle, config.seed),
        *put(NORM, norms, config.seed),
        *put(SHARE, shared, config.seed),
    ]


def _only(layer: int, like: NDArray) -> NDArray:
    """1 in one layer, else 0: float[1, layer, 1]."""
    return (np.arange(like.shape[1]) == layer).astype(float)[None, :, None]


def _weighted(values: NDArray, weights: NDArray) -> NDArray:
    """Weighted mean over layers and heads: float[prompt, position], NaN in a prompt without weight."""
    total = weights.sum(axis=(1, 2))[:, None]
    summed = np.einsum("nlh,nlhp->np", weights, values)
    return np.divide(summed, total, out=np.full(summed.shape, np.nan), where=total > 0)


def _findings(config: Angles, table: Table, text: Any, random: Any) -> tuple[str, ...]:
    sentences = []
    for arm in (SINKS, EVERY):
        if table[arm, COSINE].value.mean is None:
            sentences.append(f"No head sinks on key 0 at eps {config.eps:g}.")
            continue
        cosine, others, angle, norm = (table[arm, name] for name in (COSINE, OTHERS, ANGLE, NORM))
        sentences.append(
            f"In {arm}, the cosine of later queries with key 0 is {interval(cosine.value)}{_rank(cosine)}, with other keys"
            f" {interval(others.value)}. The score of key 0 exceeds the others' by"
            f" {interval(angle.value, signed=True)}{_rank(angle)} through the angle and by"
            f" {interval(norm.value, signed=True)}{_rank(norm)} through the norms."
        )
    for name, data in (("text", text), ("random tokens", random)):
        energy = 100 * data["shared"].mean(("layer", "kv_head", "prompt"))
        ranks = geometry.effective_rank(data["singular"].values).mean(axis=(0, 1))
        sentences.append(
            f"On {name}, {_directions(config.rank)} found in one half of the prompts {'holds' if config.rank == 1 else 'hold'}"
            f" {energy[0]:.1f} % of the energy of the other half's first keys, and {energy[1:].min():.1f} to"
            f" {energy[1:].max():.1f} % at other positions; the effective rank across prompts is {ranks[0]:.1f}, elsewhere"
            f" {ranks[1:].min():.1f} to {ranks[1:].max():.1f} (means over layers and heads). {data['distinct'].values[0]} of"
            f" {data.sizes['prompt']} first tokens are different."
        )
    return tuple(sentences)


def _directions(rank: int) -> str:
    return "the one direction" if rank == 1 else f"the {rank} directions"


def _rank(row: Row) -> str:
    return "" if row.percentile is None else f" (percentile {row.percentile:.0f} among {row.controls} other positions)"


def _claims(config: Angles, table: Table, scores: Any) -> tuple[Claim, ...]:
    cosine, others, angle, norm, share = (table[SINKS, name] for name in (COSINE, OTHERS, ANGLE, NORM, SHARE))
    prompts = scores.sizes["prompt"]
    absent = cosine.value.n < prompts / 2

    def claim(statement: str, holds: bool, evidence: str, paper: str = "") -> Claim:
        if absent:
            seen = f"{cosine.value.n} of {prompts} prompts have a head that sinks on key 0 at eps {config.eps:g}"
            return Claim(statement, "not applicable", f"{seen}; at least half of them are needed.", paper)
        return Claim(statement, verdict(holds), evidence, paper)

    return (
        claim(
            "Where a head sinks, cos(q, k_0) lies far above cos(q, k_j) (Gu et al. 2025).",
            low(cosine.value) > high(others.value) and cosine.percentile == 100,
            f"{interval(cosine.value)}{_rank(cosine)} against {interval(others.value)}, heads that sink; rule: the lower bound is"
            " above the others' upper bound, and the cosine above that of every control position.",
            "LLaMA3-8B, read off a figure: about 0.5",
        ),
        claim(
            "The angle and not the norm makes the sink (Gu et al. 2025).",
            low(angle.value) > 0 and low(angle.value) > high(norm.value) and angle.percentile == 100,
            f"Score gap from the angle {interval(angle.value, signed=True)}{_rank(angle)}, from the norms"
            f" {interval(norm.value, signed=True)}, heads that sink; rule: the angle's lower bound is above 0 and above the"
            " norms' upper bound, and the angle's part above that of every control position.",
        ),
        claim(
            "The first keys of all prompts lie in a subspace of low rank (Gu et al. 2025).",
            low(share.value) > HELD and share.percentile == 100,
            f"{_directions(config.rank).capitalize()} of the other half of the prompts: {interval(share.value)} % of the energy"
            f"{_rank(share)}, heads that sink; rule: the lower bound is above {HELD:g} % and the share above that of every"
            " control position.",
        ),
    )


def _notes(config: Angles, controls: int) -> tuple[str, ...]:
    return (
        "A score q.k / sqrt(D) is the product N of the norms over sqrt(D), times the cosine c. The gap between the scores of key"
        " 0 and of another key j splits exactly into (c_0 - c_j)(N_0 + N_j) / 2, the angle's part, and (N_0 - N_j)(c_0 + c_j) /"
        " 2, the norms'. Parts are means over a query's other keys, then over all later queries; units are those of a"
        " logit (nats).",
        f"Heads that sink: attention to key 0 above {config.eps:g} on average (Gu et al. 2025), in that prompt. Means over"
        f" {config.prompts} prompts with bootstrap 95 % intervals.",
        "Shared energy: the singular directions of the keys of one half of the prompts, at one position, layer and key-value"
        " head, not centred, and the share of the squared norm of the other half's keys that lies in them. It counts a head that"
        " sinks by the key-value head that it reads. Keys are taken before the rotation, which turns all keys of a"
        " position alike.",
        f"Controls: {controls} other positions, drawn at random from the first half of a prompt; a percentile says how many of"
        " them have a smaller value. Nothing is edited, so the identity edit is the run itself. Prompts that begin with the same"
        " token have the same first key: random tokens, whose first tokens differ, tell that apart.",
    )
