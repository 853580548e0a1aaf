"""`card`: one answer about a model's sinks, as data, as twelve lines and as files."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis.estimates import three_digits
from sinkjax.cards import files
from sinkjax.cards.cause import Cause, cause_of
from sinkjax.cards.cost import FIRST, REMEDIES, TENSOR, Cost, cost, worth_it
from sinkjax.cards.ground import EPS, Ground, ground, signed
from sinkjax.cards.maker import Maker, maker
from sinkjax.cards.purpose import Purpose, purpose
from sinkjax.cards.where import SinkPlaces, where
from sinkjax.checkpoints.model import Model
from sinkjax.data.prompts import trained_prefix
from sinkjax.data.reading import Division
from sinkjax.errors import SinkjaxError
from sinkjax.explain.sink_prefix import SinkPrefix, sink_prefix
from sinkjax.model.fingerprint import ModelIdentity
from sinkjax.runtime.progress import silent
from sinkjax.runtime.settings import fixed_settings

Log = Any


@dataclass(frozen=True)
class Card:
    """The sink card of a model.

    Attributes:
        model: The model's source, as `model.source` has it, with the digests of its weights and config and its `vocab_size`.
        prompts: Number, length and text of the prompts that all measurements use.
        passages: `sinks`, the token ids of these prompts, and `costs`, the token ids of the passages for costs and remedies.
        bos: `policy`, "model" or "none", whichever has the lower loss (None: token ids); `token`, the model's BOS; `gain`, the
            amount by which it lowers the loss; `trained`, the text that came first in the model's training; `known`, how this is
            known; and `lack`, the number of prompts that do not begin with it.
        where: Whether and where the model sinks.
        cause: The cause of the sink: its position, its token, or something else.
        maker: The components that make the activation; a sentence if there is no activation to explain.
        purpose: The model's use of the sink; None without a sink.
        cost: The sink's cost with few bits and few keys, and with the remedies, on other prompts if the text has any.
        mask: `precision` and `recall` of `sink_mask` with `sink_tokens()`, on the prompts of `cost`; `by_position`, the same for
            the position of the sinks; and `by_token`, a list of the same for each token that is known to sink.
        prefix: The keys and values of `cause.best`; None without a sink, or if they would depend on the text.
    """

    model: dict[str, Any]
    prompts: dict[str, Any]
    passages: dict[str, list[list[int]]]
    bos: dict[str, Any]
    where: SinkPlaces
    cause: Cause
    maker: Maker | str
    purpose: Purpose | None
    cost: Cost
    mask: dict[str, Any]
    prefix: SinkPrefix | None = field(default=None, repr=False)

    def lines(self) -> list[tuple[str, str]]:
        """Return the card as pairs (heading, sentence), one per line of a terminal."""
        rows = [
            ("sinks", self.where.sentence()),
            ("elsewhere", self._elsewhere()),
            ("activation", self.where.activation_sentence()),
            ("depends on", self.cause.sentence()),
            ("checked by", self._checked()),
            ("BOS", self._bos()),
            ("made by", self.maker if isinstance(self.maker, str) else self.maker.sentence()),
            ("for", self.purpose.sentence() if self.purpose else "not measured without a sink"),
            ("costs", self.cost.sentence()),
            *(("advice", advice) for advice in self.advice()),
        ]
        return [(name, text) for name, text in rows if text]

    def advice(self) -> list[str]:
        """Return the advice that follows from the numbers measured here."""
        advice = []
        plain = self.cost.of(TENSOR)
        if self.bos["gain"] and (self.bos["gain"]["low"] or 0.0) > 0:
            advice.append("give every text its BOS (--bos model)")
        if self.bos["gain"] is None and self.bos["lack"]:
            advice.append(f"begin every prompt with {self.bos['trained']!r}")
        remedies = [f"{REMEDIES[name].format(key=self.where.position)}: {signed(loss)}" for name, loss in self.cost.remedies()]
        if plain is not None and worth_it(plain) and remedies:
            advice.append(f"with 8 bits and a scale per tensor ({signed(plain, ' nats')}), {'; or '.join(remedies)}")
        advice.append(self._eviction())
        if not self.where.sinks and not self.where.activation.stands_out:
            advice.append("nothing to protect: no head sinks on a key, and no activation stands out")
        return list(filter(None, advice))

    @property
    def identity(self) -> dict[str, Any]:
        """The model and the passages, as JSON: a card in a folder is replaced only by one with the same."""
        return files.identity_of(self.model, self.passages)

    def save(self, folder: str | Path) -> Path:
        """Save card.json, sink_tokens.json, clamp.json and, if there is one, prefix.safetensors, all as one folder.

        Args:
            folder: A new or empty local folder, or one with a card of the same model on the same passages, which is replaced.

        Returns:
            The folder.

        Raises:
            SinkjaxError: The folder has other content or another card; it is a URL, a link or the working directory; no
                permission or no space. An earlier card in the folder is then unchanged.
        """
        return files.put(folder, self.files(), self.identity)

    def content(self) -> dict[str, Any]:
        """Return what card.json has."""
        parts = dataclasses.asdict(dataclasses.replace(self, prefix=None)).items()
        about = {"hangs" if name == "cause" else name: part for name, part in parts}  # in files, the cause keeps its first name
        return about | {"advice": self.advice(), "prefix": None if self.prefix is None else list(self.prefix.tokens)}

    def files(self) -> dict[str, bytes]:
        """Return the files by name."""
        model = {"model": {name: self.model.get(name) for name in ("name", "dtype", "weights", "config")}}
        contents = {
            files.CARD: self.content(),
            files.SINKS: model | self.sink_tokens() | self.mask,
            files.CLAMP: model | self.clamp(),
        }
        prefix = {} if self.prefix is None else {files.PREFIX: self.prefix.packed()}
        return {name: files.as_json(content) for name, content in contents.items()} | prefix

    def sink_tokens(self) -> dict[str, Any]:
        """Return the sinks for `sink_mask`: positions, or token ids that are sinks at any position."""
        return _sink_tokens(self.where, self.cause) | {"vocab_size": self.model["vocab_size"]}

    def clamp(self) -> dict[str, Any]:
        """Return where an activation stands out (position, dims, layers), its mean value by layer and dim, and the largest |h| at
        later positions as a bound to clamp it to; {} if none does."""
        return self.where.clamp()

    def _elsewhere(self) -> str:
        places, rate, bias = self.where, self.where.rate["mean"], self.where.no_key["mean"] or 0.0
        named = [f"{share:.1%} on {text!r}" for _, text, share in places.elsewhere if rate * share >= 0.01]
        single = f"in single prompts {rate:.1%} of heads sink; of these sinks"
        parts = [f"{'of all sinks, on other positions' if places.sinks else single}: {', '.join(named)}"] * bool(named)
        return "; ".join(parts + [f"{bias:.0%} of the attention goes to no key"] * (bias > 0.01))

    def _checked(self) -> str:
        cause, heads = self.cause, "the heads that sink" if self.where.sinks else "all heads"
        parts = [f"attention of {heads} to position {self.where.position}: {three_digits(cause.unedited['mean'])}"]
        for text, number in (
            ("to the next token if that one is hidden", cause.masked),
            ("to that position without a BOS", cause.no_bos),
            ("to an ordinary later token that sees only itself", cause.isolated),
            ("to a BOS put there", cause.moved),
        ):
            parts += [f"{text}: {three_digits(number['mean'])}"] if number else []
        if cause.qualifies is not None:
            parts += [f"of {cause.scanned:,} tokens run alone, {cause.qualifies:.1%} have a key like the sink's"]
        return "; ".join(parts)

    def _eviction(self) -> str:
        """Say whether the sink's key may leave a cache, from the windows measured here, or else from hiding it."""
        if self.purpose is None:
            return ""
        evicted, hidden = self.cost.evicted, self.purpose.loss["key hidden"]
        why = f"hiding it from all later tokens costs {signed(hidden, ' nats')} (no small cache was measured)"
        for loss in filter(worth_it, evicted or [hidden]):  # the smallest cache that decides it
            if evicted:
                size, kept = loss["keys"], loss["kept"]
                why = f"the last {size} keys cost {signed(loss, ' nats')} more than the {FIRST[kept]} and the last {size - kept}"
            return f"never evict the key at position {self.where.position} from a cache: {why}"
        return ""

    def _bos(self) -> str:
        bos, gain, parts = self.bos, self.bos["gain"], []
        if gain:
            low, high = gain["low"], gain["high"]
            loss = gain | {"mean": -gain["mean"]} | ({} if low is None else {"low": -high, "high": -low})
            decided = low is not None and not low <= 0 <= high
            verb = "changes" if not decided else "lowers" if low > 0 else "raises"
            size = signed(gain if verb == "lowers" else loss, " nats").removeprefix("+" * decided)
            parts += [f"the model's BOS {verb} the loss of the same tokens by {size}"]
            parts[0] += ", whose interval includes 0" * (low is not None and not decided)
            parts += [f"this card was measured with --bos {bos['policy']}"]
        if bos["lack"]:
            lack = f"{bos['lack']} of {self.prompts['number']} prompts do not begin with {bos['trained']!r}"
            parts += [f"{lack}, as the texts of the model's training did ({bos['known']})"]
        return "; ".join(parts)


@fixed_settings
def card(
    model: Model,
    text: Any = "packaged",
    prompts: int | None = None,
    length: int | None = None,
    more: bool = False,
    seed: int = 0,
    log: Log = silent,
    field: str = "text",
    documents: Division = "auto",
    attention_impl: str = "auto",
) -> Card:
    """Measure the sink card of a model: the position, cause, maker, purpose and cost of its sinks.

    Args:
        model: The model.
        text: The packaged text, the path of a text or a folder, a list of texts, or token ids int [B, T], used as they are.
        prompts: Number of passages; half as many others, if the text has them, are for costs and remedies. None: 32, or all
            passages of your own text if it has fewer; a third of these is then for costs and remedies if there are 12 or more.
        length: Tokens of a prompt, cut to the model's context; None: 64, or fewer if your own text has shorter passages.
        more: Whether to measure further remedies, 4 bits and small caches too.
        seed: Seed for the choice of passages.
        log: Called with a line before each part.
        field: Name of the field with the text in a file of records.
        documents: The unit that counts as a document in plain text: "file", "line", "article" or "auto", as for a study.
        attention_impl: As for `sinkjax.forward`; maps, caches and prefixes have their own attention.

    Returns:
        The card: `lines()` for a terminal, and `save(folder)` for its files.

    Raises:
        SinkjaxError: The model has no vocabulary; a text needs a tokenizer; there are too few passages, or too short ones; a
            loss is not finite, for example because the model overflows in float16.
    """
    log("prompts, with and without a BOS")
    return measured(ground(model, text, prompts, length, seed, field, documents, attention_impl), more, log)


def identity(about: Ground) -> dict[str, Any]:
    """Return the identity of a card before it is measured."""
    return files.identity_of(_model(about.model), about.passages)


def measured(about: Ground, more: bool = False, log: Log = silent) -> Card:
    """Measure the card of a model on chosen passages; arguments as for `card`."""
    log(f"text: {len(about.own.tokens)} prompts of {about.own.tokens.shape[1]} tokens; {about.text}")
    log("where the sinks are")
    places = where(about)
    log("their cause: edits, and tokens alone")
    cause = cause_of(about, places)
    log("their maker")
    made = maker(about, places)
    log("their purpose")
    use = purpose(about, places) if places.sinks else None
    prefix = _prefix(about.model, places, cause)
    log("their cost")
    return Card(
        model=_model(about.model),
        prompts={"number": len(about.own.tokens), "length": about.own.tokens.shape[1], "text": about.text},
        passages=about.passages,
        bos=_bos(about),
        where=places,
        cause=cause,
        maker=made,
        purpose=use,
        cost=cost(about, places, prefix, more),
        mask=_quality(about.other.received, about.other.tokens, places, cause),
        prefix=prefix,
    )


def _model(model: Model) -> dict[str, Any]:
    """Return a model's source with the identity that the files are checked by."""
    identity = ModelIdentity.of(model.params, model.config)
    assert identity is not None, "a card is not measured inside a transformation of JAX"
    return {**model.source, "weights": identity.weights, "config": identity.config, "vocab_size": model.config.vocab_size}


def _sink_tokens(places: SinkPlaces, cause: Cause) -> dict[str, Any]:
    tokens = [token for token, _ in cause.tokens]
    return {"positions": [places.position] if places.sinks and not tokens else [], "tokens": tokens}


def _prefix(model: Model, places: SinkPlaces, cause: Cause) -> SinkPrefix | None:
    """Compute the prefix of the best token; None without a sink, or where its keys would depend on the text."""
    if not places.sinks or cause.best is None:
        return None
    try:
        return sink_prefix(model, cause.best[0])
    except SinkjaxError:
        return None


def _quality(received: NDArray[Any], ids: NDArray[Any], places: SinkPlaces, cause: Cause) -> dict[str, Any]:
    """Return the share of marked tokens that are a head's sink, and the share of all sinks (of heads and prompts) on them, of the
    mask in the files, of its position, and of each token that sinks anywhere or was a sink elsewhere in these prompts.

    Args:
        received: Mean attention to each key, float[prompt, layer, head, key], NaN if it has too few queries.
        ids: Token ids, int[prompt, key].
        places: Where the sinks are.
        cause: Their cause.

    Returns:
        The content of `Card.mask`.
    """
    counts = np.asarray((np.nan_to_num(received) > EPS).sum(axis=(1, 2)))  # heads that sink on each key
    measured = ~np.isnan(received[:, 0, 0])

    def quality(positions: list[int], tokens: list[int]) -> dict[str, float | None]:
        marked = counts[files.sink_mask(ids, {"positions": positions, "tokens": tokens}) & measured]
        return {
            "precision": float((marked > 0).mean()) if len(marked) else None,
            "recall": float(marked.sum() / counts.sum()) if counts.any() else None,
        }

    named = dict(cause.tokens) | {token: text for token, text, _ in places.elsewhere}
    return {
        **quality(**_sink_tokens(places, cause)),
        "by_position": {"position": places.position, **quality([places.position], [])},
        "by_token": [{"token": token, "text": text, **quality([], [token])} for token, text in named.items()],
    }


def _bos(about: Ground) -> dict[str, Any]:
    """Compare the loss with and without the BOS, and the prompts' first tokens with the prefix of the model's training."""
    gain = None if about.gain is None else about.own.number(about.gain)
    trained, known = ([], "") if about.model.tokenizer is None else trained_prefix(about.model)
    lack = int((about.own.tokens[:, : len(trained)] != np.asarray(trained, int)).any(axis=1).sum())
    begins = "".join(about.text_of(token) for token in trained)
    return {"policy": about.policy, "token": about.bos, "gain": gain, "trained": begins, "known": known, "lack": lack}
