"""Text for training: a tokenised corpus, prepared once for all trainings of a user, and the batches of each run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from sinkjax.checkpoints.tokenizer import Tokenizer
from sinkjax.data.batches import Batch, Batches
from sinkjax.data.config import Blocks, Corpus, part
from sinkjax.data.tokens import Tokens, folder_for, prepare
from sinkjax.runtime.backend import cache_folder
from sinkjax.tasks.language_model.config import Finetune, Pretrain


@dataclasses.dataclass(frozen=True, eq=False)
class Text:
    """See `sinkjax.train.task.DataSource`. A run's order of blocks depends on (data seed, its seed), unless data are shared.

    init: entries of the card about the model that a training starts from, because it resumes only with the same one.
    """

    config: Pretrain | Finetune
    tokens: Tokens
    init: dict[str, Any] = dataclasses.field(default_factory=dict)

    @cached_property
    def card(self) -> dict[str, Any]:
        return {
            "corpus": self.tokens.sha256,
            "tokenizer": self.tokens.card["tokenizer"]["sha256"],
            "tokens": len(self.tokens.ids),
            "blocks": self._of(self.config.seed).blocks,
            "held_out": self._validation.rows,
            **self.init,
        }

    @property
    def tokenizer(self) -> Tokenizer:
        return self.tokens.tokenizer

    def batch(self, seed: int, k: int, rows: np.ndarray | None = None) -> Batch:
        return self._of(seed).at(k, rows)

    def held_out(self) -> Batch:
        return self._validation.at(0)

    @cached_property
    def _validation(self) -> Batches:
        blocks = dataclasses.replace(part(self.config, Blocks), batch=self.config.eval_batch, repeated_blocks=0, repeated_rows=0)
        at_documents = self.config.evaluate_on == "documents"
        return Batches(self.tokens, blocks, "validation", self.config.model_vocabulary, at_documents)

    def _of(self, seed: int) -> Batches:
        order = data_seed(self.config.data_seed, None if self.config.shared_data else seed)
        if order not in self._opened:
            blocks = dataclasses.replace(part(self.config, Blocks), data_seed=order)
            self._opened[order] = Batches(self.tokens, blocks, "train", self.config.model_vocabulary)
        return self._opened[order]

    @cached_property
    def _opened(self) -> dict[int, Batches]:
        """The batches by the seed of their order."""
        return {}


def open_text(config: Pretrain | Finetune, say: Callable[[str], None]) -> Text:
    """Open a training's text. Errors: the corpus is missing, empty or too small for a block, or has too many tokens."""
    corpus = part(config, Corpus)
    text = Text(config, prepare(corpus, folder_for(corpus, cache_folder() / "corpora"), say))
    card = text.card
    say(f"{card['tokens']} tokens, {card['blocks']} blocks for training, {card['held_out']} held out")
    return text


def data_seed(data_seed: int, seed: int | None) -> int:
    """Return the seed of a run's batches: only the data's seed, or a hash of both."""
    return data_seed if seed is None else int(np.random.SeedSequence([data_seed, seed]).generate_state(1)[0])
