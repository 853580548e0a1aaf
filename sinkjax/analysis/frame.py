"""Metrics and statistics as a tidy pandas table: one row per entry, with its coordinates as columns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray

from sinkjax.analysis import metrics
from sinkjax.analysis.intervals import FEWEST, intervals
from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.probes.record import Record, to_dataset

if TYPE_CHECKING:
    import pandas

# Axes of a metric after `prompt`, by its option `per`.
PER = {"prompt": (), "layer": ("layer",), "head": ("layer", "head")}
Inner = Callable[[Mapping[str, Any]], tuple[str, ...]]


def _per(options: Mapping[str, Any]) -> tuple[str, ...]:
    return PER.get(options.get("per", "prompt"), ())  # an unknown option raises the metric's own error


def _depth(options: Mapping[str, Any]) -> tuple[str, ...]:
    return ("depth", "position") if options.get("position") is None else ("depth",)


METRICS: Mapping[str, Inner] = {
    "sink_rate": _per,
    "sink_rate_among": _per,
    "sink_onset": lambda _: (),
    "massive_activations": _depth,
    "massive_onset": lambda _: (),
    "norm_ratio": _depth,
    "top1_over_median": _depth,
    "hidden_median": lambda _: ("depth",),
    "logit_difference": lambda _: (),
    "mean_nll": lambda _: (),
    "perplexity": lambda _: (),
}


def to_frame(
    result: Mapping[Any, Any], measure: str, *, over: str | None = "prompt", level: float = 0.95, **options: Any
) -> pandas.DataFrame:
    """Return a metric or a statistic of a result as a tidy table.

    Args:
        result: A record, or the dataset of a sweep, from memory or from a store.
        measure: Name of a function in `sinkjax.metrics` with one number per prompt ("sink_rate", "norm_ratio", ...), or of a
            statistic in the result ("resid_max", "nll", ...).
        over: The axis of the means and intervals; None for one row per value. Prompts of a study that share documents are
            clustered by them.
        level: Coverage of the intervals, between 0 and 1.
        **options: Options of the metric (`key=0`, `per="layer"`); a statistic has none.

    Returns:
        One column per remaining axis (`edit`, `layer`, ...) with its labels, one per coordinate of the edits (`edit_strength`,
        ...; see `Edit.named`), and one with the name of the measure. If `over` is given, this last column is replaced by mean,
        low, high and n (`sinkjax.intervals.intervals`): values that are undefined or never reached are excluded, and n counts
        the others. The ends are NaN if n is below 8 or no interval exists.

    Raises:
        SinkjaxError: The measure is unknown, has no axis `over` or does not accept an option; the result lacks a statistic that
            it needs.
    """
    data = to_dataset(result) if isinstance(result, Record) else result
    if not isinstance(data, xarray.Dataset):
        raise SinkjaxError(f"a result must be a record or an xarray.Dataset, not {type(result).__name__}")
    array = _measured(data, measure, options)
    if over is None:
        return array.to_dataframe(name=measure).reset_index()[[*_columns(array, array.dims), measure]]
    refuse(over not in array.dims, f"{measure} has the axes {', '.join(map(str, array.dims))}, so no means over {over!r}")
    clusters = _documents(data) if over == "prompt" else None
    found = intervals(np.asarray(array, np.float64), array.get_axis_num(over), level=level, clusters=clusters)
    left = [str(axis) for axis in array.dims if axis != over]
    enough = np.asarray(found.n) >= FEWEST
    ends = {name: (left, np.where(enough, getattr(found, name), np.nan)) for name in ("low", "high")}
    columns = {"mean": (left, found.mean), **ends, "n": (left, found.n)}
    names = _columns(array, left)
    table = xarray.Dataset(columns, coords={name: array[name] for name in names})
    table = table if left else table.expand_dims(row=1)
    return table.to_dataframe().reset_index()[[*names, *columns]]


def _documents(data: xarray.Dataset) -> np.ndarray | None:
    """Return the document of each prompt of a study's store, or of a part of it, where several prompts are from one."""
    study, prompts = data.attrs.get("study"), data["prompt"].values
    documents = np.asarray(study.get("documents", ()) if isinstance(study, Mapping) else ())
    if prompts.dtype.kind != "i" or prompts.max(initial=-1) >= documents.size:
        return None
    found = documents[prompts]
    return found if len(np.unique(found)) < len(found) else None


def _measured(data: xarray.Dataset, measure: str, options: Mapping[str, Any]) -> xarray.DataArray:
    """Return a metric or a statistic with its axes and labels."""
    if measure in METRICS:
        metric = getattr(metrics, measure)
        try:
            inspect.signature(metric).bind(data, **options)
        except TypeError as error:
            raise SinkjaxError(f"{measure}: {error}") from None
        values = metric(data, **options)
        inner = METRICS[measure](options)
        axes = (("edit", "prompt") if values.ndim == 2 + len(inner) else ("prompt",)) + inner
        labels = [name for name in (*axes, *_of_edits(data)) if name in data.coords and {*data[name].dims} <= {*axes}]
        return xarray.DataArray(values, dims=axes, coords={name: data[name] for name in labels})
    if measure not in data:
        raise unknown("measure", measure, [*METRICS, *map(str, data)])
    refuse(bool(options), f"{measure} is a statistic and takes no options, but got {', '.join(options)}")
    array = data[measure]
    return array.drop_vars(set(array.coords) - {*array.dims, *_of_edits(data)})


def _of_edits(data: xarray.Dataset | xarray.DataArray) -> list[str]:
    return sorted(str(name) for name, coord in data.coords.items() if coord.dims == ("edit",) and name != "edit")


def _columns(array: xarray.DataArray, axes: Iterable[Hashable]) -> list[str]:
    """List the columns: the axes, with the edit axis followed by its coordinates."""
    return [name for axis in axes for name in (str(axis), *(_of_edits(array) if axis == "edit" else ()))]
