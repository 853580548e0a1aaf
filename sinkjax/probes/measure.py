"""Compute a probe's statistics inside a traced forward pass, each at the site of its array."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.errors import SinkjaxError, short
from sinkjax.model.site import PAIRS, Site
from sinkjax.probes.probe import Capture, Probe
from sinkjax.probes.statistics import SUMS, PairView, Statistic, View

PADDED = ("position", "query", "key")  # axes along which a prompt can be shorter than the batch


def measure(
    probe: Probe, site: Site, x: jax.Array, view: View, depth_only: bool = False, first: int = 0, cuts: tuple[int, ...] = ()
) -> dict[str, jax.Array]:
    """Compute all of a probe's statistics at a site. The barrier keeps these reductions out of the watched arrays' fusions.

    first: the position of the first row of vectors; results have zeros in the rows before it. cuts: positions; sums are also
    taken over only the rows before each (`sum_before`).
    """
    wanted = [entry for entry in probe.statistics if entry.site == site and (entry.dims[1] == "depth" or not depth_only)]
    raw = [entry for entry in probe.captures if entry.site == site and not depth_only]
    if not wanted and not raw:
        return {}
    x, view = jax.lax.optimization_barrier((x, view))
    results = {}
    for entry in wanted:
        seen, of = (x, view) if entry.sums else _divided(x, view)
        # Built-in statistics are known to be 0 at the omitted keys; other statistics may not be.
        seen, of = (seen, of) if entry not in probe.extra else _with_all_keys(seen, of)
        value = entry.fn(seen.astype(jnp.promote_types(x.dtype, jnp.float32)), of)
        if entry in probe.extra and entry.finish is None:
            _check(entry, value, len(x))
        results[entry.name] = _to_all_keys(value, view) if entry.dims[-1] == "key" else value
        if "position" in entry.dims:
            results[entry.name] = zeros_before(first, results[entry.name], entry.dims.index("position") - 1)
        for cut in cuts if entry.fn in SUMS else ():
            part = dataclasses.replace(of, lengths=jnp.minimum(of.lengths, cut))
            value = entry.fn(seen.astype(jnp.promote_types(x.dtype, jnp.float32)), part)
            results[sum_before(entry, cut)] = _to_all_keys(value, view) if entry.dims[-1] == "key" else value
    x = x if isinstance(view, PairView) or not raw else zeros_before(first, x, 1)
    return results | {entry.name: _select(entry, *_with_all_keys(*_divided(x, view))) for entry in raw}


def zeros_before(first: int, x: jax.Array, axis: int) -> jax.Array:
    """Return x with zeros for the rows before `first` along an axis."""
    return jnp.pad(x, [(first * (at == axis), 0) for at in range(x.ndim)]) if first else x


def sum_before(entry: Statistic, cut: int) -> str:
    """Return the name in a layer's record of a statistic summed over only the rows before a position."""
    return f"{entry.name} before {cut}"


def with_earlier_rows(
    probe: Probe, values: dict[str, jax.Array], earlier: dict[str, jax.Array], first: int
) -> dict[str, jax.Array]:
    """Add another run's rows before `first` to the statistics of the rows from there on. Sums are not yet means."""
    done = dict(values)
    for entry in probe.statistics:
        if entry.name in values and entry.fn in SUMS:
            done[entry.name] = values[entry.name] + earlier[sum_before(entry, first)]
        elif entry.name in values:
            axis = next(axis for axis, name in enumerate(entry.dims) if name in ("position", "query")) - 1
            done[entry.name] = earlier_rows(values[entry.name], earlier[entry.name], axis, range(first))
    return done


def capture_rows(capture: Capture, x: jax.Array, earlier: jax.Array, first: int) -> jax.Array:
    """Return captured values of a layer, with another run's in the rows before `first`."""
    axis = 2 if capture.site in PAIRS else 1
    positions = range(x.shape[axis]) if capture.positions is None else capture.positions
    return earlier_rows(x, earlier, axis, [at for at, position in enumerate(positions) if position < first])


def earlier_rows(x: jax.Array, earlier: jax.Array, axis: int, rows: Iterable[int]) -> jax.Array:
    """Return x with these indices along an axis from another run."""
    taken = np.zeros(x.shape[axis], bool)
    taken[[*rows]] = True
    return jnp.where(taken.reshape(-1, *[1] * (x.ndim - 1 - axis)), earlier, x)


def _check(entry: Statistic, value: Any, prompts: int) -> None:
    """Raise unless a statistic is an array of real numbers with its declared axes."""
    axes = (entry.dims[0], *entry.dims[2:])
    array = isinstance(value, jax.Array) and not jnp.issubdtype(value.dtype, jnp.complexfloating)
    if not array or value.ndim != len(axes) or len(value) != prompts:
        what = f"{value.dtype} of shape {value.shape}" if isinstance(value, jax.Array) else short(value)
        shape = ", ".join((str(prompts), *axes[1:]))
        raise SinkjaxError(f"the statistic {entry.name!r} must return real numbers of shape ({shape}), not {what}")


def finish(probe: Probe, values: dict[str, jax.Array], lengths: jax.Array) -> dict[str, jax.Array]:
    """Complete one layer's statistics: means over rows, and NaN (-1) beyond each prompt's length."""
    done = dict(values)
    for entry in probe.statistics:
        if entry.name in values:
            array = values[entry.name]
            if entry.finish:
                _check(entry, array := entry.finish(array, lengths), len(lengths))
            done[entry.name] = _pad(array, (entry.dims[0], *entry.dims[2:]), lengths)
    for capture in probe.captures:
        if capture.name in values:
            axes = (axis.removeprefix(f"{capture.name}_") for axis in capture.axes)
            done[capture.name] = _pad(values[capture.name], tuple(axis for axis in axes if axis != "layer"), lengths, capture)
    return done


def query_axes(probe: Probe) -> dict[str, int]:
    """Map each result at LOGITS and WEIGHTS to the axis that joins blocks of queries; all other results are summed."""
    joined = {entry.name: entry.dims.index("query") - 1 for entry in probe.statistics if "query" in entry.dims}
    return joined | {entry.name: 2 for entry in probe.captures if entry.site in PAIRS}  # [B, H, Q, S]


def _divided(x: jax.Array, view: View) -> tuple[jax.Array, View]:
    """Divide the array by its pending divisor, if it has one."""
    if not isinstance(view, PairView) or view.divisor is None:
        return x, view
    return x / view.divisor, dataclasses.replace(view, divisor=None)


def _with_all_keys(x: jax.Array, view: View) -> tuple[jax.Array, View]:
    """Extend a query block's array at LOGITS or WEIGHTS to all keys: keys outside the block are hidden and 0."""
    if not isinstance(view, PairView) or x.shape[-1] == view.key.shape[2]:
        return x, view
    return _to_all_keys(x, view), dataclasses.replace(view, visible=_to_all_keys(view.visible, view))


def _to_all_keys(x: jax.Array, view: View) -> jax.Array:
    """Pad the last axis with zeros (False) to all keys."""
    missing = view.key.shape[2] - x.shape[-1] if isinstance(view, PairView) else 0
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)]) if missing else x


def _select(entry: Capture, x: jax.Array, view: View) -> jax.Array:
    """Select the captured dims and positions (except in blocks of queries, whose positions are selected after joining)."""
    if isinstance(view, PairView) and entry.site == Site.LOGITS:
        x = jnp.where(view.visible, x, -jnp.inf)
    if entry.positions is not None and entry.site not in PAIRS:
        x = x[:, jnp.asarray(entry.positions)]
    return x if entry.dims is None else x[..., jnp.asarray(entry.dims)]


def _pad(array: jax.Array, axes: tuple[str, ...], lengths: jax.Array, capture: Capture | None = None) -> jax.Array:
    """Write NaN (-1) beyond each prompt's length; a capture may contain only some positions (queries) and dims (keys)."""
    floating = jnp.issubdtype(array.dtype, jnp.floating)
    if not floating and not jnp.issubdtype(array.dtype, jnp.signedinteger):
        return array
    for axis, name in enumerate(axes):
        if name in PADDED:
            chosen = capture and (capture.dims if name == "key" else capture.positions)
            inside = jnp.asarray(range(array.shape[axis]) if chosen is None else chosen)[None, :] < lengths[:, None]
            shape = [array.shape[0]] + [1] * (array.ndim - 1)
            shape[axis] = array.shape[axis]
            array = jnp.where(inside.reshape(shape), array, jnp.nan if floating else -1)
    return array
