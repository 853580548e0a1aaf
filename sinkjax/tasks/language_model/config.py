"""The config of a language model trained from scratch on text. This module imports no JAX.

The defaults are a model for two CPU cores; Gu et al. 2025 (arXiv 2410.10781) train 10 layers of width 768.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sinkjax.config_files.checks import at_least, only_for
from sinkjax.config_files.documents import LATER
from sinkjax.data.config import BPE, Blocks, Corpus
from sinkjax.errors import SinkjaxError
from sinkjax.tasks.language_model.architecture import Architecture, StepOptions
from sinkjax.train.config import AdamWTraining


@dataclass(frozen=True, kw_only=True)
class TextTraining(AdamWTraining, Corpus, Blocks, StepOptions):
    """A training on the blocks of a text."""

    batch: int = 16
    """blocks per batch"""
    eval_batch: int = 64
    """held-out blocks"""
    evaluate_on: Literal["blocks", "documents"] = field(default="blocks", metadata=LATER)
    """held-out blocks one after the other, as in training, or blocks that start with a document of 64 tokens or more"""
    data_seed: int = 0
    """seed of the order, the choice of blocks and the random tokens, combined with the seed of the run"""

    def __post_init__(self) -> None:
        for part in (AdamWTraining, Corpus, Blocks):
            part.__post_init__(self)
        if self.evaluate_on == "documents" and self.separator == "none":
            raise SinkjaxError('evaluate_on "documents" needs a separator, "bos" or "eos", which tells where a document begins')
        only_for(self, "random_bits", False, "data that are made on the device, not for a text")


@dataclass(frozen=True, kw_only=True)
class Pretrain(TextTraining, Architecture):
    """A decoder-only model that learns to predict the next token of a text.

    It is evaluated on `eval_batch` held-out blocks, the same for every seed; sinks are measured on the first 64 tokens of each.
    """

    learning_rates: tuple[float, ...] = (4e-3,)
    """learning rate of AdamW after the warm-up"""
    steps: int = 2_000
    """updates of a run"""
    vocab_size: int | None = None
    """vocabulary size of the model, by default the trained tokenizer's"""

    def __post_init__(self) -> None:
        TextTraining.__post_init__(self)
        Architecture.__post_init__(self)
        at_least(self, vocab_size=1)
        if self.vocab_size is None and self.tokenizer != BPE:
            raise SinkjaxError(f"vocab_size must be stated for the tokenizer {self.tokenizer!r}, which has a size of its own")

    @property
    def summary(self) -> str:
        """A short description of the model and its training."""
        return f"A language model on text: {self.layers} layers, width {self.width}, {self.normaliser}, {self.steps} steps"

    @property
    def model_vocabulary(self) -> int:
        """Tokens of the model."""
        return self.vocabulary if self.vocab_size is None else self.vocab_size


@dataclass(frozen=True, kw_only=True)
class Finetune(TextTraining):
    """Training of all parameters of a loaded model on a text.

    It is evaluated on `eval_batch` held-out blocks, the same for every seed; runs differ in the order of their data.
    """

    init: str = "mini-softmax"
    """the model: preset, folder, hub id or .gguf file"""
    learning_rates: tuple[float, ...] = (1e-3,)
    """learning rate of AdamW after the warm-up"""
    weight_decay: float = 0.0
    """decoupled, on all parameters"""
    steps: int = 200
    """updates of a run"""
    context: int = 128
    """inputs per block"""
    warmup: int = 10
    """updates during which the learning rate rises linearly"""
    tokenizer: str = "model"
    """"model": the model's; or the one of a preset, a folder, a .gguf file or a model on the hub"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tokenizer == BPE:
            raise SinkjaxError(f"a loaded model has its tokenizer, so none is trained; choose tokenizer 'model', not {BPE!r}")
        only_for(self, "prefix", False, "a model that is trained from scratch")

    @property
    def summary(self) -> str:
        """A short description of the training."""
        return f"{self.init}, fine-tuned on text: {self.steps} steps"

    @property
    def model_vocabulary(self) -> int:
        """Tokens of the model."""
        from sinkjax.checkpoints.load import open_checkpoint

        return open_checkpoint(self.init).config.vocab_size or 0
