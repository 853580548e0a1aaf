"""A training on Bigram-Backcopy (Guo et al. 2024, arXiv 2410.13835). This module does not import JAX."""

from __future__ import annotations

from dataclasses import dataclass

from sinkjax.config_files.checks import at_least, refuse
from sinkjax.config_files.documents import typed
from sinkjax.tasks.language_model.architecture import Architecture
from sinkjax.train.config import AdamWTraining


@dataclass(frozen=True, kw_only=True)
class Backcopy:
    """The language Bigram-Backcopy (Guo et al. 2024, arXiv 2410.13835), described in `tasks/backcopy/task.py`."""

    context: int = 256
    """inputs of a sequence"""
    characters: int = 65
    """number of characters, the most frequent ones of the text; ids count from 0, the most frequent first"""
    triggers: int = 3
    """number of characters (the first ids) that are followed by a copy of the character before them"""
    delimiter: float = 0.0
    """probability that a delimiter replaces the chain's next character; the chain then restarts"""
    text: str = "packaged"
    """the text whose bigrams are used: "packaged" or a path"""

    def __post_init__(self) -> None:
        typed(self)
        at_least(self, context=3, characters=2, triggers=0)
        refuse(self.triggers >= self.characters, f"triggers must be below characters ({self.characters}), not {self.triggers}")
        refuse(not 0 <= self.delimiter < 1, f"delimiter must be at least 0 and below 1, not {self.delimiter}")

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
    """A small model learns a language where a copy of the character before must follow some characters.

    The paper uses 1 to 3 layers of one head, width 256, context 256, batch 512, Adam at 3e-4 and decay 1e-4.
    """

    # Defaults of the paper; the base classes describe these fields.
    learning_rates: tuple[float, ...] = (3e-4,)
    weight_decay: float = 1e-4
    warmup: int = 0
    clip: float | None = None
    steps: int = 10_000
    batch: int = 512
    layers: int = 3
    width: int = 256
    heads: int = 1
    mlp_width: int = 1024

    def __post_init__(self) -> None:
        for part in (AdamWTraining, Backcopy, Architecture):
            part.__post_init__(self)

    @property
    def summary(self) -> str:
        """A short description of the model and its training."""
        size = f"{self.layers} layer{'s' * (self.layers > 1)}, {self.heads} head{'s' * (self.heads > 1)}"
        return f"Bigram-Backcopy: {size}, {self.normaliser}"
