"""A language model trained from scratch on text: model, data and optimisation by flat names. This module imports no JAX.

The defaults are a model for two CPU cores; Gu et al. 2025 (arXiv 2410.10781) train 10 layers of width 768.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sinkjax.data.config import BPE, Blocks, Corpus
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.config import above, at_least
from sinkjax.model.names import NormaliserName
from sinkjax.train.config import Schedule

MEASURED = 64  # T of the sink rate, as in Gu et al. 2025: the first tokens of each held-out block


@dataclass(frozen=True, kw_only=True)
class Pretrain(Schedule, Corpus, Blocks):
    """A decoder-only model that learns to predict the next token of a text.

    Initialised as by Gu et al.: matrices and embeddings with standard deviation sqrt(2 / (5 fan_in)), an MLP's last matrix with
    1 / (layers sqrt(fan_in)). Evaluated on the first `eval_batch` held-out blocks, sinks on the first 64 tokens of each.
    """

    learning_rates: tuple[float, ...] = (4e-3,)
    """of AdamW, after the warm-up"""
    steps: int = 2_000
    """updates of a run"""
    batch: int = 16
    """blocks of a batch"""
    eval_batch: int = 64
    """held-out blocks"""
    data_seed: int = 0
    """of the order, the choice of blocks and the random tokens, together with the seed of the run"""
    layers: int = 4
    """blocks of the model"""
    width: int = 128
    """d, of the residual stream"""
    heads: int = 4
    """query heads of a block"""
    kv_heads: int | None = None
    """key-value heads, by default one for each head"""
    head_dim: int | None = None
    """of one head, by default width / heads"""
    mlp_width: int = 384
    """hidden units of the MLP"""
    mlp: Literal["swiglu", "geglu", "reglu"] = "swiglu"
    """the MLP: gated by SiLU, GELU or ReLU"""
    vocab_size: int | None = None
    """of the model, by default that of the trained tokenizer"""
    tied: bool = False
    """whether the unembedding is the embedding"""
    position: Literal["rope", "none"] = "rope"
    """how positions enter: rotary, or not at all"""
    rope_theta: float = 10_000.0
    """base of rotary positions"""
    norm: Literal["pre", "none"] = "pre"
    """RMSNorm before attention, before the MLP and at the end, or none"""
    norm_eps: float = 1e-5
    """epsilon of the norms"""
    normaliser: NormaliserName = "softmax"
    """what makes attention weights of scores"""
    gate: Literal["none", "head"] = "none"
    """a sigmoid gate on each head's output"""
    window: int | None = None
    """last keys that a query sees, itself included, in every layer; by default all"""
    precision: Literal["highest", "high", "default"] = "highest"
    """of matrix products ("highest": full float32 on every device)"""

    def __post_init__(self) -> None:
        for part in (Schedule, Corpus, Blocks):
            part.__post_init__(self)
        at_least(self, layers=1, width=1, heads=1, kv_heads=1, head_dim=1, mlp_width=1, vocab_size=1, window=1)
        above(self, rope_theta=0, norm_eps=0)
        if self.vocab_size is None and self.tokenizer != BPE:
            raise SinkjaxError(f"vocab_size must be stated for the tokenizer {self.tokenizer!r}, which has a size of its own")
        if self.head_dim is None and self.width % self.heads:
            raise SinkjaxError(f"heads must divide width ({self.width}) unless head_dim is stated, not {self.heads}")

    @property
    def summary(self) -> str:
        """What is trained, in a few words."""
        return f"A language model on text: {self.layers} layers, width {self.width}, {self.normaliser}, {self.steps} steps"

    @property
    def model_vocabulary(self) -> int:
        """Tokens of the model."""
        return self.vocabulary if self.vocab_size is None else self.vocab_size
