"""The fields of a language model trained from scratch, by short names. This module does not import JAX."""

from __future__ import annotations

from dataclasses import dataclass, field

from sinkjax.config_files.checks import above, at_least, only_for, refuse
from sinkjax.config_files.documents import LATER, typed
from sinkjax.errors import SinkjaxError
from sinkjax.model.names import (
    AttentionBiasName,
    BiasValueName,
    Dtype,
    GateName,
    HeadNormName,
    MLPName,
    NormaliserName,
    NormName,
    NormPlaceName,
    PositionName,
    Precision,
    TrainedAttention,
)


@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """How the steps of a language model are computed."""

    compute_dtype: Dtype | None = None
    """dtype of activations and parameters in the forward; by default the stored parameters' dtype"""
    remat: bool = False
    """recompute the inside of a block for its gradient, instead of storing it"""
    attention_impl: TrainedAttention = "auto"
    """attention in training: sinkjax, or a single fused operator (softmax without variants); auto: fused if it is faster, on a
    GPU in 16 bits from 512 positions; a training keeps the one with which it started"""
    precision: Precision = "highest"
    """precision of matrix products ("highest": full float32 on every device)"""


@dataclass(frozen=True, kw_only=True)
class Architecture(StepOptions):
    """A decoder-only model; `sinkjax/tasks/language_model/model.py` converts it to a `Config`."""

    layers: int = 4
    """blocks of the model"""
    width: int = 128
    """width d of the residual stream"""
    heads: int = 4
    """query heads of a block"""
    kv_heads: int | None = None
    """key-value heads, by default one for each head"""
    head_dim: int | None = None
    """width of one head, by default width / heads"""
    mlp_width: int = 384
    """hidden units of the MLP"""
    mlp: MLPName = "swiglu"
    """the MLP: three matrices gated by SiLU, GELU or ReLU, or two with one of these in between"""
    summed_heads: bool = False
    """the outputs of heads are summed and share one output matrix, instead of being concatenated"""
    tied: bool = False
    """whether the unembedding is the embedding"""
    position: PositionName = "rope"
    """position encoding: rotary; none; vectors added to embeddings (sinusoidal, learned); numbers added to scores (alibi;
    relative: learned, by T5's buckets; bucket: the index of the bucket itself)"""
    rope_theta: float = 10_000.0
    """base of rotary positions"""
    rope_dims: int | None = field(default=None, metadata=LATER)
    """first dims of each head that are rotated, by default all"""
    norm: NormPlaceName = "pre"
    """norms before attention and MLP and at the end (pre), after each sum (post), before and after each part (sandwich), after
    each part (output), or nowhere; attention and MLP side by side, each with its norm (parallel) or with one (parallel-shared)"""
    norm_type: NormName = field(default="rms", metadata=LATER)
    """RMSNorm, LayerNorm with a gain and a bias, RMSNorm with one gain for all dims (single-scale), or DynamicTanh
    (tanh), with embeddings times sqrt(width)"""
    norm_eps: float = 1e-5
    """epsilon of the norms"""
    biases: bool = field(default=False, metadata=LATER)
    """whether the projections of attention and MLP have biases"""
    normaliser: NormaliserName = "softmax"
    """function from scores to attention weights"""
    alpha: float | None = None
    """sum of the rows of the normaliser "scaled", by default 0.1"""
    p: float | None = None
    """exponent of the normalisers "softmax-p" (by default 1/2) and "sigmoid-p" (by default 2)"""
    gate: GateName = "none"
    """a sigmoid gate: one number for each head's output (head), for each of its dims (element), for each dim of the values
    (value), or for each dim of all heads (shared); like element, but independent of the input (constant), or never below
    one half (non-sparse); or a learned factor on each head's values (value-scale)"""
    head_norm: HeadNormName = "none"
    """RMSNorm of each head's output: with one gain for all heads, or per head with a gain, or with a gain and an offset"""
    qk_norm: bool = False
    """RMSNorm of each head's queries and keys"""
    qk_norm_joint: bool = field(default=False, metadata=LATER)
    """apply this RMSNorm to the queries, or the keys, of all heads together (OLMo 2)"""
    score_cap: float | None = field(default=None, metadata=LATER)
    """soft cap c tanh(x / c) on scores, by default none"""
    logit_cap: float | None = field(default=None, metadata=LATER)
    """soft cap on the logits of tokens, by default none"""
    window: int | None = None
    """number of last keys that a query sees in every layer, including its own; by default all"""
    attention_bias: AttentionBiasName = "none"
    """a learned token before the first, or in each layer a learned key and value, key, or value"""
    bias_shared: bool = False
    """one bias for all heads of a layer ("kv", "k", "v")"""
    bias_dims: int | None = None
    """first dims of a learned key that are learned, the others being 0 ("k"); by default all"""
    bias_value: BiasValueName = "zero"
    """the value of a learned key: 0, the first unit vector, or ones / sqrt(head_dim) ("k")"""
    bias_scale: float = 1.0
    """factor on the value of a learned key"""

    def __post_init__(self) -> None:
        typed(self)
        at_least(self, layers=1, width=1, heads=1, kv_heads=1, head_dim=1, mlp_width=1, window=1)
        at_least(self, rope_dims=2)
        above(self, rope_theta=0, norm_eps=0, score_cap=0, logit_cap=0)
        for name in ("rope_theta", "rope_dims"):
            only_for(self, name, self.position == "rope", f"the position 'rope', not for {self.position!r}")
        only_for(self, "qk_norm_joint", self.qk_norm, "models with qk_norm")
        for name, of in (("alpha", ("scaled",)), ("p", ("softmax-p", "sigmoid-p"))):
            if getattr(self, name) is not None and self.normaliser not in of:
                raise SinkjaxError(f"{name} is for the normaliser {' or '.join(map(repr, of))}, not for {self.normaliser!r}")
        if self.bias_shared and self.attention_bias not in ("kv", "k", "v"):
            raise SinkjaxError(f"bias_shared is for the attention_bias 'kv', 'k' and 'v', not for {self.attention_bias!r}")
        of_key = (self.bias_dims, self.bias_value, self.bias_scale) != (None, "zero", 1.0)
        kind = f"the attention_bias 'k', not for {self.attention_bias!r}"
        refuse(of_key and self.attention_bias != "k", f"bias_dims, bias_value and bias_scale are for {kind}")
        if self.head_dim is None and self.width % self.heads:
            raise SinkjaxError(f"heads must divide width ({self.width}) unless head_dim is stated, not {self.heads}")
