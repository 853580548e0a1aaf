"""The prompts of a card, and the numbers that several of its parts read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.finite import quietly
from sinkjax.checkpoints.model import Model, check_model
from sinkjax.data.corpora import passages
from sinkjax.data.prompts import encode
from sinkjax.edits.edit import Edit, compose
from sinkjax.errors import SinkjaxError
from sinkjax.model.batch import check_batch
from sinkjax.probes.probe import Probe
from sinkjax.sweeps.run import sweep

if TYPE_CHECKING:
    import xarray

EPS = 0.3  # a head sinks on a key above this mean attention (Gu et al. 2025)
HALF = 0.5  # minimum share of the unedited sink that counts as a sink under an edit
FEWEST = 8  # later queries that make the attention to a key evidence
SHORTEST = 24  # tokens of a prompt
SKIPPED = 8  # first tokens of a text that the comparison of prefixes leaves out


@dataclass(frozen=True)
class Prompts:
    """Token ids int32 [B, T], padded on the right, and their lengths int32 [B]."""

    tokens: NDArray[np.int32]
    lengths: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Ground:
    """A model and the same passages with and without its BOS.

    Attributes:
        model: The model.
        own: The prompts as the model wants them: with BOS if that lowers the loss of the tokens that both have.
        plain: The prompts without a BOS; None if the card was given token ids.
        bos: The BOS that the model's files name, or None.
        wants: "model" or "none", the `bos` that the model wants; None for token ids.
        gain: Loss without BOS minus loss with it, in nats, by prompt; None if there is nothing to compare.
        clusters: The document of each prompt, if several share one.
        text: The source of the prompts.
    """

    model: Model
    own: Prompts
    plain: Prompts | None
    bos: int | None
    wants: str | None
    gain: NDArray[np.float64] | None
    clusters: NDArray[Any] | None
    text: str

    @property
    def statistic(self) -> str:
        """The statistic of attention to a key: its share of a row, where rows do not sum to 1."""
        return "attention_received" if self.model.config.normaliser.rows_sum_to_1 else "attention_share"

    @property
    def at(self) -> int:
        """A position in the first third of the prompts, where a token is isolated or put."""
        return max(2, self.own.tokens.shape[1] // 3)

    def measure(self, prompts: Prompts, edits: Sequence[Edit], *more: str) -> xarray.Dataset:
        """Sweep edits over prompts, and read attention to keys, largest activations and further statistics."""
        probe = Probe.of(self.statistic, f"{self.statistic}_bias", "resid_max", "resid_argmax", *more)
        return sweep(self.model, prompts.tokens, edits, probe=probe, lengths=prompts.lengths, progress=False)

    @cached_property
    def unedited(self) -> xarray.Dataset:
        """The unedited model on its own prompts: one edit, all statistics that the parts read."""
        return self.measure(self.own, [compose()], "resid_median", "nll")

    @cached_property
    def received(self) -> NDArray[np.float64]:
        """Mean attention to each key with at least `FEWEST` later queries, [prompt, layer, head, key]; else NaN."""
        values = np.asarray(self.unedited[self.statistic].values[0], np.float64)
        late = np.arange(values.shape[-1]) > self.own.lengths[:, None, None, None] - FEWEST
        return np.where(late, np.nan, values)

    @cached_property
    def key(self) -> int:
        """The position with the most sinking heads, in the mean over prompts; 0 if none sinks."""
        with quietly():
            return int(np.argmax((np.nanmean(self.received, axis=0) > EPS).sum(axis=(0, 1))))

    @cached_property
    def heads(self) -> NDArray[np.bool_]:
        """The heads whose mean attention to `key` is above `EPS`, bool [layer, head]."""
        return np.asarray(np.nanmean(self.received[..., self.key], axis=0) > EPS)

    def strength(self, data: xarray.Dataset, position: int) -> NDArray[np.float64]:
        """Return the attention to a position, averaged over the heads that sink (over all, if none does): [edit, prompt]."""
        chosen = self.heads if self.heads.any() else np.ones_like(self.heads)
        return np.asarray(data[self.statistic].values[..., position][:, :, chosen].mean(axis=-1), np.float64)

    def number(self, values: Any) -> dict[str, float | int | None]:
        """Return the mean over prompts and its 95% interval, as data."""
        found = intervals.interval(np.asarray(values, np.float64), clusters=self.clusters)
        return {"mean": found.mean, "low": found.low, "high": found.high, "n": found.n}


def ground(model: Model, text: Any = "packaged", prompts: int = 32, length: int = 64, seed: int = 0) -> Ground:
    """Choose the passages of a card.

    Args:
        model: The model.
        text: The packaged text, the path of a text or folder, a list of texts, or token ids int [B, T] that are used as they are.
        prompts: Number of passages.
        length: Tokens of a prompt, cut to the model's context.
        seed: Seed of the choice of passages.

    Returns:
        The prompts, with the BOS that the model wants.

    Raises:
        SinkjaxError: The model has no vocabulary; a text needs a tokenizer; there are too few passages, or too short ones.
    """
    check_model(model)
    config, tokenizer = model.config, model.tokenizer
    if config.vocab_size is None:
        raise SinkjaxError("this model has no vocabulary, so a card of it cannot be made")
    length = min(length, config.context)
    if not isinstance(text, str | Path) and not (isinstance(text, Sequence) and all(isinstance(one, str) for one in text)):
        tokens, lengths, _ = check_batch(text, None, config, tokenizer)
        own = Prompts(np.asarray(tokens, np.int32), np.asarray(lengths, np.int32))
        return Ground(model, own, None, None if tokenizer is None else tokenizer.bos, None, None, None, "token ids")
    if tokenizer is None:
        raise SinkjaxError("a model without a tokenizer needs token ids in place of a text: int [B, T]")
    clusters, said = None, "texts"
    if isinstance(text, str | Path):
        found = passages(text, prompts, length=length, size=lambda one: len(tokenizer.encode(one)), seed=seed)
        texts, said = list(found.texts), found.source
        clusters = np.unique(found.genres if all(found.genres) else found.documents, return_inverse=True)[1]
    else:
        texts = list(text)
    ids = encode(model, texts, bos="none", length=length)
    length = int(ids[1].min())  # all prompts are as long as the shortest
    if length < SHORTEST:
        raise SinkjaxError(f"a card needs texts of at least {SHORTEST} tokens, and one has {length}")
    plain = Prompts(ids[0][:, :length], ids[1].clip(max=length))
    if tokenizer.bos is None:
        return Ground(model, plain, plain, None, "none", None, clusters, said)
    behind = Prompts(*encode(model, texts, bos="model", length=length))
    gain = _gain(model, plain, behind)
    wants = "model" if np.mean(gain) > 0 else "none"
    return Ground(model, behind if wants == "model" else plain, plain, tokenizer.bos, wants, gain, clusters, said)


def _gain(model: Model, plain: Prompts, behind: Prompts) -> NDArray[np.float64]:
    """Return by how much a BOS lowers the loss of the tokens that both prompts predict, in nats, by prompt."""
    losses = [
        np.asarray(
            sweep(model, one.tokens, [compose()], probe=Probe(nll=True), lengths=one.lengths, progress=False)["nll"].values[0]
        )
        for one in (plain, behind)
    ]
    without, after = losses[0][:, SKIPPED:-2], losses[1][:, SKIPPED + 1 : -1]
    return np.asarray(np.nanmean(without - after, axis=1), np.float64)
