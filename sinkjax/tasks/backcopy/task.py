"""The Bigram-Backcopy task: sequences made on the device, the cross entropy of the next token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import jax

from sinkjax.data.config import part
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.tasks.backcopy.config import Backcopy, BackcopyTraining
from sinkjax.tasks.backcopy.data import chain, sample
from sinkjax.tasks.language_model.model import build
from sinkjax.tasks.language_model.task import Batch, LanguageTask, edits_of


@dataclass(frozen=True)
class BackcopyTask(LanguageTask):
    """See `LanguageTask` and `sinkjax.train.task.DeviceDataTask`."""

    name: ClassVar[str] = "backcopy"
    config: BackcopyTraining

    @property
    def architecture(self) -> Config:
        return build(self.config, self.config.vocab_size, self.config.context)

    def batch(self, key: jax.Array) -> Batch:
        return sample(key, part(self.config, Backcopy), self.config.batch)

    def held_out(self, key: jax.Array) -> Batch:
        return sample(key, part(self.config, Backcopy), self.config.eval_batch)

    def evaluate(self, params: Params, batch: Batch, variant: jax.Array) -> dict[str, jax.Array]:
        """As for every language, and copied_loss and chain_loss: of the targets that are copies, and of the others, in nats."""
        copied = batch["copied"]
        parts = {"copied_loss": copied, "chain_loss": batch["loss_mask"] & ~copied}
        losses = {name: self.held_out_loss(params, {**batch, "loss_mask": mask}) for name, mask in parts.items()}
        return super().evaluate(params, batch, variant) | losses


def task(config: BackcopyTraining) -> BackcopyTask:
    """The task of a config. Errors: the model's or the language's."""
    found = BackcopyTask(config)
    edits_of(config, found.architecture)
    chain(part(config, Backcopy))
    return found
