"""Causal softmax attention by one fused operator, `jax.nn.dot_product_attention`: scores and weights never exist, so nothing can
be measured or edited there. On a GPU and in a 16-bit dtype it is cuDNN's flash attention."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from sinkjax.edits.site import Site
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.model.normalisers import Softmax
from sinkjax.model.positions import ScorePosition
from sinkjax.probes.probe import Probe


def attend_fused(q_BTHD: jax.Array, k_BSKD: jax.Array, v_BSKD: jax.Array, config: Config) -> jax.Array:
    """The heads' outputs [B, T, H, D] of rotated queries and keys, in the dtype of v."""
    cudnn = jax.default_backend() == "gpu" and v_BSKD.dtype in (jnp.bfloat16, jnp.float16)
    q, k = q_BTHD.astype(v_BSKD.dtype), k_BSKD.astype(v_BSKD.dtype)
    how: Literal["cudnn", "xla"] = "cudnn" if cudnn else "xla"
    return jax.nn.dot_product_attention(q, k, v_BSKD, scale=config.scale, is_causal=True, implementation=how)


def check_fused(config: Config, edited: bool, probe: Probe) -> None:
    """Raise an error that names what a fused attention cannot do."""
    hidden = (Site.LOGITS, Site.WEIGHTS)
    measured = [entry.name for entry in probe.statistics if entry.site in hidden]
    measured += [entry.name for entry in probe.captures if entry.site in hidden]
    reasons = {
        "edits": edited,
        f"the measurement of {', '.join(measured)}": bool(measured),
        f"the normaliser {config.normaliser!r}": config.normaliser != Softmax(),
        f"the position {config.position!r}": isinstance(config.position, ScorePosition),
        f"the attention_bias {config.attention_bias!r}": config.attention_bias is not None,
        "a soft cap on scores": config.caps.scores is not None,
        "a scale for each layer": isinstance(config.score_scale, tuple),
        "windows": config.windows is not None,
        "a prefix": config.prefix is not None,
    }
    for what, here in reasons.items():
        if here:
            raise SinkjaxError(f'attention_impl "fused" has no scores and weights, so it cannot do {what}; choose "sinkjax"')
