"""The ground of a card: its passages, the unedited model on them, and the one way in which the model runs under edits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
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
from sinkjax.edits.edit import Edit, compose, edit
from sinkjax.errors import SinkjaxError, one_of
from sinkjax.model.batch import check_batch
from sinkjax.model.config import Config
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
ROWS = FEW.stop  # prompts of a call: all calls have one shape, so that one program serves every group of prompts
VECTORS = (Site.RESID, Site.MLP_OUT, Site.ATTN_OUT, Site.NEURON)  # read at the sink, in all layers

Numbers = dict[str, NDArray[Any]]  # the arrays of a record


@dataclass(frozen=True, eq=False)
class Prompts:
    """Prompts of one length, and the unedited model's numbers.

    Attributes:
        tokens: int32 [B, T].
        bare: The same texts without a BOS, int32 [B, T].
        clusters: The document of each prompt, int [B], if several share one.
        numbers: What `measure` returns for `tokens`.
    """

    tokens: NDArray[np.int32]
    bare: NDArray[np.int32]
    clusters: NDArray[Any] | None
    numbers: Numbers

    @cached_property
    def received(self) -> NDArray[np.float64]:
        """The mean attention to each key with at least `FEWEST` later queries, [prompt, layer, head, key]; else NaN."""
        values = np.array(self.numbers["received"], np.float64)
        values[..., max(values.shape[-1] - FEWEST + 1, 0) :] = np.nan
        return values

    def number(self, values: Any) -> dict[str, float | int | None]:
        """Return the mean over the prompts, or the first ones of them, and its 95% interval, as data."""
        clusters = None if self.clusters is None else self.clusters[: len(values)]
        interval = intervals.interval(np.asarray(values, np.float64), clusters=clusters)
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
    """A model on the passages of its card, with the BOS that lowers its loss.

    Attributes:
        model: The model.
        run: `measure` with this model: tokens int [B, T], a probe and edits -> the arrays of the record.
        own: The prompts on which sinks are found.
        other: Those of costs and remedies, half as many; `own` itself if the text has no more.
        bare: The unedited model's numbers on `own.bare`.
        bos: The BOS that the model's files name, or None.
        policy: The `bos` with the lower loss of the tokens that both have, "model" or "none"; None for token ids.
        gain: Loss without BOS minus loss with it, in nats, by prompt; None if there is nothing to compare.
        text: The source of the prompts.
    """

    model: Model
    run: partial[Numbers]
    own: Prompts
    other: Prompts
    bare: Numbers
    bos: int | None
    policy: str | None
    gain: NDArray[np.float64] | None
    text: str

    @property
    def passages(self) -> dict[str, list[list[int]]]:
        """The token ids of the prompts, and of those of costs and remedies."""
        return {"sinks": self.own.tokens.tolist(), "costs": self.other.tokens.tolist()}

    def text_of(self, token: int) -> str:
        """Return a token's text, or its id if there is no tokenizer."""
        tokenizer = self.model.tokenizer
        return str(token) if tokenizer is None else str(tokenizer.tokens([token])[0])

    @cached_property
    def key(self) -> int:
        """The position with the most sinking heads, in the mean over prompts; 0 if none sinks."""
        with quietly():
            return int(np.argmax((np.nanmean(self.own.received, axis=0) > EPS).sum(axis=(0, 1))))

    @cached_property
    def heads(self) -> NDArray[np.bool_]:
        """The heads whose mean attention to `key` is above `EPS`, bool [layer, head]."""
        return np.asarray(np.nanmean(self.own.received[..., self.key], axis=0) > EPS)

    @cached_property
    def vectors(self) -> Numbers:
        """The vectors at the sink in each layer, by site: [prompt, layer, dim]; sites that the model lacks are missing."""
        captures = _captures(self.model.config, self.key)
        captured = self.own.numbers if self.key == 0 else self.run(self.own.tokens, (), capture=captures)
        return {site: np.asarray(captured[site], np.float64)[:, :, 0] for site in VECTORS if site in captured}

    def strength(self, data: Numbers, position: int) -> NDArray[np.float64]:
        """Return the attention to a position, averaged over the heads that sink (over all, if none does), by prompt."""
        chosen = self.heads if self.heads.any() else np.ones_like(self.heads)
        return np.asarray(data["received"][..., position][..., chosen].mean(axis=-1), np.float64)

    def edited(
        self,
        tokens: Any,
        isolated: int | None = None,
        hidden: int | None = None,
        behind: int = -1,
        value: float = 1.0,
        held: Any = (),
    ) -> Numbers:
        """Measure attention to keys and loss under an edit. What is not asked for is neutral, so that all edits are of one kind.

        Args:
            tokens: int [B, T].
            isolated: A position that sees only itself.
            hidden: A key that is hidden from other queries.
            behind: The position behind which queries do not see `hidden`.
            value: The factor of the sink's value in all layers.
            held: A layer, the dims of the sink's residual stream that are held after it, and their values.
        """
        config = self.model.config
        kept = np.ones((config.layers, 1, config.width), np.float32)
        added = np.zeros_like(kept)
        if held:
            layer, dims, values = held
            kept[layer, 0, dims], added[layer, 0, dims] = 0.0, values

        def mask(position: int | None, **where: Any) -> Edit:
            return edit("logits", "add", 0.0 if position is None else -np.inf, relation="others", **where)

        changes = compose(
            mask(isolated, queries=isolated or 0),
            mask(hidden, keys=hidden or 0, queries=slice(behind + 1, None)),
            edit("value", "scale", value, keys=self.key),
            edit("resid", "scale", kept, queries=self.key),
            edit("resid", "add", added, queries=self.key),
        )
        return self.run(tokens, ("received", "nll"), changes)

    @cached_property
    def hidden(self) -> Numbers:
        """Attention and loss of some prompts with `key` hidden from all other queries."""
        return self.edited(self.own.tokens[SOME], hidden=self.key)


def measure(
    model: Model, tokens: Any, names: Sequence[str], edits: Any = (), *, rows: int, attention_impl: str, **more: Any
) -> Numbers:
    """Measure prompts of one length, int [B, T], `rows` of them at a time. Errors: a loss is not finite.

    names: fields of `Probe`, with "received" for the attention to each key: its share of a row where rows do not sum to 1.
    more: further arguments of `Probe`.
    """
    received = "attention_received" if model.config.normaliser.rows_sum_to_1 else "attention_share"
    more |= {name.replace("received", received): True for name in names}
    calls = []
    for begin in range(0, len(tokens), rows):
        chosen = np.arange(begin, begin + rows).clip(max=len(tokens) - 1)
        out = forward(model, tokens[chosen], edits=edits, probe=Probe(**more), logits=False, attention_impl=attention_impl)
        calls.append({name.replace(received, "received"): np.asarray(array) for name, array in out.record.items()})
    record = {name: np.concatenate([call[name] for call in calls])[: len(tokens)] for name in calls[0]}
    wrong = int((~np.isfinite(record["nll"][:, :-1])).any(axis=1).sum()) if "nll" in record else 0
    refuse(
        wrong > 0,
        f"the loss of {wrong} of {len(tokens)} prompts is not finite in {model.source.get('dtype')}: load "
        "the model in a wider dtype (float16 ends at 65,504), or remove the parameters that are not finite",
    )
    return record


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
    """Choose the passages of a card, and whether they begin with the BOS. Arguments and errors: see `sinkjax.card`."""
    check_model(model)
    config = model.config
    check_sizes(prompts, length, seed)
    one_of("documents", documents, get_args(Division))
    refuse(config.vocab_size is None, "this model has no vocabulary, so a card of it cannot be made")
    tokens, count, clusters, source = _tokens(model, text, prompts, length, seed, {"field": field, "division": documents})
    names = ("received", "received_bias", "resid_max", "resid_argmax", "resid_median", "nll")
    run = partial(measure, model, rows=min(ROWS, count), attention_impl=attention_impl)
    unedited = partial(run, names=names, capture=_captures(config, 0))
    first = {policy: unedited(each[:count]) for policy, each in tokens.items()}
    policy, gain = next(iter(first)), None
    if "model" in first:
        bare, begun = (first[name]["nll"] for name in ("none", "model"))
        gain = mean_loss(bare[:, SKIPPED:-2], begun[:, SKIPPED + 1 : -1]).astype(np.float64)
        policy = "model" if gain.mean() > 0 else "none"

    def part(rows: slice, numbers: Numbers) -> Prompts:
        of_rows = None if clusters is None else clusters[rows]
        return Prompts(tokens[policy][rows], next(iter(tokens.values()))[rows], of_rows, numbers)

    own, rest = part(slice(count), first[policy]), slice(count, None)
    other = part(rest, unedited(tokens[policy][rest])) if len(tokens[policy]) > count else own
    bos = None if model.tokenizer is None else model.tokenizer.bos
    return Ground(model, run, own, other, next(iter(first.values())), bos, policy, gain, source)


def _captures(config: Config, key: int) -> tuple[Capture, ...]:
    """Capture the vectors of one position in all layers, of the sites that the model has."""
    sites = [site for site in VECTORS if not lacks(config, site) and (site != Site.NEURON or config.experts is None)]
    return tuple(Capture(site, positions=(key,), name=site) for site in sites)


def _tokens(
    model: Model, text: Any, prompts: int | None, length: int | None, seed: int, how: dict[str, Any]
) -> tuple[dict[str | None, NDArray[np.int32]], int, NDArray[Any] | None, str]:
    """Return token ids [B, T] by `bos` ("none" first; None for token ids), how many of them are for finding sinks, their
    documents, and their source. The others are for costs and remedies."""
    config, tokenizer = model.config, model.tokenizer
    if not isinstance(text, str | Path) and not (isinstance(text, Sequence) and all(isinstance(each, str) for each in text)):
        ids = np.asarray(check_batch(text, None, config, tokenizer)[0], np.int32)
        refuse(ids.shape[1] < SHORTEST, f"a card needs prompts of at least {SHORTEST} tokens, not {ids.shape[1]}")
        return {None: ids}, len(ids), None, "token ids"
    if tokenizer is None:
        raise SinkjaxError("a model without a tokenizer needs token ids in place of a text: int [B, T]")
    if isinstance(text, str | Path):
        how = how | {"size": lambda passage: len(tokenizer.encode(passage))}
        selected, count, most = _passages(text, prompts, length, seed, config.context, how)
        texts, source = list(selected.texts), selected.source
        clusters = np.unique(selected.genres if all(selected.genres) else selected.documents, return_inverse=True)[1]
    else:
        texts, count, most, source, clusters = list(text), len(text), min(length or LENGTH, config.context), "texts", None
    tokens, lengths = first_tokens(model, texts, "none", most)
    shortest = int(lengths.min())  # all prompts become as long
    refuse(shortest < SHORTEST, f"a card needs texts of at least {SHORTEST} tokens, and one has {shortest}")
    every: dict[str | None, NDArray[np.int32]] = {"none": tokens[:, :shortest]}
    if tokenizer.bos is not None:
        every["model"] = first_tokens(model, texts, "model", shortest)[0]
    return every, count, clusters, source


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
        every, T, fit = fitted(text, count if prompts else wanted, T, given=given, **how)
        if prompts is None:
            wanted, count = every, every if every < DIVIDED else every - every // 3
    how = how | {"length": T, "seed": seed}
    try:
        selected = passages(text, wanted, **how)
    except SinkjaxError:
        selected = passages(text, count, **how)
    return replace(selected, source=fit or selected.source), count, T
