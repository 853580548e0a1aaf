"""Text for training: a tokenised corpus, prepared once for all trainings of a user, and the batches of each run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sinkjax.data.batches import Batch, Batches
from sinkjax.data.config import Blocks, Corpus, part
from sinkjax.data.tokens import prepare
from sinkjax.runtime.backend import cache_folder
from sinkjax.tasks.language_model.config import Finetune, Pretrain


class Text:
    """See `sinkjax.train.task.DataSource`. A run's order of blocks depends on (data seed, its seed), unless data are shared."""

    def __init__(self, config: Pretrain | Finetune, say: Callable[[str], None], start: Mapping[str, Any]):
        """Open a training's text.

        start: entries of the card about the model that a training starts from, because it resumes only with the same one. Errors:
        the corpus is missing, empty or too small for a block, or has too many tokens.
        """
        self.config, self.tokens = config, prepare(part(config, Corpus), cache_folder() / "corpora", say)
        self.tokenizer, self._by_seed = self.tokens.tokenizer, dict[int, Batches]()
        blocks = dataclasses.replace(part(config, Blocks), batch=config.eval_batch, repeated_blocks=0, repeated_rows=0)
        at_documents = config.evaluate_on == "documents"
        self._validation = Batches(self.tokens, blocks, "validation", config.model_vocabulary, at_documents)
        self.card = {
            "corpus": self.tokens.card["tokens"]["sha256"],
            "tokenizer": self.tokens.card["tokenizer"]["sha256"],
            "tokens": len(self.tokens.ids),
            "blocks": self._of(config.seed).blocks,
            "held_out": self._validation.rows,
            **start,
        }
        say("{tokens} tokens, {blocks} blocks for training, {held_out} held out".format(**self.card))

    def batch(self, seed: int, k: int, rows: np.ndarray | None = None) -> Batch:
        return self._of(seed).at(k, rows)

    def held_out(self) -> Batch:
        return self._validation.at(0)

    def _of(self, seed: int) -> Batches:
        """Return the training batches of a run with this seed."""
        order = self.config.data_seed
        if not self.config.shared_data:
            order = int(np.random.SeedSequence([order, seed]).generate_state(1)[0])
        if order not in self._by_seed:
            blocks = dataclasses.replace(part(self.config, Blocks), data_seed=order)
            self._by_seed[order] = Batches(self.tokens, blocks, "train", self.config.model_vocabulary)
        return self._by_seed[order]
