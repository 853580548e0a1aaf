"""What a model is: a frozen, hashable record of its architecture, a static argument of every jitted function.

Variants are tagged sub-records (`Rope`, `Llama3Scaling`, ...), so that the forward reads as cases and not as flags. Nothing
that a checkpoint must state has a default here: norm epsilon, rotary base, head width, key-value heads and tying.
"""

from __future__ import annotations

from dataclasses import dataclass

from sinkjax.errors import SinkjaxError, one_of

ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu")


@dataclass(frozen=True)
class LinearScaling:
    """Rotary frequencies divided by `factor` (position interpolation)."""

    factor: float


@dataclass(frozen=True)
class DynamicScaling:
    """NTK-aware base that grows with each prompt's own length once it exceeds `original_context` tokens."""

    factor: float
    original_context: int


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1: long wavelengths divided by `factor`, short ones kept, a linear blend in between."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True)
class YarnScaling:
    """YaRN (Peng et al. 2023): per-frequency blend of interpolation and extrapolation; an attention factor on the tables."""

    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True


Scaling = LinearScaling | DynamicScaling | Llama3Scaling | YarnScaling


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding over the whole head width, half-split pairs (i, i + head_dim / 2)."""

    theta: float
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        if not self.theta > 0:
            raise SinkjaxError(f"the rotary base must be positive, not {self.theta}")


@dataclass(frozen=True)
class RMSNorm:
    """x * gain / sqrt(mean(x^2) + eps)."""

    eps: float

    def __post_init__(self) -> None:
        if not self.eps >= 0:
            raise SinkjaxError(f"the epsilon of a norm must be at least 0, not {self.eps}")


@dataclass(frozen=True, kw_only=True)
class Config:
    """A decoder-only transformer of the Llama family.

    layers: number of blocks L. width: residual width d. heads: query heads H. kv_heads: key-value heads; query head h reads
    key-value head h // (H / kv_heads). head_dim: width of one head. mlp_width: hidden width of the gated MLP.
    vocab_size: number of tokens, or None for a model fed with vectors (then there is no embedding and no unembedding).
    context: the longest prompt in tokens. tied: the unembedding is the embedding. qkv_bias, out_bias, mlp_bias: which
    projections have one. windows: None (every layer sees all earlier keys) or one entry per layer, the number of last keys a
    query sees, itself included, or None. activation: one of ACTIVATIONS.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp_width: int
    vocab_size: int | None
    context: int
    norm: RMSNorm
    position: Rope
    activation: str
    tied: bool
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    windows: tuple[int | None, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "kv_heads", "head_dim", "mlp_width", "context"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise SinkjaxError(f"{name} must be an int of at least 1, not {getattr(self, name)!r}")
        if self.vocab_size is not None and self.vocab_size < 1:
            raise SinkjaxError(f"vocab_size must be at least 1 or None, not {self.vocab_size}")
        if self.heads % self.kv_heads:
            raise SinkjaxError(f"{self.heads} query heads cannot share {self.kv_heads} key-value heads evenly")
        if self.head_dim % 2:
            raise SinkjaxError(f"rotary positions need an even head_dim, not {self.head_dim}")
        if isinstance(self.position.scaling, DynamicScaling) and self.head_dim < 4:  # its base has the exponent D / (D - 2)
            raise SinkjaxError(f"dynamic rotary scaling needs a head_dim of at least 4, not {self.head_dim}")
        if self.windows is not None and len(self.windows) != self.layers:
            raise SinkjaxError(f"windows has {len(self.windows)} entries for {self.layers} layers")
        if self.windows is not None and any(w is not None and w < 1 for w in self.windows):
            raise SinkjaxError("a window must hold at least 1 key")
        one_of("activation", self.activation, ACTIVATIONS)

    @property
    def group(self) -> int:
        """Query heads per key-value head."""
        return self.heads // self.kv_heads
