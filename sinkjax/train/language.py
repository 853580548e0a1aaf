"""What all trainings of language models share: the architecture, its initialisation, the loss of the next token, evaluation."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.model import params as model_params
from sinkjax.model.bias import AttentionBias, KeyBias, KeyValueBias, SinkToken, ValueBias
from sinkjax.model.config import Config, NoPosition, Position, RMSNorm, Rope
from sinkjax.model.heads import ConstantGate, ElementGate, Gate, HeadGate, HeadNorm, NonSparseGate, SharedGate, ValueGate
from sinkjax.model.normalisers import NAMED, Normaliser
from sinkjax.model.params import Leaf, Params
from sinkjax.model.positions import Alibi, BucketIndex, Learned, RelativeBias, Sinusoidal
from sinkjax.probes.probe import Probe
from sinkjax.train import pretrain_measure
from sinkjax.train.architecture import Architecture
from sinkjax.transformer.forward import forward
from sinkjax.transformer.fused import check_fused

GATED = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu"}
POSITIONS: dict[str, Position] = {
    "none": NoPosition(),
    "sinusoidal": Sinusoidal(),
    "learned": Learned(),
    "alibi": Alibi(),
    "relative": RelativeBias(),
    "bucket": BucketIndex(),
}
GATES: dict[str, Gate | None] = {
    "none": None,
    "head": HeadGate(),
    "element": ElementGate(),
    "value": ValueGate(),
    "shared": SharedGate(),
    "constant": ConstantGate(),
    "non-sparse": NonSparseGate(),
}
HEAD_NORMS = {
    "none": None,
    "shared": HeadNorm(),
    "head": HeadNorm(gain="head"),
    "head-offset": HeadNorm(gain="head", offset=True),
}
UNROLLED = 6  # layers up to which they are compiled one after the other, which makes a step faster and compilation slower
Batch = Mapping[str, jax.Array]  # of `sinkjax/data/batches.py`


class LanguageTask(ABC):
    """See `sinkjax.train.task.Task` and `Summarises`. Its one variant is the normaliser that the config names.

    config: a training with the fields of an `Architecture`. architecture: the model that is trained.
    """

    config: Any

    @property
    @abstractmethod
    def architecture(self) -> Config: ...

    @property
    def variants(self) -> tuple[str, ...]:
        return (self.config.normaliser,)

    def model(self, variant: str) -> Config:
        return self.architecture

    def init(self, seed: int) -> Params:
        return init(self.architecture, seed, self.config.dtype)

    def loss(self, params: Params, batch: Batch, variant: jax.Array) -> tuple[jax.Array, jax.Array]:
        nll, mask = self._nll(params, batch)
        return (nll * mask).sum() / mask.sum(), jnp.bool_(False)

    def evaluate(self, params: Params, batch: Batch, variant: jax.Array) -> dict[str, jax.Array]:
        """loss: on held-out targets, in nats; and what `pretrain_measure` takes of the sequences' first tokens."""
        measured = pretrain_measure.measure(params, batch["tokens"], self.architecture, self.config.precision)
        return {"loss": self.held_out_loss(params, batch)} | measured

    def held_out_loss(self, params: Params, batch: Batch) -> jax.Array:
        """The mean over the targets that count, float [], computed in groups of as many rows as in training."""

        def sums(rows: Batch) -> tuple[jax.Array, jax.Array]:
            nll, mask = self._nll(params, rows)
            return (nll * mask).sum(), mask.sum()

        total, count = jax.lax.map(sums, _grouped(batch, self.config.micro_batch or self.config.batch))
        return total.sum() / count.sum()

    def summarise(self, measured: Mapping[str, np.ndarray]) -> dict[str, Any]:
        with np.errstate(all="ignore"):  # a run that diverges ends with what is not finite
            return pretrain_measure.summarise(measured)

    def _nll(self, params: Params, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """-log p of each target in nats, and whether it counts: float32 [B, T] each."""
        tokens, config = batch["tokens"], self.architecture
        used = jax.tree.map(lambda leaf: leaf.astype(self.config.compute_dtype or leaf.dtype), params)
        how: dict[str, Any] = {
            "precision": self.config.precision,
            "remat": self.config.remat,
            "attention_impl": self.config.attention_impl,
        }
        out = forward(used, tokens[:, :-1], config, probe=Probe(), unroll=config.layers <= UNROLLED, **how)
        assert out.logits is not None
        return cross_entropy(out.logits, tokens[:, 1:]), batch["loss_mask"][:, 1:].astype(jnp.float32)


def build(config: Architecture, vocab_size: int, context: int, prefix: int = 0) -> Config:
    """The model of these fields. Errors: what `Config` refuses; a dtype that is not enabled here."""
    if config.compute_dtype is not None:
        model_params.check_dtype(config.compute_dtype)
    made = Config(
        layers=config.layers,
        width=config.width,
        heads=config.heads,
        kv_heads=config.kv_heads or config.heads,
        head_dim=config.head_dim or config.width // config.heads,
        mlp_width=config.mlp_width,
        vocab_size=vocab_size,
        context=context,
        norm=None if config.norm == "none" else RMSNorm(config.norm_eps),
        norm_place="pre" if config.norm == "none" else config.norm,
        position=Rope(config.rope_theta) if config.position == "rope" else POSITIONS[config.position],
        activation=GATED.get(config.mlp, config.mlp),
        gated_mlp=config.mlp in GATED,
        summed_heads=config.summed_heads,
        prefix=prefix or None,
        tied=config.tied,
        windows=None if config.window is None else (config.window,) * config.layers,
        normaliser=_normaliser(config),
        gate=GATES[config.gate],
        head_norm=HEAD_NORMS[config.head_norm],
        qk_norm=RMSNorm(config.norm_eps) if config.qk_norm else None,
        attention_bias=_attention_bias(config),
    )
    if config.attention_impl == "fused":
        check_fused(made, False, Probe())
    return made


def _attention_bias(config: Architecture) -> AttentionBias | None:
    match config.attention_bias:
        case "sink-token":
            return SinkToken()
        case "kv":
            return KeyValueBias(config.bias_shared)
        case "k":
            return KeyBias(config.bias_shared, config.bias_dims, config.bias_value, config.bias_scale)
        case "v":
            return ValueBias(config.bias_shared)
    return None


def _normaliser(config: Architecture) -> Normaliser:
    given = {name: value for name in ("alpha", "p") if (value := getattr(config, name)) is not None}
    return dataclasses.replace(NAMED[config.normaliser], **given)  # type: ignore[type-var]


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
