"""The pretraining task: the one forward on text, the cross entropy of the next token."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.model import params as model_params
from sinkjax.model.config import Config, NoPosition, RMSNorm, Rope
from sinkjax.model.forward import forward
from sinkjax.model.heads import HeadGate
from sinkjax.model.normalisers import NAMED
from sinkjax.model.params import Leaf, Params
from sinkjax.probe import Probe
from sinkjax.train import pretrain_measure
from sinkjax.train.pretrain_config import Pretrain
from sinkjax.train.text import Text, open_text

ACTIVATIONS = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu"}
Batch = Mapping[str, jax.Array]  # of `sinkjax/data/batches.py`


@dataclass(frozen=True)
class PretrainTask:
    """See `sinkjax.train.task.Task`, `Reads` and `Summarises`; its one variant is the normaliser that the config names."""

    config: Pretrain

    @property
    def variants(self) -> tuple[str, ...]:
        return (self.config.normaliser,)

    def model(self, variant: str) -> Config:
        return model(self.config)

    def init(self, seed: int) -> Params:
        return init(model(self.config), seed, self.config.dtype)

    def open(self, say: Callable[[str], None]) -> Text:
        return open_text(self.config, say)

    def loss(self, params: Params, batch: Batch, variant: jax.Array) -> tuple[jax.Array, jax.Array]:
        nll, mask = self._nll(params, batch)
        return (nll * mask).sum() / mask.sum(), jnp.bool_(False)

    def evaluate(self, params: Params, batch: Batch, variant: jax.Array) -> dict[str, jax.Array]:
        """loss: on held-out targets, in nats; and what `pretrain_measure` takes of the blocks' first tokens."""
        total, count = jax.lax.map(
            lambda rows: tuple(x.sum() for x in self._nll(params, rows, masked=True)), _grouped(batch, self.config.batch)
        )
        measured = pretrain_measure.measure(params, batch["tokens"], model(self.config), self.config.precision)
        return {"loss": total.sum() / count.sum()} | measured

    def summarise(self, measured: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return pretrain_measure.summarise(measured, model(self.config))

    def _nll(self, params: Params, batch: Batch, masked: bool = False) -> tuple[jax.Array, jax.Array]:
        """-log p of each target in nats, 0 where it does not count if `masked`, and whether it counts: float32 [B, T] each."""
        tokens = batch["tokens"]
        config, mask = model(self.config), batch["loss_mask"][:, 1:].astype(jnp.float32)
        out = forward(
            params, tokens[:, :-1], config, probe=Probe(), precision=self.config.precision, unroll=config.layers <= UNROLLED
        )
        assert out.logits is not None
        nll = cross_entropy(out.logits, tokens[:, 1:])
        return nll * mask if masked else nll, mask


UNROLLED = 6  # layers up to which they are compiled one after the other, which makes a step faster and compilation slower


def task(config: Pretrain) -> PretrainTask:
    """The task of a config. Errors: what the model refuses."""
    model(config)
    return PretrainTask(config)


def model(config: Pretrain) -> Config:
    """The architecture that is trained."""
    return Config(
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        kv_heads=config.kv_heads or config.heads,
        head_dim=config.head_dim or config.width // config.heads,
        mlp_width=config.mlp_width,
        vocab_size=config.model_vocabulary,
        context=config.context,
        norm=None if config.norm == "none" else RMSNorm(config.norm_eps),
        position=Rope(config.rope_theta) if config.position == "rope" else NoPosition(),
        activation=ACTIVATIONS[config.mlp],
        tied=config.tied,
        windows=None if config.window is None else (config.window,) * config.layers,
        normaliser=NAMED[config.normaliser],
        gate=HeadGate() if config.gate == "head" else None,
    )


def init(config: Config, seed: int, dtype: str) -> Params:
    """Parameters as by Gu et al. 2025: std sqrt(2 / (5 fan_in)), and 1 / (layers sqrt(fan_in)) of the MLP's last matrix."""

    def scale(path: tuple, leaf: Leaf, drawn: jax.Array) -> jax.Array:
        if leaf.init != "normal":
            return drawn
        down = path[-1].key == "down"
        return drawn * jnp.asarray(1 / config.layers if down else math.sqrt(2 / 5), drawn.dtype)

    return jax.tree_util.tree_map_with_path(scale, model_params.abstract(config), model_params.init(config, seed, dtype))


def cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """-log p of each target in nats. logits: float [..., V], targets: int [...]."""
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - chosen


def _grouped(batch: Batch, rows: int) -> Batch:
    """A batch as groups of `rows`, [groups, rows, ...], filled up with rows of zeros, whose loss mask is 0 too."""

    def group(leaf: jax.Array) -> jax.Array:
        missing = -len(leaf) % rows
        return jnp.pad(leaf, ((0, missing), *[(0, 0)] * (leaf.ndim - 1))).reshape(-1, rows, *leaf.shape[1:])

    return jax.tree.map(group, batch)
