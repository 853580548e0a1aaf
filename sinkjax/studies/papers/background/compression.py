"""background/compression: the entropy of the hidden states by depth, and the effect of dropping the first token's MLP output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import intervals, metrics
from sinkjax.config_files.checks import refuse
from sinkjax.studies.papers.background._position import Position, growth, kept_mlp, layer_of_growth
from sinkjax.studies.papers.background._spectra import correlation, matrix_entropy, statistics

ALL, WHERE_IT_GROWS = "all layers", "MLP dropped in the layer where its norm grows most"
EARLY, LATE = 0.2, 0.85  # shares of the depth between which states are compressed (Queipo-de-Llano et al., section 5)
STRONG = -0.5  # the correlation below which an interval must lie
SINK = 1.0  # per cent of heads from which on there is a sink to remove
PAPER = "Queipo-de-Llano et al. 2026"
SLACK = 0.01  # per cent by which p_1 may fall short of the bound, for rounding in float32


@dataclass(frozen=True, kw_only=True)
class Compression(Position, st.ControlledSinks):
    """Entropy of the hidden states by depth, with and without the first token's MLP output (Queipo-de-Llano et al. 2026)."""


def conditions(config: Compression, architecture: Any, grows: int) -> Iterator[st.Condition]:
    """No edit, the MLP output dropped where the norm grows most, in all layers, and in each. A budget is the edited layers."""
    yield st.no_edit()
    for budget, layers in budgets(architecture, grows).items():
        yield st.Condition(sinkjax.drop_mlp(config.position, layers=layers).named(budget), budget, budget=budget)
    for layer, label in enumerate(single(architecture)):
        yield st.Condition(sinkjax.drop_mlp(config.position, layers=layer).named(label), "one layer", layer)


def budgets(architecture: Any, grows: int) -> dict[str, range]:
    """The layers whose edit has controls."""
    return {WHERE_IT_GROWS: range(grows, grows + 1), ALL: range(architecture.layers)}


def random_positions(config: Compression, architecture: Any, grows: int) -> Iterator[st.Condition]:
    """The MLP output of random other positions, dropped in the same layers."""
    rng = intervals.generator(config.seed, "background/compression controls")
    for budget, layers in budgets(architecture, grows).items():
        for number, position in enumerate(config.others(rng)):
            edit = sinkjax.drop_mlp(position, layers=layers).named(f"control {number}: position {position}, {budget}")
            yield st.Condition(edit, st.CONTROL, budget=budget)


def middle(depths: int) -> slice:
    """The depths at which states are said to be compressed."""
    return slice(int(np.ceil(EARLY * (depths - 1))), int(LATE * (depths - 1)) + 1)


def in_the_middle(values: NDArray) -> NDArray:
    """The mean of float[..., depth] over the middle depths."""
    return values[..., middle(values.shape[-1])].mean(axis=-1)


def anisotropy(data: Any) -> NDArray:
    return data["spectrum"].values[..., 0].astype(np.float64)


def mixing(data: Any, *axes: int) -> NDArray:
    return np.nanmean(data["row_entropy"], axis=axes) / np.log(2)


def sinks_by_layer(data: Any, config: Compression) -> NDArray:
    return metrics.sink_rate(data, config.position, config.eps, per="layer")


def measures(config: Compression) -> tuple[st.Measure, ...]:
    return (
        st.Measure(
            "matrix entropy of the middle depths (bits)",
            lambda data: in_the_middle(matrix_entropy(data["spectrum"])),
            unit="bits",
            note=f"""Matrix entropy: -sum p log2 p over the shares p of the squared singular values of a prompt's hidden states,
                in bits: 0 for a single direction, {np.log2(config.length):.0f} for as many equal ones as tokens. Middle depths:
                {EARLY:.0%} to {LATE:.0%} of all.""",
        ),
        st.sink_rate(config.position, config.eps),
        st.Measure("mixing: mean entropy of attention rows (bits)", lambda data: mixing(data, -3, -2, -1), unit="bits"),
        st.loss(),
        st.Measure("anisotropy p_1 of the middle depths", lambda data: in_the_middle(anisotropy(data))),
    )


def emerges(results: st.Results) -> int:
    """The layer in which the norm grows most without an edit, as the edits take it: on the prompts of the controls."""
    return growth(results.data["resid_norm"].values[0, : results.size("prompt", "controls")], results.config.position)


def single(architecture: Any) -> list[str]:
    return [f"layer {layer}" for layer in range(architecture.layers)]


def compared(part: str) -> st.Quantity:
    """Matrix entropy of the unedited run in the middle depths minus that in the early or the late ones."""

    def of(results: st.Results) -> NDArray:
        entropy = matrix_entropy(results.data["spectrum"].values[0])
        inside = middle(entropy.shape[-1])
        outside = slice(inside.start) if part == "early" else slice(inside.stop, None)
        return entropy[:, inside].mean(axis=-1) - entropy[:, outside].mean(axis=-1)

    return st.quantity(f"entropy of the middle depths minus that of the {part} ones", of, "bits", signed=True)


def changing_with(what: str, of: Callable[[Any, Compression], NDArray]) -> st.Quantity:
    """Correlation over layers of the changes of the position's norm and of another number, in each prompt.

    of: the unedited run, config -> float[prompt, depth or layer]; that of a layer is paired with the stream that enters it.
    """

    def correlations(results: st.Results) -> NDArray:
        unedited = results.data.isel(edit=0)
        norm, other = unedited["resid_norm"].values[..., results.config.position], of(unedited, results.config)
        return correlation(np.diff(norm[:, : other.shape[-1]]), np.diff(other))

    return st.quantity(f"r of norm and {what} over layers", correlations)


def claims(config: Compression, architecture: Any) -> Iterator[st.Claim]:
    entropy, sinks, *_ = measures(config)
    freed, removed, plain = st.effect(entropy, WHERE_IT_GROWS), st.effect(sinks, WHERE_IT_GROWS), st.value(sinks, st.NO_EDIT)
    norm_entropy = changing_with("entropy", lambda run, config: matrix_entropy(run["spectrum"]))
    norm_sinks = changing_with("sinks", sinks_by_layer)

    def gap(results: st.Results) -> NDArray:  # p_1 minus its lower bound: float[edit, prompt, depth]
        return results.data["spectrum"].values[..., 0] - results.data["bound"].values

    shortfall = st.number(
        "the largest shortfall of p_1 below its bound (%)", lambda results: max(-100 * float(gap(results).min()), 0)
    )
    above_bound = "p_1 above its bound in the middle depths, without an edit"
    yield st.Claim(
        "Hidden states of the middle depths have a lower matrix entropy than those of early and of late ones.",
        st.all_of(st.below(compared("early")), st.below(compared("late"))),
        source=f"{PAPER}, Fig. 1",
        paper="LLaMA3-8B: 0.02 bits in the middle layers",
    )
    yield st.Claim(
        "The first token's norm and the matrix entropy of the hidden states change against each other over layers (r <"
        f" {STRONG:g}).",
        st.below(norm_entropy, STRONG),
        given=st.defined(norm_entropy),
        source=f"{PAPER}, section 3",
        paper="six models: -0.9 +- 0.18",
    )
    yield st.Claim(
        "Over layers the first token's norm and the heads that sink on it change together.",
        st.above(norm_sinks),
        given=st.defined(norm_sinks),
        source=f"{PAPER}, section 3",
        paper="six models: 0.58 +- 0.25",
    )
    yield st.Claim(
        "Dropping the first token's MLP output where its norm grows most raises the matrix entropy of the middle depths.",
        st.all_of(st.above(freed), st.above_controls(freed)),
        source=f"{PAPER}, section 4",
        paper="LLaMA3-8B, layer 0: 0.4 to 0.5 bits instead of 0.02",
    )
    half = plain.times(0.5, "half of that without an edit")
    yield st.Claim(
        "Dropping the first token's MLP output where its norm grows most removes more than half of the sink.",
        st.all_of(st.below(st.value(sinks, WHERE_IT_GROWS), half), st.below_controls(removed)),
        given=st.above(plain, SINK),
        source=f"{PAPER}, section 4",
        paper="LLaMA3-8B, layer 0: sink rate 0 instead of 0.85 to 1",
    )
    yield st.Claim(
        "The largest share of the spectrum of the hidden states is bounded below by the first token's norm and alignment.",
        st.below(shortfall, SLACK),
        source=f"{PAPER}, Theorem 1",
        kind="identity",
        also=(st.quantity(above_bound, lambda results: in_the_middle(gap(results)[0])),),
    )


def findings(config: Compression, architecture: Any) -> Iterator[st.Quantity]:
    entropy, sinks, *_ = measures(config)
    freest = st.largest_effect(entropy, single(architecture), "the layer that frees most entropy")
    emptiest = st.largest_effect(sinks, single(architecture), "the layer that removes most sinks", lowest=True)
    yield st.effect(entropy, freest, "largest effect of a single layer on the entropy of the middle depths")
    yield st.effect(sinks, emptiest, "lowest effect of a single layer on the heads that sink")


def figures(config: Compression, architecture: Any) -> Iterator[st.Figure]:
    sinking = f"heads that sink\non key {config.position} (%)"

    def by_depth(results: st.Results) -> list[list[Any]]:
        where = f"MLP dropped in layer {emerges(results)}"
        names = {st.NO_EDIT: st.NO_EDIT, WHERE_IT_GROWS: where, ALL: "MLP dropped in all layers"}
        runs = results.data.sel(edit=list(names))
        panels = {
            "matrix entropy (bits)": matrix_entropy(runs["spectrum"]),
            "anisotropy p_1": anisotropy(runs),
            "mixing (bits)": mixing(runs, -2, -1),
            sinking: 100 * sinks_by_layer(runs, config),
        }
        return [[results.panel("", ylabel, dict(zip(names.values(), rows, strict=True)))] for ylabel, rows in panels.items()]

    yield st.curves(
        "by-depth",
        "layer l, or depth l (0-based)",
        by_depth,
        f"""From above: matrix entropy of a prompt's hidden states and share of their largest direction, by depth (l: what enters
        layer l); entropy of attention rows and heads that sink on key {config.position}, by layer.""",
        legend_above=True,
    )
    entropy, sinks, *_ = measures(config)
    titles = {"matrix entropy of\nthe middle depths (bits)": entropy, sinking: sinks}
    yield st.lines(
        "by-dropped-layer",
        "layer l in which the MLP is dropped (0-based)",
        [
            st.panels(ylabel, {"MLP dropped in layer l": measure}, {"": single(architecture)}, baseline=st.NO_EDIT)
            for ylabel, measure in titles.items()
        ],
        f"""Matrix entropy of the middle depths, and heads that sink on key {config.position}, when the MLP's output for position
        {config.position} is dropped in one layer. Dashed: no edit.""",
        legend_above=True,
    )


LAYER = layer_of_growth("resid_norm")
STUDY = st.Study(
    name="background/compression",
    config=Compression,
    title="Compression of the hidden states, and the first token's MLP",
    question="""Queipo-de-Llano et al. 2026: where the first token's massive activation emerges, the hidden states collapse to
        nearly one direction; without the MLP's output for that token there is neither compression nor sink.""",
    needs=("MLP",),
    probe=lambda config: sinkjax.Probe(
        attention_received=True, row_entropy=True, resid_norm=True, nll=True, extra=statistics(config.position)
    ),
    conditions=conditions,
    values=LAYER,
    headline=lambda config, architecture: [WHERE_IT_GROWS],
    controls=(st.Sweep("controls", random_positions, prompts=st.control_prompts, values=LAYER),),
    measures=measures,
    claims=claims,
    findings=findings,
    featured=lambda results: (st.NO_EDIT, WHERE_IT_GROWS, ALL),
    figures=figures,
    noop=lambda config, architecture, layer: kept_mlp(config),
    shown=lambda config, architecture: st.Shown(
        (st.NO_EDIT, WHERE_IT_GROWS, ALL), start=config.position + 1, prompts=st.control_prompts(config)
    ),
    check=lambda config, architecture: refuse(
        architecture.layers < 4,
        f"background/compression compares early, middle and late layers, and this model has {architecture.layers}",
    ),
    notes=lambda config, results: (
        f"""The layer of emergence, {emerges(results)}, is the one in which the norm of the position grows most without an edit
        on the first {results.size("prompt", "controls")} prompts; no effect of an edit decides it. Controls drop the MLP output
        of another position in the same layers. Correlations are over layers, between the changes from each layer to the next, in
        each prompt, and their intervals over prompts; a layer's sink is paired with the stream that enters it.""",
    ),
)
