"""What studies of several papers share: edits of more than one call, forward passes over a few prompts at a time, exact rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax import forward
from sinkjax.analysis.estimates import constant
from sinkjax.analysis.summary import Row
from sinkjax.checkpoints.model import Model
from sinkjax.edits.edit import Edit
from sinkjax.edits.named import edit
from sinkjax.errors import SinkjaxError
from sinkjax.probes.probe import Probe
from sinkjax.study import Batch, Layers, Measure, percentage

Arrays = dict[str, NDArray[Any]]


def cut_links(rng: np.random.Generator, count: int, length: int, layers: Sequence[int] | None = None) -> Edit:
    """Hide one random key from `count` random later queries; the key is neither the first, whose sink is read, nor at `count`.

    length: number of positions.
    """
    keys = [key for key in range(1, length - count) if key != count]
    if not keys:
        raise SinkjaxError(f"no key of {length} positions has {count} later queries")
    key = int(rng.choice(keys))
    queries = tuple(sorted(rng.choice(np.arange(key + 1, length), count, replace=False).tolist()))
    label = f"{count} links to key {key} cut"
    return edit("logits", "set", -np.inf, queries=queries, keys=key, relation="others", label=label, layers=layers)


def see_only(position: int, key: int, layers: Sequence[int] | None = None) -> Edit:
    """Let a query see only one earlier key; compare `attend_self`, where it sees only itself."""
    hidden = [number for number in range(position + 1) if number != key]
    label = f"query {position} sees key {key} alone"
    return edit("logits", "set", -np.inf, queries=position, keys=hidden, label=label, layers=layers)


def hide_behind(key: int, position: int) -> Edit:
    """Hide a key from all queries behind a position, so that a token there has no competitor and nothing before it changes."""
    label = f"key {key} hidden from queries behind {position}"
    return edit("logits", "set", -np.inf, keys=key, queries=slice(position + 1, None), label=label)


def after(last: int, layers: int, name: str) -> Layers:
    """Return the layers of a model after `last`; its last layer if there are none. name: a label for `last`."""
    return Layers(f"layers after {name}", tuple(range(min(last + 1, layers - 1), layers)))


def in_blocks(batch: Batch, size: int, compute: Callable[..., Mapping[str, Any]]) -> Arrays:
    """Compute arrays [prompt, ...] from the tokens and lengths of `size` prompts at a time, and join them."""
    parts = [{name: np.asarray(array) for name, array in compute(*prompts).items()} for prompts in batch.blocks(size)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def recorded(model: Model, batch: Batch, probe: Probe, size: int, edits: Edit | Sequence[Edit] = ()) -> Arrays:
    """Return the record of all prompts, from a forward pass over `size` of them at a time."""
    return in_blocks(
        batch, size, lambda tokens, lengths: forward(model, tokens, None, edits, probe, lengths, logits=False).record
    )


def mean_weight(name: str, asks: Probe, statistic: str, index: tuple[Any, ...], axes: Any = -1, **facts: Any) -> Measure:
    """Return weights of a statistic, at an index of its last axes and averaged over some of these, in per cent.

    facts: further attributes of `Measure`.
    """
    return percentage(name, lambda data: np.asarray(100 * data[statistic].values[(..., *index)].mean(axis=axes)), asks, **facts)


def exact_rows(condition: str, series: str, numbers: Mapping[str, Any]) -> list[Row]:
    """Make the rows of numbers without intervals. numbers: name of the measure -> number."""
    return [Row(condition, series, measure, constant(float(number))) for measure, number in numbers.items()]
