"""BOS's mass held at a value: an edit of the weights, on trained models and while they are trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

import sinkjax
from sinkjax.edits.edit import Edit, per_prompt
from sinkjax.edits.resolve import resolve
from sinkjax.edits.site import Site
from sinkjax.experiments.trigger.capped_config import CappedTraining
from sinkjax.model.forward import run
from sinkjax.model.params import Params
from sinkjax.probe import Probe
from sinkjax.record import Record
from sinkjax.train.trigger import Batch, TriggerTask, model


def held(mass: Any, queries: Any) -> Edit:
    """BOS's weight set to `mass` in some rows, the others rescaled to sum to 1 - mass: exact, whatever the scores are.

    mass: from 0 to 1, a number or float []. queries: rows but the first, as `sinkjax.edit` takes them. A row whose weights but
    BOS's are all 0 has nothing to rescale, and keeps 0 there.
    """
    return sinkjax.compose(
        sinkjax.edit(Site.WEIGHTS, "set", 0.0, queries=queries, keys=0, renormalise=True),
        sinkjax.edit(Site.WEIGHTS, "scale", 1 - mass, queries=queries),
        sinkjax.edit(Site.WEIGHTS, "set", mass, queries=queries, keys=0),
    )


def other_rows(triggers: Sequence[int], length: int) -> Any:
    """The rows but BOS's and the trigger's of each sequence, for `queries`."""
    return per_prompt([tuple(row for row in range(1, length) if row != trigger) for trigger in np.asarray(triggers).tolist()])


@dataclass(frozen=True)
class CappedTask(TriggerTask):
    """The trigger task under `held`; a variant is a BOS mass."""

    config: CappedTraining

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(f"{cap:g}" for cap in self.config.caps)

    def _run(self, params: Params, batch: Batch, variant: jax.Array, probe: Probe) -> tuple[jax.Array, Record]:
        x, _, j = batch
        config, (count, T, _) = model(self.config), x.shape
        mass = jnp.asarray(self.config.caps, jnp.float32)[variant]
        rows = jnp.arange(T)
        mask = (rows > 0) & (rows != j[:, None])
        edit = resolve(held(mass, slice(1, T)), config, np.full(count, T), T)  # checked for all rows, then told which: traced
        edit = tuple(dataclasses.replace(term, query=mask) for term in edit)
        lengths = jnp.full(count, T, jnp.int32)
        out = run(params, x, lengths, edit, config=config, probe=probe, logits=False, precision="highest")
        return cast(jax.Array, out.output), out.record


def task(config: CappedTraining) -> CappedTask:
    """The task of a config. Errors: what the model or the data refuse."""
    model(config)
    return CappedTask(config)
