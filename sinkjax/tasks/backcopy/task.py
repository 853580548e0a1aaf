"""Bigram-Backcopy (Guo et al. 2024, arXiv 2410.13835): a small language that makes sinks, value drains and residual peaks grow.

A sequence is BOS and then characters of a Markov chain with the bigrams of a text, except after a trigger (one of the most
frequent characters), which is followed by the character before it. A head has something to do at triggers only, and elsewhere
attends to BOS. Every token but the first is a target, copies too. Sequences are made on the device.

Where the paper's text is silent, here: the text's rarer characters are left out, its end joins its beginning (so every character
has a successor), BOS is followed by any character but a trigger, by its frequency (so there is always a character to copy, and
two triggers are never side by side), and so is the delimiter, which the paper's main runs do not have either.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import MOST_TEXT, read_text, user_path
from sinkjax.data.config import part
from sinkjax.data.corpora import packaged_documents
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.tasks.backcopy.config import Backcopy, BackcopyTraining
from sinkjax.tasks.language_model.model import build, with_attention
from sinkjax.tasks.language_model.task import Batch, LanguageTask, edits_of


@dataclass(frozen=True, eq=False)
class MarkovChain:
    """The Markov chain of a language.

    transitions: float64 [V, V], the distribution after each token; the rows of triggers are not used. sha256: of them and
    of the characters by id.
    """

    transitions: np.ndarray
    sha256: str


@functools.lru_cache(maxsize=8)
def chain(config: Backcopy) -> MarkovChain:
    """Estimate a language's chain from its text. Errors: the text is missing or has too few different characters."""
    codes = np.frombuffer(_text(config.text).encode("utf-32-le"), np.uint32)
    characters, counts = np.unique(codes, return_counts=True)
    C = config.characters
    refuse(len(characters) < C, f"characters must be at most {len(characters)} for the text {config.text!r}, not {C}")
    order = np.argsort(-counts, kind="stable")[:C]
    ids = np.full(int(characters[-1]) + 1, -1)
    ids[characters[order]] = np.arange(C)
    kept = ids[codes]
    kept = kept[kept >= 0]
    bigrams = np.zeros((C, C))
    np.add.at(bigrams, (kept, np.roll(kept, -1)), 1)
    bigrams /= bigrams.sum(1, keepdims=True)
    first = np.where(np.arange(C) < config.triggers, 0, counts[order])
    table = np.zeros((config.vocab_size, config.vocab_size))
    table[:C, :C] = (1 - config.delimiter) * bigrams
    table[:C, -1] = config.delimiter
    table[C:, :C] = first / first.sum()
    letters = "".join(map(chr, characters[order]))
    return MarkovChain(table, hashlib.sha256(letters.encode() + table.tobytes()).hexdigest())


def sample(key: jax.Array, config: Backcopy, count: int) -> dict[str, jax.Array]:
    """Draw `count` sequences, as a batch of `data/batches.py` with one more entry; T = context + 1. Traceable; config is static.

    tokens int32 [B, T], loss_mask bool [B, T], copied bool [B, T]: targets that a trigger before them determines,
    so that their loss can be told from the chain's.
    """
    T = config.context + 1
    below = jnp.asarray(np.cumsum(chain(config).transitions, 1)[:, :-1], jnp.float32)  # the last token takes the rest

    def step(state: tuple[jax.Array, jax.Array], uniform: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        before, now = state
        drawn = (below[now] <= uniform[:, None]).sum(1, dtype=jnp.int32)
        then = jnp.where(now < config.triggers, before, drawn)
        return (now, then), then

    start = jnp.full(count, config.bos, jnp.int32)
    _, rest = jax.lax.scan(step, (start, start), jax.random.uniform(key, (T - 1, count), jnp.float32))
    tokens = jnp.concatenate([start[None], rest]).T
    mask = jnp.broadcast_to(jnp.arange(T) > 0, tokens.shape)
    copied = jnp.pad(tokens[:, :-1] < config.triggers, ((0, 0), (1, 0)))
    return {"tokens": tokens, "loss_mask": mask, "copied": copied}


def _text(source: str) -> str:
    if source == "packaged":
        return "\n".join(packaged_documents())
    return read_text(user_path(source), MOST_TEXT, "utf-8-sig")


@dataclass(frozen=True)
class BackcopyTask(LanguageTask):
    """Next-token prediction on the language."""

    name: ClassVar[str] = "backcopy"
    config: BackcopyTraining

    @property
    def architecture(self) -> Config:
        return build(self.config, self.config.vocab_size, self.config.context)

    @property
    def card(self) -> dict[str, Any]:
        return {"chain": chain(part(self.config, Backcopy)).sha256}

    def batch(self, key: jax.Array) -> Batch:
        return sample(key, part(self.config, Backcopy), self.config.batch)

    def held_out(self, key: jax.Array) -> Batch:
        return sample(key, part(self.config, Backcopy), self.config.eval_batch)

    def evaluate(self, params: Params, batch: Batch, variant: jax.Array) -> dict[str, jax.Array]:
        """Evaluate as for every language; also copied_loss and chain_loss, on targets that are copies and on the others, in
        nats."""
        copied = batch["copied"]
        parts = {"copied_loss": copied, "chain_loss": batch["loss_mask"] & ~copied}
        losses = {name: self.held_out_loss(params, {**batch, "loss_mask": mask}) for name, mask in parts.items()}
        return super().evaluate(params, batch, variant) | losses


def task(config: BackcopyTraining) -> BackcopyTask:
    """Make the task of a config. Errors: as for the model and the language."""
    model = BackcopyTask(config).architecture
    made = BackcopyTask(with_attention(config, model, edits_of(config, model)))
    chain(part(config, Backcopy))
    return made
