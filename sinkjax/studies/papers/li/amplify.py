"""li/amplify: a token whose head outputs are pushed away from their mean becomes a sink; scaling them has no such effect
(Li et al. 2026, interventions 2 and 3). The controls add a change of the same size in a random direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.config_files.checks import each_once, layers_below, layers_from_0, refuse
from sinkjax.studies.papers.li._token import OneToken

SAME = "identity"
POSITIONS, DIMS, NORM = "away from the mean over positions", "away from the mean over dims", "scaled, no mean (control)"
CENTRES = {POSITIONS: "positions", DIMS: "dims", NORM: None}


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
        refuse(wrong, f"factors must be above 1 and hold factor ({self.factor:g}), not {self.factors}")


class Dose(NamedTuple):
    """How the outputs are changed, in which layer and by which factor."""

    way: str
    layer: int
    factor: float

    @property
    def label(self) -> str:
        return f"{self.way}, layer {self.layer}, s = {self.factor:g}"


def conditions(config: Amplify, architecture: Any) -> Iterator[st.Condition]:
    """No edit, a factor of 1, and every factor in some layers and one factor in the others; a budget is a layer."""
    yield st.no_edit()
    doses = [Dose(way, config.layers[0], 1.0) for way in CENTRES]
    for way in CENTRES:
        for layer in range(architecture.layers):
            doses += [Dose(way, layer, factor) for factor in (config.factors if layer in config.layers else (config.factor,))]
    controlled = [Dose(POSITIONS, layer, config.factor) for layer in config.layers]
    for dose in doses:
        edit = sinkjax.scale_head_output(config.position, dose.factor, centre=CENTRES[dose.way], layers=dose.layer)
        series, budget = SAME if dose.factor == 1 else dose.way, dose.layer if dose in controlled else None
        yield st.Condition(edit.named(dose.label), series, dose.layer, budget)


def away(config: Amplify, model: Any, batch: st.Batch) -> NDArray:
    """(s - 1)(o - mu) of the token's head outputs at `factor`, mu over positions: float[layers, prompt, head, dim]."""
    k = config.position
    probe = sinkjax.Probe(capture=(sinkjax.Capture(sinkjax.Site.HEAD_OUT, layers=config.layers, positions=tuple(range(k + 1))),))
    record = sinkjax.forward(model.params, batch.tokens, model.config, probe=probe, lengths=batch.lengths, logits=False).record
    outputs = np.asarray(record["head_out"], np.float32).swapaxes(0, 1)
    return (config.factor - 1) * (outputs[:, :, k] - outputs.mean(axis=2))


def nothing(config: Amplify, architecture: Any, prompts: int) -> NDArray:
    return np.zeros((len(config.layers), prompts, architecture.heads, architecture.head_dim), np.float32)


def random_direction(rng: np.random.Generator, config: Amplify, architecture: Any, layer: int, changes: NDArray) -> sinkjax.Edit:
    """A change of the same size in a random direction, drawn for each head and prompt. changes: of `away`."""
    size = np.linalg.norm(changes, axis=-1, keepdims=True)[config.layers.index(layer)]
    direction = rng.normal(size=changes.shape[1:])
    change = size * direction / np.linalg.norm(direction, axis=-1, keepdims=True)
    edit = sinkjax.edit("head_out", "add", change[None].astype(np.float32), layers=layer, queries=config.position)
    return edit.named(f"random direction, layer {layer}")


def measures(config: Amplify) -> tuple[st.Measure, ...]:
    k = config.position
    return st.sink_rate(k, config.eps), st.sink_rate(0, config.eps), st.largest_activation(k), st.loss()


def best(config: Amplify, *ways: str, layer: int | None = None, **other: Any) -> Callable[[st.Results], str]:
    """Finds the dose of the dose-response with the largest effect. layer: in this layer alone. other: what to replace in it."""
    layers = config.layers if layer is None else (layer,)
    doses = {dose.label: dose for dose in (Dose(way, layer, s) for way in ways for layer in layers for s in config.factors)}
    strongest = st.largest_effect(measures(config)[0], list(doses), "")

    def label(results: st.Results) -> str:
        """The strongest dose."""
        return doses[strongest(results)]._replace(**other).label

    return label


def claims(config: Amplify, architecture: Any) -> Iterator[st.Claim]:
    sinks, first_sinks, *_ = measures(config)
    half = st.value(first_sinks, st.NO_EDIT).times(0.5, "half of the heads that sink on key 0 without an edit")
    matched = [
        st.effect(sinks, Dose(POSITIONS, layer, config.factor).label, f"effect of s = {config.factor:g} in layer {layer}")
        for layer in config.layers
    ]
    reached = [
        st.value(sinks, best(config, POSITIONS, layer=layer), f"heads that sink on the token at the best s in layer {layer} (%)")
        for layer in config.layers
    ]
    centres = POSITIONS, DIMS
    pushed = st.above(st.effect(sinks, best(config, *centres)))
    each = [st.value(sinks, best(config, *centres, factor=factor), f"at s = {factor:g} (%)") for factor in config.factors]
    scaled = [Dose(NORM, layer, factor).label for layer in config.layers for factor in config.factors]
    yield st.Claim(
        f"Head outputs of token {config.position} pushed away from their mean make it a sink.",
        st.some_of(
            [
                st.all_of(st.above(change), st.above_controls(change), st.at_least(most, half))
                for change, most in zip(matched, reached, strict=True)
            ],
            "layers of the dose-response",
            f"the effect of s = {config.factor:g} away from the mean over positions has an interval above 0 and lies above every"
            " random direction of the same size, and at the best s at least half as many heads sink on the token as on key 0"
            " without an edit",
        ),
        also=(*matched, *reached, half),
    )
    yield st.Claim(
        "The sink grows monotonically with s.",
        st.all_of(pushed, st.rising(each, "heads that sink on the token, in the layer of the strongest dose,")),
    )
    yield st.Claim(
        "Scaling the same outputs does not make it a sink.",
        st.none_of(
            [st.above(st.effect(sinks, label)) for label in scaled],
            "scalings",
            "the effect on heads that sink on the token has an interval above 0",
        ),
        given=pushed,
        also=(st.effect(sinks, best(config, NORM)), st.effect(sinks, best(config, *centres, way=NORM))),
    )


def findings(config: Amplify, architecture: Any) -> Iterator[st.Quantity]:
    """The strongest dose of each way, and what a factor of 1 changes."""
    yield from (st.effect(measures(config)[0], best(config, way)) for way in CENTRES)
    yield st.noop_change(*(Dose(way, config.layers[0], 1.0).label for way in CENTRES))


def strongest(results: st.Results) -> tuple[str, ...]:
    return (st.NO_EDIT, *(best(results.config, way)(results) for way in CENTRES))


def featured(results: st.Results) -> tuple[str, ...]:
    matched = [Dose(way, layer, results.config.factor).label for way in CENTRES for layer in results.config.layers]
    return (st.NO_EDIT, *matched, *strongest(results)[1:])


def figures(config: Amplify, architecture: Any) -> Iterator[st.Figure]:
    sinks, _, size, _ = measures(config)
    k, s, factors, L = config.position, config.factor, config.factors, range(architecture.layers)

    def panel(measure: st.Measure, title: str, layers: Sequence[int], factors: Sequence[float], x: Any) -> st.Panel:
        curves = {way: (measure, [Dose(way, layer, factor).label for layer in layers for factor in factors]) for way in CENTRES}
        return st.Panel(measure.name, curves, title, baseline=st.NO_EDIT, log=measure is size, x=x)

    yield st.lines(
        "dose-response",
        "factor s (log scale)",
        [[panel(measure, f"layer {layer}", [layer], factors, factors) for layer in config.layers] for measure in (sinks, size)],
        f"""Heads that sink on token {k} (top) and its largest |h| (bottom) against the factor s by which its head outputs in one
        layer are pushed away from a mean, or scaled. Dashed: no edit.""",
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
    controls=(
        st.random_edits(
            "li/amplify controls", random_direction, lambda config, _: config.layers, values=st.Values(nothing, away)
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
        f"""The mean mu is taken over the dims of a head, or over the positions up to the token. Random directions are drawn for
        each head and prompt, with the size of the change that s = {config.factor:g} makes away from the mean over positions. An
        edit that must change nothing has a factor of 1.""",
        """The paper gives no layers, factors or thresholds; they are choices made here. After a first look at random weights, the
        claim about scaling was made not applicable where no dose has an effect. On a second reading a sink must have half of the
        heads that sink on key 0, as in kiya/mask, where before any effect was enough; monotone means an increase at every step;
        and scaling is judged by any effect at all, in every layer and at every factor.""",
    ),
)
