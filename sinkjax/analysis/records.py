"""How the metrics read a record: the scores of its keys, choices of positions, means over heads, peaks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkjax.errors import SinkjaxError, one_of, short

RULES = ("gu", "queipo")
STATISTICS = ("attention_received", "attention_share")
HEAD_AXES = {"prompt": (-2, -1), "layer": (-1,), "head": ()}

Floats = NDArray[np.floating]


class Peak(NamedTuple):
    """Location and size of a maximum.

    Attributes:
        position: int, -1 where undefined.
        value: float, NaN where undefined.
    """

    position: NDArray[np.integer]
    value: Floats


def measured(record: Mapping[Any, Any], name: str) -> Floats:
    from sinkjax.probes.record import Record  # imports JAX, which a list of the studies need not

    values = np.asarray(Record(record)[name])
    return values.astype(np.result_type(values.dtype, np.float32), copy=False)


def known_statistic(name: str) -> str:
    one_of("statistic", name, STATISTICS)
    return name


def finite_number(name: str, value: float) -> float:
    if not isinstance(value, Real) or not math.isfinite(value):
        raise SinkjaxError(f"{name} must be one finite number, not {short(value)}")
    return float(value)


def key_scores(record: Mapping[Any, Any], statistic: str, rule: str) -> Floats:
    """Score of each key under `rule`: float[..., prompt, layer, head, key]."""
    one_of("rule", rule, RULES)
    received = measured(record, known_statistic(statistic))
    if rule == "gu":
        return received
    queries = queries_of(received)
    return received * (queries / np.maximum(queries[..., :1], 1))[..., None, None, :].astype(received.dtype)


def queries_of(received: Floats) -> NDArray[np.integer]:
    """How many queries see each key, length - key: int[..., prompt, key], 0 or less beyond the prompt."""
    lengths = (~np.isnan(received)).any(axis=(-3, -2)).sum(-1)
    return lengths[..., None] - np.arange(received.shape[-1])


def candidates(received: Floats, where: ArrayLike | None, min_queries: int) -> NDArray[np.bool_]:
    """Keys that may be searched: bool[..., prompt, key]."""
    if min_queries < 1:
        raise SinkjaxError(f"min_queries must be at least 1, not {min_queries}")
    return choice(received, where, inner=2) & (queries_of(received) >= min_queries)


def choice(values: Floats, where: ArrayLike | None, inner: int) -> NDArray[np.bool_]:
    """`where` as bool[..., prompt, position] for values[..., prompt, (inner axes), position]."""
    shape = values.shape[: -1 - inner] + values.shape[-1:]
    mask = np.asarray(True if where is None else where)
    if mask.dtype != np.bool_:
        raise SinkjaxError(f"a choice of positions must be boolean, not {mask.dtype}")
    return broadcast("a choice of positions", mask, shape)


def pick(values: Floats, position: ArrayLike, inner: int) -> Floats:
    """values[..., prompt, (inner axes), position] at one position, or one per prompt: [..., prompt, (inner axes)]."""
    position, size = np.asarray(position), values.shape[-1]
    if position.dtype.kind not in "iu":
        raise SinkjaxError(f"a position must be a whole number, not {position.dtype}")
    outside = position[(position < 0) | (position >= size)]
    if outside.size:
        raise SinkjaxError(f"position {outside[0]} is not in the record; allowed: 0 to {size - 1}")
    index = broadcast("positions", position, values.shape[: -1 - inner])
    return np.take_along_axis(values, index.reshape(index.shape + (1,) * (inner + 1)), axis=-1)[..., 0]


def at(values: Floats, position: ArrayLike | None) -> Floats:
    """values[..., prompt, depth, position] at a position, or as they are for None."""
    return values if position is None else pick(values, position, inner=1)


def broadcast(what: str, array: NDArray, shape: tuple[int, ...]) -> NDArray:
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise SinkjaxError(f"{what} of shape {array.shape} do not fit a record of shape {shape}") from None


def above(scores: Floats, eps: float, rule: str) -> Floats:
    """1 or 0, NaN where the score is."""
    eps = finite_number("eps", eps)  # numpy compares in the dtype of the scores, as torch does in the paper's code
    return np.where(np.isnan(scores), np.nan, scores > eps if rule == "gu" else scores >= eps)


def head_mean(values: Floats, per: str) -> Floats:
    """values[..., layer, head] averaged over the axes that `per` joins."""
    one_of("per", per, HEAD_AXES)
    return values.mean(axis=HEAD_AXES[per], dtype=np.float64)


def ratio(above: Floats, below: Floats) -> Floats:
    """above / below, NaN where there is nothing below."""
    return np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0)


def over_others(sizes: Floats) -> Floats:
    """Each position's number over the mean of the prompt's others that are not NaN: float[..., position]."""
    present = ~np.isnan(sizes)
    others = np.where(present, sizes, 0).sum(-1, keepdims=True) - sizes
    return ratio(sizes * (present.sum(-1, keepdims=True) - 1), others)


def peak(values: Floats, chosen: NDArray[np.bool_]) -> Peak:
    """The largest of values[..., position] among the chosen."""
    masked = np.where(chosen, values, -np.inf)
    position = masked.argmax(-1)
    value = np.take_along_axis(masked, position[..., None], -1)[..., 0]
    defined = chosen.any(-1) & ~np.isnan(value)
    return Peak(np.where(defined, position, -1), np.where(defined, value, np.nan))
