"""Optional parts of a head: output norms and gates.

Sources. Norm of the output: Li et al. 2026 and, as "SDPA GroupNorm", Qiu et al. 2025. Gates: Qiu et al.
2025, arXiv 2505.06708. Scale of values: arXiv 2603.17771.

Shape suffixes: B prompts, T positions, H query heads, K key-value heads, D head width, d residual width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax

from sinkjax.config_files.checks import refuse
from sinkjax.errors import one_of
from sinkjax.model.ops import project, rms_norm

Weights = Mapping[str, jax.Array]


@dataclass(frozen=True)
class HeadNorm:
    """o * gain / sqrt(mean(o^2) + eps) of each head's output o, before a gate and W_O (Li et al. 2026, "head-wise RMSNorm").

    gain: "shared", one vector for all heads of a layer (the paper's), or "head", one for each. offset: whether a vector of the
    gain's shape is added to the result. Parameters: layers/head_norm [L, D] or [L, H, D], and layers/head_norm_offset like
    it.
    """

    eps: float = 1e-6
    gain: str = "shared"
    offset: bool = False

    def __post_init__(self) -> None:
        refuse(not self.eps >= 0, f"the epsilon of a norm must be at least 0, not {self.eps}")
        one_of("gain", self.gain, ("shared", "head"))


@dataclass(frozen=True)
class HeadGate:
    """Each head's output times sigmoid(x w), one number per head and query, before W_O (Qiu et al. 2025, head-wise).

    x is the block's normed input, which is also the input of the queries. Parameters: layers/head_gate [L, d, H].
    """


@dataclass(frozen=True)
class ElementGate:
    """Each head's output times sigmoid(x W), one number per head, query and dim, before W_O (Qiu et al. 2025, element-wise).

    x is the input of the queries. Parameters: layers/element_gate [L, d, H, D].
    """


@dataclass(frozen=True)
class ValueGate:
    """Values times sigmoid(x W), one number per key-value head, key and dim (Qiu et al. 2025, G2).

    x is the block's normed input, which is also the input of the values. Parameters: layers/value_gate [L, d, K, D].
    """


@dataclass(frozen=True)
class SharedGate:
    """Every head's output times the same sigmoid(x W), one number per query and dim (Qiu et al. 2025, head-shared).

    x is the input of the queries. Parameters: layers/shared_gate [L, d, D].
    """


@dataclass(frozen=True)
class ConstantGate:
    """Each head's output times sigmoid(w), one learned number per head and dim, independent of the input.

    Qiu et al. 2025. Parameters: layers/constant_gate [L, H, D], 0 at first, as in the paper: a gate of one half.
    """


@dataclass(frozen=True)
class NonSparseGate:
    """Like `ElementGate`, with the same parameters, but times 0.5 + 0.5 sigmoid(x W), at least one half (Qiu et al. 2025)."""


@dataclass(frozen=True)
class ValueScale:
    """Values times a learned number per key-value head, initially 1: not a gate, but another way for values to shrink.

    Parameters: layers/value_scale [L, K].
    """


Gate = HeadGate | ElementGate | ValueGate | SharedGate | ConstantGate | NonSparseGate | ValueScale


def gated_values(v_BTKD: jax.Array, x_BTd: jax.Array, w: Weights, gate: Gate | None, precision: str) -> jax.Array:
    """Apply the model's value gate or value scale, if any."""
    if isinstance(gate, ValueScale):
        return v_BTKD * w["value_scale"][:, None]
    if not isinstance(gate, ValueGate):
        return v_BTKD
    return v_BTKD * jax.nn.sigmoid(project(x_BTd, w["value_gate"], precision))


def normed_outputs(o_BTHD: jax.Array, w: Weights, norm: HeadNorm) -> jax.Array:
    """Norm head outputs: divide each by its own root mean square, multiply by the gain and add the offset."""
    normed = rms_norm(o_BTHD, w["head_norm"], norm.eps)
    return normed + w["head_norm_offset"] if norm.offset else normed


def gated_outputs(o_BTHD: jax.Array, x_BTd: jax.Array, w: Weights, gate: Gate | None, precision: str) -> jax.Array:
    """Apply the model's gate on head outputs, if any."""
    match gate:
        case HeadGate():
            return o_BTHD * jax.nn.sigmoid(project(x_BTd, w["head_gate"], precision))[..., None]
        case ElementGate():
            return o_BTHD * jax.nn.sigmoid(project(x_BTd, w["element_gate"], precision))
        case SharedGate():
            return o_BTHD * jax.nn.sigmoid(project(x_BTd, w["shared_gate"], precision))[:, :, None]
        case ConstantGate():
            return o_BTHD * jax.nn.sigmoid(w["constant_gate"])
        case NonSparseGate():
            return o_BTHD * (0.5 + 0.5 * jax.nn.sigmoid(project(x_BTd, w["element_gate"], precision)))
    return o_BTHD
