"""One operation at one site: as declared, with selectors (`Term`), and as the arrays that jitted code sees (`Resolved`).

The pytree structure and the shapes of resolved terms are the *kind* of an edit: edits of one kind stack along a leading axis and
compile once, whatever their layers, heads, positions and strengths. Nothing in them has T x T entries, so thousands of stacked
edits cost kilobytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError, short
from sinkjax.model.batch import as_array, as_indices
from sinkjax.model.config import Config
from sinkjax.model.site import BEFORE_BLOCKS, PAIRS, SITES, Site


@dataclass(frozen=True)
class Range:
    """A slice with non-negative ends that is hashable on every supported Python version."""

    start: int | None
    stop: int | None
    step: int | None


@dataclass(frozen=True)
class PerPrompt:
    """One position, or one tuple of positions, for each prompt of the batch."""

    positions: tuple[tuple[int, ...], ...]


Along = tuple[int, ...] | Range | None  # a selector along one axis; None selects everything
Selector = Along | PerPrompt
Select = int | Sequence[int] | slice | PerPrompt | None


def per_prompt(positions: Sequence[int | Sequence[int]]) -> PerPrompt:
    """Select positions that differ per prompt, for `queries`, `keys` and `position`.

    Args:
        positions: One entry per prompt: its position or positions.

    Returns:
        The selector.

    Raises:
        SinkjaxError: There are no entries, or one is neither a position nor a sequence of positions.
    """
    given: Any = positions
    if not isinstance(given, Sequence | np.ndarray) or len(given) == 0:
        raise SinkjaxError(f"per_prompt takes one entry for each prompt, not {short(positions)}")
    return PerPrompt(tuple(as_indices("position", entry) for entry in positions))


@struct.dataclass
class Term:
    """One operation at one site. `value` is the only pytree leaf; all else is static and hashable."""

    value: Any
    site: Site = struct.field(pytree_node=False)
    op: str = struct.field(pytree_node=False)
    layers: Along = struct.field(pytree_node=False, default=None)
    heads: Along = struct.field(pytree_node=False, default=None)
    queries: Selector = struct.field(pytree_node=False, default=None)
    keys: Selector = struct.field(pytree_node=False, default=None)
    dims: Along = struct.field(pytree_node=False, default=None)
    distances: Along = struct.field(pytree_node=False, default=None)
    relation: str = struct.field(pytree_node=False, default="any")
    renormalise: bool | str = struct.field(pytree_node=False, default=False)
    centre: str | None = struct.field(pytree_node=False, default=None)


@struct.dataclass
class Resolved:
    """One term as arrays.

    layer_head: bool [L, H], [L, K] or [L, 1] by the site's head axis. query, key: bool [B or 1, T], the selected positions (a
    site with one position axis uses the one of its name). dims: bool [size of the last axis, or 1]. value: int [B or 1, T] at
    POSITION, int [B or 1, 2] for a swap, else float [L or 1, B or 1, (T or 1,) (H or 1,) (dims or 1)], with the site's head and
    dims axes, and a position axis if the value has one; at WEIGHTS also float [L or 1, B or 1, H or 1, T], a row over keys.
    distance: bool [T], the selected distances of a query from its key, or None for all.
    """

    layer_head: Any
    query: Any
    key: Any
    dims: Any
    value: Any
    site: Site = struct.field(pytree_node=False)
    op: str = struct.field(pytree_node=False)
    relation: str = struct.field(pytree_node=False)
    renormalise: bool | str = struct.field(pytree_node=False)
    centre: str | None = struct.field(pytree_node=False)
    distance: Any = None

    def for_prompts(self, prompts: np.ndarray) -> Resolved:
        """Return the same term for some prompts of the batch, given by index."""
        axis = 0 if self.site == Site.POSITION or self.op == "swap" else 1

        def take(array: Any, axis: int) -> Any:
            return array if array.shape[axis] == 1 else array.take(prompts, axis)

        return dataclasses.replace(self, query=take(self.query, 0), key=take(self.key, 0), value=take(self.value, axis))

    def for_rows(self, first: jax.Array | int, count: int) -> Resolved:
        """Return the same term for `count` positions starting at `first`, in arrays that start there.

        A swap must be within or before them. LOGITS and WEIGHTS terms stay whole, because they are passed the positions of their
        rows.
        """
        if self.op == "swap":
            return dataclasses.replace(self, value=self.value - first)
        if self.site in PAIRS:
            return self

        def take(array: Any) -> jax.Array:
            return jax.lax.dynamic_slice_in_dim(array, first, count, axis=1)

        value = take(self.value) if self.site == Site.POSITION else self.value
        if self.by_position and value.shape[2] > 1:
            value = jax.lax.dynamic_slice_in_dim(value, first, count, axis=2)
        return dataclasses.replace(self, query=take(self.query), key=take(self.key), value=value)

    def padded(self, total: int) -> Resolved:
        """Return the same term padded to `total` positions; it does nothing at the new ones."""

        def pad(array: Any, axis: int) -> np.ndarray:
            entries = np.asarray(array)
            return np.pad(entries, [(0, total - entries.shape[axis] if axis == at else 0) for at in range(entries.ndim)])

        value = pad(self.value, 1) if self.site == Site.POSITION else self.value
        if self.by_position and value.shape[2] > 1:
            value = pad(value, 2)
        if self.site == Site.WEIGHTS and value.ndim == 4:
            value = pad(value, 3)
        distance = None if self.distance is None else pad(self.distance, 0)
        return dataclasses.replace(self, query=pad(self.query, 1), key=pad(self.key, 1), value=value, distance=distance)

    def where(self, active: jax.Array) -> Resolved:
        """Return the same term if `active`, bool [], is true, else one that selects nothing or swaps a row with itself."""
        if self.op == "swap":
            return dataclasses.replace(self, value=jnp.where(active, self.value, self.value[:, :1]))
        return dataclasses.replace(self, layer_head=self.layer_head & active)

    @property
    def first_row(self) -> int:
        """The first row, in any prompt, that the term addresses or changes: all rows before it are those of a run without it."""
        if self.op == "swap":
            return int(np.min(self.value))
        if self.centre == "positions":  # needs the rows before
            return 0
        masks = {"queries": self.query, "keys": self.key}
        first = [int(np.argmax(np.append(np.asarray(masks[axis]).any(axis=0), True))) for axis in SITES[self.site].positions]
        return min(first) if self.site == Site.POSITION else max(first)  # of a pair the later one: no query sees a later key

    @property
    def by_position(self) -> bool:
        """Whether the value has an axis of positions, its third."""
        spec = SITES[self.site]
        return spec.dims is not None and self.op != "swap" and self.value.ndim == 4 + (spec.heads is not None)


Edits = tuple[Resolved, ...]  # a ResolvedWeight (weights.py) may stand for a Resolved, since it has the same methods


def first_layer(edits: Edits, config: Config) -> int:
    """Return the first block whose computation the edits can change; earlier blocks reproduce the baseline.

    An edit of RESID at layer l changes nothing inside block l, but it changes the record at depth l + 1, so it also starts at l.
    """
    starts = [0 if term.site in BEFORE_BLOCKS else int(np.argmax(np.asarray(term.layer_head).any(axis=1))) for term in edits]
    return min(starts, default=config.layers)


def as_along(what: str, value: Select) -> Along:
    if value is None or isinstance(value, Range):
        return value
    refuse(isinstance(value, PerPrompt), f"per_prompt selects positions, not a {what}")
    if isinstance(value, slice):
        for end in (value.start, value.stop):
            if end is not None:
                as_indices(what, end)
        if value.step is not None and as_indices(f"{what} step", value.step) == (0,):
            raise SinkjaxError(f"the step of a {what} slice must be at least 1, not 0")
        return Range(value.start, value.stop, value.step)
    return as_indices(what, value)


def as_positions(what: str, value: Select) -> Selector:
    """Return positions, which may differ per prompt, as a selector."""
    return value if isinstance(value, PerPrompt) else as_along(what, value)


def selected(what: str, selector: Along, size: int) -> np.ndarray:
    """Return a selector along an axis as a mask, bool [size]."""
    chosen = np.zeros(size, bool)
    if selector is None:
        chosen[:] = True
    elif isinstance(selector, Range):
        refuse(selector.stop is not None and selector.stop > size, f"{what} slice ends at {selector.stop}, but there are {size}")
        chosen[selector.start : selector.stop : selector.step] = True
        refuse(not chosen.any(), f"the {what} slice {selector.start}:{selector.stop} selects nothing of {size}")
    else:
        for entry in selector:
            refuse(entry >= size, f"{what} {entry} is out of range: there are {size}, 0 to {size - 1}")
            chosen[entry] = True
    return chosen


def as_numbers(value: Any) -> Any:
    """Return an edit's value as an array, float64 if the caller enabled it and float32 otherwise; raise if it is not numeric."""
    array = as_array("the value of an edit", value)
    if array.dtype.kind not in "iuf" and not jnp.issubdtype(array.dtype, jnp.floating):
        raise SinkjaxError(f"the value of an edit must be a number, not {'text' if array.dtype.kind in 'SU' else array.dtype}")
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite, which the caller rejects
        return array.astype(jnp.result_type(float))
