"""Heads by the kind of their sink (Fesser et al. 2026), and edits that take the sink's value or its weight from all of a kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals, metrics
from sinkjax.studies.known import Unedited
from sinkjax.studies.scope import last_layer
from sinkjax.studies.vocabulary import Computation, Contrast, EditWord, F, Known, Measure, Parts, Premise, Readings

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model
    from sinkjax.studies.scope import Scope
    from sinkjax.studies.study import Batch

KINDS = ("no-op", "broadcast", "neither")
WAYS = ("zero", "mean", "shuffled", "diagonal", "spread")
BLOCK = 8  # prompts whose attention maps are in memory at one time
VALUES, STATES = sinkjax.Site.VALUE, "last_states"


def kinds_of(model: Model, batch: Batch, key: int) -> tuple[NDArray, NDArray]:
    """The kind of each head whose sink is at `key`, str[B, L, H], "" for none, and the values [B, L, T, K, D]."""
    probe = sinkjax.Probe(attention=True, capture=(sinkjax.Capture(VALUES),))
    kinds, values = [], []
    for tokens, lengths in batch.blocks(BLOCK):
        record = sinkjax.forward(model, tokens, probe=probe, lengths=lengths, logits=False).record
        found = metrics.sink_kind(record, model.params["layers"]["o"])
        kinds.append(np.where(found.key == key, found.kind, ""))
        values.append(np.asarray(record["values"], np.float32))
    return np.concatenate(kinds), np.concatenate(values)


def _blank(scope: Scope, prompts: int) -> dict[str, NDArray]:
    L, shape = scope.architecture.layers, (scope.config.length, scope.architecture.kv_heads, scope.architecture.head_dim)
    return {
        "kinds": np.full((prompts, L, scope.architecture.heads), ""),
        "values": np.broadcast_to(np.float32(0), (prompts, L, *shape)),
        "lengths": np.full(prompts, scope.config.length),
    }


@Known.define(blank=_blank, of_edited=True)
def sinks_at(scope: Scope, run: Unedited, key: object) -> dict[str, NDArray]:
    """The kinds of the heads whose sink is at a key, the values of all tokens, and the lengths, of every prompt."""
    model, batch = run.loaded
    kinds, values = kinds_of(model, batch, scope.get(key))
    return {"kinds": kinds, "values": values, "lengths": np.asarray(batch.lengths)}


@EditWord.define()
def take(scope: Scope, way: object, kind: object, random: bool = False) -> sinkjax.Edit:
    """Take the value or the weight of the sink from all heads of a kind, each prompt's own.

    Args:
        scope: A scope with the known `sinks`, and the key.
        way: The value's replacement: "zero", "mean" (of the other tokens) or "shuffled" (a random other token's). The weight's:
            "diagonal" (it goes to the query's own key) or "spread" (over the other keys, in proportion to their weights).
        kind: One of `KINDS`.
        random: Whether a random later key takes the place of the sink.
    """
    sinks, how, key = scope.get(F.sinks), scope.get(way), scope.get(F.key)
    kinds, values, lengths = sinks["kinds"], sinks["values"], sinks["lengths"]
    if random:
        key = int(scope.random.choice(np.delete(np.arange(int(lengths.min()) - 1), key)))
    chosen = np.moveaxis(kinds == scope.get(kind), 0, 1).astype(np.float32)  # [L, B, H]
    label = f"key {key}"
    if how in ("diagonal", "spread"):
        to = "self" if how == "diagonal" else True
        return sinkjax.edit("weights", "scale", 1 - chosen, keys=key, relation="others", renormalise=to, label=label)
    if how == "zero":
        return sinkjax.edit("head_value", "scale", 1 - chosen[..., None], keys=key, label=label)
    at_key = values[:, :, key]
    if how == "mean":
        others = (np.arange(values.shape[2]) < lengths[:, None]) & (np.arange(values.shape[2]) != key)
        wanted = np.einsum("BT,BLTKD->BLKD", others / others.sum(axis=1, keepdims=True), np.nan_to_num(values))
    else:
        rng = intervals.generator(scope.config.seed, "background/kinds shuffled")
        place = np.array([rng.choice(np.delete(np.arange(length), key)) for length in lengths])
        wanted = values[np.arange(len(lengths)), :, place]
    change = np.moveaxis(np.repeat(wanted - at_key, chosen.shape[2] // values.shape[3], axis=2), 0, 1)
    return sinkjax.edit("head_value", "add", change * chosen[..., None], keys=key, label=label)


# Measures


def last_states(layer: int | None = None) -> sinkjax.Probe:
    """Ask for the hidden states after a layer, once its number is known from the model."""
    if layer is None:
        return sinkjax.Probe()
    return sinkjax.Probe(capture=(sinkjax.Capture(sinkjax.Site.RESID, layers=(layer,), name=STATES),))


@Measure.define(
    label="change of the final states (%)",
    unit="percent of their norm",
    asks=last_states,
    note="""Final states: the norm of the change of a token's hidden state after the last layer, over the norm of that state
        without an edit; mean over tokens.""",
)
def state_change(data: xarray.Dataset, layer: object = last_layer()) -> NDArray:
    """Relative change of the hidden states after the last layer, in percent, mean over tokens."""
    states = data[STATES].values[:, :, 0].astype(np.float64)  # [edit, prompt, position, dim]
    sizes = np.linalg.norm(states[0], axis=-1)
    return np.asarray(100 * np.nanmean(np.linalg.norm(states - states[0], axis=-1) / sizes, axis=-1))


# Which kinds there are


@Computation.define(variables=("share",), prompts=F.prompts)
def shares(scope: Scope, model: Model, batch: Batch, key: object) -> xarray.Dataset:
    """Percentage of each prompt's heads whose sink is at a key, by kind.

    Args:
        scope: The study's scope.
        model: The model.
        batch: The prompts.
        key: The key.
    """
    import xarray

    kinds, _ = kinds_of(model, batch, scope.get(key))
    found = np.stack([100 * (kinds == kind).mean(axis=(1, 2)) for kind in KINDS])
    return xarray.Dataset({"share": (("kind", "prompt"), found)}, {"kind": list(KINDS)})


def _share(read: Readings, computation: str, kind: str) -> NDArray:
    return np.asarray(read.results[read.store(computation)]["share"].sel(kind=kind).values)


@Contrast.define(uncontrolled="nothing is edited")
def more_heads(read: Readings, computation: str, kind: str, minus: str) -> Parts:
    """Heads of one kind minus heads of another, in percent of all heads; the whole is the first.

    Args:
        read: The stores.
        computation: The shares of the kinds.
        kind: One of `KINDS`.
        minus: The kind that is subtracted.
    """
    one, other = (_share(read, computation, name) for name in (kind, minus))
    label = f"heads with a {kind} sink minus heads with a {minus} sink (%)"
    return Parts(one - other, None, one, (0.0, 100.0), "percentage points", label)


@Premise.define()
def has_heads(read: Readings, computation: str, kinds: tuple[str, ...]) -> tuple[bool, str]:
    """The model has heads of each of some kinds, in some prompt."""
    means = {kind: _share(read, computation, kind).mean() for kind in kinds}
    text = "; ".join(f"{share:.3g}% of the heads have a {kind} sink" for kind, share in means.items())
    return bool(min(means.values()) > 0), text
