"""background/compression: the entropy of the hidden states by depth, and the ablation of the first token's MLP.

Queipo-de-Llano et al. (2026): the massive activation of the first token makes the matrix of hidden states nearly of rank one in
the middle layers, and dropping the MLP's output for this token alone, where it emerges, removes compression and sink.
Controls drop the MLP of random other positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import metrics
from sinkjax.config_files.checks import MIN_QUERIES, at_least, refuse, seen
from sinkjax.studies.papers.background._spectra import anisotropy, correlation, matrix_entropy, statistics
from sinkjax.studies.papers.background._unedited import growth, layer_of_growth

SINGLE, ALL = "one layer", "all layers"
WHERE_IT_GROWS = "MLP dropped in the layer where its norm grows most"
EARLY, LATE = 0.2, 0.85  # shares of the depth between which states are compressed (Queipo-de-Llano et al., section 5)
STRONG = -0.5  # the correlation below which an interval must lie
SLACK = 0.01  # per cent by which p_1 may fall short of the bound, for rounding in float32


@dataclass(frozen=True, kw_only=True)
class Compression(st.ControlledSinks):
    """Entropy of the hidden states by depth, and what dropping the first token's MLP does to it (Queipo-de-Llano et al. 2026)."""

    position: int = 0
    """whose MLP output is dropped"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, length=8, position=0)
        seen(self, self.position, "position")


def conditions(config: Compression, architecture: Any) -> Iterator[st.Condition]:
    """No edit, each layer, and all layers; a budget is a number of layers."""
    L = architecture.layers
    yield st.no_edit()
    for layer in range(L):
        yield st.Condition(sinkjax.drop_mlp(config.position, layers=layer).named(f"layer {layer}"), SINGLE, layer, budget=1)
    yield st.Condition(sinkjax.drop_mlp(config.position).named(ALL), ALL, budget=L)


def another_position(rng: np.random.Generator, config: Compression, architecture: Any, budget: int) -> sinkjax.Edit:
    """The MLP of another, random position dropped in one random layer or in all."""
    L = architecture.layers
    others = [position for position in range(config.length - MIN_QUERIES) if position != config.position]
    position, layer = int(rng.choice(others)), int(rng.integers(L))
    where, layers = (f"layer {layer}", [layer]) if budget == 1 else (ALL, range(L))
    return sinkjax.drop_mlp(position, layers=layers).named(f"position {position} in {where}")


def shown(config: Compression, architecture: Any, layer: int) -> Iterator[st.Condition]:
    """What maps show: no edit, the MLP dropped in one layer, and in all."""
    yield st.no_edit()
    yield st.Condition(sinkjax.drop_mlp(config.position, layers=layer).named(WHERE_IT_GROWS), SINGLE)
    yield st.Condition(sinkjax.drop_mlp(config.position).named(ALL), ALL)


def middle(depths: int) -> slice:
    """The depths at which states are said to be compressed."""
    return slice(int(np.ceil(EARLY * (depths - 1))), int(LATE * (depths - 1)) + 1)


def in_the_middle(values: NDArray) -> NDArray:
    """The mean of float[..., depth] over the middle depths."""
    return values[..., middle(values.shape[-1])].mean(axis=-1)


def measures(config: Compression) -> tuple[st.Measure, ...]:
    return (
        st.Measure(
            "matrix entropy of the middle depths (bits)",
            lambda data: in_the_middle(matrix_entropy(data["spectrum"])),
            unit="bits",
            note=f"""Matrix entropy: -sum p log2 p over the shares p of the squared singular values of a prompt's hidden states,
                in bits; 0 is one direction, {np.log2(config.length):.0f} as many equal ones as tokens. Middle depths: {EARLY:.0%}
                to {LATE:.0%} of all.""",
        ),
        st.sink_rate(config.position, config.eps),
        st.Measure(
            "mixing: mean entropy of attention rows (bits)",
            lambda data: np.nanmean(data["row_entropy"], axis=(-3, -2, -1)) / np.log(2),
            unit="bits",
        ),
        st.loss(),
        st.Measure("anisotropy p_1 of the middle depths", lambda data: in_the_middle(anisotropy(data["spectrum"]))),
    )


def emergence(results: st.Results) -> int:
    return growth(results.data["resid_norm"].values[0], results.config.position)


def emerges(results: st.Results) -> str:
    """The layer of emergence."""
    return f"layer {emergence(results)}"


def phases(results: st.Results) -> tuple[NDArray, NDArray, NDArray]:
    """Mean matrix entropy of the unedited run in the early, middle and late depths: float[prompt] each."""
    entropy = matrix_entropy(results.data["spectrum"].values[0])
    inside = middle(entropy.shape[-1])
    parts = (entropy[:, : inside.start], entropy[:, inside], entropy[:, inside.stop :])
    return parts[0].mean(axis=-1), parts[1].mean(axis=-1), parts[2].mean(axis=-1)


def changes(results: st.Results) -> tuple[NDArray, NDArray]:
    """Correlations over layers of the change of the position's norm with that of entropy, and of the sink: float[prompt] each.

    The sink of layer l is paired with the stream that enters it.
    """
    unedited, position = results.data.isel(edit=0), results.config.position
    norm = np.diff(unedited["resid_norm"].values[..., position])
    entropy = np.diff(matrix_entropy(unedited["spectrum"]))
    sinks = np.diff(metrics.sink_rate(unedited, position, results.config.eps, per="layer"))
    return correlation(norm, entropy), correlation(norm[:, : sinks.shape[-1]], sinks)


def gap(results: st.Results) -> NDArray:
    """p_1 less its lower bound: float[edit, prompt, depth]."""
    return results.data["spectrum"].values[..., 0] - results.data["bound"].values


NORM_ENTROPY = st.quantity("r of norm and entropy over layers", lambda results: changes(results)[0])
NORM_SINKS = st.quantity("r of norm and sinks over layers", lambda results: changes(results)[1])
SHORTFALL = st.number(
    "the largest shortfall of p_1 below its bound (%)", lambda results: max(-100 * float(gap(results).min()), 0)
)
ABOVE_BOUND = st.quantity(
    "p_1 above its bound in the middle depths, without an edit", lambda results: in_the_middle(gap(results)[0])
)


def by_phase(name: str, of: Callable[[NDArray, NDArray, NDArray], NDArray], signed: bool = False) -> st.Quantity:
    return st.quantity(name, lambda results: of(*phases(results)), "bits", signed)


BEFORE = by_phase("entropy of the middle depths minus that of the early ones", lambda early, inside, late: inside - early, True)
AFTER = by_phase("entropy of the middle depths minus that of the late ones", lambda early, inside, late: inside - late, True)


def single(architecture: Any) -> list[str]:
    return [f"layer {layer}" for layer in range(architecture.layers)]


def emptiest(config: Compression, architecture: Any) -> Any:
    said = "the layer that removes most sinks"
    return st.largest_effect(measures(config)[1], single(architecture), said, lowest=True)


def claims(config: Compression, architecture: Any) -> Iterator[st.Claim]:
    entropy, sinks, *_ = measures(config)
    freed, removed, plain = st.effect(entropy, emerges), st.effect(sinks, emerges), st.value(sinks, st.NO_EDIT)
    yield st.Claim(
        "Hidden states are compressed in the middle layers (Queipo-de-Llano et al. 2026, Fig. 1).",
        st.all_of(st.below(BEFORE), st.below(AFTER)),
        paper="LLaMA3-8B: 0.02 bits in the middle layers",
    )
    yield st.Claim(
        "The first token's norm and the entropy change against each other (section 3).",
        st.below(NORM_ENTROPY, STRONG),
        given=st.defined(NORM_ENTROPY),
        paper="six models: -0.9 +- 0.18",
    )
    yield st.Claim(
        "The first token's norm and the sink change together (section 3).",
        st.above(NORM_SINKS),
        given=st.defined(NORM_SINKS),
        paper="six models: 0.58 +- 0.25",
    )
    yield st.Claim(
        "Dropping the first token's MLP in the layer of emergence undoes the compression (section 4).",
        st.all_of(st.above(freed), st.above_controls(freed)),
        paper="LLaMA3-8B, layer 0: 0.4 to 0.5 bits instead of 0.02",
    )
    yield st.Claim(
        "It removes the sink too (section 4).",
        st.all_of(
            st.less_than(st.value(sinks, emerges), plain.times(0.5, "half of that without an edit")), st.below_controls(removed)
        ),
        given=st.more_than(plain, 1),
        paper="LLaMA3-8B, layer 0: sink rate 0 instead of 0.85 to 1",
    )
    yield st.Claim(
        "The largest share of the spectrum is bounded below by the token's norm and alignment (Theorem 1).",
        st.less_than(SHORTFALL, SLACK),
        also=(ABOVE_BOUND,),
    )


def findings(config: Compression, architecture: Any) -> Iterator[st.Quantity]:
    entropy, sinks, mixing, loss, share = measures(config)
    yield by_phase("matrix entropy without an edit in the first fifth of depths", lambda early, inside, late: early)
    yield by_phase("matrix entropy without an edit in the middle", lambda early, inside, late: inside)
    yield by_phase("matrix entropy without an edit in the last sixth", lambda early, inside, late: late)
    yield from (NORM_ENTROPY, NORM_SINKS)
    yield st.number(f"layer of emergence, in which the norm of position {config.position} grows most", emergence)
    yield from (st.effect(measure, emerges) for measure in (entropy, share, sinks, mixing, loss))
    freest = st.largest_effect(entropy, single(architecture), "the layer that frees most entropy")
    yield st.effect(entropy, freest, "largest effect of a single layer on the entropy of the middle depths")
    yield st.effect(sinks, emptiest(config, architecture), "lowest effect of a single layer on the heads that sink")
    yield from (st.effect(entropy, ALL), st.effect(sinks, ALL), SHORTFALL, ABOVE_BOUND)


def figures(config: Compression, architecture: Any) -> Iterator[st.Figure]:
    panels = {
        "matrix entropy (bits)": lambda run: matrix_entropy(run["spectrum"]),
        "anisotropy p_1": lambda run: anisotropy(run["spectrum"]),
        "mixing (bits)": lambda run: np.nanmean(run["row_entropy"], axis=(-2, -1)) / np.log(2),
        f"heads that sink\non key {config.position} (%)": lambda run: (
            100 * metrics.sink_rate(run, config.position, config.eps, per="layer")
        ),
    }

    def by_depth(results: st.Results) -> list[list[Any]]:
        names = {st.NO_EDIT: st.NO_EDIT, emerges(results): f"MLP dropped in {emerges(results)}", ALL: "MLP dropped in all layers"}
        runs = {name: results.data.sel(edit=label) for label, name in names.items()}
        return [[results.panel("", ylabel, {name: of(run) for name, run in runs.items()})] for ylabel, of in panels.items()]

    yield st.curves(
        *("by-depth", "layer l, or depth l (0-based)", by_depth),
        f"""From above: matrix entropy of a prompt's hidden states and share of their largest direction, by depth (l: what enters
        layer l); entropy of attention rows and heads that sink on key {config.position}, by layer.""",
        legend_above=True,
    )
    entropy, sinks, *_ = measures(config)
    titles = {"matrix entropy of\nthe middle depths (bits)": entropy, f"heads that sink\non key {config.position} (%)": sinks}
    yield st.lines(
        *("by-dropped-layer", "layer l in which the MLP is dropped (0-based)"),
        [
            [st.Panel(ylabel, {"MLP dropped in layer l": (measure, single(architecture))}, baseline=st.NO_EDIT)]
            for ylabel, measure in titles.items()
        ],
        f"""Matrix entropy of the middle depths, and heads that sink on key {config.position}, when the MLP's output for position
        {config.position} is dropped in one layer. Dashed: no edit.""",
        legend_above=True,
    )


STUDY = st.Study(
    name="background/compression",
    config=Compression,
    title="Compression of the hidden states, and the first token's MLP",
    question="""Queipo-de-Llano et al. 2026: where the first token's activation emerges, the hidden states collapse to nearly one
        direction; without the MLP's output for that token there is neither compression nor sink.""",
    needs=("MLP",),
    probe=lambda config: sinkjax.Probe(
        attention_received=True, row_entropy=True, resid_norm=True, nll=True, extra=statistics(config.position)
    ),
    conditions=conditions,
    controls=(
        st.random_edits(
            *("background/compression controls", another_position, lambda config, architecture: (1, architecture.layers))
        ),
    ),
    measures=measures,
    claims=claims,
    findings=findings,
    featured=lambda results: (*(st.NO_EDIT, emerges(results), emptiest(results.config, results.architecture)(results), ALL),),
    figures=figures,
    noop=lambda config, architecture: {
        f"MLP output at position {config.position} times 1": sinkjax.edit("mlp_out", "scale", 1.0, queries=config.position)
    },
    shown=lambda config, architecture: st.Shown(
        (st.NO_EDIT, WHERE_IT_GROWS, ALL),
        start=config.position + 1,
        prompts=config.control_prompts,
        sweeps=(st.Sweep("shown", shown, values=layer_of_growth("resid_norm")),),
    ),
    check=lambda config, architecture: refuse(
        architecture.layers < 4,
        f"background/compression compares early, middle and late layers, and this model has {architecture.layers}",
    ),
    notes=lambda config, results: (
        """The layer of emergence is the one in which the norm of the position grows most. Correlations are over layers, between
        the changes from each layer to the next, in each prompt; a layer's sink is paired with the stream that enters it.""",
    ),
)
