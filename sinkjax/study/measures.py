"""Measures: numbers of every condition and document, computed from the statistics of a sweep."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import metrics
from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.finite import only_finite, quietly
from sinkjax.config_files.checks import MIN_QUERIES
from sinkjax.errors import SinkjaxError
from sinkjax.model.site import Site
from sinkjax.probes.probe import Probe
from sinkjax.probes.statistics import Statistic, later_sums, sinking_heads
from sinkjax.study.layers import ALL, Layers

if TYPE_CHECKING:
    import jax
    import xarray

AXIS = re.compile(r"(?:key|position) \[(\w+)\]")  # "key [position]", the measure of an axis, reads "the position"
PERCENT = (0.0, 100.0)
Values = Callable[["xarray.Dataset"], NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Measure:
    """A number for every condition and document of a sweep, or for every run of a training.

    Attributes:
        name: Name with its unit, such as "heads that sink on key 0 (%)".
        of: Dataset of a sweep -> float[edit, prompt]; of a training, float[run].
        asks: Probe with the statistics that it needs.
        unit: Unit of a difference.
        range: Lowest and highest value; None if it is unbounded.
        log: Whether it is compared in logarithms, like all sizes without an upper bound.
        note: Definition, for the page.
        position: The position that it measures, if any, which must exist in the prompts.
        seen: Whether enough queries must see this position.
        axis, make: The axis of a sweep, and the function that makes the measure for a condition's value on it (`own`).
        whole: Whether its value can serve as a baseline, of which an effect is a share.
    """

    name: str
    of: Values
    asks: Probe = Probe()
    unit: str = ""
    range: tuple[float, float] | None = None
    log: bool = False
    note: str = ""
    position: int | None = None
    seen: bool = False
    axis: str = ""
    make: Callable[[Any], Measure] | None = None
    whole: bool = True


def percentage(name: str, of: Values, asks: Probe = Probe(), **attributes: Any) -> Measure:
    """Return a measure in per cent. attributes: further attributes of `Measure`."""
    return Measure(name, of, asks, "percentage points", PERCENT, **attributes)


def own(axis: str, make: Callable[[Any], Measure]) -> Measure:
    """Return a measure that depends on each condition's value on an axis, such as the edited position.

    Args:
        axis: The axis.
        make: Function from a value to a measure.
    """
    named = make(f"[{axis}]")
    return dataclasses.replace(named, name=AXIS.sub(r"the \1", named.name), axis=axis, make=make, position=None)


def _mean_over_heads(sums: jax.Array, lengths: jax.Array) -> jax.Array:
    later_queries = lengths[:, None, None] - 1 - jnp.arange(sums.shape[-1])[None, None, :]
    return (sums / jnp.maximum(later_queries, 1)).mean(axis=1)


def _to_first(weights: jax.Array, view: Any) -> jax.Array:
    return weights[..., 0].mean(axis=1)


_MEAN = Statistic("mean_attention", Site.WEIGHTS, later_sums, ("prompt", "layer", "key"), _mean_over_heads, "later")
RECEIVED, SIZES, MEDIANS = Probe(attention_received=True), Probe(resid_max=True), Probe(resid_max=True, resid_median=True)
MEAN_ATTENTION = Probe(extra=(_MEAN,))  # from later queries, mean over heads: without their axis, many edits stay small
_FIRST = Statistic("attention_to_first", Site.WEIGHTS, _to_first, ("prompt", "layer", "query"), by_row=True)
ATTENTION_TO_FIRST = Probe(extra=(_FIRST,))
SINKS = """A head sinks on a key if its mean attention to it, over the key's own and all later queries, also those whose window
    has lost the key, is above eps (Gu et al. 2025)."""
LATER_SINKS = """A head sinks on a key if its attention to it, averaged over all later queries, is above eps (Gu et al. 2025, but
    without the query at the key itself, whose attention some edits decide)."""
READOUT = """The paper's readout: attention averaged over the heads of one layer, and over the key's own and all later queries,
    also those whose window has lost the key."""
LATER_READOUT = """The paper's readout: attention averaged over the heads of one layer, and over the queries after the key. The
    query at the key itself, whose attention the edit decides, is left out."""


def sink_rate(key: int, eps: float, layers: Layers = ALL) -> Measure:
    """Return the percentage of the heads of some layers that sink on a key (Gu et al. 2025)."""
    name = f"heads that sink on key {key} (%){layers.suffix}"

    def of(data: xarray.Dataset) -> NDArray[Any]:
        return np.asarray(100 * metrics.sink_rate(data, key, eps, per="layer")[..., layers.index].mean(axis=-1))

    return percentage(name, of, RECEIVED, note=SINKS, position=key, seen=True)


def later_sink_rate(key: int, eps: float, layers: Layers = ALL, shares: bool = False) -> Measure:
    """Return the percentage of the heads of some layers that sink on a key, as its later queries see it.

    shares: of each row's weight, for rows that do not sum to 1.
    """
    asks, name = Probe(extra=(sinking_heads(eps, shares=shares),)), f"heads that sink on key {key} (%){layers.suffix}"

    def of(data: xarray.Dataset) -> NDArray[Any]:
        return np.asarray(100 * data["sinking_heads"].values[..., layers.index, key].mean(axis=-1))

    return percentage(name, of, asks, note=LATER_SINKS, position=key, seen=True)


def strongest_other_sink(key: int, eps: float) -> Measure:
    """Return the percentage of heads that sink on whichever other key has most of them, among keys that enough queries see."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        keys = [other for other in range(data.sizes["key"] - MIN_QUERIES + 1) if other != key]
        return np.asarray(100 * np.max([metrics.sink_rate(data, other, eps) for other in keys], axis=0))

    return percentage(f"heads that sink on the strongest key but {key} (%)", of, RECEIVED, position=key)


def attention_to(key: int, layer: int) -> Measure:
    """Return the attention to a key in one layer, mean over heads, in per cent (Kiya et al. 2026, Figs. 2, 4 to 9)."""
    name = f"attention to key {key} in layer {layer}, mean over heads (%)"

    def of(data: xarray.Dataset) -> NDArray[Any]:
        return np.asarray(100 * _in_layer(data, layer)[..., key].mean(axis=-1))

    return percentage(name, of, RECEIVED, note=READOUT, position=key, seen=True)


def strongest_other_attention(key: int, layer: int) -> Measure:
    """Return the attention in one layer, mean over heads, to the strongest other key that enough queries see."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        received = _in_layer(data, layer)[..., : data.sizes["key"] - MIN_QUERIES + 1].mean(axis=-2)
        return np.asarray(100 * np.delete(received, key, axis=-1).max(axis=-1))

    name = f"attention to the strongest key but {key} in layer {layer}, mean over heads (%)"
    return percentage(name, of, RECEIVED, position=key)


def _in_layer(data: xarray.Dataset, layer: int) -> NDArray[Any]:
    """Return the attention received in one layer, float[edit, prompt, head, key]. Raises Absent for a layer beyond the last."""
    if layer >= data.sizes["layer"]:
        raise Absent(f"the model has no layer {layer}, as it has {data.sizes['layer']}")
    return np.asarray(data["attention_received"].values[..., layer, :, :])


def _mean_attention(layer: int) -> Probe:
    return dataclasses.replace(MEAN_ATTENTION, until=layer)


def later_attention_to(key: int, layer: int) -> Measure:
    """Return the attention of later queries to a key in one layer, mean over heads, in per cent."""
    name = f"attention to key {key} in layer {layer}, mean over heads (%)"

    def of(data: xarray.Dataset) -> NDArray[Any]:
        return np.asarray(100 * data["mean_attention"].values[..., layer, key])

    return percentage(name, of, _mean_attention(layer), note=LATER_READOUT, position=key, seen=True)


def strongest_later_attention(key: int, layer: int) -> Measure:
    """Return the attention of later queries in one layer to the strongest other key, among keys that enough of them see."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        received = data["mean_attention"].values[..., layer, : data.sizes["key"] - MIN_QUERIES]
        return np.asarray(100 * np.delete(received, key, axis=-1).max(axis=-1))

    name = f"attention to the strongest key but {key} in layer {layer}, mean over heads (%)"
    return percentage(name, of, _mean_attention(layer), position=key)


def attention_to_first_behind(position: int, layer: int | None = None) -> Measure:
    """Return the attention to key 0 from the queries after a position, mean over heads of one layer or of all, in per cent.

    A token at the position can take only this attention: earlier queries do not see it, and have few keys to choose from.
    """

    def of(data: xarray.Dataset) -> NDArray[Any]:
        rows = data["attention_to_first"].values[..., position + 1 :]
        return np.asarray(100 * np.nanmean(rows.mean(axis=-2) if layer is None else rows[..., layer, :], axis=-1))

    where = "mean over heads and layers" if layer is None else f"in layer {layer}, mean over heads"
    name = f"attention to key 0 from queries behind position {position}, {where} (%)"
    return percentage(name, of, ATTENTION_TO_FIRST, position=position, seen=True)


def largest_activation(position: int, layers: Layers = ALL) -> Measure:
    """Return the largest |h| at a position after some layers; with all layers, the embedding counts too."""
    name = f"largest |h| at position {position}{layers.suffix}"
    return Measure(name, lambda data: largest(data, layers)[..., position], SIZES, log=True, position=position)


def largest_elsewhere(position: int) -> Measure:
    """Return the largest |h| over all depths and positions but one."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        return np.asarray(np.nanmax(np.delete(data["resid_max"].values.max(axis=-2), position, -1), axis=-1))

    return Measure(f"largest |h| at any position but {position}", of, SIZES, log=True, position=position)


def typical_activation(layers: Layers = ALL) -> Measure:
    """Return the largest |h| after some layers at a typical position: the median over positions 1 and later."""
    name = f"largest |h| at a typical position but 0{layers.suffix}"
    return Measure(name, lambda data: np.asarray(np.nanmedian(largest(data, layers)[..., 1:], axis=-1)), SIZES, log=True)


def largest(data: xarray.Dataset, layers: Layers) -> NDArray[Any]:
    """Return the largest |h| after some layers, with all layers the embedding's too: float[edit, prompt, position]."""
    sizes, count = data["resid_max"].values, data.sizes["depth"] - 1
    depths = [number + 1 for number in (range(count) if layers.layers is None else layers.layers)]
    return np.asarray(sizes[:, :, [0, *depths] if len(depths) == count else depths].max(axis=-2))


def loss(start: int = 0) -> Measure:
    """Return the mean negative log-likelihood of the next tokens, from position `start`, in nats per token."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        return np.asarray(data["nll"].isel(position=slice(start, None)).mean("position").values)

    name = f"loss (nats per token){f' from position {start}' if start else ''}"
    return Measure(name, of, Probe(nll=True), unit="nats")


def covers(probe: Probe, other: Probe) -> bool:
    """Return whether a probe asks for everything that another one asks for, in the same way."""
    fields = [field.name for field in dataclasses.fields(Probe) if field.name != "until"]
    pairs = [(getattr(probe, name), getattr(other, name)) for name in fields]
    far = probe.until is None or (other.until is not None and other.until <= probe.until) or not other.statistics
    return far and all(set(more) <= set(mine) if isinstance(more, tuple) else not more or mine == more for mine, more in pairs)


def merged(probe: Probe, other: Probe) -> Probe:
    """Return the probe that asks for everything that either of two asks for."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(Probe):
        mine, more = getattr(probe, field.name), getattr(other, field.name)
        if field.name in ("capture", "extra"):
            named = {entry.name: entry for entry in mine}
            if odd := [entry.name for entry in more if named.get(entry.name, entry) != entry]:
                raise SinkjaxError(f"two measures ask for {odd[0]} in different ways, and a sweep can measure it in one only")
            changes[field.name] = (*mine, *(entry for entry in more if entry.name not in named))
        elif field.name == "until":
            lasts = [each.until for each in (probe, other) if each.statistics]
            known = [last for last in lasts if last is not None]
            changes["until"] = max(known) if len(known) == len(lasts) > 0 else None
        else:
            changes[field.name] = mine or more
    return Probe(**changes)


def probe_of(measures: Iterable[Measure], probe: Probe = Probe()) -> Probe:
    """Return the statistics that measures need, and those of a probe."""
    return functools.reduce(merged, (measure.asks for measure in measures), probe)


def read_measure(measure: Measure, data: xarray.Dataset) -> NDArray[Any]:
    """Compute a measure of every condition of a sweep.

    Args:
        measure: The measure.
        data: The sweep's dataset.

    Returns:
        float64[edit, prompt], NaN in prompts that overflowed.

    Raises:
        SinkjaxError: The sweep lacks a statistic that the measure needs, or the measure returns something else.
    """
    try:
        with quietly():
            return only_finite(measure.of(data), data, measure.name)
    except KeyError as error:
        if isinstance(error, SinkjaxError):
            raise
        present = ", ".join(map(str, data.data_vars))
        raise SinkjaxError(f"the measure {measure.name!r} needs {error}, which was not measured; there is {present}") from error
