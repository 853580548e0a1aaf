"""background/quantise: the error that a massive activation causes in 8-bit activations, and what removing or moving it saves.

One scale for a whole tensor (a prompt, all positions and dims) is set by its largest value, so that a massive activation leaves
few of the 255 steps to all other tokens (Bondarenko et al. 2023, arXiv 2306.12929; Sun et al. 2024).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import intervals
from sinkjax.studies.papers.background._position import Position, growth, kept_mlp, layer_of_growth, real

REMOVED, MASKED = "MLP dropped in the layer that writes it", "key masked in all layers"
TO_DROP, TO_MASK = BUDGETS = "MLP dropped", "key masked"  # each edit is compared with the same one at random positions
STEPS = 127  # of a signed 8-bit number, on either side of zero
MASSIVE = 10.0  # times the largest |h| of the median position, from which on there is an activation to remove
NO_HELP = 0.1  # part of the error; an edit that saves less does not help
STREAM, ROWS, NEURONS = "stream_error", "stream_row_error", "neuron_error"


@dataclass(frozen=True, kw_only=True)
class Quantise(Position):
    """Error of activations rounded to 8 bits with one scale a tensor, with and without the massive activation."""


@functools.cache
def rounding_error(axes: tuple[int, ...]) -> Callable[[Any, Any], Any]:
    """||round(x / s) s - x|| / ||x|| of each position, s = max |x| / 127 over `axes`: [B, T] from [B, T, D]; 0 for zeros."""

    def error(x: Any, view: Any) -> Any:
        import jax.numpy as jnp

        top = jnp.abs(real(x, view)).max(axis=axes, keepdims=True)
        scale = jnp.where(top > 0, top, 1) / STEPS
        lost = jnp.sqrt(jnp.square(jnp.round(x / scale) * scale - x).sum(axis=-1))
        size = jnp.sqrt(jnp.square(x).sum(axis=-1))
        return lost / jnp.where(size > 0, size, 1)

    return error


def probe(config: Quantise) -> sinkjax.Probe:
    by_depth, by_layer = ("prompt", "depth", "position"), ("prompt", "layer", "position")
    extra = (
        sinkjax.Statistic(STREAM, sinkjax.Site.RESID, rounding_error((1, 2)), by_depth),
        sinkjax.Statistic(ROWS, sinkjax.Site.RESID, rounding_error((2,)), by_depth),
        sinkjax.Statistic(NEURONS, sinkjax.Site.NEURON, rounding_error((1, 2)), by_layer),
    )
    return sinkjax.Probe(resid_max=True, nll=True, extra=extra)


def conditions(config: Quantise, architecture: Any, layer: int) -> Iterator[st.Condition]:
    """No edit; the activation that `layer` writes removed; its key masked, which gives the next position one as well."""
    yield st.no_edit()
    yield st.Condition(sinkjax.drop_mlp(config.position, layers=layer).named(REMOVED), REMOVED, budget=TO_DROP)
    yield st.Condition(sinkjax.mask_key(config.position).named(MASKED), MASKED, budget=TO_MASK)


def random_positions(config: Quantise, architecture: Any, layer: int) -> Iterator[st.Condition]:
    """Each edit at other positions."""
    rng = intervals.generator(config.seed, "background/quantise controls")
    for budget in BUDGETS:
        for number, position in enumerate(config.others(rng)):
            edit = sinkjax.drop_mlp(position, layers=layer) if budget == TO_DROP else sinkjax.mask_key(position)
            yield st.Condition(edit.named(f"control {number}: {budget} at {position}"), st.CONTROL, budget=budget)


def of_others(data: Any, statistic: str, position: int) -> NDArray:
    """Mean relative error over positions but one, in per cent: float[edit, prompt, depth or layer]."""
    return 100 * np.nanmean(np.delete(data[statistic].values, position, axis=-1), axis=-1)


def over_layers(statistic: str, name: str, position: int, note: str = "") -> st.Measure:
    """The mean error over what layers write; the embedding is left out."""

    def mean(data: Any) -> NDArray:
        return of_others(data, statistic, position)[..., 1 if "depth" in data[statistic].dims else 0 :].mean(axis=-1)

    return st.Measure(name, mean, unit="percentage points", note=note)


def measures(config: Quantise) -> tuple[st.Measure, ...]:
    position = config.position
    note = f"""Error: norm of the rounding error with {2 * STEPS + 1} even steps, over the norm of the token's vector, mean over
        tokens except that at position {position}. A tensor is that of one prompt. The error is measured only: the model runs in
        full precision."""
    return (
        over_layers(STREAM, "stream, one scale a tensor (%)", position, note),
        over_layers(ROWS, "stream, one scale a token (%)", position),
        over_layers(NEURONS, "MLP hidden units, one scale a tensor (%)", position),
        st.largest_activation(position),
        st.loss(),
    )


def over_median(results: st.Results) -> NDArray:
    largest = results.data["resid_max"].values[0].max(axis=1)  # [prompt, position]
    return largest[:, results.config.position] / np.nanmedian(largest, axis=-1)


def claims(config: Quantise, architecture: Any) -> Iterator[st.Claim]:
    tensor, token, _, activation, _ = measures(config)

    def saved_by_tokens(results: st.Results) -> NDArray:
        return results.per_prompt(tensor, st.NO_EDIT) - results.per_prompt(token, st.NO_EDIT)

    size = st.quantity(f"largest |h| at position {config.position} over that of the median position", over_median)
    gone = st.difference(tensor, st.NO_EDIT, REMOVED, "what its removal saves")
    saved = st.quantity("what one scale a token saves", saved_by_tokens, "percentage points", signed=True)
    plain, massive = st.value(tensor, st.NO_EDIT), st.above(size, MASSIVE)
    yield st.Claim(
        "Removing the massive activation more than halves the error with one scale a tensor.",
        st.all_of(
            st.below(st.value(tensor, REMOVED), plain.times(0.5, "half of that without an edit")),
            st.above(gone, saved.times(0.5, "half of what one scale a token saves")),
            st.below_controls(st.effect(tensor, REMOVED)),
        ),
        given=massive,
        source="Bondarenko et al. 2023; Sun et al. 2024",
        also=(plain,),
    )
    yield st.Claim(
        "One scale a token instead of one a tensor more than halves the error.",
        st.above(saved, plain.times(0.5, "half of the error with one scale a tensor")),
        given=massive,
        also=(st.value(token, st.NO_EDIT),),
    )
    yield st.Claim(
        f"Masking the key of the sink saves less than {100 * NO_HELP:g} % of the error with one scale a tensor.",
        st.above(st.effect(tensor, MASKED), plain.times(-NO_HELP, "minus a tenth of the error without an edit")),
        given=massive,
        also=(st.value(tensor, MASKED), st.value(activation, MASKED)),
    )


def writer(results: st.Results) -> int:
    return growth(results.data["resid_max"].values[0, : results.size("prompt", "controls")], results.config.position)


def figures(config: Quantise, architecture: Any) -> Iterator[st.Figure]:
    titles = {STREAM: "stream (%),\none scale a tensor", ROWS: "stream (%),\none scale a token"}
    titles[NEURONS] = "MLP hidden units (%),\none scale a tensor"
    names = (st.NO_EDIT, "activation removed", "key masked")

    def by_depth(results: st.Results) -> list[list[Any]]:
        errors = {ylabel: of_others(results.data, statistic, config.position) for statistic, ylabel in titles.items()}
        return [
            [results.panel("", f"error of {ylabel}", dict(zip(names, error, strict=True)))] for ylabel, error in errors.items()
        ]

    yield st.curves(
        "error-by-depth",
        "layer l, or depth l (0-based)",
        by_depth,
        f"""Relative error of 8-bit activations, mean over tokens except the one at position {config.position}: the stream by
        depth (l: what enters layer l), the MLP's hidden units by layer.""",
        legend_above=True,
    )


LAYER = layer_of_growth("resid_max")
STUDY = st.Study(
    name="background/quantise",
    config=Quantise,
    title="Eight-bit activations with and without the massive activation",
    question="""Bondarenko et al. 2023, Sun et al. 2024: outliers on the sink's token make activations hard to quantise with one
        scale; without them, or with a scale for each token, the other tokens keep their precision.""",
    needs=("MLP",),
    probe=probe,
    conditions=conditions,
    values=LAYER,
    headline=lambda config, architecture: [TO_DROP],
    controls=(st.Sweep("controls", random_positions, prompts=st.control_prompts, values=LAYER),),
    measures=measures,
    claims=claims,
    figures=figures,
    noop=lambda config, architecture, layer: {
        **kept_mlp(config),
        f"0 added to the logits towards key {config.position}": sinkjax.edit(
            "logits", "add", 0.0, keys=config.position, relation="others"
        ),
    },
    shown=lambda config, architecture: st.Shown(
        (st.NO_EDIT, REMOVED, MASKED), start=config.position + 1, prompts=st.control_prompts(config)
    ),
    notes=lambda config, results: (
        f"""The largest |h| at position {config.position} grows most in layer {writer(results)}, which is taken to write the
        activation. Before a first look at SmolLM2, the position's MLP output was dropped in all layers to remove the
        activation, but then another token gets one; since then it is dropped only in the layer that writes the activation. The
        rules have been frozen since then, and are judged on the confirm split only. A masked key leaves the massive activation
        on its token, and another token gets one too.""",
    ),
)
