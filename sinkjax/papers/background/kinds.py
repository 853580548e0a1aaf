"""background/kinds: heads whose sink is a no-op and heads that broadcast its value (Fesser et al. 2026, there in vision).

The value or the weight of the sink is taken from all heads of a kind. Controls take a random later key's from the same heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax import Capture, Edit, Probe, Site, edit, forward
from sinkjax.analysis import intervals, metrics
from sinkjax.checkpoints.model import Model
from sinkjax.papers._shared import Arrays, in_blocks
from sinkjax.study import *
from sinkjax.study import Batch, Calculation

KINDS = ("no-op", "broadcast", "neither")
WAYS = ("zero", "mean", "shuffled", "diagonal", "spread")
BLOCK = 8  # prompts whose attention maps are in memory at one time


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled):
    prompts: int = 16
    control_prompts: int = 8
    key: int = 0
    """the key whose sinks are classified and edited"""


@dataclass(frozen=True, eq=False)
class Heads:
    """The heads of every prompt by the kind of their sink on a key.

    Attributes:
        kinds: str[B, L, H], "" for no sink.
        values: float[B, L, T, K, D], the values of all tokens.
        lengths: int[B].
    """

    kinds: NDArray[Any]
    values: NDArray[Any]
    lengths: NDArray[Any]


def study(lab: Lab, s: Settings) -> None:
    """Sinks that are no-ops, and sinks that are broadcast."""
    lab.needs("causal mask", "softmax")
    change, nll = state_change(lab.layers - 1), loss()
    heads = lab.donor("sinks", lambda run: heads_of(run.model, run.batch, s.key), placeholder(lab), of_edited=True)

    def another_key(rng: np.random.Generator, case: Layers) -> Edit:
        keys = np.delete(np.arange(int(heads.lengths.min()) - 1), s.key)
        return take(heads, case["way"], case["kind"], int(rng.choice(keys)), s.seed)

    edits = {ALL.at(kind=kind, way=way): take(heads, way, kind, s.key, s.seed) for kind in KINDS for way in WAYS}
    edited = lab.sweep("edited", edits, [change, nll], another_key)
    lab.noop(edit("head_value", "scale", 1.0, keys=s.key))
    shares = lab.calculate("shares", partial(shares_of, s.key), ["share"], {"shares": s.key}, s.prompts)

    def of(kind: str, way: str = "zero") -> Selection:
        return edited.at(kind=kind, way=way)

    def without(kind: str) -> list[Contrast]:
        """The other ways for a kind, and how far the final states move."""
        return [effect(change, of(kind)), *(effect(nll, of(kind, way), controls=False) for way in WAYS[1:])]

    source, no_op, broadcast = "ours, on Fesser et al. 2026", has_heads(shares, "no-op"), has_heads(shares, "broadcast")
    lab.claim("more", source, more_heads(shares, "no-op", "broadcast"))
    lab.claim("no-op", source, effect(nll, of("no-op")), no_op, without("no-op"), stays=True, took=WRITTEN)
    lab.claim("broadcast", source, effect(nll, of("broadcast")), broadcast, without("broadcast"), took=WRITTEN)
    states = difference(change, of("broadcast"), minus=of("no-op"))
    lab.claim("states", source, states, has_heads(shares, "no-op", "broadcast"), took=WRITTEN)
    lab.claim("weight", source, difference(nll, of("no-op", "diagonal"), minus=of("no-op")), no_op, took=WRITTEN)
    lab.draw(dots, change, nll, over=edited)


def heads_of(model: Model, batch: Batch, key: int) -> Heads:
    """Return the kind of each head whose sink is at `key`, and the values."""
    probe = Probe(attention=True, capture=(Capture(Site.VALUE),))

    def of_block(tokens: NDArray[Any], lengths: NDArray[Any]) -> Arrays:
        record = forward(model, tokens, probe=probe, lengths=lengths, logits=False).record
        sinks = metrics.sink_kind(record, model.params["layers"]["o"])
        return {"kinds": np.where(sinks.key == key, sinks.kind, ""), "values": np.asarray(record["values"], np.float32)}

    return Heads(**in_blocks(batch, BLOCK, of_block), lengths=batch.lengths)


def placeholder(lab: Lab) -> Heads:
    """Heads without a sink, and values of the right shape."""
    B, L, T, config = lab.prompts, lab.layers, lab.settings.length, lab.architecture
    values = np.broadcast_to(np.float32(0), (B, L, T, config.kv_heads, config.head_dim))
    return Heads(np.full((B, L, config.heads), ""), values, np.full(B, T))


def take(heads: Heads, way: str, kind: str, key: int, seed: int) -> Edit:
    """Take the value or the weight of a key from all heads of a kind, each prompt's own.

    Args:
        heads: The heads.
        way: The value's replacement: "zero", "mean" (of the other tokens) or "shuffled" (a random other token's). The weight's:
            "diagonal" (it goes to the query's own key) or "spread" (over the other keys, in proportion to their weights).
        kind: One of `KINDS`.
        key: The key.
        seed: Seed of the random other tokens.
    """
    values, lengths, label = heads.values, heads.lengths, f"key {key}"
    chosen = np.moveaxis(heads.kinds == kind, 0, 1).astype(np.float32)  # [L, B, H]
    if way in ("diagonal", "spread"):
        to = "self" if way == "diagonal" else True
        return edit("weights", "scale", 1 - chosen, keys=key, relation="others", renormalise=to, label=label)
    if way == "zero":
        return edit("head_value", "scale", 1 - chosen[..., None], keys=key, label=label)
    if way == "mean":
        others = (np.arange(values.shape[2]) < lengths[:, None]) & (np.arange(values.shape[2]) != key)
        wanted = np.einsum("BT,BLTKD->BLKD", others / others.sum(axis=1, keepdims=True), np.nan_to_num(values))
    else:
        rng = intervals.generator(seed, "background/kinds shuffled")
        place = np.array([rng.choice(np.delete(np.arange(length), key)) for length in lengths])
        wanted = values[np.arange(len(lengths)), :, place]
    change = np.moveaxis(np.repeat(wanted - values[:, :, key], chosen.shape[2] // values.shape[3], axis=2), 0, 1)
    return edit("head_value", "add", change * chosen[..., None], keys=key, label=label)


def state_change(last: int) -> Measure:
    """Relative change of the hidden states after the last layer, in percent, mean over tokens."""
    name = "last_states"

    def of(data: xarray.Dataset) -> NDArray[Any]:
        states = data[name].values[:, :, 0].astype(np.float64)  # [edit, prompt, position, dim]
        sizes = np.linalg.norm(states[0], axis=-1)
        return np.asarray(100 * np.nanmean(np.linalg.norm(states - states[0], axis=-1) / sizes, axis=-1))

    asks = Probe(capture=(Capture(Site.RESID, layers=(last,), name=name),))
    note = """Final states: the norm of the change of a token's hidden state after the last layer, over the norm of that state
        without an edit; mean over tokens."""
    return Measure("change of the final states (%)", of, asks, unit="percent of their norm", note=note)


# Which kinds there are.


def shares_of(key: int, model: Model, batch: Batch) -> xarray.Dataset:
    """Percentage of each prompt's heads whose sink is at a key, by kind."""
    heads = heads_of(model, batch, key)
    shares = np.stack([100 * (heads.kinds == kind).mean(axis=(1, 2)) for kind in KINDS])
    return xarray.Dataset({"share": (("kind", "prompt"), shares)}, {"kind": list(KINDS)})


def _share(read: Numbers, shares: Calculation, kind: str) -> NDArray[Any]:
    return np.asarray(read.data(shares.name)["share"].sel(kind=kind).values)


@from_results
def more_heads(read: Numbers, shares: Calculation, kind: str, minus: str) -> Parts:
    """Return the heads of one kind minus heads of another, in percent of all heads; the whole is the first."""
    whole, label = _share(read, shares, kind), f"heads with a {kind} sink minus heads with a {minus} sink (%)"
    excess = whole - _share(read, shares, minus)
    return Parts(excess, None, whole, (0.0, 100.0), "percentage points", label, uncontrolled="nothing is edited")


def has_heads(shares: Calculation, *kinds: str) -> Premise:
    """Return the premise that the model has heads of each of some kinds, in some prompt."""

    def test(read: Numbers) -> tuple[bool, str]:
        means = {kind: _share(read, shares, kind).mean() for kind in kinds}
        text = "; ".join(f"{share:.3g}% of the heads have a {kind} sink" for kind, share in means.items())
        return bool(min(means.values()) > 0), text

    return Premise(test)
