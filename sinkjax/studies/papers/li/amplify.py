"""li/amplify: a token whose head outputs are pushed away from their mean becomes a sink; scaling them has no such effect
(Li et al. 2026, interventions 2 and 3). The controls add a change of the same size in a random direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.config_files.checks import each_once, layers_below, layers_from_0, refuse
from sinkjax.studies.papers.li._token import HAS_SINK, OneToken, received
from sinkjax.studies.specs import CONTROLS

SAME, SOURCE = "identity", "Li et al. 2026, Figs. 5-6"
POSITIONS, DIMS, NORM = "away from the mean over positions", "away from the mean over dims", "scaled, no mean (control)"
BATCH, WHOLE = "away from the mean over prompts", "away from the mean over prompts and positions"
WAYS = (POSITIONS, DIMS, NORM, BATCH, WHOLE)
CENTRES = {POSITIONS: "positions", DIMS: "dims"}  # of those that one forward computes
READINGS = (POSITIONS, BATCH, WHOLE)  # of "their mean", which the paper's summaries do not settle; a scalar over dims is none
BLOCK = 8  # prompts whose head outputs are held at a time
Means = Mapping[str, NDArray]  # BATCH and WHOLE -> mu, float[L, H, D]


@dataclass(frozen=True, kw_only=True)
class Amplify(OneToken):
    """Push the head outputs o of one token away from their mean, mu + s (o - mu), or scale them, s o, in one layer."""

    factors: tuple[float, ...] = (2.0, 5.0, 10.0, 20.0, 50.0)
    """factors s of the dose-response; 1 changes nothing and is measured as well"""
    layers: tuple[int, ...] = (0, 1, 2)
    """layers of the dose-response, each one alone"""
    factor: float = 10.0
    """factor at which every layer is amplified alone, and for which there are controls"""

    def __post_init__(self) -> None:
        super().__post_init__()
        each_once(self, "factors")
        each_once(self, "layers")
        layers_from_0(self, "layers")
        wrong = min(self.factors) <= 1 or self.factor not in self.factors
        refuse(wrong, f"factors must be above 1 and include factor ({self.factor:g}), not {self.factors}")


class Dose(NamedTuple):
    """How the outputs are changed, in which layer and by which factor."""

    way: str
    layer: int
    factor: float

    @property
    def label(self) -> str:
        return f"{self.way}, layer {self.layer}, s = {self.factor:g}"


def amplified(config: Amplify, dose: Dose, means: Means) -> sinkjax.Edit:
    """o becomes mu + s (o - mu), or s o."""
    edit = sinkjax.scale_head_output(config.position, dose.factor, centre=CENTRES.get(dose.way), layers=dose.layer)
    if dose.way in means:
        back = (1 - dose.factor) * means[dose.way][dose.layer][None, None]
        edit = sinkjax.compose(edit, sinkjax.edit("head_out", "add", back, layers=dose.layer, queries=config.position))
    return edit.named(dose.label)


def conditions(config: Amplify, architecture: Any, means: Means) -> Iterator[st.Condition]:
    """No edit, a factor of 1, and every factor in some layers and one factor in the others; a budget is a way and a layer."""
    yield st.no_edit()
    doses = [Dose(way, config.layers[0], 1.0) for way in WAYS]
    for way in WAYS:
        for layer in range(architecture.layers):
            doses += [Dose(way, layer, factor) for factor in (config.factors if layer in config.layers else (config.factor,))]
    controlled = set(matched(config))
    for dose in doses:
        budget = (dose.way, dose.layer) if dose in controlled else None
        yield st.Condition(amplified(config, dose, means), SAME if dose.factor == 1 else dose.way, dose.layer, budget)


def matched(config: Amplify, *ways: str) -> list[Dose]:
    """The doses that have controls of the same size, in the order of their layers."""
    return [Dose(way, layer, config.factor) for way in ways or READINGS for layer in config.layers]


def outputs(config: Amplify, model: Any, batch: st.Batch, **where: Any) -> Iterator[tuple[NDArray, NDArray]]:
    """Head outputs of a few prompts at a time, float[prompt, layer, position, head, dim], and the prompts' lengths."""
    probe = sinkjax.Probe(capture=(sinkjax.Capture(sinkjax.Site.HEAD_OUT, **where),))
    for start in range(0, len(batch.lengths), BLOCK):
        tokens, lengths = batch.tokens[start : start + BLOCK], batch.lengths[start : start + BLOCK]
        run = sinkjax.forward(model.params, tokens, model.config, probe=probe, lengths=lengths, logits=False)
        yield np.asarray(run.record["head_out"], np.float32), np.asarray(lengths)


def means_of(config: Amplify, model: Any, batch: st.Batch) -> Means:
    """mu of every layer over the prompts of a batch, at the token's position and over all positions."""
    at_token: Any = 0
    everywhere: Any = 0
    for values, lengths in outputs(config, model, batch):
        real = (np.arange(values.shape[2]) < lengths[:, None])[:, None, :, None, None]
        at_token = at_token + values[:, :, config.position].sum(axis=0)
        everywhere = everywhere + np.where(real, values, 0).sum(axis=(0, 2))
    return {BATCH: at_token / len(batch.lengths), WHOLE: everywhere / np.sum(batch.lengths)}


def no_means(config: Amplify, architecture: Any, prompts: int) -> Means:
    shape = (architecture.layers, architecture.heads, architecture.head_dim)
    return {way: np.zeros(shape, np.float32) for way in (BATCH, WHOLE)}


def away(config: Amplify, model: Any, batch: st.Batch) -> Mapping[str, NDArray]:
    """Sizes of (s - 1)(o - mu) of the token's head outputs at `factor`, by mean: float[layers, prompt, head].

    A mean over the few prompts of the controls is nearer to them than one over all; sizes are corrected for that.
    """
    seen = outputs(config, model, batch, layers=config.layers, positions=tuple(range(config.position + 1)))
    values = np.concatenate([block for block, _ in seen])
    own, count, mus = values[:, :, config.position], len(values), means_of(config, model, batch)
    centres = {way: mu[list(config.layers)] for way, mu in mus.items()} | {POSITIONS: values.mean(axis=2)}
    few = {BATCH: np.sqrt(count / max(count - 1, 1))}
    return {
        way: few.get(way, 1) * (config.factor - 1) * np.linalg.norm(own - centre, axis=-1).swapaxes(0, 1)
        for way, centre in centres.items()
    }


def nothing(config: Amplify, architecture: Any, prompts: int) -> Mapping[str, NDArray]:
    return {way: np.zeros((len(config.layers), prompts, architecture.heads), np.float32) for way in READINGS}


def random_direction(
    rng: np.random.Generator, config: Amplify, architecture: Any, budget: tuple[str, int], sizes: Mapping[str, NDArray]
) -> sinkjax.Edit:
    """A change of the same size in a random direction, drawn for each head and prompt. sizes: of `away`."""
    way, layer = budget
    size = sizes[way][config.layers.index(layer)][..., None]
    direction = rng.normal(size=(*size.shape[:-1], architecture.head_dim))
    change = size * direction / np.linalg.norm(direction, axis=-1, keepdims=True)
    edit = sinkjax.edit("head_out", "add", change[None].astype(np.float32), layers=layer, queries=config.position)
    return edit.named(f"random direction, as large as {way}, layer {layer}")


def measures(config: Amplify) -> tuple[st.Measure, ...]:
    k = config.position
    return st.sink_rate(k, config.eps), st.sink_rate(0, config.eps), received(k), st.largest_activation(k), st.loss()


def best(config: Amplify, way: str) -> Callable[[st.Results], str]:
    """Finds the dose of the dose-response with the largest effect."""
    doses = [Dose(way, layer, factor).label for layer in config.layers for factor in config.factors]
    return st.largest_effect(measures(config)[0], doses, "the strongest dose")


def largest(config: Amplify, way: str) -> st.Quantity:
    """The largest effect of `factor` in any layer, ranked among the largest of as many controls in these layers."""
    sinks, doses = measures(config)[0], matched(config, way)

    def of(results: st.Results) -> st.Estimate:
        rows = [results.row(sinks, dose.label) for dose in doses]
        row = max(rows, key=lambda row: row.effect.mean or 0)
        values = results.values(sinks, CONTROLS)
        baseline = results.per_prompt(sinks, st.NO_EDIT)[: values.shape[1]]
        own = max(float((results.per_prompt(sinks, dose.label)[: values.shape[1]] - baseline).mean()) for dose in doses)
        drawn = [entry.budget for entry in results.conditions(CONTROLS)]
        random = (values - baseline).mean(axis=1)
        of_layers = [random[[budget == (dose.way, dose.layer) for budget in drawn]] for dose in doses]
        rank = st.Rank.among(own, np.max(of_layers, axis=0))
        return st.Estimate(f"largest effect of s = {config.factor:g} ({row.condition})", row.effect, sinks.unit, True, rank)

    return st.Quantity(f"the largest effect of s = {config.factor:g} in a layer of the dose-response", of)


def claims(config: Amplify, architecture: Any) -> Iterator[st.Claim]:
    sinks, first_sinks, score, *_ = measures(config)
    first = st.value(first_sinks, st.NO_EDIT)
    half, what = first.times(0.5, "half of the heads that sink on key 0 without an edit"), "layers of the dose-response"

    def effects(way: str) -> list[st.Quantity]:
        return [st.effect(sinks, dose.label) for dose in matched(config, way)]

    def in_layers(way: str, rule: Callable[[Dose], st.Rule], criterion: str) -> st.Rule:
        """The matched dose has an effect, and a rule on it holds, in one or more of the layers."""
        rules = [st.all_of(st.above(st.effect(sinks, dose.label)), rule(dose)) for dose in matched(config, way)]
        return st.some_of(rules, what, f"s = {config.factor:g} makes more heads sink on the token, and {criterion}")

    def sink(dose: Dose) -> st.Rule:
        return st.at_least(st.value(sinks, dose.label), half)

    def grows(dose: Dose) -> st.Rule:
        return st.rising([st.value(score, dose._replace(factor=factor).label) for factor in config.factors], score.name)

    def moves(way: str) -> st.Rule:
        found = [st.above(change, HAS_SINK) for change in effects(way)]
        said = f"s = {config.factor:g} makes more than {HAS_SINK:g} % of heads sink on the token"
        return st.some_of(found, what, said)

    where = "in layer " + " or ".join(filter(None, (", ".join(map(str, config.layers[:-1])), str(config.layers[-1]))))
    pushed = {way: in_layers(way, sink, "at least half as many do as on key 0 without an edit") for way in READINGS}
    for way in READINGS:
        yield st.Claim(
            f"Head outputs of token {config.position} pushed {way} by s = {config.factor:g} {where} give it at least half"
            " of the sink of key 0.",
            st.all_of(st.above_controls(largest(config, way)), pushed[way]),
            given=st.above(first, HAS_SINK),
            source=SOURCE,
            also=(*effects(way), half),
        )
        yield st.Claim(
            f"The further the head outputs of token {config.position} are pushed {way} {where}, the stronger the sink on it.",
            in_layers(way, grows, f"the {score.name} rises with every step"),
            given=moves(way),
            source=SOURCE,
        )
    yield st.Claim(
        f"Scaling the head outputs of token {config.position} by s = {config.factor:g} {where} gives it less than half of the"
        " sink of key 0.",
        st.every(
            [st.below(st.value(sinks, dose.label), half) for dose in matched(config, NORM)],
            what,
            "fewer than half as many heads sink on the token as on key 0 without an edit, in pairs",
        ),
        given=st.all_of(
            st.above(first, HAS_SINK), st.any_of(*pushed.values(), criterion="pushing them away from a mean makes it one")
        ),
        source=SOURCE,
        also=(st.effect(sinks, best(config, NORM)),),
    )


def findings(config: Amplify, architecture: Any) -> Iterator[st.Quantity]:
    """The strongest dose of each way, and what a factor of 1 changes."""
    yield from (st.effect(measures(config)[0], best(config, way)) for way in WAYS)
    yield st.noop_change(*(Dose(way, config.layers[0], 1.0).label for way in WAYS))


def strongest(results: st.Results) -> tuple[str, ...]:
    return (st.NO_EDIT, *(best(results.config, way)(results) for way in WAYS))


def featured(results: st.Results) -> tuple[str, ...]:
    doses = [dose.label for dose in matched(results.config, *WAYS)]
    return (st.NO_EDIT, *doses, *strongest(results)[1:])


def figures(config: Amplify, architecture: Any) -> Iterator[st.Figure]:
    sinks, _, score, size, _ = measures(config)
    k, s, factors, L = config.position, config.factor, config.factors, range(architecture.layers)

    def panel(measure: st.Measure, title: str, layers: Sequence[int], factors: Sequence[float], x: Any) -> st.Panel:
        curves = {way: (measure, [Dose(way, layer, factor).label for layer in layers for factor in factors]) for way in WAYS}
        return st.Panel(measure.name, curves, title, baseline=st.NO_EDIT, log=measure is size, x=x)

    yield st.lines(
        "dose-response",
        "factor s (log scale)",
        [
            [panel(measure, f"layer {layer}", [layer], factors, factors) for layer in config.layers]
            for measure in (sinks, score, size)
        ],
        f"""Heads that sink on token {k} (top), the attention that it receives (middle) and its largest |h| (bottom) against the
        factor s by which its head outputs in one layer are pushed away from a mean, or scaled. Dashed: no edit.""",
        legend_above=True,
        log_x=True,
    )
    yield st.lines(
        "sink-by-amplified-layer",
        "amplified layer (0-based)",
        [[panel(measure, f"s = {s:g}", L, [s], L)] for measure in (sinks, size)],
        f"""Heads that sink on token {k} (top) and its largest |h| (bottom), with its head outputs in one layer amplified {s:g}
        times. Dashed: no edit.""",
        legend_above=True,
    )


STUDY = st.Study(
    name="li/amplify",
    config=Amplify,
    title="The head outputs of token {position} pushed away from their mean",
    question="""Li et al. 2026: a token whose head outputs are pushed away from their mean becomes a sink, and the further they
        are pushed, the more heads sink on it. Scaling the same outputs, which changes their norm alone, does not.""",
    check=lambda config, architecture: layers_below(config, "layers", architecture.layers),
    probe=lambda config: sinkjax.Probe.of("attention_received", "resid_max", "nll"),
    conditions=conditions,
    values=st.Values(no_means, means_of),
    headline=lambda config, architecture: [(dose.way, dose.layer) for dose in matched(config, POSITIONS)],
    controls=(
        st.random_edits(
            "li/amplify controls",
            random_direction,
            lambda config, _: [(dose.way, dose.layer) for dose in matched(config)],
            values=st.Values(nothing, away),
        ),
    ),
    measures=measures,
    claims=claims,
    findings=findings,
    featured=featured,
    figures=figures,
    shown=lambda config, architecture: st.Shown(
        (st.NO_EDIT, *(Dose(way, config.layers[-1], max(config.factors)).label for way in (POSITIONS, NORM))),
        start=config.position + 1,
    ),
    views=st.activation_view("amplified-activation", strongest),
    notes=lambda config, results: (
        f"""The mean mu is taken over the positions up to the token, over prompts at the token's position, over prompts and
        positions, or over the dims of a head: the summaries of the paper do not say which. Reading notes on it have one vector
        for each layer, so a mean over prompts is as likely as one over positions; a mean over dims is not a vector, and no
        claim is judged on it. Random directions are drawn for each head and prompt, with the size of the change that s =
        {config.factor:g} makes away from each of these vectors. A factor of 1 must change nothing.""",
        """The paper gives no layers, factors or thresholds; they are choices made here. After a first look at random weights, the
        claim about scaling was made not applicable where no dose has an effect. On a second reading a sink must have half of the
        heads that sink on key 0, where before any effect was enough. After a review of the rules, and
        before new numbers, that half must be reached at the factor that has controls, where before any factor was enough. After
        another review on 2026-11-22, with results known, scaling is judged by the same bound, at the same factor and layers, and
        only where pushing makes a sink; before, more than 1 % of heads at any factor counted against it.""",
    ),
)
