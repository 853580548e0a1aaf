"""Statistics of heads and of their sink's value, after papers of 2026.

Where a paper averages over all queries of a batch, these functions average over the queries of each prompt first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from sinkjax.analysis import records
from sinkjax.analysis.records import RECEIVED, Floats, Statistics
from sinkjax.config_files.checks import refuse

SELF, BIAS = "attention_self", "attention_received_bias"


def diagonal_share(record: Statistics, per: str = "prompt") -> Floats:
    """Return the mean weight of queries on their own key, A[i, i] over i >= 1 (after Lampert et al., arXiv 2605.08453).

    The paper compares sinks with diagonal patterns; the average is ours. The first query, which sees only itself, is left out.

    Args:
        record: Statistics by name, with attention_self.
        per: "prompt", "layer" or "head": the axes that remain (see the top of `sinkjax.metrics`).

    Returns:
        float[..., prompt], [..., prompt, layer] or [..., prompt, layer, head]; NaN for a prompt of one token.

    Raises:
        SinkjaxError: The statistic was not measured; `per` is unknown.
    """
    own = records.measured(record, SELF).astype(np.float64)[..., 1:]
    present = ~np.isnan(own)
    return records.head_mean(records.ratio(np.where(present, own, 0).sum(-1), present.sum(-1)), per)


def from_later(record: Statistics, key: ArrayLike) -> Floats:
    """Return the mean weight that a key receives from later queries, without its own: float[..., prompt, layer, head]."""
    received = records.measured(record, RECEIVED).astype(np.float64)
    seen_by = np.broadcast_to(records.queries_of(received)[..., None, None, :], received.shape)
    sums, own = received * seen_by, records.measured(record, SELF)
    refuse(own.shape != sums.shape, f"{SELF} and {RECEIVED} differ in shape: {own.shape} and {sums.shape}")
    return records.pick(records.ratio(sums - own, seen_by - 1), key, inner=2)


def sink_divergence(record: Statistics, other: Statistics, key: ArrayLike = 0, other_key: ArrayLike | None = None) -> Floats:
    """Return each head's mean attention to the sink in one record minus that in another (Liu et al., arXiv 2602.05228).

    D[h] = mean of A[i, key] over prompts and queries i > key in `record`, minus the same in `other`. The paper compares a model's
    harmful answers with its refusals; two models on the same prompts, such as before and after a fine-tuning, compare as well.

    Args:
        record: Statistics by name, with attention_received and attention_self.
        other: The same of other prompts or of another model with as many layers and heads.
        key: Position of the sink, int or int[prompt] (`sink_position(record).position`).
        other_key: The same in `other`; None: `key`.

    Returns:
        float[..., layer, head] in -1..1.

    Raises:
        SinkjaxError: A statistic was not measured; a key is outside a record; the records differ in layers or heads.
    """
    here, there = from_later(record, key), from_later(other, key if other_key is None else other_key)
    differ = here.shape[-2:] != there.shape[-2:]
    refuse(differ, f"the records differ in layers and heads: {here.shape[-2:]} and {there.shape[-2:]}")
    one, two = (records.ratio(np.nansum(each, axis=-3), (~np.isnan(each)).sum(axis=-3)) for each in (here, there))
    return one - two


def head_load(record: Statistics, key: ArrayLike | None = 0) -> Floats:
    """Return each head's gate, 1 minus its attention to the sink, divided by the layer's mean (after Fu et al., 2602.01203).

    The paper reads 1 - A[i, sink] as the gate of an expert. Here it is averaged over the queries i > key. A load of 1 in all
    heads is balance, and the standard deviation over a layer's heads is the coefficient of variation.

    Args:
        record: Statistics by name, with attention_received and attention_self, or, for a sink logit, attention_received_bias.
        key: Position of the sink, int or int[prompt]; None: the model's sink logit.

    Returns:
        float[..., prompt, layer, head], with a mean of 1 over heads; NaN if no head of the layer attends elsewhere.

    Raises:
        SinkjaxError: A statistic was not measured; the key is outside the record.
    """
    gate = 1 - (records.measured(record, BIAS).astype(np.float64) if key is None else from_later(record, key))
    return records.ratio(gate, np.broadcast_to(gate.mean(axis=-1, keepdims=True), gate.shape))


def value_norm_ratio(record: Statistics, key: ArrayLike = 0) -> Floats:
    """Return |v_key| divided by the mean |v| of the prompt's other positions: small for a sink that writes nothing.

    Args:
        record: Statistics by name, with value_norm.
        key: Position of the sink, int or int[prompt].

    Returns:
        float[..., prompt, layer, kv_head]; NaN in a prompt of one token.

    Raises:
        SinkjaxError: The statistic was not measured; the key is outside the record.
    """
    return records.pick(records.over_others(records.measured(record, "value_norm").astype(np.float64)), key, inner=2)


def value_null_share(record: Statistics, key: ArrayLike = 0, energy: float = 0.99) -> Floats:
    """Return the share of |v_key|^2 outside the directions of the other tokens' values: 1 in their null space, 0 in their span.

    The directions are the fewest principal ones (uncentred) with `energy` of the others' summed |v|^2. The definition is ours. A
    prompt with fewer tokens than the head has dims puts every token partly outside: compare with other
    positions.

    Args:
        record: Captured values, `Probe(capture=[Capture("value")])`, of all positions and dims.
        key: Position of the sink, int or int[prompt].
        energy: Share of the others' squared norm, strictly between 0 and 1.

    Returns:
        float[..., prompt, layer, kv_head]; NaN if the key's value is 0 or not finite.

    Raises:
        SinkjaxError: The values were not captured; the key is outside the record; `energy` is not between 0 and 1.
    """
    refuse(not 0 < records.finite_number("energy", energy) < 1, f"energy must be between 0 and 1, not {energy}")
    refuse("values" not in record, 'the values were not captured: Probe(capture=[Capture("value")])')
    values = np.swapaxes(records.measured(record, "values").astype(np.float64), -3, -2)  # [..., kv_head, position, head_dim]
    at = np.stack([records.pick(each, key, inner=2) for each in np.moveaxis(values, -1, 0)], axis=-1)
    places = np.broadcast_to(np.asarray(key), values.shape[:-4])[..., None, None, None] == np.arange(values.shape[-2])
    others = np.where(np.isfinite(values) & ~places[..., None], values, 0)
    held, axes = np.linalg.eigh(np.swapaxes(others, -1, -2) @ others)
    rest = np.cumsum(held, axis=-1)  # of each direction and all smaller ones
    outside = rest <= (1 - energy) * rest[..., -1:]
    along = np.square(np.einsum("...d,...de->...e", np.where(np.isfinite(at), at, np.nan), axes))
    return records.ratio(np.where(outside, along, 0).sum(-1) + 0 * at.sum(-1), along.sum(-1))
