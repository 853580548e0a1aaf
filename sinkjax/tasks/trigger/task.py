"""The trigger task for the trainer: sequences made on the device, the one forward, the mean squared error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, cast

import jax
import jax.numpy as jnp

from sinkjax.errors import SinkjaxError
from sinkjax.model import params as model_params
from sinkjax.model.config import Config, NoPosition
from sinkjax.model.heads import HeadGate
from sinkjax.model.normalisers import NAMED, Given, Normaliser
from sinkjax.model.params import Params
from sinkjax.probes.probe import Probe
from sinkjax.probes.record import Record
from sinkjax.tasks.trigger.config import TriggerTraining
from sinkjax.tasks.trigger.data import sample
from sinkjax.transformer.forward import forward

Batch = tuple[jax.Array, jax.Array, jax.Array]
TINY = 1e-8  # added to the sum of a row's absolute weights, as in Gu et al. 2025


@dataclass(frozen=True)
class OneOf(Normaliser):
    """The normaliser whose place among `members` the leaf "choice" holds: one program for runs with different ones."""

    members: tuple[Normaliser, ...] = field(default=())

    def learned(self) -> Mapping[str, tuple[str, ...]]:
        return {"choice": ("heads",)}

    def weights(self, scores: jax.Array, visible: jax.Array, params: Given) -> jax.Array:
        branches = [lambda scores, member=member: member.weights(scores, visible, params) for member in self.members]
        return jax.lax.switch(params["choice"][0].astype(jnp.int32), branches, scores)


@dataclass(frozen=True)
class TriggerTask:
    """See `sinkjax.train.task.Task`; a variant is a normaliser."""

    name: ClassVar[str] = "trigger"
    config: TriggerTraining

    @property
    def variants(self) -> tuple[str, ...]:
        return self.config.normalisers

    def model(self, variant: str) -> Config:
        return model(self.config, variant)

    def init(self, seed: int) -> Params:
        return model_params.init(model(self.config), seed, self.config.dtype, self.config.init_std)

    def batch(self, key: jax.Array) -> Batch:
        """Tokens and targets [batch, L, n] and the triggers' positions [batch]."""
        return self._sample(key, self.config.batch)

    def held_out(self, key: jax.Array) -> Batch:
        return self._sample(key, self.config.eval_batch)

    def loss(self, params: Params, batch: Batch, variant: jax.Array) -> tuple[jax.Array, jax.Array]:
        errors = self._run(params, batch, variant, Probe())[0] - batch[1]
        return jnp.square(errors).mean(), jnp.abs(errors).max() < self.config.tolerance

    def evaluate(self, params: Params, batch: Batch, variant: jax.Array) -> dict[str, jax.Array]:
        """loss; largest_error, the largest absolute one; and per layer and head the mean weight on the first key, BOS if there is
        one: bos at rows that are neither its own nor the trigger's, bos_share the same of the row's absolute weight, bos_trigger
        at the trigger's row."""
        x, y, j = batch
        output, record = self._run(params, batch, variant, Probe(attention=tuple(range(self.config.layers))))
        maps = record["attention"]
        size = jnp.abs(maps)
        share = size / (size.sum(axis=-1, keepdims=True) + TINY)
        row = jnp.arange(x.shape[1])
        own = row == j[:, None]
        others = ~own & (row > 0)
        return {
            "loss": jnp.square(output - y).mean(),
            "largest_error": jnp.abs(output - y).max(),
            "bos": _mean(maps[..., 0], others),
            "bos_share": _mean(share[..., 0], others),
            "bos_trigger": _mean(maps[..., 0], own),
        }

    def _sample(self, key: jax.Array, count: int) -> Batch:
        x, y, j = sample(key, self.config.data, count)
        return x.astype(self.config.dtype), y.astype(self.config.dtype), j

    def _run(self, params: Params, batch: Batch, variant: jax.Array, probe: Probe) -> tuple[jax.Array, Record]:
        """Outputs [B, L, n] of a model with the normaliser of a variant, and what the probe asked for."""
        x = batch[0]
        config = model(self.config)
        if len(self.variants) > 1:
            config = model(self.config, OneOf(tuple(NAMED[name] for name in self.variants)))
            choice = jnp.full((config.layers, config.heads), variant, x.dtype)
            params = {**params, "layers": {**params["layers"], "normaliser": {"choice": choice}}}
        out = forward(params, x, config, probe=probe, logits=False, unroll=True)
        return cast(jax.Array, out.output), out.record


def task(config: TriggerTraining) -> TriggerTask:
    """The task of a config. Errors: what the model or the data refuse; learned normalisers beside others."""
    own = [name for name in config.normalisers if NAMED[name].learned() or NAMED[name].kernel]
    if own and len(config.normalisers) > 1:
        what = "learned values of its own" if NAMED[own[0]].learned() else "a kernel of its own"
        raise SinkjaxError(f"normalisers has {own[0]!r}, which has {what}: train it apart from the others")
    model(config)
    return TriggerTask(config)


def model(config: TriggerTraining, normaliser: str | Normaliser | None = None) -> Config:
    """The architecture that is trained, with one of its normalisers, by default the first."""
    named = NAMED[normaliser or config.normalisers[0]] if not isinstance(normaliser, Normaliser) else normaliser
    return Config(
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        kv_heads=config.kv_heads or config.heads,
        head_dim=config.width,
        mlp_width=None,
        vocab_size=None,
        context=config.length,
        norm=None,
        position=NoPosition(),
        activation="silu",
        tied=False,
        normaliser=named,
        score_scale=None if config.scaled else 1.0,
        gate=HeadGate() if config.gate else None,
        residual=config.with_residual,
    )


def _mean(values: jax.Array, rows: jax.Array) -> jax.Array:
    """The mean of values [B, layer, head, L] over the rows [B, L] that count: [layer, head]."""
    counts = rows[:, None, None, :]
    return jnp.where(counts, values, 0).sum(axis=(0, 3)) / rows.sum()
