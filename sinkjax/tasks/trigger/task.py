"""The trigger task: sequences generated on the device, and mean squared error."""

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
from sinkjax.model.normalisers import NAMED, Learned, Normaliser
from sinkjax.model.params import Params
from sinkjax.probes.probe import Probe
from sinkjax.probes.record import Record
from sinkjax.tasks.trigger.config import TriggerTraining
from sinkjax.tasks.trigger.data import BIAS, TRIGGER_FLAG, sample
from sinkjax.train.task import Task
from sinkjax.transformer.forward import forward

Batch = tuple[jax.Array, jax.Array, jax.Array]
TINY = 1e-8  # added to the sum of a row's absolute weights, as in Gu et al. 2025


@dataclass(frozen=True)
class OneOf(Normaliser):
    """The normaliser whose index in `members` is the leaf "choice": one program for runs with different normalisers."""

    members: tuple[Normaliser, ...] = field(default=())

    def learned(self) -> Mapping[str, tuple[str, ...]]:
        return {"choice": ("heads",)}

    def weights(self, scores: jax.Array, visible: jax.Array, params: Learned) -> jax.Array:
        branches = [lambda scores, member=member: member.weights(scores, visible, params) for member in self.members]
        return jax.lax.switch(params["choice"][0].astype(jnp.int32), branches, scores)


@dataclass(frozen=True)
class TriggerTask(Task):
    """See `sinkjax.train.task.Task`; its variants are normalisers."""

    name: ClassVar[str] = "trigger"
    config: TriggerTraining

    @property
    def variants(self) -> tuple[str, ...]:
        return self.config.normalisers

    def model(self, variant: str) -> Config:
        return model(self.config, variant)

    def init(self, seed: int) -> Params:
        params = model_params.init(model(self.config), seed, self.config.dtype, self.config.init_std)
        return _with_escape(params, self.config.escape) if self.config.escape else params

    def batch(self, key: jax.Array) -> Batch:
        """Return tokens and targets [batch, L, n] and the triggers' positions [batch]."""
        return self._sample(key, self.config.batch)

    def held_out(self, key: jax.Array) -> Batch:
        return self._sample(key, self.config.eval_batch)

    def loss(
        self, params: Params, batch: Batch, variant: jax.Array, step: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        maps = tuple(range(self.config.layers)) if self.config.penalty else False
        output, record = self._run(params, batch, variant, Probe(attention=maps))
        errors = output - batch[1]
        loss = jnp.square(errors).mean()
        if self.config.penalty:
            on_first = jnp.abs(record["attention"][..., 0])
            loss += self.config.penalty * _mean(on_first, _rows(batch)[1]).mean()
        return loss, jnp.abs(errors).max() < self.config.tolerance

    def evaluate(self, params: Params, batch: Batch, variant: jax.Array) -> dict[str, jax.Array]:
        """loss; largest_error, in absolute value; and for each layer and head the mean weight on the first key (BOS if there is
        one): bos in all rows but its own and the trigger's, bos_share the same as a share of the row's absolute weight,
        bos_trigger in the trigger's row."""
        output, record = self._run(params, batch, variant, Probe(attention=tuple(range(self.config.layers))))
        maps = record["attention"]
        size = jnp.abs(maps)
        share = size / (size.sum(axis=-1, keepdims=True) + TINY)
        triggers, others = _rows(batch)
        return {
            "loss": jnp.square(output - batch[1]).mean(),
            "largest_error": jnp.abs(output - batch[1]).max(),
            "bos": _mean(maps[..., 0], others),
            "bos_share": _mean(share[..., 0], others),
            "bos_trigger": _mean(maps[..., 0], triggers),
        }

    def _sample(self, key: jax.Array, count: int) -> Batch:
        x, y, j = sample(key, self.config.data, count)
        return x.astype(self.config.dtype), y.astype(self.config.dtype), j

    def _run(self, params: Params, batch: Batch, variant: jax.Array, probe: Probe) -> tuple[jax.Array, Record]:
        """Run a model with a variant's normaliser: outputs [B, L, n], and the probe's statistics."""
        x = batch[0]
        config = model(self.config)
        if len(self.variants) > 1:
            config = model(self.config, OneOf(tuple(NAMED[name] for name in self.variants)))
            choice = jnp.full((config.layers, config.heads), variant, x.dtype)
            params = {**params, "layers": {**params["layers"], "normaliser": {"choice": choice}}}
        out = forward(params, x, config, probe=probe, logits=False, unroll=True)
        return cast(jax.Array, out.output), out.record


def task(config: TriggerTraining) -> TriggerTask:
    """Make the task of a config. Errors: as for the model and the data; a learned normaliser together with others."""
    alone = [name for name in config.normalisers if NAMED[name].learned() or NAMED[name].kernel]
    if alone and len(config.normalisers) > 1:
        what = "learned values of its own" if NAMED[alone[0]].learned() else "a kernel of its own"
        raise SinkjaxError(f"normalisers has {alone[0]!r}, which has {what}: train it apart from the others")
    model(config)
    return TriggerTask(config)


def model(config: TriggerTraining, normaliser: str | Normaliser | None = None) -> Config:
    """The architecture that is trained, with one of its normalisers, by default the first."""
    named = NAMED[normaliser or config.normalisers[0]] if not isinstance(normaliser, Normaliser) else normaliser
    return Config(
        **{name: getattr(config, name) for name in ("layers", "width", "heads")},
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


def _with_escape(params: Params, start: float) -> Params:
    """Start a model's gates and sink logits at the escape: `start` from even."""
    layers = dict(params["layers"])
    if "head_gate" in layers:
        layers["head_gate"] = layers["head_gate"].at[:, BIAS].add(-start).at[:, TRIGGER_FLAG].add(start)
    if "normaliser" in layers:
        layers["normaliser"] = {"sink": layers["normaliser"]["sink"] + start}
    return {**params, "layers": layers}


def _rows(batch: Batch) -> tuple[jax.Array, jax.Array]:
    """Return each sequence's trigger row, and the rows of all tokens except the first and the trigger: bool [B, L] each."""
    x, _, j = batch
    row = jnp.arange(x.shape[1])
    triggers = row == j[:, None]
    return triggers, ~triggers & (row > 0)


def _mean(values: jax.Array, rows: jax.Array) -> jax.Array:
    """Average values [B, layer, head, L] over the selected rows, bool [B, L]: [layer, head]."""
    return jnp.where(rows[:, None, None, :], values, 0).sum(axis=(0, 3)) / rows.sum()
