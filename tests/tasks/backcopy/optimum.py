"""The least loss on Bigram-Backcopy, which measured losses are compared with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sinkjax.tasks.backcopy.config import Backcopy
from sinkjax.tasks.backcopy.task import chain


@dataclass(frozen=True)
class Optimum:
    """The least losses that any model can have, in nats: over all targets, and over targets that are not copies (copies: 0).

    copied: the share of targets that are copies.
    """

    loss: float
    chain_loss: float
    copied: float


def optimum(config: Backcopy) -> Optimum:
    """The entropy of the language, exactly, by the distribution of pairs of neighbours at each position."""
    table, V = chain(config).transitions, config.vocab_size
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.nansum(table * np.log(table), axis=1)
    trigger = np.arange(V) < config.triggers
    pairs = np.zeros((V, V))  # the token before and the current one
    pairs[config.bos, config.bos] = 1
    loss = copied = 0.0
    for _ in range(config.context):
        now = pairs.sum(0)
        loss += float((now * entropy)[~trigger].sum())
        copied += float(now[trigger].sum())
        pairs = np.where(trigger[:, None], pairs.T, now[:, None] * table)
    return Optimum(loss / config.context, loss / (config.context - copied), copied / config.context)
