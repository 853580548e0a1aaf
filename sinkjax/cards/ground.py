"""The prompts of a card, and the numbers that several of its parts read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.finite import mean_loss, quietly
from sinkjax.checkpoints.model import Model, check_model
from sinkjax.config_files.checks import refuse
from sinkjax.data.corpora import SOURCES, Passages, passages
from sinkjax.data.fit import LENGTH, PROMPTS, SHORTEST, check_sizes, fitted
from sinkjax.data.prompts import first_tokens
from sinkjax.data.reading import Division
from sinkjax.edits.edit import Edit
from sinkjax.edits.named import mask_key
from sinkjax.errors import SinkjaxError, one_of
from sinkjax.model.batch import check_batch
from sinkjax.model.site import Site, lacks
from sinkjax.probes.probe import Capture, Probe
from sinkjax.transformer.forward import forward
from sinkjax.transformer.implementations import AUTO

EPS = 0.3  # a head sinks on a key above this mean attention (Gu et al. 2025)
HALF = 0.5  # minimum share of the unedited sink that counts as a sink under an edit
FEWEST = 8  # later queries that make the attention to a key evidence
DIVIDED = 12  # with so many passages of such a text, a third is for costs and remedies
SKIPPED = 8  # first tokens of a text that the comparison of prefixes leaves out
FEW, SOME = slice(8), slice(16)  # prompts of interventions that are read in attention or activations; that are read in loss
VECTORS = (Site.RESID, Site.MLP_OUT, Site.ATTN_OUT, Site.NEURON)  # read at the sink, in all layers

Numbers = dict[str, NDArray[Any]]  # the arrays of a record


@dataclass(frozen=True, eq=False)
class Prompts:
    """Token ids int32 [B, T], padded on the right, their lengths int32 [B], and each one's document, if several share one."""

    tokens: NDArray[np.int32]
    lengths: NDArray[np.int32]
    clusters: NDArray[Any] | None = None

    def part(self, rows: slice) -> Prompts:
        """Return some of the prompts."""
        return Prompts(self.tokens[rows], self.lengths[rows], None if self.clusters is None else self.clusters[rows])

    def cut(self, length: int) -> Prompts:
        """Return the prompts cut to a number of tokens."""
        return Prompts(self.tokens[:, :length], self.lengths.clip(max=length), self.clusters)

    def put(self, token: Any, position: int) -> Prompts:
        """Put a token (or one for each prompt) at one position."""
        tokens = self.tokens.copy()
        tokens[:, position] = token
        return Prompts(tokens, self.lengths, self.clusters)

    def ids(self) -> list[list[int]]:
        """Return the token ids of each prompt, without padding."""
        return [row[:length].tolist() for row, length in zip(self.tokens, self.lengths, strict=True)]

    def number(self, values: Any) -> dict[str, float | int | None]:
        """Return the mean over prompts and its 95% interval, as data."""
        interval = intervals.interval(np.asarray(values, np.float64), clusters=self.clusters)
        return {"mean": interval.mean, "low": interval.low, "high": interval.high, "n": interval.n}


def two_digits(value: float) -> str:
    """Format a number with two significant digits, because processors differ in the third."""
    rounded = float(f"{value:.1e}")
    return f"{rounded:.{max(0, 1 - math.floor(math.log10(abs(rounded))))}f}" if rounded else "0"


def signed(number: Mapping[str, Any], unit: str = "") -> str:
    """Format a number of `Prompts.number` with its sign and its interval, which a single prompt does not have."""
    ends = "" if number["low"] is None else f" [{two_digits(number['low'])}, {two_digits(number['high'])}]"
    return f"{'+' * (number['mean'] >= 0)}{two_digits(number['mean'])}{unit}{ends}"


@dataclass(frozen=True, eq=False)
class Ground:
    """A model on the passages of its card, with and without its BOS: what several parts of a card read is measured once.

    Attributes:
        model: The model.
        first: The prompts on which sinks are found, by `bos`: "none", and "model" if the model's files name a BOS; None for token
            ids.
        rest: The same of the prompts of costs and remedies, half as many; `first` itself if the text has no more.
        bos: The BOS that the model's files name, or None.
        text: The source of the prompts.
        attention_impl: As for `sinkjax.forward`; maps, caches and prefixes have an attention of their own.
    """

    model: Model
    first: dict[str | None, Prompts]
    rest: dict[str | None, Prompts]
    bos: int | None
    text: str
    attention_impl: str = AUTO

    @cached_property
    def unedited_by_bos(self) -> dict[str | None, Numbers]:
        """All that is read of the unedited model on `first`, with the vectors of position 0: one forward for each `bos`."""
        names = (self.statistic, f"{self.statistic}_bias", "resid_max", "resid_argmax", "resid_median", "nll")
        probe = replace(Probe.of(*names), capture=self._captures(0))
        return {policy: self.record(prompts, probe) for policy, prompts in self.first.items()}

    @cached_property
    def gain(self) -> NDArray[np.float64] | None:
        """Loss without BOS minus loss with it, in nats, by prompt; None if there is nothing to compare."""
        if "model" not in self.first:
            return None
        bare, begun = (self.unedited_by_bos[policy]["nll"] for policy in ("none", "model"))
        return mean_loss(bare[:, SKIPPED:-2], begun[:, SKIPPED + 1 : -1]).astype(np.float64)

    @cached_property
    def policy(self) -> str | None:
        """The `bos` with the lower loss of the tokens that both have, "model" or "none"; None for token ids."""
        return next(iter(self.first)) if self.gain is None else "model" if np.mean(self.gain) > 0 else "none"

    @property
    def own(self) -> Prompts:
        """The prompts on which sinks are found, as the model wants them."""
        return self.first[self.policy]

    @property
    def other(self) -> Prompts:
        """Those of costs and remedies."""
        return self.rest[self.policy]

    @property
    def unedited(self) -> Numbers:
        """The unedited model's numbers on `own`."""
        return self.unedited_by_bos[self.policy]

    @property
    def statistic(self) -> str:
        """The statistic of attention to a key: its share of a row, where rows do not sum to 1."""
        return "attention_received" if self.model.config.normaliser.rows_sum_to_1 else "attention_share"

    @property
    def at(self) -> int:
        """A position in the first third of the prompts, where a token is isolated or put."""
        return max(2, self.own.tokens.shape[1] // 3)

    def text_of(self, token: int) -> str:
        """Return a token's text, or its id if there is no tokenizer."""
        tokenizer = self.model.tokenizer
        return str(token) if tokenizer is None else str(tokenizer.tokens([token])[0])

    def measure(self, prompts: Prompts, edits: Sequence[Edit], *names: str) -> Numbers:
        """Measure statistics under each edit, by default the attention to keys; arrays begin with an axis over edits."""
        asked = names or (self.statistic,)
        records = [self.record(prompts, Probe.of(*asked), edit) for edit in edits]
        return {name: np.stack([record[name] for record in records]) for name in asked}

    def record(self, prompts: Prompts, probe: Probe, edits: Any = ()) -> Numbers:
        """Measure statistics. Errors: a loss is not finite."""
        how: dict[str, Any] = {"lengths": prompts.lengths, "logits": False, "attention_impl": self.attention_impl}
        out = forward(self.model, prompts.tokens, edits=edits, probe=probe, **how)
        record = {name: np.asarray(array) for name, array in out.record.items()}
        if "nll" in record:
            scored = np.arange(record["nll"].shape[1]) < prompts.lengths[:, None] - 1
            wrong = int((scored & ~np.isfinite(record["nll"])).any(axis=1).sum())
            refuse(
                wrong > 0,
                f"the loss of {wrong} of {len(prompts.tokens)} prompts is not finite in {self.model.source.get('dtype')}: load "
                "the model in a wider dtype (float16 ends at 65,504), or remove the parameters that are not finite",
            )
        return record

    def _captures(self, key: int) -> tuple[Capture, ...]:
        """Capture the vectors of one position in all layers, of the sites that the model has."""
        config = self.model.config
        sites = [site for site in VECTORS if not lacks(config, site)]
        return tuple(
            Capture(site, positions=(key,), name=site) for site in sites if site != Site.NEURON or config.experts is None
        )

    @cached_property
    def vectors(self) -> Numbers:
        """The vectors at the sink in each layer, by site: [prompt, layer, dim]; sites that the model lacks are missing."""
        captured = self.unedited if self.key == 0 else self.record(self.own, Probe(capture=self._captures(self.key)))
        return {site: np.asarray(captured[site], np.float64)[:, :, 0] for site in VECTORS if site in captured}

    @property
    def passages(self) -> dict[str, list[list[int]]]:
        """The token ids of the prompts, and of those of costs and remedies, without padding."""
        return {"sinks": self.own.ids(), "costs": self.other.ids()}

    @cached_property
    def of_other(self) -> Numbers:
        """The unedited model's attention and loss on those."""
        return self.unedited if self.rest is self.first else self.record(self.other, Probe.of(self.statistic, "nll"))

    @cached_property
    def hidden(self) -> Numbers:
        """Attention and loss of some prompts with `key` hidden from all other queries."""
        data = self.measure(self.own.part(SOME), [mask_key(self.key)], self.statistic, "nll")
        return {name: values[0] for name, values in data.items()}

    @cached_property
    def received(self) -> NDArray[np.float64]:
        """`seen` in the unedited model on its own prompts."""
        return self.seen(self.unedited, self.own)

    def seen(self, data: Numbers, prompts: Prompts) -> NDArray[np.float64]:
        """Return the mean attention to each key with at least `FEWEST` later queries, [prompt, layer, head, key]; else NaN."""
        values = np.asarray(data[self.statistic], np.float64)
        late = np.arange(values.shape[-1]) > prompts.lengths[:, None, None, None] - FEWEST
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

    def strength(self, data: Numbers, position: int) -> NDArray[np.float64]:
        """Return the attention to a position, averaged over the heads that sink (over all, if none does): [(edit,) prompt]."""
        chosen = self.heads if self.heads.any() else np.ones_like(self.heads)
        return np.asarray(data[self.statistic][..., position][..., chosen].mean(axis=-1), np.float64)

    def number(self, values: Any) -> dict[str, float | int | None]:
        """Return the mean over the card's own prompts, or the first ones of them, and its 95% interval, as data."""
        return self.own.part(slice(len(values))).number(values)


def ground(
    model: Model,
    text: Any = "packaged",
    prompts: int | None = None,
    length: int | None = None,
    seed: int = 0,
    field: str = "text",
    documents: Division = "auto",
    attention_impl: str = AUTO,
) -> Ground:
    """Choose the passages of a card. Arguments and errors: see `sinkjax.card`."""
    check_model(model)
    config, tokenizer = model.config, model.tokenizer
    check_sizes(prompts, length, seed)
    one_of("documents", documents, get_args(Division))
    refuse(config.vocab_size is None, "this model has no vocabulary, so a card of it cannot be made")
    bos = None if tokenizer is None else tokenizer.bos
    if not isinstance(text, str | Path) and not (isinstance(text, Sequence) and all(isinstance(each, str) for each in text)):
        given, known, _ = check_batch(text, None, config, tokenizer)
        refuse(given.shape[1] < SHORTEST, f"a card needs prompts of at least {SHORTEST} tokens, not {given.shape[1]}")
        ids: dict[str | None, Prompts] = {None: Prompts(np.asarray(given, np.int32), np.asarray(known, np.int32))}
        return Ground(model, ids, ids, bos, "token ids", attention_impl)
    if tokenizer is None:
        raise SinkjaxError("a model without a tokenizer needs token ids in place of a text: int [B, T]")
    if isinstance(text, str | Path):
        how = {"size": lambda passage: len(tokenizer.encode(passage)), "field": field, "division": documents}
        selected, count, most = _passages(text, prompts, length, seed, config.context, how)
        texts, source = list(selected.texts), selected.source
        clusters = np.unique(selected.genres if all(selected.genres) else selected.documents, return_inverse=True)[1]
    else:
        texts, count, most, source, clusters = list(text), len(text), min(length or LENGTH, config.context), "texts", None
    tokens, lengths = first_tokens(model, texts, "none", most)
    shortest = int(lengths.min())  # all prompts become as long
    refuse(shortest < SHORTEST, f"a card needs texts of at least {SHORTEST} tokens, and one has {shortest}")
    every: dict[str | None, Prompts] = {"none": Prompts(tokens, lengths, clusters).cut(shortest)}
    if bos is not None:
        every["model"] = Prompts(*first_tokens(model, texts, "model", shortest), clusters)
    first = {policy: each.part(slice(count)) for policy, each in every.items()}
    rest = {policy: each.part(slice(count, None)) for policy, each in every.items()} if len(texts) > count else first
    return Ground(model, first, rest, bos, source, attention_impl)


def _passages(
    text: str | Path, prompts: int | None, length: int | None, seed: int, context: int, how: dict[str, Any]
) -> tuple[Passages, int, int]:
    """Choose half as many again as asked for, or, if there are fewer, those; return them, the number of the first, the length.

    Unless a number is asked for, all passages of a user's text are chosen, up to the usual number; `DIVIDED` or more are divided.
    """
    given = {name for name, value in (("prompts", prompts), ("length", length)) if value is not None}
    count, T = prompts or PROMPTS, min(length or LENGTH, context)
    wanted, fit = count + (count + 1) // 2, ""  # with those for costs and remedies
    if text not in SOURCES:
        every = wanted
        if len(given) < 2:
            every, T, fit = fitted(text, count if prompts else wanted, T, given=given, **how)
        if prompts is None:
            wanted, count = every, every if every < DIVIDED else every - every // 3
    how = how | {"length": T, "seed": seed}
    try:
        selected = passages(text, wanted, **how)
    except SinkjaxError:
        selected = passages(text, count, **how)
    return replace(selected, source=fit or selected.source), count, T
