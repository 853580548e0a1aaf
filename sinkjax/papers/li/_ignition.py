"""Ignition of tokens: does alignment with the gates of super neurons foretell an activation?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import xarray
from numpy.typing import NDArray

import sinkjax
from sinkjax.checkpoints.model import Model
from sinkjax.papers._edits import see_only
from sinkjax.papers.li._neurons import Neuron, largest
from sinkjax.study import Batch, Calculation, Numbers, Parts, Unedited, from_results, largest_activation, onset

VARIABLES = ("size", "alignment", "plain_alignment")


def ignitions(count: int, places: tuple[int, ...], keys: tuple[int, ...], few: int, model: Model, batch: Batch) -> xarray.Dataset:
    """Size of a token's activation if it sees only one other key, and its alignment with the gates of super neurons.

    Args:
        count: How many of the largest neurons count, in layers until the one where the first token's activation forms.
        places: Tokens, one at a time.
        keys: The other keys, one at a time; each comes before all tokens.
        few: Number of prompts that tell where the activation forms.
        model: The model.
        batch: The prompts.

    Returns:
        float[prompt, place, seen]: size, the logarithm of the largest |h|; alignment, the mean cosine of the neurons' gate
        vectors with the normed input of their MLPs; plain_alignment, the same without an edit.
    """
    forms = onset(Unedited(model, batch, few), model.config.layers, lambda layers: largest_activation(0, layers))
    neurons = largest(model, count, forms)
    found = {name: np.zeros((len(batch.lengths), len(places), len(keys))) for name in VARIABLES}
    for column, place in enumerate(places):
        found["plain_alignment"][:, column] = size_and_alignment(model, batch, sinkjax.compose(), place, neurons)[1][:, None]
        for row, other in enumerate(keys):
            size, aligned = size_and_alignment(model, batch, see_only(place, other), place, neurons)
            found["size"][:, column, row], found["alignment"][:, column, row] = size, aligned
    axes = ("prompt", "place", "seen")
    return xarray.Dataset({name: (axes, values) for name, values in found.items()}, {"place": [*places], "seen": [*keys]})


def size_and_alignment(
    model: Model, batch: Batch, edit: sinkjax.Edit, place: int, neurons: Sequence[Neuron]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the log of a token's largest |h|, and its mean cosine with neurons' gates: float[prompt] each."""
    layers = tuple(sorted({layer for layer, _ in neurons}))
    capture = sinkjax.Capture(sinkjax.Site.MLP_IN, layers=layers, positions=(place,), name="read")
    probe = sinkjax.Probe(resid_max=True, capture=(capture,))
    record = sinkjax.forward(model.params, batch.tokens, model.config, edit, probe, batch.lengths, logits=False).record
    states, gates, cosines = np.asarray(record["read"], np.float64)[:, :, 0], model.params["layers"]["gate"], []
    for layer, number in neurons:
        state, gate = states[:, layers.index(layer)], np.asarray(gates[layer, :, number], np.float64)
        cosines.append(state @ gate / (np.linalg.norm(state, axis=-1) * np.linalg.norm(gate)))
    return np.log(np.asarray(record["resid_max"])[:, :, place].max(axis=-1)), np.mean(cosines, axis=0)


def predicted(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """The squared error of y [prompt, ...] predicted by its mean, less that predicted by a line in x: float[prompt, 2].

    The mean and the line come from the other half of the prompts. The second column is the error of the mean.
    """
    half = np.arange(len(y)) < len(y) // 2
    found = np.zeros((len(y), 2))
    for tested in (half, ~half):
        trained = ~tested
        rise, start = np.polyfit(x[trained].ravel(), y[trained].ravel(), 1)
        by_mean = np.square(y[tested] - y[trained].mean())
        by_line = np.square(y[tested] - (start + rise * x[tested]))
        axes = tuple(range(1, y.ndim))
        found[tested] = np.stack([(by_mean - by_line).mean(axis=axes), by_mean.mean(axis=axes)], axis=-1)
    return found


@from_results
def foretold(read: Numbers, of: Calculation, by: Literal["alignment", "plain_alignment"] = "alignment") -> Parts:
    """Reduction in squared error, on the other half of the documents, of a line in the alignment compared with the mean.

    Args:
        read: The results.
        of: The `ignitions`.
        by: "alignment", in the run with the isolated token, or "plain_alignment", in the unedited run.
    """
    data = read.data(of.name)
    gain, whole = predicted(data[by].values, data["size"].values).T
    run = "the same run" if by == "alignment" else "the unedited run"
    label = f"squared error that alignment with the gates in {run} takes away"
    return Parts(gain, None, whole, None, "squared log", label, uncontrolled="the mean is the comparison")
