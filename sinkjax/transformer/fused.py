"""`attention_impl="fused"`: softmax attention without scores or weights that anything outside of it could see.

On a GPU and in a 16-bit dtype it is cuDNN's flash attention (`jax.nn.dot_product_attention`), for head widths that are multiples
of 8, up to 128 or, from Hopper on, 256. Elsewhere, and where scores are edited, it is the block of `attention.py`, where the
weights are rounded to the dtype of the values before their product. Only sums over rows of weights are measured
(`Statistic.sums`). cuDNN leaves them to a second pass over blocks of scores, which adds up its own rows: the log-sum-exps that
JAX returns are rounded to 16 bits, so weights made of them would be wrong by several percent.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from sinkjax.edits.site import Site
from sinkjax.edits.term import Edits
from sinkjax.model.config import Config
from sinkjax.model.normalisers import Softmax
from sinkjax.model.positions import ScorePosition
from sinkjax.probes.probe import Probe
from sinkjax.transformer import attention
from sinkjax.transformer.tape import Tape


def attend(
    q_BTHD: jax.Array,
    k_BSKD: jax.Array,
    v_BSKD: jax.Array,
    own_BSHD: jax.Array | None,
    window: jax.Array | None,
    w: Mapping[str, Any],
    tape: Tape,
) -> tuple[jax.Array, jax.Array]:
    """As `attention.attend`, for everything that `cannot` does not name."""
    blocks = partial(attention.attend, window=window, w=w, tape=tape, rounded=True)
    scale = tape.spec.config.scale
    out = None if own_BSHD is not None or tape.at(Site.LOGITS) else by_cudnn(q_BTHD, k_BSKD, v_BSKD, scale)
    if out is None:
        return blocks(q_BTHD, k_BSKD, v_BSKD, own_BSHD)
    if tape.watches(Site.WEIGHTS):
        blocks(q_BTHD, k_BSKD, v_BSKD[..., :0], None)  # no outputs, only statistics
    return out, jnp.zeros(len(out), jnp.int32)


def by_cudnn(q_BTHD: jax.Array, k_BSKD: jax.Array, v_BSKD: jax.Array, scale: float) -> jax.Array | None:
    """The heads' outputs [B, T, H, D] of rotated queries and keys, in the dtype of v; None where there is no cuDNN for them."""
    if jax.default_backend() != "gpu" or v_BSKD.dtype not in (jnp.bfloat16, jnp.float16):
        return None
    if v_BSKD.shape[-1] % 8 or v_BSKD.shape[-1] > _widest_head():  # JAX refuses these
        return None
    q, k = q_BTHD.astype(v_BSKD.dtype), k_BSKD.astype(v_BSKD.dtype)
    return jax.nn.dot_product_attention(q, k, v_BSKD, scale=scale, is_causal=True, implementation="cudnn")


def _widest_head() -> int:
    """The largest head width that cuDNN takes on the GPU that is here: from Hopper on, more."""
    major = getattr(jax.local_devices()[0], "compute_capability", "").partition(".")[0]
    return 256 if major.isdigit() and int(major) >= 9 else 128


def cannot(config: Config, edits: Edits, probe: Probe) -> dict[str, bool]:
    """Each request that a fused attention does not support, and whether it is made."""
    return {
        **attention.needs_pairs(edits, probe),
        f"the normaliser {config.normaliser!r}": config.normaliser != Softmax(),
        f"the position {config.position!r}": isinstance(config.position, ScorePosition),
        f"the attention_bias {config.attention_bias!r}": config.attention_bias is not None,
        "a soft cap on scores": config.caps.scores is not None,
        "a scale for each layer": isinstance(config.score_scale, tuple),
        "windows": config.windows is not None,
        "a prefix": config.prefix is not None,
    }
