"""Measure a small model when its training ends: what its sink depends on, what the scan says, and what it costs. A few kB.

Everything is measured on the first 64 tokens of 64 held-out blocks, once behind BOS and once without. Positions count from 0, and
numbers are means over the blocks unless stated. `received` is the mean attention to a key of all queries that see it, over heads;
`rate` the share of heads and blocks in which it exceeds 0.3; `largest` the largest |h| at a position, at the depth where its mean
is largest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals, metrics
from sinkjax.checkpoints.model import Model
from sinkjax.data.batches import Batches
from sinkjax.data.config import Blocks, part
from sinkjax.errors import SinkjaxError
from sinkjax.explain.scan import scan
from sinkjax.tasks.language_model.text import open_text

PROMPTS, LENGTH = 64, 64
PLACES = (8, 20, 40)  # where a token is isolated
P = 20  # where a token is swapped, put or isolated with key 0 hidden behind it
CONTROL = 5  # a key that is masked as a control
PLACES_OF = {"none": (0, 1, CONTROL, *PLACES), **{f"isolate {place}": (0, 1, place) for place in PLACES}}  # others: 0, 1, P
FIRST_KEYS = 8
NAMED = 5  # tokens that are named at either end of the scan
MOST_NAMED = 40  # tokens above half that are all named, if there are no more
WIDTHS = ((0, 16), (1, 15), (4, 12))  # first keys and window
HALF, EPS = 0.5, 0.3
QUANTILES = (0, 0.01, 0.05, 0.5, 0.95, 0.99, 1)
Card = dict[str, Any]


def card(model: Model, config: Any) -> Card:
    """The numbers of a trained model. config: its training, which says what it read."""
    bos = open_text(config, lambda line: None).tokens.bos
    plain = held_out(config)
    behind = np.concatenate([np.full((len(plain), 1), bos), plain[:, :-1]], axis=1).astype(np.int32)
    return {name: view(model, tokens, int(bos)) for name, tokens in (("bos", behind), ("plain", plain))}


def held_out(config: Any) -> NDArray[np.int32]:
    """The first tokens of held-out blocks, without a BOS: int32 [64, 64]."""
    text = open_text(config, lambda line: None)
    blocks = Blocks(context=part(config, Blocks).context, batch=PROMPTS, bos="none")
    return np.asarray(Batches(text.tokens, blocks, "validation").at(0)["tokens"][:, :LENGTH], np.int32)


def view(model: Model, tokens: NDArray[np.int32], bos: int) -> Card:
    """All measurements on one kind of prompts."""
    isolated, found = scanned(model, tokens, bos)
    return {
        **interventions(model, tokens, bos),
        "scan": found,
        "token by token": token_by_token(model, tokens, isolated),
        "kinds": kinds(model, tokens),
        "cost": costs(model, tokens),
    }


def interventions(model: Model, tokens: NDArray[np.int32], bos: int) -> Card:
    """The sink without an edit, and where it goes: key 0 masked, a token isolated, embeddings swapped, BOS put later."""
    behind = sinkjax.edit("logits", "set", -np.inf, keys=0, queries=slice(P + 1, None))
    edits = {
        "none": sinkjax.compose(),
        "mask 0": sinkjax.mask_key(0),
        f"mask {CONTROL}": sinkjax.mask_key(CONTROL),
        **{f"isolate {place}": sinkjax.attend_self(place) for place in PLACES},
        f"isolate {P}, 0 hidden behind": sinkjax.compose(sinkjax.attend_self(P), behind),
        f"0 hidden behind {P}": behind,
        f"swap 0 and {P}": sinkjax.swap_embeddings(0, P),
    }
    probe = sinkjax.Probe.of("attention_received", "resid_max", "resid_median", "value_norm", "nll")
    data = sinkjax.sweep(model, tokens, list(edits.values()), probe=probe, progress=False)
    put = tokens.copy()
    put[:, P] = bos
    moved = sinkjax.sweep(model, put, [sinkjax.compose()], probe=probe, progress=False)
    whole = data.isel(edit=0)
    values = whole["value_norm"].values  # [prompt, layer, kv_head, position]
    received = whole["attention_received"].values
    return {
        "by key": {"received": received.mean(axis=(0, 1, 2))[:FIRST_KEYS], "rate": rates(received)[:FIRST_KEYS]},
        "strongest later key": float(np.nanmax(received[..., 1:-8].mean(axis=(0, 1, 2)))),
        "received": received[..., 0].mean(axis=0),
        "largest first": whole["resid_max"].values[..., 0].mean(axis=0),
        "largest later": whole["resid_max"].values[..., 1:].max(axis=-1).mean(axis=0),
        "median": np.median(whole["resid_median"].values, axis=(0, 2)),
        "value ratio": (values[..., 0] / values[..., 1:].mean(axis=-1)).mean(axis=0),
        "edits": {
            name: at_places(data.isel(edit=number), PLACES_OF.get(name, (0, 1, P))) | {"loss": loss(data.isel(edit=number))}
            for number, name in enumerate(edits)
        },
        f"bos at {P}": at_places(moved.isel(edit=0), (0, 1, P)) | {"loss": loss(moved.isel(edit=0))},
    }


def at_places(data: Any, places: tuple[int, ...]) -> Card:
    """Attention received, sink rate and largest activation at some positions."""
    received, largest = data["attention_received"].values, data["resid_max"].values.mean(axis=0).max(axis=0)
    means, rate = received.mean(axis=(0, 1, 2)), rates(received)
    return {"at": places, **{name: by[list(places)] for name, by in (("received", means), ("rate", rate), ("largest", largest))}}


def rates(received: NDArray[Any]) -> NDArray[Any]:
    return np.asarray((received > EPS).mean(axis=(0, 1, 2)))


def loss(data: Any) -> float:
    """Mean loss over all predicted tokens, in nats."""
    return float(np.nanmean(data["nll"].values))


def scanned(model: Model, tokens: NDArray[np.int32], bos: int) -> tuple[NDArray[Any], Card]:
    """The scan of the vocabulary: each token's largest activation over the first token's, in the layer where the latter peaks."""
    data = scan(model, text=tokens)
    layer = int(np.argmax(data["first_largest"].values))
    first = float(data["first_largest"][layer])
    ratio = data["largest"].values[:, layer] / first
    order = np.argsort(-ratio, kind="stable")
    span = (data["first_score"] - data["other_score"]).values
    margin = ((data["score"] - data["other_score"]).values / span).mean(axis=1) if len(span) else np.full(len(ratio), np.nan)
    above = order[: int((ratio > HALF).sum())]

    def named(ids: NDArray[np.int_]) -> list[Any]:
        return [[int(each), str(data["text"].values[each]), float(ratio[each]), float(margin[each])] for each in ids]

    return ratio, {
        "layer": layer,
        "first": first,
        "sinks": len(span),
        "above half": len(above) / len(ratio),
        "ratio": np.quantile(ratio, QUANTILES),
        "cosine": np.quantile(data["cosine"].values[:, layer], QUANTILES),
        "score": np.quantile(margin, QUANTILES) if len(span) else None,
        "score above half": float((margin > HALF).mean()) if len(span) else None,
        "bos": named(np.array([bos]))[0] + [int(np.flatnonzero(order == bos)[0])],
        "largest by layer": np.quantile(data["largest"].values, (0, 0.5, 1), axis=0),
        "most": named(order[:NAMED]),
        "least": named(order[-NAMED:]),
        "named": [int(each) for each in (above if len(above) <= MOST_NAMED else order[::-1][: int((ratio <= HALF).sum())])][
            :MOST_NAMED
        ],
    }


def token_by_token(model: Model, tokens: NDArray[np.int32], ratio: NDArray[Any]) -> Card:
    """Put 64 tokens of the vocabulary at one position, isolate them there with key 0 hidden behind, and compare with the scan.

    The tokens: the 16 with the largest ratio, the 16 with the smallest, and 32 random ones. A token is predicted to be a sink if
    its ratio exceeds one half, and is one if it receives more than 0.3 in the mean over the heads that sink without an edit (over
    all heads if none does).
    """
    order = np.argsort(-ratio, kind="stable")
    quarter = PROMPTS // 4
    rest = intervals.generator(0, "tokens to isolate").choice(order[quarter:-quarter], PROMPTS - 2 * quarter, replace=False)
    chosen = np.concatenate([order[:quarter], order[-quarter:], rest])
    put = tokens.copy()
    put[:, P] = chosen[: len(put)]
    alone = sinkjax.compose(
        sinkjax.attend_self(P), sinkjax.edit("logits", "set", -np.inf, keys=0, queries=slice(P + 1, None))
    ).named("alone")
    probe = sinkjax.Probe.of("attention_received", "resid_max")
    data = sinkjax.sweep(model, put, [sinkjax.compose(), alone], probe=probe, progress=False)["attention_received"].values
    sinking = data[0, ..., 0].mean(axis=0) > EPS
    sinking = sinking if sinking.any() else np.ones_like(sinking)
    received = data[1, ..., P][:, sinking].mean(axis=1)
    predicted, measured = ratio[chosen] > HALF, received > EPS
    counts = [int(((predicted == one) & (measured == other)).sum()) for one in (True, False) for other in (True, False)]
    return {
        "predicted and measured, predicted only, measured only, neither": counts,
        "correlation": float(np.corrcoef(ratio[chosen], received)[0, 1]),
        "received by the 16 most, 16 least, 32 random": [
            float(each.mean()) for each in np.split(received, (quarter, 2 * quarter))
        ],
    }


def kinds(model: Model, tokens: NDArray[np.int32]) -> Card:
    """Sinks by kind, as shares of heads and blocks; the null has the values of each block in a random order of its positions."""
    probe = sinkjax.Probe(attention=True, capture=(sinkjax.Capture(sinkjax.Site.VALUE),))
    record = sinkjax.forward(model, tokens, probe=probe, logits=False).record
    rng = intervals.generator(0, "kinds of sinks")
    orders = np.stack([rng.permutation(tokens.shape[1]) for _ in tokens])
    values = np.asarray(record["values"])
    shuffled = np.take_along_axis(values, orders[:, None, :, None, None], axis=2)
    out = model.params["layers"]["o"]
    found = {}
    for name, given in (("sinks", values), ("null", shuffled)):
        each = metrics.sink_kind({"attention": np.asarray(record["attention"]), "values": given}, out)
        there = each.kind != ""
        found[name] = {
            **{kind: float((each.kind == kind).mean()) for kind in ("no-op", "broadcast", "neither")},
            "at key 0": float((each.key == 0).mean()),
            "ratio": np.quantile(each.ratio[there], (0.1, 0.5, 0.9)) if there.any() else None,
            "rank": np.quantile(each.rank[there], (0.1, 0.5, 0.9)) if there.any() else None,
        }
    return found


def costs(model: Model, tokens: NDArray[np.int32]) -> Card:
    """Loss, and the loss added by 8 bits of weights, activations, keys and values, and by a cache of 16 keys."""
    eight = dict.fromkeys(("weights", "activations", "kv"), 8)
    settings: dict[str, dict[str, Any]] = {
        f"8 bits, a scale per {scale}{', first token spared' * bool(keep)}": {**eight, "scale": scale, "keep": keep}
        for scale in ("tensor", "token")
        for keep in ((), (0,))
    }
    settings |= {f"{sinks} first keys, window {window}": {"cache": sinkjax.Streaming(sinks, window)} for sinks, window in WIDTHS}
    base = sinkjax.evaluate(model, tokens).loss
    found: Card = {"loss": base}
    for name, setting in settings.items():
        try:
            found[name] = sinkjax.evaluate(model, tokens, **setting).loss - base
        except SinkjaxError:  # a cache does not fit every model
            found[name] = None
    return found
