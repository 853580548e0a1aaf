"""Neurons by size: which are the largest, an edit that sets some to 0, and what is said of those of extreme norm."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st

STORE = "neurons"


class Neuron(NamedTuple):
    """A neuron's layer and number, both 0-based."""

    layer: int
    number: int

    def __str__(self) -> str:
        return f"layer {self.layer}, neuron {self.number}"


def largest(values: NDArray, count: int) -> tuple[Neuron, ...]:
    """The neurons with the largest of float[layer, neuron], in falling order."""
    order = np.argsort(-values, axis=None, kind="stable")[:count]
    return tuple(Neuron(int(layer), int(number)) for layer, number in zip(*np.unravel_index(order, values.shape), strict=True))


def ablate(chosen: Sequence[Neuron], architecture: Any, label: str, positions: Any = None) -> sinkjax.Edit:
    """Neurons set to 0, as one term whatever their layers: the outputs of these layers times 0 and 1. No neuron: all times 1."""
    factors = np.ones((architecture.layers, 1, architecture.mlp_width), np.float32)
    for neuron in chosen:
        factors[neuron.layer, 0, neuron.number] = 0
    layers = sorted({neuron.layer for neuron in chosen}) or None
    return sinkjax.edit("neuron", "scale", factors, layers=layers, queries=positions, label=label)


def sizes(results: st.Results) -> NDArray:
    """Of every neuron: float[layer, neuron]."""
    return (results[STORE]["gate_norm"] * results[STORE]["up_norm"]).values


def found(results: st.Results) -> tuple[Neuron, ...]:
    return largest(sizes(results), results.config.neurons)


def extremes(results: st.Results) -> tuple[Neuron, ...]:
    """The neurons of extreme norm among the largest, which come first."""
    size = sizes(results)
    return tuple(neuron for neuron in found(results) if size[neuron] >= results.config.extreme)


def share_of(what: str, holds: Callable[[st.Results], NDArray], exact: bool = False) -> st.Quantity:
    """The share of the neurons of extreme norm of which something holds, in each prompt or (exact) in the weights; NaN without.

    holds: results -> bool[prompt, neuron] or bool[neuron].
    """

    def of(results: st.Results) -> Any:
        return 100 * holds(results).mean(axis=-1) if extremes(results) else np.nan

    return (st.number if exact else st.quantity)(f"neurons of extreme norm {what} (%)", of)


def ends(name: str, what: str) -> tuple[st.Quantity, ...]:
    """The smallest and the largest number of these neurons."""

    def of(joined: Callable[..., Any], results: st.Results) -> float:
        values = in_weights(results, name)
        return float(joined(values)) if values.size else np.nan

    return tuple(
        st.number(f"{what} {end}", functools.partial(of, joined)) for end, joined in (("at least", np.min), ("at most", np.max))
    )


def in_prompts(results: st.Results, name: str) -> NDArray:
    """A number of the neurons of extreme norm in each prompt: float[prompt, neuron]."""
    return np.asarray(results[STORE][name].values[:, : len(extremes(results))])


def in_weights(results: st.Results, name: str) -> NDArray:
    """A number of their weights: [neuron]."""
    return np.array([results[STORE][name].values[neuron] for neuron in extremes(results)])
