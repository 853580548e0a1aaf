"""The prompts of a card, and the numbers that several of its parts read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
    """A model and the same passages with and without its BOS.

    Attributes:
        model: The model.
        own: The prompts as the model wants them: with BOS if that lowers the loss of the tokens that both have.
        plain: The prompts without a BOS; None if the card was given token ids.
        bos: The BOS that the model's files name, or None.
        wants: "model" or "none", the `bos` that the model wants; None for token ids.
        gain: Loss without BOS minus loss with it, in nats, by prompt; None if there is nothing to compare.
        text: The source of the prompts.
        fresh: Other prompts of the same source, half as many, as the model wants them, for costs and remedies; None if the source
            has no more.
        fresh_plain: The same without a BOS.
        attention_impl: As for `sinkjax.forward`; maps, caches and prefixes have an attention of their own.
        unedited: The unedited model's numbers on `own`, with the vectors of position 0 in all layers.
        bare: The same on `plain`; None if the card was given token ids.
    """

    model: Model
    own: Prompts
    plain: Prompts | None
    bos: int | None
    wants: str | None
    gain: NDArray[np.float64] | None
    text: str
    fresh: Prompts | None
    fresh_plain: Prompts | None
    attention_impl: str
    unedited: Numbers
    bare: Numbers | None

    @property
    def statistic(self) -> str:
        """The statistic of attention to a key."""
        return _statistic(self.model)

    @property
    def at(self) -> int:
        """A position in the first third of the prompts, where a token is isolated or put."""
        return max(2, self.own.tokens.shape[1] // 3)

    def measure(self, prompts: Prompts, edits: Sequence[Edit], *names: str) -> Numbers:
        """Measure statistics under each edit, by default the attention to keys; arrays begin with an axis over edits."""
        asked = names or (self.statistic,)
        records = [self.record(prompts, Probe.of(*asked), edit) for edit in edits]
        return {name: np.stack([record[name] for record in records]) for name in asked}

    def record(self, prompts: Prompts, probe: Probe, edits: Any = ()) -> Numbers:
        """Measure statistics. Errors: a loss is not finite."""
        return _record(self.model, prompts, probe, self.attention_impl, edits)

    @cached_property
    def vectors(self) -> Numbers:
        """The vectors at the sink in each layer, by site: [prompt, layer, dim]; sites that the model lacks are missing."""
        captured = self.unedited if self.key == 0 else self.record(self.own, Probe(capture=_vectors(self.model, self.key)))
        return {site: np.asarray(captured[site], np.float64)[:, :, 0] for site in VECTORS if site in captured}

    @property
    def other(self) -> Prompts:
        """The prompts of costs and remedies: `fresh`, or the card's own if there are none."""
        return self.fresh or self.own

    @property
    def passages(self) -> dict[str, list[list[int]]]:
        """The token ids of the prompts, and of those of costs and remedies, without padding."""
        return {"sinks": self.own.ids(), "costs": self.other.ids()}

    @cached_property
    def of_other(self) -> Numbers:
        """The unedited model's attention and loss on those."""
        return self.unedited if self.fresh is None else self.record(self.fresh, Probe.of(self.statistic, "nll"))

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


@dataclass(frozen=True, kw_only=True)
class TextChoice:
    """The text of a card and the passages of it: the arguments of `sinkjax.card` with these names."""

    text: Any = "packaged"
    prompts: int | None = None
    length: int | None = None
    seed: int = 0
    field: str = "text"
    documents: Division = "auto"


def ground(model: Model, chosen: TextChoice, attention_impl: str = AUTO) -> Ground:
    """Choose the passages of a card, with the BOS that the model wants.

    Args:
        model: The model.
        chosen: The text and what is chosen from it.
        attention_impl: As for `Ground`.

    Returns:
        The prompts.

    Raises:
        SinkjaxError: The model has no vocabulary; a text needs a tokenizer; there are too few passages, or too short ones.
    """
    check_model(model)
    config, tokenizer, text = model.config, model.tokenizer, chosen.text
    check_sizes(chosen.prompts, chosen.length, chosen.seed)
    one_of("documents", chosen.documents, get_args(Division))
    refuse(config.vocab_size is None, "this model has no vocabulary, so a card of it cannot be made")
    bos = None if tokenizer is None else tokenizer.bos
    if not isinstance(text, str | Path) and not (isinstance(text, Sequence) and all(isinstance(one, str) for one in text)):
        tokens, lengths, _ = check_batch(text, None, config, tokenizer)
        own = Prompts(np.asarray(tokens, np.int32), np.asarray(lengths, np.int32))
        refuse(tokens.shape[1] < SHORTEST, f"a card needs prompts of at least {SHORTEST} tokens, not {tokens.shape[1]}")
        unedited = _unedited(model, own, attention_impl)
        return Ground(model, own, None, bos, None, None, "token ids", None, None, attention_impl, unedited, None)
    if tokenizer is None:
        raise SinkjaxError("a model without a tokenizer needs token ids in place of a text: int [B, T]")
    if isinstance(text, str | Path):
        found, prompts, length = _passages(chosen, config.context, size=lambda passage: len(tokenizer.encode(passage)))
        texts, source = list(found.texts), found.source
        clusters = np.unique(found.genres if all(found.genres) else found.documents, return_inverse=True)[1]
    else:
        prompts, length, source, clusters = len(text), min(chosen.length or LENGTH, config.context), "texts", None
        texts = list(text)
    ids = first_tokens(model, texts, "none", length)
    length = int(ids[1].min())  # all prompts are as long as the shortest
    refuse(length < SHORTEST, f"a card needs texts of at least {SHORTEST} tokens, and one has {length}")
    both = {"none": Prompts(ids[0][:, :length], ids[1].clip(max=length), clusters)}
    if bos is not None:
        both["model"] = Prompts(*first_tokens(model, texts, "model", length), clusters)
    first, rest = slice(prompts), slice(prompts, None)
    numbers = {policy: _unedited(model, each.part(first), attention_impl) for policy, each in both.items()}
    wants, gain = "none", None
    if bos is not None:
        gain = mean_loss(numbers["none"]["nll"][:, SKIPPED:-2], numbers["model"]["nll"][:, SKIPPED + 1 : -1]).astype(np.float64)
        wants = "model" if np.mean(gain) > 0 else "none"
    fresh, fresh_plain = (both[policy].part(rest) if len(texts) > prompts else None for policy in (wants, "none"))
    own, plain = both[wants].part(first), both["none"].part(first)
    parts: dict[str, Any] = {"fresh": fresh, "fresh_plain": fresh_plain, "unedited": numbers[wants], "bare": numbers["none"]}
    return Ground(model, own, plain, bos, wants, gain, source, attention_impl=attention_impl, **parts)


def _passages(chosen: TextChoice, context: int, size: Callable[[str], int]) -> tuple[Passages, int, int]:
    """Choose half as many again as asked for, or, if there are fewer, those; return them, the number of the first, the length.

    Unless a number is asked for, all passages of a user's text are chosen, up to the usual number; `DIVIDED` or more are divided.
    """
    given = {name for name in ("prompts", "length") if getattr(chosen, name) is not None}
    number, T = chosen.prompts or PROMPTS, min(chosen.length or LENGTH, context)
    every, fit = number + (number + 1) // 2, ""  # with those for costs and remedies
    how: dict[str, Any] = {"size": size, "field": chosen.field, "division": chosen.documents}
    if chosen.text not in SOURCES:
        wanted = every
        if len(given) < 2:
            every, T, fit = fitted(chosen.text, number if chosen.prompts else every, T, given=given, **how)
        if chosen.prompts is None:
            number = every if every < DIVIDED else every - every // 3
        else:
            every = wanted
    how |= {"length": T, "seed": chosen.seed}
    try:
        selected = passages(chosen.text, every, **how)
    except SinkjaxError:
        selected = passages(chosen.text, number, **how)
    return replace(selected, source=fit or selected.source), number, T


def _statistic(model: Model) -> str:
    """Return the statistic of attention to a key: its share of a row, where rows do not sum to 1."""
    return "attention_received" if model.config.normaliser.rows_sum_to_1 else "attention_share"


def _unedited(model: Model, prompts: Prompts, attention_impl: str) -> Numbers:
    """Measure everything that the parts of a card read of an unedited model, in one forward."""
    names = (_statistic(model), f"{_statistic(model)}_bias", "resid_max", "resid_argmax", "resid_median", "nll")
    return _record(model, prompts, replace(Probe.of(*names), capture=_vectors(model, 0)), attention_impl)


def _record(model: Model, prompts: Prompts, probe: Probe, attention_impl: str, edits: Any = ()) -> Numbers:
    how: dict[str, Any] = {"lengths": prompts.lengths, "logits": False, "attention_impl": attention_impl}
    record = {
        name: np.asarray(array) for name, array in forward(model, prompts.tokens, edits=edits, probe=probe, **how).record.items()
    }
    if "nll" in record:
        scored = np.arange(record["nll"].shape[1]) < prompts.lengths[:, None] - 1
        wrong = int((scored & ~np.isfinite(record["nll"])).any(axis=1).sum())
        refuse(
            wrong > 0,
            f"the loss of {wrong} of {len(prompts.tokens)} prompts is not finite in {model.source.get('dtype')}: load the model"
            " in a wider dtype (float16 ends at 65,504), or remove the parameters that are not finite",
        )
    return record


def _vectors(model: Model, key: int) -> tuple[Capture, ...]:
    """Capture the vectors of one position in all layers, of the sites that the model has."""
    sites = [site for site in VECTORS if not lacks(model.config, site)]
    sites = [site for site in sites if site != Site.NEURON or model.config.experts is None]
    return tuple(Capture(site, positions=(key,), name=site) for site in sites)
