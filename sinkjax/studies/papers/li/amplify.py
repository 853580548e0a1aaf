"""li/amplify: a token's head outputs pushed away from their mean make it a sink, scaled ones do not (Li et al. 2026, 2 and 3).

o becomes mu + s (o - mu) in all heads of one layer, with mu over the head's dims or over the positions up to the token; the
paper's control is s o. A further control adds a change of the same size, head by head, in a random direction.
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
    """The head outputs of one token pushed away from their mean, against the same outputs merely scaled.

    Chosen here: all heads of a layer; the mean over a head's dims, and that over the positions up to the token, both; the
    factors; the layers; and as a further control a change of the same size in a random direction.
    """

    factors: tuple[float, ...] = (2.0, 5.0, 10.0, 20.0, 50.0)
    """strengths of the dose-response; 1 changes nothing and is measured beside them"""
    layers: tuple[int, ...] = (0, 1, 2)
    """layers of the dose-response, each one alone"""
    factor: float = 10.0
    """strength at which every layer is amplified alone, and for which there are controls"""
    controls: int = 20
    """random directions for each layer of the dose-response"""

    def __post_init__(self) -> None:
        super().__post_init__()
        each_once(self, "factors")
        each_once(self, "layers")
        layers_from_0(self, "layers")
        wrong = min(self.factors) <= 1 or self.factor not in self.factors
        refuse(wrong, f"factors must be above 1 and hold factor ({self.factor:g}), not {self.factors}")


class Dose(NamedTuple):
    """How the outputs are changed, in which layer and how strongly."""

    way: str
    layer: int
    factor: float

    @property
    def label(self) -> str:
        return f"{self.way}, layer {self.layer}, s = {self.factor:g}"


def conditions(config: Amplify, architecture: Any) -> Iterator[st.Condition]:
    """Nothing, a factor of 1, and all factors in some layers and one in all others; a budget is a layer with controls."""

    def amplified(dose: Dose, series: str, budget: int | None = None) -> st.Condition:
        edit = sinkjax.scale_head_output(config.position, dose.factor, centre=CENTRES[dose.way], layers=dose.layer)
        return st.Condition(edit.named(dose.label), series, dose.layer, budget)

    yield st.no_edit()
    yield from (amplified(Dose(way, config.layers[0], 1.0), SAME) for way in CENTRES)
    for way in CENTRES:
        for layer in range(architecture.layers):
            for factor in config.factors if layer in config.layers else (config.factor,):
                matched = way == POSITIONS and layer in config.layers and factor == config.factor
                yield amplified(Dose(way, layer, factor), way, layer if matched else None)


def away(config: Amplify, model: Any, batch: st.Batch) -> NDArray:
    """(s - 1)(o - mu) of the token's head outputs, mu over positions, at the matched factor: float[layers, prompt, head, dim]."""
    k = config.position
    probe = sinkjax.Probe(capture=(sinkjax.Capture(sinkjax.Site.HEAD_OUT, layers=config.layers, positions=tuple(range(k + 1))),))
    record = sinkjax.forward(model.params, batch.tokens, model.config, probe=probe, lengths=batch.lengths, logits=False).record
    outputs = np.asarray(record["head_out"], np.float32).swapaxes(0, 1)
    return (config.factor - 1) * (outputs[:, :, k] - outputs.mean(axis=2))


def nothing(config: Amplify, architecture: Any, prompts: int) -> NDArray:
    return np.zeros((len(config.layers), prompts, architecture.heads, architecture.head_dim), np.float32)


def random_direction(rng: np.random.Generator, config: Amplify, architecture: Any, layer: int, changes: NDArray) -> sinkjax.Edit:
    """A change of the same size in a random direction, one for each head and prompt. changes: of `away`."""
    size = np.linalg.norm(changes, axis=-1, keepdims=True)[config.layers.index(layer)]
    direction = rng.normal(size=changes.shape[1:])
    change = size * direction / np.linalg.norm(direction, axis=-1, keepdims=True)
    edit = sinkjax.edit("head_out", "add", change[None].astype(np.float32), layers=layer, queries=config.position)
    return edit.named(f"random direction, layer {layer}")


def measures(config: Amplify) -> tuple[st.Measure, ...]:
    """Sinks on the token and on the first one, the largest |h| at the token, and the loss."""
    k = config.position
    return st.sink_rate(k, config.eps), st.sink_rate(0, config.eps), st.largest_activation(k), st.loss()


def doses(config: Amplify, *ways: str) -> dict[str, Dose]:
    """The dose-response of some ways, by label."""
    found = [Dose(way, layer, factor) for way in ways for layer in config.layers for factor in config.factors]
    return {dose.label: dose for dose in found}


def best(config: Amplify, *ways: str, layer: int | None = None, **other: Any) -> Callable[[st.Results], str]:
    """Finds the dose of the dose-response with the largest effect. layer: in one layer. other: what to replace in that dose."""
    found = {label: dose for label, dose in doses(config, *ways).items() if layer in (None, dose.layer)}
    strongest = st.largest_effect(measures(config)[0], list(found), "")

    def label(results: st.Results) -> str:
        return found[strongest(results)]._replace(**other).label

    label.__doc__ = "the strongest dose"
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
    each = [st.value(sinks, best(config, *centres, factor=factor), f"at s = {factor:g} (%)") for factor in config.factors]
    yield st.Claim(
        "The sink grows monotonically with s.",
        st.all_of(pushed, st.rising(each, "heads that sink on the token, in the layer of the strongest dose,")),
    )
    yield st.Claim(
        "Scaling the same outputs does not make it a sink.",
        st.none_of(
            [st.above(st.effect(sinks, label)) for label in doses(config, NORM)],
            "scalings",
            "the effect on heads that sink on the token has an interval above 0",
        ),
        given=pushed,
        also=(st.effect(sinks, best(config, NORM)), st.effect(sinks, best(config, *centres, way=NORM))),
    )


def findings(config: Amplify, architecture: Any) -> Iterator[st.Quantity]:
    sinks, *others = measures(config)
    yield from (st.effect(sinks, best(config, way)) for way in CENTRES)
    yield from (st.value(sinks, Dose(way, config.layers[0], config.factor).label) for way in CENTRES)
    yield from (st.value(measure, label) for measure in others for label in (st.NO_EDIT, best(config, POSITIONS)))
    yield st.noop_change(*(Dose(way, config.layers[0], 1.0).label for way in CENTRES))


def strongest(results: st.Results) -> tuple[str, ...]:
    """No edit and the strongest dose of each way."""
    return (st.NO_EDIT, *(best(results.config, way)(results) for way in CENTRES))


def featured(results: st.Results) -> tuple[str, ...]:
    matched = [Dose(way, layer, results.config.factor).label for way in CENTRES for layer in results.config.layers]
    return (st.NO_EDIT, *matched, *strongest(results)[1:])


def figures(config: Amplify, architecture: Any) -> Iterator[st.Figure]:
    sinks, _, size, _ = measures(config)
    k, L = config.position, architecture.layers

    def grid(columns: dict[str, list[tuple[int, float]]], x: Sequence[float]) -> list[list[st.Panel]]:
        """The sinks above the largest |h|, at the layers and factors of each column."""
        return [
            [
                st.Panel(
                    measure.name,
                    {way: (measure, [Dose(way, *place).label for place in places]) for way in CENTRES},
                    title,
                    baseline=st.NO_EDIT,
                    log=measure is size,
                    x=x,
                )
                for title, places in columns.items()
            ]
            for measure in (sinks, size)
        ]

    yield st.lines(
        *("dose-response", "factor s (log scale)"),
        grid({f"layer {layer}": [(layer, factor) for factor in config.factors] for layer in config.layers}, config.factors),
        f"""Heads that sink on token {k} (top) and its largest |h| (bottom) against the factor s, by which its head outputs in one
        layer are pushed away from a mean or merely scaled. Dashed: no edit.""",
        legend_above=True,
        log_x=True,
    )
    yield st.lines(
        *("sink-by-amplified-layer", "amplified layer (0-based)"),
        grid({f"s = {config.factor:g}": [(layer, config.factor) for layer in range(L)]}, range(L)),
        f"""Heads that sink on token {k} (top) and its largest |h| (bottom), its head outputs amplified {config.factor:g} times in
        one layer. Dashed: no edit.""",
        legend_above=True,
    )


STUDY = st.Study(
    name="li/amplify",
    config=Amplify,
    title="The head outputs of token {position} pushed away from their mean",
    question="""Li et al. 2026: a token whose head outputs are pushed away from their mean becomes a sink, the more the further;
        scaling the same outputs, which changes their norm alone, does not do it.""",
    check=lambda config, architecture: layers_below(config, "layers", architecture.layers),
    probe=lambda config: sinkjax.Probe.of("attention_received", "resid_max", "nll"),
    conditions=conditions,
    controls=(
        st.random_edits(
            *("li/amplify controls", random_direction, lambda config, architecture: config.layers),
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
        f"""The random directions are drawn for each head and prompt, with the size of the change that s = {config.factor:g} makes
        away from the mean over positions. An edit that must change nothing has a factor of 1.""",
        """After a first look at random weights the statement on scaling was made not applicable where no dose has an effect. On a
        second reading a sink must be half of what key 0 has, as in kiya/mask, where any effect was enough, and monotone means
        every step; scaling is judged by any effect at all, in every layer and at every factor. The paper gives no thresholds.""",
    ),
)
