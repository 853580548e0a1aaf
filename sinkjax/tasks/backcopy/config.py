"""A training on Bigram-Backcopy (Guo et al. 2024, arXiv 2410.13835): sinks in one to three layers. It imports no JAX."""

from __future__ import annotations

from dataclasses import dataclass

from sinkjax.config_files.checks import at_least
from sinkjax.errors import SinkjaxError
from sinkjax.tasks.language_model.architecture import Architecture
from sinkjax.train.config import AdamWTraining


@dataclass(frozen=True, kw_only=True)
class Backcopy:
    """The language Bigram-Backcopy (Guo et al. 2024, arXiv 2410.13835; `tasks/backcopy/data.py` says what it is)."""

    context: int = 256
    """inputs of a sequence"""
    characters: int = 65
    """the most frequent characters of the text; their ids count from 0, the most frequent first"""
    triggers: int = 3
    """characters after which the character before them is copied: the first ids"""
    delimiter: float = 0.0
    """chance that a delimiter comes instead of the chain's next character; the chain then starts anew"""
    text: str = "packaged"
    """whose bigrams: "packaged" or the path of a text"""

    def __post_init__(self) -> None:
        at_least(self, context=3, characters=2, triggers=0)
        if self.triggers >= self.characters:
            raise SinkjaxError(f"triggers must be below characters ({self.characters}), not {self.triggers}")
        if not 0 <= self.delimiter < 1:
            raise SinkjaxError(f"delimiter must be at least 0 and below 1, not {self.delimiter}")

    @property
    def bos(self) -> int:
        """The id of the BOS."""
        return self.characters

    @property
    def vocab_size(self) -> int:
        """Characters, BOS and delimiter."""
        return self.characters + 2


@dataclass(frozen=True, kw_only=True)
class BackcopyTraining(AdamWTraining, Backcopy, Architecture):
    """A small model learns a language in which some characters ask for a copy of the one before them.

    The paper has 1 to 3 layers of one head, width 256, context 256, batch 512, Adam at 3e-4 and decay 1e-4.
    """

    learning_rates: tuple[float, ...] = (3e-4,)
    """of AdamW, after the warm-up"""
    weight_decay: float = 1e-4
    """decoupled, on all parameters"""
    warmup: int = 0
    """updates in which the learning rate rises linearly"""
    clip: float | None = None
    """largest norm of a gradient over all parameters; a larger one is scaled down to it"""
    steps: int = 10_000
    """updates of a run"""
    batch: int = 512
    """sequences of one step"""
    layers: int = 3
    """blocks of the model"""
    width: int = 256
    """d, of the residual stream"""
    heads: int = 1
    """query heads of a block"""
    mlp_width: int = 1024
    """hidden units of the MLP"""

    def __post_init__(self) -> None:
        for part in (AdamWTraining, Backcopy, Architecture):
            part.__post_init__(self)

    @property
    def summary(self) -> str:
        """What is trained, in a few words."""
        size = f"{self.layers} layer{'s' * (self.layers > 1)}, {self.heads} head{'s' * (self.heads > 1)}"
        return f"Bigram-Backcopy: {size}, {self.normaliser}"
