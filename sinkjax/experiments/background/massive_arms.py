"""The edits of background/massive: which dims of which layer are massive in a model, and what they are set to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.checkpoints.model import Model
from sinkjax.edits.site import Site
from sinkjax.experiments.background.config import Massive
from sinkjax.experiments.base import Arm, Batch
from sinkjax.probes.probe import Capture, Probe
from sinkjax.probes.statistics import Statistic, View

NONE, ZERO, MEAN = "no edit", "massive dims to zero", "massive dims to their mean"
LATER, MEDIAN = "massive dims to zero after that layer and all later ones", "dims of median size to zero"
ZERO_AFTER, MEAN_AFTER, CONTROL = "to zero, one layer", "to the mean, one layer", "control"
TO_ZERO, TO_MEAN = 1, 2  # budgets: controls of each kind set as many dims to the same sort of value
THRESHOLD, RATIO = 100.0, 1000.0  # Sun et al., section 2
RANKS = 10  # largest activations that are kept of each hidden state


def largest(x: jax.Array, view: View) -> jax.Array:
    """The largest |h| of a prompt's whole hidden state, in descending order: [B, RANKS] from [B, T, d]."""
    real = jnp.arange(x.shape[1])[None, :, None] < view.lengths[:, None, None]
    return jax.lax.top_k(jnp.where(real, jnp.abs(x), 0).reshape(x.shape[0], -1), RANKS)[0]


def median(x: jax.Array, view: View) -> jax.Array:
    """Median |h| of a prompt's whole hidden state: [B] from [B, T, d]."""
    real = jnp.arange(x.shape[1])[None, :, None] < view.lengths[:, None, None]
    return jnp.nanmedian(jnp.where(real, jnp.abs(x), jnp.nan).reshape(x.shape[0], -1), axis=-1)


STATE_MEDIAN = Statistic("state_median", Site.RESID, median, ("prompt", "depth"))


def levels_probe(position: int) -> Probe:
    """What the unedited run measures: sizes by Sun et al.'s probes, and the stream at the position."""
    return Probe(
        attention_received=True,
        resid_max=True,
        resid_median=True,
        resid_norm=True,
        extra=(
            Statistic("state_largest", Site.RESID, largest, ("prompt", "depth", "rank")),
            STATE_MEDIAN,
        ),
        capture=(Capture(Site.RESID, positions=(position,), name="stream"),),
    )


@dataclass(frozen=True)
class Levels:
    """What the edits need to know of the unedited model, each over the prompts that the controls run on.

    layer: the first one after which the rule holds in most prompts, or, if it never does, the one after which |h| is largest.
    holds: whether it ever does. order: int [L, d], the dims by falling mean |h| at the position after each layer. mean: float
    [L, d], the mean stream there.
    """

    layer: int
    holds: bool
    order: NDArray[np.integer]
    mean: NDArray[np.floating]

    @classmethod
    def of(cls, record: Mapping[Any, Any], prompts: int) -> Levels:
        """From the record of the unedited run, by its first prompts."""
        stream = np.asarray(record["stream"])[:prompts, :, 0]
        massive = share_massive(record, prompts) > 0.5
        peak = np.asarray(record["state_largest"])[:prompts, 1:, 0].mean(axis=0)
        layer = int(massive.argmax() if massive.any() else peak.argmax())
        return cls(layer, bool(massive.any()), np.argsort(-np.abs(stream).mean(axis=0), axis=-1), stream.mean(axis=0))

    def median_dims(self, count: int) -> NDArray[np.integer]:
        """The dims whose size at the position, after the layer of the edit, is closest to the median one's."""
        middle = (self.order.shape[1] - count) // 2
        return self.order[self.layer, middle : middle + count]


def share_massive(record: Mapping[Any, Any], prompts: int | None = None) -> NDArray:
    """Share of prompts in which the largest |h| after a layer obeys Sun et al.'s rule: float[layer]."""
    top, middle = (np.asarray(record[name])[:prompts, 1:] for name in ("state_largest", "state_median"))
    return ((top[..., 0] > THRESHOLD) & (top[..., 0] > RATIO * middle)).mean(axis=0)


def prepared(config: Massive, make: Any, model: Model, batch: Batch) -> Any:
    """What `make` makes with the dims and means of this model, from the first prompts of the study, which every job has."""
    count = min(config.control_prompts, len(batch.lengths))
    run = partial(sinkjax.forward, probe=levels_probe(config.position), lengths=batch.lengths[:count], logits=False)
    return make(config, Levels.of(run(model.params, batch.tokens[:count], model.config).record, count))


def arms(config: Massive, levels: Levels) -> tuple[Arm, ...]:
    """No edit; the largest dims to zero, to their mean, and to zero in all later layers too; dims of median size to zero."""
    L = len(levels.order)
    massive = levels.order[levels.layer, : config.dims]
    to = partial(_set, config, levels)
    here, on = [levels.layer], list(range(levels.layer, L))
    return (
        Arm(sinkjax.compose(label=NONE), NONE),
        Arm(to(ZERO, massive, here, mean=False), ZERO, budget=TO_ZERO),
        Arm(to(MEAN, massive, here, mean=True), MEAN, budget=TO_MEAN),
        Arm(to(LATER, massive, on, mean=False), LATER),
        Arm(to(MEDIAN, levels.median_dims(config.dims), here, mean=False), MEDIAN, budget=TO_ZERO),
    )


def unchanged(config: Massive, levels: Levels) -> dict[str, sinkjax.Edit]:
    """The largest dims times 1, after the layer of the edits and all later ones."""
    dims, layers = levels.order[levels.layer, : config.dims].tolist(), range(levels.layer, len(levels.order))
    same = sinkjax.edit(Site.RESID, "scale", 1.0, queries=config.position, dims=dims, layers=layers)
    return {"the massive dims times 1 after that layer and all later ones": same}


def layer_arms(config: Massive, levels: Levels) -> tuple[Arm, ...]:
    """No edit, and after each layer its own largest dims to zero or to their mean."""
    found = [Arm(sinkjax.compose(label=NONE), NONE)]
    for mean, group in ((False, ZERO_AFTER), (True, MEAN_AFTER)):
        for layer, order in enumerate(levels.order):
            label = f"{'mean' if mean else 'zero'} after layer {layer}"
            found.append(Arm(_set(config, levels, label, order[: config.dims], [layer], mean), group, layer))
    return tuple(found)


def controls(config: Massive, levels: Levels) -> tuple[Arm, ...]:
    """As many random dims of the same position, beyond the ten largest, to zero or to their mean after the same layer."""
    rng, drawn = intervals.generator(config.seed, "background/massive controls"), []
    for mean, budget in ((False, TO_ZERO), (True, TO_MEAN)):
        for draw in range(config.controls):
            dims = rng.choice(levels.order[levels.layer, RANKS:], config.dims, replace=False)
            label = f"control {draw}: random dims to {'their mean' if mean else 'zero'}"
            drawn.append(Arm(_set(config, levels, label, dims, [levels.layer], mean), CONTROL, budget=budget))
    return tuple(drawn)


def _set(
    config: Massive, levels: Levels, label: str, dims: NDArray[np.integer], layers: Sequence[int], mean: bool
) -> sinkjax.Edit:
    values = levels.mean[layers[0], dims] if mean else np.zeros(len(dims))
    return sinkjax.set_residual(config.position, values, dims=dims.tolist(), layers=layers).named(label)
