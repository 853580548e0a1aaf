"""The model of an `Architecture`, and its initialisation."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from sinkjax.edits.term import Edits
from sinkjax.model import params as model_params
from sinkjax.model.attention_bias import AttentionBias, KeyBias, KeyValueBias, SinkToken, ValueBias
from sinkjax.model.config import Caps, Config, Multipliers, NoPosition, Position
from sinkjax.model.heads import (
    ConstantGate,
    ElementGate,
    Gate,
    HeadGate,
    HeadNorm,
    NonSparseGate,
    SharedGate,
    ValueGate,
    ValueScale,
)
from sinkjax.model.normalisers import NAMED
from sinkjax.model.norms import AllHeads, DynamicTanh, LayerNorm, QueryKeyNorm, RMSNorm, SingleScaleRMSNorm
from sinkjax.model.params import Leaf, Params
from sinkjax.model.positions import Alibi, BucketIndex, Learned, RelativeBias, Sinusoidal
from sinkjax.model.rotary import Rope
from sinkjax.probes.probe import Probe
from sinkjax.runtime.hardware import Hardware
from sinkjax.tasks.language_model.architecture import Architecture
from sinkjax.transformer.implementations import AUTO, check_implementation, chosen

GATED = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu"}
POSITIONS: dict[str, Position] = {"none": NoPosition(), "sinusoidal": Sinusoidal(), "learned": Learned()}
POSITIONS |= {"alibi": Alibi(), "relative": RelativeBias(), "bucket": BucketIndex()}
NORMS = {"rms": RMSNorm, "layer": LayerNorm, "single-scale": SingleScaleRMSNorm, "tanh": DynamicTanh}
GATES: dict[str, Gate | None] = {"none": None, "head": HeadGate(), "element": ElementGate(), "value": ValueGate()}
GATES |= {"shared": SharedGate(), "constant": ConstantGate(), "non-sparse": NonSparseGate(), "value-scale": ValueScale()}
HEAD_NORMS = {"none": None, "shared": HeadNorm(), "head": HeadNorm(gain="head")}
HEAD_NORMS |= {"head-offset": HeadNorm(gain="head", offset=True)}
SAME = ("layers", "width", "heads", "mlp_width", "summed_heads", "tied")  # fields of `Config` under their names


def build(config: Architecture, vocab_size: int, context: int, prefix: int = 0) -> Config:
    """Build the model of these fields. Errors: as for `Config`; a dtype that is not enabled."""
    if config.compute_dtype is not None:
        model_params.check_dtype(config.compute_dtype)
    normaliser: Any = NAMED[config.normaliser]
    given = {name: value for name in ("alpha", "p") if (value := getattr(config, name)) is not None}
    norm = RMSNorm(config.norm_eps)
    of_heads: QueryKeyNorm = AllHeads(norm) if config.qk_norm_joint else norm
    made = Config(
        **{name: getattr(config, name) for name in SAME},
        kv_heads=config.kv_heads or config.heads,
        head_dim=config.head_dim or config.width // config.heads,
        vocab_size=vocab_size,
        context=context,
        norm=None if config.norm == "none" else NORMS[config.norm_type](config.norm_eps),
        norm_place="pre" if config.norm == "none" else config.norm,
        position=Rope(config.rope_theta, dims=config.rope_dims) if config.position == "rope" else POSITIONS[config.position],
        activation=GATED.get(config.mlp, config.mlp),
        gated_mlp=config.mlp in GATED,
        prefix=prefix or None,
        windows=None if config.window is None else (config.window,) * config.layers,
        normaliser=dataclasses.replace(normaliser, **given),
        gate=GATES[config.gate],
        head_norm=HEAD_NORMS[config.head_norm],
        qk_norm=of_heads if config.qk_norm else None,
        qkv_bias=config.biases,
        out_bias=config.biases,
        mlp_bias=config.biases,
        caps=Caps(config.score_cap, config.logit_cap),
        # Zhu et al. 2025 scale the embedding by a learned number, sqrt(d) at first, as tanh does not scale it up.
        multipliers=Multipliers(embedding=math.sqrt(config.width) if config.norm_type == "tanh" else 1.0),
        kv_bias=_attention_bias(config),
    )
    if config.attention_impl != AUTO:
        check_implementation(config.attention_impl, made, (), Probe())
    return made


def with_attention(config: Any, model: Config, edits: Edits) -> Any:
    """Return a training's config with the name of the attention that it means on this machine.

    Errors: the attention supports neither the model nor the training's edits.
    """
    dtype, hardware = config.compute_dtype or config.dtype, Hardware(shards=config.mesh[1])
    how = chosen(config.attention_impl, model, [edits], Probe(), config.context, dtype, hardware, "first")
    return dataclasses.replace(config, attention_impl=how)


def _attention_bias(config: Architecture) -> AttentionBias | None:
    shared = config.bias_shared
    biases: dict[str, AttentionBias | None] = {"none": None, "sink-token": SinkToken(), "kv": KeyValueBias(shared)}
    biases |= {"k": KeyBias(shared, config.bias_dims, config.bias_value, config.bias_scale), "v": ValueBias(shared)}
    return biases[config.attention_bias]


def init(config: Config, seed: int, dtype: str) -> Params:
    """Draw parameters as Gu et al. 2025: std sqrt(2 / (5 fan_in)), and 1 / (layers sqrt(fan_in)) for the MLP's last matrix."""

    def scale(path: tuple, leaf: Leaf, drawn: jax.Array) -> jax.Array:
        if leaf.init != "normal":
            return drawn
        down = path[-1].key == "down"
        return drawn * jnp.asarray(1 / config.layers if down else math.sqrt(2 / 5), drawn.dtype)

    return jax.tree_util.tree_map_with_path(scale, model_params.abstract(config), model_params.init(config, seed, dtype))
