"""Access to records for the metrics: key scores, choices of positions, means over heads, and peaks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError, one_of, short

RULES = ("gu", "queipo")
RECEIVED = "attention_received"
STATISTICS = (RECEIVED, "attention_share")
KEYS, DEPTHS = ("prompt", "layer", "head", "key"), ("prompt", "depth", "position")
AXES = {  # the last axes of the statistics that metrics read
    **dict.fromkeys(STATISTICS, KEYS),
    **dict.fromkeys(("resid_max", "resid_norm", "resid_median", "resid_first_cosine"), DEPTHS),
    "attention_self": ("prompt", "layer", "head", "query"),
    "value_norm": ("prompt", "layer", "kv_head", "position"),
    "values": ("prompt", "layer", "position", "kv_head", "head_dim"),
    "state_median": DEPTHS[:2],
    "nll": ("prompt", "position"),
    "logits_of": ("prompt", "token"),
}
HEAD_AXES = {"prompt": (-2, -1), "layer": (-1,), "head": ()}

Floats = NDArray[np.floating]
Statistics = Mapping[Any, Any]  # a record, or another mapping from statistic names to arrays


class Peak(NamedTuple):
    """Location and size of a maximum.

    Attributes:
        position: int, -1 if undefined.
        value: float, NaN if undefined.
    """

    position: NDArray[np.integer]
    value: Floats


def measured(record: Statistics, name: str) -> Floats:
    """Return a statistic as floats. Errors: it was not measured; it has other last axes than in a record."""
    from sinkjax.model.batch import as_array  # deferred because they import JAX, which listing the studies does not need
    from sinkjax.probes.record import Record

    if not isinstance(record, Mapping):
        what = f"a {type(record).__name__}" + (f" of shape {list(record.shape)}" if hasattr(record, "shape") else "")
        raise SinkjaxError(f"a record maps names to arrays, and this is {what}: sinkjax.metrics.from_tensors makes one of maps")
    found = Record(record)[name]
    values, axes = np.asarray(as_array(name, found)), AXES.get(name, ())
    named = getattr(found, "dims", (*values.shape[: values.ndim - len(axes)], *axes))  # of an xarray.DataArray
    if values.ndim < len(axes) or (axes and named[-len(axes) :] != axes):
        has = f"axes ({', '.join(map(str, named))})" if hasattr(found, "dims") else f"shape {list(values.shape)}"
        raise SinkjaxError(f"{name} must have the axes (..., {', '.join(axes)}), but has the {has}")
    if axes == KEYS and not isinstance(record, Record) and not hasattr(found, "dims") and _are_maps(values):
        remedy = "sinkjax.metrics.from_tensors averages each key over the queries that see it, to [..., prompt, layer, head, key]"
        raise SinkjaxError(f"{name} of shape {list(values.shape)} holds whole maps of attention, [..., query, key]: {remedy}")
    return values.astype(np.result_type(values.dtype, np.float32), copy=False)


def _are_maps(values: NDArray) -> bool:
    """Whether the last two axes are causal attention: nothing above the diagonal, and something below it after key 0."""
    square = values.shape[-1] == values.shape[-2]
    return square and not values[..., np.triu(np.ones(values.shape[-2:], bool), 1)].any() and bool(values[..., 1:].any())


def known_statistic(name: str) -> str:
    one_of("statistic", name, STATISTICS)
    return name


def finite_number(name: str, value: float) -> float:
    refuse(not isinstance(value, Real) or not math.isfinite(value), f"{name} must be one finite number, not {short(value)}")
    return float(value)


def key_scores(record: Statistics, statistic: str, rule: str) -> Floats:
    """Return the score of each key under `rule`: float[..., prompt, layer, head, key]."""
    one_of("rule", rule, RULES)
    received = measured(record, known_statistic(statistic))
    if rule == "gu":
        return received
    queries = queries_of(received)
    return received * (queries / np.maximum(queries[..., :1], 1))[..., None, None, :].astype(received.dtype)


def queries_of(received: Floats) -> NDArray[np.integer]:
    """Return the number of queries that see each key, length - key: int[..., prompt, key], at most 0 beyond the prompt."""
    lengths = (~np.isnan(received)).any(axis=(-3, -2)).sum(-1)
    return lengths[..., None] - np.arange(received.shape[-1])


def candidates(received: Floats, where: ArrayLike | None, min_queries: int) -> NDArray[np.bool_]:
    """Return which keys may be searched: bool[..., prompt, key]."""
    refuse(min_queries < 1, f"min_queries must be at least 1, not {min_queries}")
    return choice(received, where, inner=2) & (queries_of(received) >= min_queries)


def choice(values: Floats, where: ArrayLike | None, inner: int) -> NDArray[np.bool_]:
    """Broadcast `where` to bool[..., prompt, position] for values[..., prompt, (inner axes), position]."""
    shape = values.shape[: -1 - inner] + values.shape[-1:]
    mask = np.asarray(True if where is None else where)
    refuse(mask.dtype != np.bool_, f"a choice of positions must be boolean, not {mask.dtype}")
    return broadcast("a choice of positions", mask, shape)


def pick(values: Floats, position: ArrayLike, inner: int) -> Floats:
    """Select one position, or one per prompt, from values[..., prompt, (inner axes), position]: [..., prompt, (inner axes)]."""
    position, size = np.asarray(position), values.shape[-1]
    refuse(position.dtype.kind not in "iu", f"a position must be an integer, not {position.dtype}")
    outside = position[(position < 0) | (position >= size)]
    if outside.size:
        raise SinkjaxError(f"position {outside[0]} is not in the record; allowed: 0 to {size - 1}")
    index = broadcast("positions", position, values.shape[: -1 - inner])
    return np.take_along_axis(values, index.reshape(index.shape + (1,) * (inner + 1)), axis=-1)[..., 0]


def at(values: Floats, position: ArrayLike | None) -> Floats:
    """Select a position from values[..., prompt, depth, position]; None returns them unchanged."""
    return values if position is None else pick(values, position, inner=1)


def broadcast(what: str, array: NDArray, shape: tuple[int, ...]) -> NDArray:
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise SinkjaxError(f"{what} of shape {array.shape} do not fit a record of shape {shape}") from None


def above(scores: Floats, eps: float, rule: str) -> Floats:
    """Return 1 or 0, or NaN where the score is NaN."""
    eps = finite_number("eps", eps)  # NumPy compares in the dtype of the scores, like torch in the paper's code
    return np.where(np.isnan(scores), np.nan, scores > eps if rule == "gu" else scores >= eps)


def head_mean(values: Floats, per: str) -> Floats:
    """Average values[..., layer, head] over the axes that `per` specifies."""
    one_of("per", per, HEAD_AXES)
    return values.mean(axis=HEAD_AXES[per], dtype=np.float64)


def ratio(above: Floats, below: Floats) -> Floats:
    """Return above / below, or NaN where the denominator is 0."""
    return np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0)


def over_others(sizes: Floats) -> Floats:
    """Divide each position's value by the mean of the prompt's other values, ignoring NaN: float[..., position]."""
    present = ~np.isnan(sizes)
    others = np.where(present, sizes, 0).sum(-1, keepdims=True) - sizes
    return ratio(sizes * (present.sum(-1, keepdims=True) - 1), others)


def peak(values: Floats, chosen: NDArray[np.bool_]) -> Peak:
    """Find the largest of values[..., position] among the chosen."""
    masked = np.where(chosen, values, -np.inf)
    position = masked.argmax(-1)
    value = np.take_along_axis(masked, position[..., None], -1)[..., 0]
    defined = chosen.any(-1) & ~np.isnan(value)
    return Peak(np.where(defined, position, -1), np.where(defined, value, np.nan))
