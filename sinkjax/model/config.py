"""What a model is: a frozen, hashable record of its architecture, a static argument of every jitted function.

Variants are tagged sub-records (`Rope` or `NoPosition`, `RMSNorm` or None, `ReLU`, ...), so that the forward reads as cases and
not as flags. Nothing that a checkpoint must state has a default here: norm epsilon, rotary base, head width, key-value heads and
tying.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any

from sinkjax.config_files.checks import LARGEST, MOST
from sinkjax.config_files.documents import LATER, stated
from sinkjax.errors import SinkjaxError, one_of
from sinkjax.model.attention_bias import AttentionBias, KeyBias
from sinkjax.model.heads import Gate, HeadNorm
from sinkjax.model.normalisers import Normaliser, Softmax
from sinkjax.model.positions import AddedPosition, ScorePosition, Sinusoidal

NORM_PLACES = ("pre", "post", "sandwich")
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
        if not _is_number(self.theta) or not self.theta > 0:
            raise SinkjaxError(f"the rotary base must be positive, not {self.theta}")


@dataclass(frozen=True)
class NoPosition:
    """Queries and keys know nothing of where they stand; only the causal mask does."""


Position = Rope | NoPosition | AddedPosition | ScorePosition


@dataclass(frozen=True)
class RMSNorm:
    """x * gain / sqrt(mean(x^2) + eps)."""

    eps: float

    def __post_init__(self) -> None:
        if not _is_number(self.eps) or not self.eps >= 0:
            raise SinkjaxError(f"the epsilon of a norm must be at least 0, not {self.eps}")


@dataclass(frozen=True, kw_only=True)
class Config:
    """A decoder-only transformer of the Llama family, or one with less in it.

    What is absent has no parameters; `activation` has no meaning without an MLP, nor `tied` without a vocabulary.

    Attributes:
        layers: Number of blocks L.
        width: Width d of the residual stream.
        heads: Query heads H.
        kv_heads: Key-value heads K; query head h reads key-value head h // (H / K).
        head_dim: Width D of one head.
        mlp_width: Hidden width F of the MLP; None: no MLP.
        vocab_size: Number of tokens V; None for a model fed with vectors (then there is no embedding and no unembedding).
        context: The longest prompt, in tokens.
        norm: Of the residual stream, or None.
        position: Rotary, none, or a record of sinkjax/model/positions.py, added to the embedding or to the scores.
        activation: One of ACTIVATIONS, of a gate that multiplies the hidden units of the MLP (SwiGLU, GeGLU, ReGLU), or, with
            gated_mlp=False, of the hidden units themselves.
        tied: Whether the unembedding is the embedding.
        qkv_bias, out_bias, mlp_bias: Which projections have a bias.
        windows: None (every layer sees all earlier keys), or for each layer the number of last keys that a query sees, itself
            included, or None. (A sliding window; what Gu et al. 2025 call a shifted window is the same operator.)
        normaliser: What turns scores into weights.
        score_scale: The factor on the scores; None: 1 / sqrt(head_dim).
        norm_place: "pre", "post" or "sandwich", as sinkjax/transformer/block.py says.
        attention_bias: A key and value of no token, or a value alone (sinkjax/model/attention_bias.py), or None.
        gated_mlp: Whether the MLP has a gate.
        summed_heads: Whether the heads' outputs are added and share one W_O [D, d], instead of each having its own (Gu et al.
            2025).
        prefix: How many first positions see each other both ways, and are seen by all later ones beyond any window, or None. A
            token of the prefix has no loss, since what would predict it sees it.
        qk_norm: Of each query and key before the rotation, or None.
        head_norm: Of each head's output before a gate, or None.
        gate: On each head's output or its values (sinkjax/model/heads.py), or None.
        residual: Whether a block's input is added to what attention, and then the MLP, give.

    Raises:
        SinkjaxError: The fields do not fit together, or one is out of range.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp_width: int | None
    vocab_size: int | None
    context: int
    norm: RMSNorm | None
    position: Position
    activation: str
    tied: bool
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    windows: tuple[int | None, ...] | None = None
    normaliser: Normaliser = field(default=Softmax(), metadata=LATER)
    score_scale: float | None = field(default=None, metadata=LATER)
    gate: Gate | None = field(default=None, metadata=LATER)
    residual: bool = field(default=True, metadata=LATER)
    prefix: int | None = field(default=None, metadata=LATER)
    norm_place: str = field(default="pre", metadata=LATER)
    gated_mlp: bool = field(default=True, metadata=LATER)
    summed_heads: bool = field(default=False, metadata=LATER)
    qk_norm: RMSNorm | None = field(default=None, metadata=LATER)
    head_norm: HeadNorm | None = field(default=None, metadata=LATER)
    attention_bias: AttentionBias | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        sizes = ["layers", "width", "heads", "kv_heads", "head_dim", "context"]
        for name in [*sizes, "mlp_width"] if self.mlp_width is not None else sizes:
            _refuse_size(name, getattr(self, name))
        if self.vocab_size is not None:
            _refuse_size("vocab_size", self.vocab_size, "at least 1 or None")
        for name in ("tied", "qkv_bias", "out_bias", "mlp_bias", "gated_mlp", "summed_heads", "residual"):
            if not isinstance(getattr(self, name), bool):
                raise SinkjaxError(f"{name} must be True or False, not {getattr(self, name)!r}")
        for name in ("norm", "qk_norm"):
            if not isinstance(getattr(self, name), RMSNorm | None):
                raise SinkjaxError(f"{name} must be an RMSNorm or None, not {getattr(self, name)!r}")
        if self.heads % self.kv_heads:
            raise SinkjaxError(f"{self.heads} query heads cannot share {self.kv_heads} key-value heads evenly")
        if not isinstance(self.position, Position):
            raise SinkjaxError(f"position must be Rope, NoPosition or a record of sinkjax.model.positions, not {self.position!r}")
        if isinstance(self.position, Sinusoidal) and self.width % 2:
            raise SinkjaxError(f"sinusoidal positions need an even width, not {self.width}")
        if isinstance(self.position, Rope):
            if self.head_dim % 2:
                raise SinkjaxError(f"rotary positions need an even head_dim, not {self.head_dim}")
            if isinstance(self.position.scaling, DynamicScaling) and self.head_dim < 4:  # its base has the exponent D / (D - 2)
                raise SinkjaxError(f"dynamic rotary scaling needs a head_dim of at least 4, not {self.head_dim}")
        if not isinstance(self.normaliser, Normaliser):
            raise SinkjaxError(f"normaliser must be a record of sinkjax.model.normalisers, not {self.normaliser!r}")
        if self.gate is not None and not isinstance(self.gate, Gate):
            raise SinkjaxError(f"gate must be a record of sinkjax.model.heads or None, not {self.gate!r}")
        if self.attention_bias is not None and not isinstance(self.attention_bias, AttentionBias):
            raise SinkjaxError(
                f"attention_bias must be a record of sinkjax.model.attention_bias or None, not {self.attention_bias!r}"
            )
        if isinstance(self.attention_bias, KeyBias) and (self.attention_bias.dims or 0) > self.head_dim:
            raise SinkjaxError(f"dims of a key bias must be at most head_dim ({self.head_dim}), not {self.attention_bias.dims}")
        if self.score_scale is not None and not _is_number(self.score_scale):
            raise SinkjaxError(f"score_scale must be a number or None, not {self.score_scale!r}")
        if self.score_scale is not None and not 0 < self.score_scale < float("inf"):
            raise SinkjaxError(f"score_scale must be positive, or None for 1 / sqrt(head_dim), not {self.score_scale}")
        if self.mlp_bias and self.mlp_width is None:
            raise SinkjaxError("mlp_bias is for models with an MLP, and mlp_width is None")
        if not self.gated_mlp and self.mlp_width is None:
            raise SinkjaxError("gated_mlp=False is for models with an MLP, and mlp_width is None")
        one_of("norm_place", self.norm_place, NORM_PLACES)
        if self.norm_place != "pre" and self.norm is None:
            raise SinkjaxError(f'norm_place="{self.norm_place}" is for models with a norm, and norm is None')
        if self.prefix is not None and self.prefix not in range(1, self.context + 1):
            raise SinkjaxError(f"prefix must be None or an int from 1 to the context ({self.context}), not {self.prefix!r}")
        given: Any = self.windows
        if not isinstance(given, tuple | None) or not all(type(window) is int or window is None for window in given or ()):
            raise SinkjaxError(f"windows must be None or a tuple of an int or None for each layer, not {self.windows!r}")
        if self.windows is not None and len(self.windows) != self.layers:
            raise SinkjaxError(f"windows has {len(self.windows)} entries for {self.layers} layers")
        if self.windows is not None and any(w is not None and w < 1 for w in self.windows):
            raise SinkjaxError("a window must hold at least 1 key")
        one_of("activation", self.activation, ACTIVATIONS)

    @property
    def group(self) -> int:
        """Query heads per key-value head."""
        return self.heads // self.kv_heads

    @property
    def rope(self) -> Rope:
        """The rotary positions. Errors: a model without."""
        if not isinstance(self.position, Rope):
            raise SinkjaxError("this model has no rotary positions")
        return self.position

    @property
    def rms_norm(self) -> RMSNorm:
        """The norm. Errors: a model without."""
        if self.norm is None:
            raise SinkjaxError("this model has no norm")
        return self.norm

    @property
    def neurons(self) -> int:
        """Hidden units of the MLP. Errors: a model without."""
        if self.mlp_width is None:
            raise SinkjaxError("this model has no MLP")
        return self.mlp_width

    @property
    def scale(self) -> float:
        """The factor on the products of queries and keys."""
        return self.head_dim**-0.5 if self.score_scale is None else self.score_scale

    def identity(self) -> dict[str, Any]:
        """The architecture as JSON, as results are stored with it."""
        plain = (RMSNorm, Rope)
        return {
            name: asdict(value) if isinstance(value, plain) else repr(value) if is_dataclass(value) else value
            for name, value in stated(self).items()
        }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refuse_size(name: str, value: Any, of: str = "an int of at least 1") -> None:
    most = MOST.get(name, LARGEST)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise SinkjaxError(f"{name} must be {of}, not {value!r}")
    if value > most:
        raise SinkjaxError(f"{name} must be at most {most}, not {value}")
