"""The tasks of language models: next-token prediction in general, and on a text read on the host."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.config_files import documents
from sinkjax.edits.edit import resolve
from sinkjax.edits.edit_list import read_edits
from sinkjax.edits.term import Edits
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.probes.probe import Probe
from sinkjax.tasks.language_model import measure
from sinkjax.tasks.language_model.config import Pretrain
from sinkjax.tasks.language_model.model import build, init
from sinkjax.tasks.language_model.text import Text, open_text
from sinkjax.train.speed import token_flops
from sinkjax.transformer.forward import forward, run
from sinkjax.transformer.spec import ForwardSpec

UNROLLED = 6  # models with at most this many layers are unrolled, which makes a step faster and compilation slower
Batch = Mapping[str, jax.Array]  # see `sinkjax/data/batches.py`


class LanguageTask(ABC):
    """See `sinkjax.train.task.Task`, `SummarisingTask` and `TokenTask`. Its one variant is the normaliser that the config names.

    config: a training with the fields of an `Architecture`. architecture: the model that is trained.
    """

    name: ClassVar[str]
    config: Any

    @property
    @abstractmethod
    def architecture(self) -> Config: ...

    @property
    def variants(self) -> tuple[str, ...]:
        return (self.config.normaliser,)

    def model(self, variant: str) -> Config:
        return self.architecture

    def init(self, seed: int) -> Params:
        return init(self.architecture, seed, self.config.dtype)

    def loss(self, params: Params, batch: Batch, variant: jax.Array) -> tuple[jax.Array, jax.Array]:
        nll, mask = self._nll(params, batch)
        return (nll * mask).sum() / mask.sum(), jnp.bool_(False)

    def evaluate(self, params: Params, batch: Batch, variant: jax.Array) -> dict[str, jax.Array]:
        """loss: on held-out targets, in nats; and the statistics of `measure.py`."""
        measured = measure.measure(params, batch["tokens"], self.architecture, self.config.precision)
        return {"loss": self.held_out_loss(params, batch)} | measured

    def at_step(self, batch: Batch, step: jax.Array) -> Batch:
        """The batch, with whether the edits are in force, for each row, where there are edits."""
        if not self.config.edits:
            return batch
        in_force = step >= self.config.from_step
        in_force &= True if self.config.until is None else step < self.config.until
        return {**batch, "edited": jnp.broadcast_to(in_force, len(batch["tokens"]))}

    def held_out_loss(self, params: Params, batch: Batch) -> jax.Array:
        """The mean over targets in the loss mask, float [], computed in groups of as many rows as in training."""

        def sums(rows: Batch) -> tuple[jax.Array, jax.Array]:
            nll, mask = self._nll(params, rows)
            return (nll * mask).sum(), mask.sum()

        total, count = jax.lax.map(sums, _grouped(batch, self.config.micro_batch or self.config.batch))
        return total.sum() / count.sum()

    def summarise(self, measured: Mapping[str, np.ndarray]) -> dict[str, Any]:
        with np.errstate(all="ignore"):  # a run that diverges has non-finite values
            return measure.summarise(measured)

    def tokens_per_step(self) -> int:
        return int(self.config.batch * self.config.context)

    def flops_per_token(self) -> float:
        return token_flops(self.architecture)

    def _nll(self, params: Params, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """-log p of each target in nats, and the loss mask: float32 [B, T] each."""
        tokens, config = batch["tokens"], self.architecture
        used = jax.tree.map(lambda leaf: leaf.astype(self.config.compute_dtype or leaf.dtype), params)
        how: dict[str, Any] = {
            "unroll": config.layers <= UNROLLED,
            "precision": self.config.precision,
            "remat": self.config.remat,
            "attention_impl": self.config.attention_impl,
        }
        if "edited" in batch:
            edits = tuple(term.where(batch["edited"][0]) for term in edits_of(self.config, config))
            lengths = jnp.full(len(tokens), tokens.shape[1] - 1, jnp.int32)
            out = run(used, tokens[:, :-1], lengths, edits, spec=ForwardSpec(config=config, logits=True, **how))
        else:
            out = forward(used, tokens[:, :-1], config, probe=Probe(), **how)
        assert out.logits is not None
        return cross_entropy(out.logits, tokens[:, 1:]), batch["loss_mask"][:, 1:].astype(jnp.float32)


@dataclass(frozen=True)
class PretrainTask(LanguageTask):
    """See `LanguageTask` and `sinkjax.train.task.HostDataTask`."""

    name: ClassVar[str] = "pretrain"
    config: Pretrain

    @property
    def architecture(self) -> Config:
        return model(self.config)

    def open(self, say: Callable[[str], None]) -> Text:
        return open_text(self.config, say)

    def batch_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        shape = (self.config.batch, self.config.context + 1)
        return {"tokens": jax.ShapeDtypeStruct(shape, jnp.int32), "loss_mask": jax.ShapeDtypeStruct(shape, jnp.bool_)}


def task(config: Pretrain) -> PretrainTask:
    """The task of a config. Errors: the model's."""
    edits_of(config, model(config))
    return PretrainTask(config)


def model(config: Pretrain) -> Config:
    """The architecture that is trained."""
    return build(config, config.model_vocabulary, config.context, config.prefix)


def edits_of(config: Any, model: Config) -> Edits:
    """The edits of a training on blocks of `config.context` tokens, all in force together, as arrays.

    Errors: the document is not a list of edits; an edit does not fit the model.
    """
    if not config.edits:
        return ()
    listed = documents.parse(config.edits, "edits")
    if {*listed} != {"edits"}:
        raise SinkjaxError(f"edits is a document with one list, edits, not one of {', '.join(listed) or 'nothing'}")
    return resolve(read_edits(listed["edits"]), model, [config.context], config.context, config.dtype)


def cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """-log p of each target in nats. logits: float [..., V], targets: int [...]."""
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - chosen


def _grouped(batch: Batch, rows: int) -> Batch:
    """A batch as groups of `rows`, [groups, rows, ...], padded with rows of zeros, whose loss mask is 0.

    A group takes every n-th row, so that each device's rows (neighbours, in a mesh) are spread over all groups.
    """

    def group(leaf: jax.Array) -> jax.Array:
        missing = -len(leaf) % rows
        padded = jnp.pad(leaf, ((0, missing), *[(0, 0)] * (leaf.ndim - 1)))
        return padded.reshape(rows, -1, *leaf.shape[1:]).swapaxes(0, 1)

    return jax.tree.map(group, batch)
