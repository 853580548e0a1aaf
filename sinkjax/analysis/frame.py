"""Metrics, statistics and other results as a tidy pandas table: one row per entry, with its coordinates as columns."""

from __future__ import annotations

import dataclasses
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
    "sink_position.position": _per,
    "sink_position.value": _per,
    "diagonal_share": _per,
    "head_load": lambda _: PER["head"],
    "value_norm_ratio": lambda _: ("layer", "kv_head"),
    "value_null_share": lambda _: ("layer", "kv_head"),
    **dict.fromkeys(("secondary_sinks.share", "secondary_sinks.attention", "secondary_sinks.others"), lambda _: ("layer",)),
    **dict.fromkeys(("sink_kind.kind", "sink_kind.key", "sink_kind.ratio", "sink_kind.rank"), lambda _: PER["head"]),
    "largest_activation.position": lambda _: ("depth",),
    "largest_activation.value": lambda _: ("depth",),
    "massive_activations": _depth,
    "massive_onset": lambda _: (),
    "norm_ratio": _depth,
    "top1_over_median": _depth,
    "hidden_median": lambda _: ("depth",),
    "logit_difference": lambda _: (),
    "mean_nll": lambda _: (),
    "perplexity": lambda _: (),
}
NAMES = (".position", ".kind", ".key")  # fields of metrics whose values name something, so that they have no mean
AUTO = "auto"


def to_frame(
    result: Any, measure: str | None = None, *, over: str | None = AUTO, level: float = 0.95, **options: Any
) -> pandas.DataFrame:
    """Return a metric, a statistic or a whole result as a tidy table.

    Args:
        result: A record; the dataset of a sweep (from memory or a store), `attribute`, `patch`, `scan` or another function; an
            `Evaluation`; the section of `run`; or the trainings of `load_runs`.
        measure: A function in `sinkjax.metrics` with one number per prompt ("sink_rate", "norm_ratio", ...), or a field of one
            that returns several ("secondary_sinks.share"); a statistic or variable in the result ("resid_max", "nll", ...); a
            measure of a section. None: all of them, if a single table has room for their axes.
        over: The axis of the means and intervals; None for one row per value; by default "prompt", if the measure has this axis
            and can be averaged. Prompts of a study that share documents are clustered by them.
        level: Coverage of the intervals, between 0 and 1.
        **options: Options of the metric (`key=0`, `per="layer"`); a statistic has none.

    Returns:
        One column per remaining axis (`edit`, `layer`, ...) with its labels, one per other coordinate along it (`edit_strength`
        of `Edit.named`, ...), and one with the name of the measure. If there are means, this last column is replaced by mean,
        low, high and n (`sinkjax.intervals.intervals`): values that are undefined or never reached are excluded, and n counts
        the others. The ends are NaN if n is below 8 or no interval exists.

    Raises:
        SinkjaxError: The result is of another type; the measure is unknown, has no axis `over`, has no mean or does not accept an
            option; the result lacks a statistic that it needs; without a measure, the axes of the variables differ.
    """
    if (table := _rows(result)) is not None:
        refuse(
            over not in (AUTO, None) or bool(options), "rows of a section or of trainings are summaries: omit over and options"
        )
        known = table.get("measure", table.index[:0])
        if measure is not None and measure not in {*known}:
            raise unknown("measure", measure, [*dict.fromkeys(known)])
        return table if measure is None else table[known == measure].reset_index(drop=True)
    data = to_dataset(result) if isinstance(result, Record) else result
    data = data.to_dataset() if hasattr(data, "by_text") else data
    if not isinstance(data, xarray.Dataset):
        raise SinkjaxError(f"a result must be a record, an xarray.Dataset or a result of sinkjax, not {type(result).__name__}")
    if measure is None:
        return _whole(data, over)
    array = _measured(data, measure, options)
    named = measure.endswith(NAMES) or array.dtype.kind not in "biuf"
    over = ("prompt" if "prompt" in array.dims and not named else None) if over == AUTO else over
    if over is None:
        return array.to_dataframe(name=measure).reset_index()[[*_columns(array, array.dims), measure]]
    refuse(over not in array.dims, f"{measure} has the axes {', '.join(map(str, array.dims))}, so no means over {over!r}")
    refuse(named, f"{measure} names something, so it has no mean: pass over=None")
    clusters = _documents(data) if over == "prompt" else None
    found = intervals(np.asarray(array, np.float64), array.get_axis_num(over), level=level, clusters=clusters)
    left = [str(axis) for axis in array.dims if axis != over]
    enough = np.asarray(found.n) >= FEWEST
    ends = {name: (left, np.where(enough, getattr(found, name), np.nan)) for name in ("low", "high")}
    columns = {"mean": (left, found.mean), **ends, "n": (left, found.n)}
    names = _columns(array, left)
    frame = xarray.Dataset(columns, coords={name: array[name] for name in names})
    frame = frame if left else frame.expand_dims(row=1)
    return frame.to_dataframe().reset_index()[[*names, *columns]]


def _rows(result: Any) -> pandas.DataFrame | None:
    """Return the rows of a section, or the runs of trainings; None for other results."""
    import pandas

    rows, runs = getattr(result, "rows", None), getattr(result, "runs", None)
    if isinstance(rows, tuple):
        return pandas.json_normalize([dataclasses.asdict(row) for row in rows])
    return pandas.DataFrame([ended.labels() for ended in runs]) if isinstance(runs, tuple) else None


def _whole(data: xarray.Dataset, over: str | None) -> pandas.DataFrame:
    """Return all variables as one table. Errors: means; the axes of one variable do not include those of all others."""
    refuse(over not in (AUTO, None), "name a measure to get its means")
    most = max(data.data_vars.values(), key=lambda array: array.ndim, default=xarray.DataArray(0))
    for name, array in data.data_vars.items():
        if not {*array.dims} <= {*most.dims}:
            other = f"{name} has the axes {', '.join(map(str, array.dims))}, and {most.name} {', '.join(map(str, most.dims))}"
            raise SinkjaxError(f"{other}: name the measure, one of {', '.join(map(str, data.data_vars))}")
    names = _columns(data, most.dims)
    return data.to_dataframe(dim_order=[*most.dims]).reset_index()[[*names, *map(str, data.data_vars)]]


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
        name, _, field = measure.partition(".")
        metric = getattr(metrics, name)
        try:
            inspect.signature(metric).bind(data, **options)
        except TypeError as error:
            raise SinkjaxError(f"{measure}: {error}") from None
        values = getattr(metric(data, **options), field) if field else metric(data, **options)
        inner = METRICS[measure](options)
        axes = (("edit", "prompt") if values.ndim == 2 + len(inner) else ("prompt",)) + inner
        labels = [name for name in map(str, data.coords) if {*data[name].dims} <= {*axes}]
        return xarray.DataArray(values, dims=axes, coords={name: data[name] for name in labels})
    if measure not in data:
        raise unknown("measure", measure, [*METRICS, *map(str, data)])
    refuse(bool(options), f"{measure} is a statistic and takes no options, but got {', '.join(options)}")
    return data[measure]


def _columns(data: xarray.Dataset | xarray.DataArray, axes: Iterable[Hashable]) -> list[str]:
    """List the columns: each axis, followed by its other coordinates."""
    along = {axis: sorted(str(name) for name, labels in data.coords.items() if labels.dims == (axis,)) for axis in axes}
    return [name for axis, names in along.items() for name in (str(axis), *(name for name in names if name != axis))]
