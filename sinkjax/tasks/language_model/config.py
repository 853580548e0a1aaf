"""The config of a language model trained from scratch on text. This module imports no JAX.

The defaults are a model for two CPU cores; Gu et al. 2025 (arXiv 2410.10781) train 10 layers of width 768.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sinkjax.config_files.checks import at_least, only_for
from sinkjax.config_files.documents import LATER
from sinkjax.data.config import BPE, Blocks, Corpus
from sinkjax.errors import SinkjaxError, one_of
from sinkjax.tasks.language_model.architecture import Architecture
from sinkjax.train.config import AdamWTraining


@dataclass(frozen=True, kw_only=True)
class Pretrain(AdamWTraining, Corpus, Blocks, Architecture):
    """A decoder-only model that learns to predict the next token of a text.

    It is evaluated on `eval_batch` held-out blocks, the same for every seed; sinks are measured on the first 64 tokens of each.
    """

    learning_rates: tuple[float, ...] = (4e-3,)
    """learning rate of AdamW after the warm-up"""
    steps: int = 2_000
    """updates of a run"""
    batch: int = 16
    """blocks of a batch"""
    eval_batch: int = 64
    """held-out blocks"""
    evaluate_on: Literal["blocks", "documents"] = field(default="blocks", metadata=LATER)
    """held-out blocks one after the other, as in training, or those that begin where a document of 64 tokens or more does"""
    data_seed: int = 0
    """seed of the order, the choice of blocks and the random tokens, combined with the seed of the run"""
    vocab_size: int | None = None
    """of the model, by default that of the trained tokenizer"""

    def __post_init__(self) -> None:
        for part in (AdamWTraining, Corpus, Blocks, Architecture):
            part.__post_init__(self)
        at_least(self, vocab_size=1)
        if self.vocab_size is None and self.tokenizer != BPE:
            raise SinkjaxError(f"vocab_size must be stated for the tokenizer {self.tokenizer!r}, which has a size of its own")
        one_of("evaluate_on", self.evaluate_on, ("blocks", "documents"))
        if self.evaluate_on == "documents" and self.separator == "none":
            raise SinkjaxError('evaluate_on "documents" needs a separator, "bos" or "eos", which tells where a document begins')
        only_for(self, "random_bits", False, "data that are made on the device, not for a text")

    @property
    def summary(self) -> str:
        """What is trained, in a few words."""
        return f"A language model on text: {self.layers} layers, width {self.width}, {self.normaliser}, {self.steps} steps"

    @property
    def model_vocabulary(self) -> int:
        """Tokens of the model."""
        return self.vocabulary if self.vocab_size is None else self.vocab_size
