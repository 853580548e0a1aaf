"""`attention_impl="fused"`: softmax attention that exposes neither scores nor weights.

On a GPU and in a 16-bit dtype it is cuDNN's flash attention (`jax.nn.dot_product_attention`), for head widths that are multiples
of 8, up to 128 or, from Hopper on, 256. Elsewhere, and where scores are edited, it uses the blocks of `attention.py` and divides
mixtures of values instead of weights. Only sums over rows of weights are measured (`Statistic.sums`). With
cuDNN they need a second pass over blocks of scores, which sums its own rows: the log-sum-exps that JAX returns are rounded to 16
bits, so weights computed from them would be off by several percent.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from sinkjax.edits.term import Edits
from sinkjax.model.config import Config
from sinkjax.model.normalisers import Softmax
from sinkjax.model.positions import ScorePosition
from sinkjax.model.site import Site
from sinkjax.probes.probe import Probe
from sinkjax.runtime.hardware import Hardware
from sinkjax.transformer import attention
from sinkjax.transformer.tape import Tape


def attend(heads: attention.HeadInputs, tape: Tape) -> tuple[jax.Array, jax.Array]:
    """Compute `attention.attend` for every request that `cannot` does not list."""
    blocks = heads.by_head is not None or tape.at(Site.LOGITS)
    out = None if blocks else by_cudnn(heads.q, heads.k, heads.v, tape.spec.config.scale)
    if out is None:
        return attention.attend(heads, tape, divide_last=True)
    if tape.watches(Site.WEIGHTS):  # cuDNN already returned the outputs; these blocks only compute statistics
        attention.attend(heads._replace(v=heads.v[..., :0]), tape, divide_last=True)
    return out, jnp.zeros(len(out), jnp.int32)


def by_cudnn(q_BTHD: jax.Array, k_BSKD: jax.Array, v_BSKD: jax.Array, scale: float) -> jax.Array | None:
    """Return the heads' outputs [B, T, H, D] for rotated queries and keys, in the dtype of v; None if cuDNN does not support
    them."""
    if jax.default_backend() != "gpu" or v_BSKD.dtype not in (jnp.bfloat16, jnp.float16):
        return None
    if not fits_cudnn(v_BSKD.shape[-1], Hardware().capability or (0, 0)):  # JAX rejects these
        return None
    q, k = q_BTHD.astype(v_BSKD.dtype), k_BSKD.astype(v_BSKD.dtype)
    return jax.nn.dot_product_attention(q, k, v_BSKD, scale=scale, is_causal=True, implementation="cudnn")


def fits_cudnn(head_dim: int, capability: tuple[int, int]) -> bool:
    """Return whether cuDNN supports heads of this width on a GPU of this compute capability; wider ones from Hopper on."""
    return head_dim % 8 == 0 and head_dim <= (256 if capability >= (9, 0) else 128)


def cannot(config: Config, edits: Edits, probe: Probe, past: int = 0) -> dict[str, bool]:
    """Map each feature that fused attention does not support to whether it is requested."""
    return {
        **attention.needs_pairs(edits, probe),
        f"the normaliser {config.normaliser!r}": config.normaliser != Softmax(),
        f"the position {config.position!r}": isinstance(config.position, ScorePosition),
        f"the kv_bias {config.kv_bias!r}": config.kv_bias is not None,
        "a soft cap on scores": config.caps.scores is not None,
        "a scale for each layer": isinstance(config.score_scale, tuple),
        "windows": config.windows is not None,
        "a prefix": config.prefix is not None,
        "a past": past > 0,
    }
