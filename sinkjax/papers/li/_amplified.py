"""Head outputs pushed away from a mean: the edit, the means of a model, and random directions of the same size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.studies.known import Unedited
from sinkjax.studies.scope import Scope
from sinkjax.studies.vocabulary import EditWord, F, Known

PROMPTS, EVERYWHERE, NORM = "over prompts", "over prompts and positions", "left out"
CENTRES = {"over positions": "positions", "over dims": "dims", NORM: None}  # from one forward pass; None: no mean
BLOCK = 8  # prompts whose head outputs are in memory at the same time


def outputs(run: Unedited) -> tuple[NDArray, NDArray]:
    """Return unedited head outputs, and which positions are real.

    Returns:
        float[prompt, layer, position, head, dim], and bool[prompt, position].
    """
    model, batch = run.loaded
    probe = sinkjax.Probe(capture=(sinkjax.Capture(sinkjax.Site.HEAD_OUT),))
    found = []
    for tokens, lengths in batch.blocks(BLOCK):
        record = sinkjax.forward(model.params, tokens, model.config, probe=probe, lengths=lengths, logits=False).record
        found.append(np.asarray(record["head_out"], np.float32))
    return np.concatenate(found), np.arange(batch.tokens.shape[1]) < batch.lengths[:, None]


def _no_means(scope: Scope, prompts: int) -> dict[str, NDArray]:
    made = scope.architecture
    shape = (made.layers, scope.config.length, made.heads, made.head_dim)
    return {PROMPTS: np.zeros(shape, np.float32), EVERYWHERE: np.zeros(shape, np.float32)}


@Known.define(blank=_no_means, of_edited=True)
def mean_outputs(scope: Scope, run: Unedited) -> dict[str, NDArray]:
    """Mean unedited head outputs, over a sweep's prompts at each position, and over all positions.

    Returns:
        The name of the mean -> float[layer, position, head, dim].
    """
    values, real = outputs(run)
    there = real[:, None, :, None, None]
    kept = np.where(there, values, 0)
    at_each = kept.sum(axis=0) / np.maximum(there.sum(axis=0), 1)
    everywhere = kept.sum(axis=(0, 2)) / real.sum()
    return {PROMPTS: at_each, EVERYWHERE: np.broadcast_to(everywhere[:, None], at_each.shape)}


def _no_sizes(scope: Scope, prompts: int) -> NDArray:
    made = scope.architecture
    return np.ones((made.layers, prompts, scope.config.length, made.heads), np.float32)  # so that no two directions coincide


@Known.define(blank=_no_sizes, of_edited=True)
def distances(scope: Scope, run: Unedited) -> NDArray:
    """Distance of each head output from the mean over prompts at its position: float[layer, prompt, position, head].

    The prompts are few and their mean is near each of them, so sizes are corrected for that.
    """
    values, _ = outputs(run)
    count = len(values)
    return np.linalg.norm(values - values.mean(axis=0), axis=-1).swapaxes(0, 1) * (count / max(count - 1, 1)) ** 0.5


@EditWord.define()
def amplified(scope: Scope, mean: object, position: object, factor: object, means: object = F.means) -> sinkjax.Edit:
    """Replace a token's head outputs o by mu + factor (o - mu), or by factor o (Li et al. 2026, interventions 2 and 3).

    Args:
        scope: The study's scope.
        mean: Which mean mu is: "over prompts" at the position, "over prompts and positions", "over positions" up to the token, or
            "over dims" of a head; "left out" for factor o, the control that changes the norm only.
        position: The token.
        factor: The factor; 1 changes nothing.
        means: `mean_outputs`.
    """
    way, place, s = scope.get(mean), scope.get(position), scope.get(factor)
    scaled = sinkjax.scale_head_output(place, s, centre=CENTRES.get(way))
    if way in CENTRES:
        return scaled
    back: NDArray = (1 - s) * scope.get(means)[way][:, None, place]
    return sinkjax.compose(scaled, sinkjax.edit("head_out", "add", back, queries=place))


@EditWord.define()
def random_direction(scope: Scope, position: object, factor: object, sizes: object = F.sizes) -> sinkjax.Edit:
    """Add a change of the size that `amplified` makes, in a random direction for each layer, prompt and head.

    Args:
        scope: The study's scope, with random numbers.
        position: The token.
        factor: The factor.
        sizes: `distances`.
    """
    place = scope.get(position)
    size = (scope.get(factor) - 1) * scope.get(sizes)[:, :, place, :, None]
    direction = scope.random.normal(size=(*size.shape[:-1], scope.architecture.head_dim))
    change = size * direction / np.linalg.norm(direction, axis=-1, keepdims=True)
    return sinkjax.edit("head_out", "add", change.astype(np.float32), queries=place, label="random direction")
