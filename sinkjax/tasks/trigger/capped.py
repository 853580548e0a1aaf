"""Edits that clamp BOS's mass or shift its logit in trained models, and the task of training with a clamped mass."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.edits.edit import Edit, compose, edit, resolve
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.model.site import Site
from sinkjax.probes.probe import Probe
from sinkjax.probes.record import Record
from sinkjax.tasks.trigger.config import CappedTraining
from sinkjax.tasks.trigger.task import Batch, TriggerTask, model
from sinkjax.transformer.forward import run
from sinkjax.transformer.spec import ForwardSpec


def held(mass: Any, queries: Any) -> Edit:
    """Clamp BOS's attention weight to `mass` in some rows and rescale their other weights to sum to 1 - mass.

    mass: from 0 to 1, a number or float []. queries: rows other than the first, as `sinkjax.edit` takes them. Where all other
    weights of a row are 0, they stay 0.
    """
    return compose(
        edit(Site.WEIGHTS, "set", 0.0, queries=queries, keys=0, renormalise=True),
        edit(Site.WEIGHTS, "scale", 1 - mass, queries=queries),
        edit(Site.WEIGHTS, "set", mass, queries=queries, keys=0),
    )


def shifted(value: Any, queries: Any) -> Edit:
    """Add `value` to BOS's logit in some rows, given as for `sinkjax.edit`."""
    return edit(Site.LOGITS, "add", value, queries=queries, keys=0)


def run_others(
    params: Params, x: jax.Array, j: jax.Array, change: Callable[[Any, Any], Edit], value: jax.Array, config: Config, probe: Probe
) -> tuple[jax.Array, Record]:
    """Run a model under `held` or `shifted` (`change`) in all rows except BOS's and the trigger's: outputs [B, L, n].

    x: [B, L, n]. j: int [B]. value: float [], of the edit. All three may be traced.
    """
    count, T = x.shape[:2]
    row = jnp.arange(T)
    others = (row > 0) & (row != j[:, None])
    checked = resolve(change(value, slice(1, T)), config, np.full(count, T), T)
    edits = tuple(dataclasses.replace(term, query=others) for term in checked)
    lengths = jnp.full(count, T, jnp.int32)
    out = run(params, x, lengths, edits, spec=ForwardSpec(config=config, probe=probe, logits=False))
    return cast(jax.Array, out.output), out.record


@dataclass(frozen=True)
class CappedTask(TriggerTask):
    """The trigger task under `held`; its variants are BOS masses."""

    name: ClassVar[str] = "trigger-capped"
    config: CappedTraining

    @property
    def variants(self) -> tuple[str, ...]:
        return tuple(str(cap) for cap in self.config.caps)

    def model(self, variant: str) -> Config:
        """Return the layer itself, without the edit that clamps the mass."""
        return model(self.config)

    def _run(self, params: Params, batch: Batch, variant: jax.Array, probe: Probe) -> tuple[jax.Array, Record]:
        x, _, j = batch
        mass = jnp.asarray(self.config.caps, jnp.float32)[variant]
        return run_others(params, x, j, held, mass, model(self.config), probe)


def task(config: CappedTraining) -> CappedTask:
    """Make the task of a config. Errors: as for the model and the data."""
    model(config)
    return CappedTask(config)
