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
from sinkjax.edits.site import Site
from sinkjax.errors import SinkjaxError
from sinkjax.probes.probe import Probe
from sinkjax.probes.statistics import Statistic, later_sums, sinking_heads
from sinkjax.study.places import ALL, Place

if TYPE_CHECKING:
    import jax
    import xarray

AXIS = re.compile(r"(?:key|position) \[(\w+)\]")  # "key [position]", the measure of an axis, reads "the position"
RECEIVED, SIZES, MEDIANS = Probe(attention_received=True), Probe(resid_max=True), Probe(resid_max=True, resid_median=True)
PERCENT = (0.0, 100.0)


@dataclass(frozen=True, eq=False)
class Measure:
    """A number for every condition and document of a sweep, or for every run of a training.

    Attributes:
        name: Name with its unit, such as "heads that sink on key 0 (%)".
        of: Dataset of a sweep -> float[edit, prompt]; of a training, float[run].
        asks: The statistics that it reads.
        unit: Unit of a difference.
        range: Lowest and highest value; None if it has no bounds.
        log: Whether it is compared in logarithms, as sizes without an upper bound are.
        note: Its definition, for the page.
        position: The position that it reads, if any. It must exist in the prompts.
        seen: Whether enough queries must see this position.
        axis, make: The axis of a sweep whose value in each condition it is made for, and how (`own`).
        whole: Whether its value can be the whole of which an effect is a share.
    """

    name: str
    of: Callable[[xarray.Dataset], NDArray[Any]]
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


def percentage(name: str, of: Callable[[xarray.Dataset], NDArray[Any]], asks: Probe = Probe(), **facts: Any) -> Measure:
    """Return a measure in per cent. Arguments as of `Measure`."""
    return Measure(name, of, asks, "percentage points", PERCENT, **facts)


def own(axis: str, make: Callable[[Any], Measure]) -> Measure:
    """Return a measure that each condition has at its own value of an axis, such as the position that is edited.

    Args:
        axis: The axis.
        make: Value -> measure.
    """
    named = make(f"[{axis}]")
    return dataclasses.replace(named, name=AXIS.sub(r"the \1", named.name), axis=axis, make=make, position=None)


def at_position(position: object, **facts: Any) -> dict[str, Any]:
    return {"position": position if isinstance(position, int) else None, **facts}


def in_layers(layers: Place | None) -> str:
    return "" if layers in (None, ALL) else f" in {layers.label}"


def layer_index(layers: Place | None) -> Any:
    """The index of some layers along their axis."""
    return slice(None) if layers is None or layers.layers is None else list(layers.layers)


SINKS = """A head sinks on a key if its mean attention to it, over the key's own and all later queries, also those whose window
    has lost the key, is above eps (Gu et al. 2025)."""
LATER_SINKS = """A head sinks on a key if its attention to it, averaged over all later queries, is above eps (Gu et al. 2025, but
    without the query at the key itself, whose attention some edits decide)."""
READOUT = """The paper's readout: attention averaged over the heads of one layer, and over the key's own and all later queries,
    also those whose window has lost the key."""
LATER_READOUT = """The paper's readout: attention averaged over the heads of one layer, and over the queries after the key. The
    query at the key itself, whose attention the edit decides, is left out."""


def sink_rate(key: int, eps: float, layers: Place | None = None) -> Measure:
    """Percentage of the heads of some layers that sink on a key (Gu et al. 2025)."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        found: NDArray[Any] = 100 * metrics.sink_rate(data, key, eps, per="layer")[..., layer_index(layers)].mean(axis=-1)
        return found

    return percentage(
        f"heads that sink on key {key} (%){in_layers(layers)}", of, RECEIVED, note=SINKS, **at_position(key, seen=True)
    )


def later_sink_rate(key: int, eps: float, layers: Place | None = None, shares: bool = False) -> Measure:
    """Percentage of the heads of some layers that sink on a key, as its later queries see it.

    shares: of each row's weight, for rows that do not sum to 1.
    """

    def of(data: xarray.Dataset) -> NDArray[Any]:
        return np.asarray(100 * data["sinking_heads"].values[..., layer_index(layers), key].mean(axis=-1))

    asks = Probe(extra=(sinking_heads(eps, shares=shares),))
    return percentage(
        f"heads that sink on key {key} (%){in_layers(layers)}", of, asks, note=LATER_SINKS, **at_position(key, seen=True)
    )


def strongest_other_sink(key: int, eps: float) -> Measure:
    """Percentage of heads that sink on whichever other key has most of them, among keys that enough queries see."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        keys = [other for other in range(data.sizes["key"] - MIN_QUERIES + 1) if other != key]
        found: NDArray[Any] = 100 * np.max([metrics.sink_rate(data, other, eps) for other in keys], axis=0)
        return found

    return percentage(f"heads that sink on the strongest key but {key} (%)", of, RECEIVED, **at_position(key))


def attention_to(key: int, layer: int) -> Measure:
    """Attention to a key in one layer, mean over heads, in per cent (Kiya et al. 2026, Figs. 2, 4 to 9)."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        return np.asarray(100 * _in_layer(data, layer)[..., key].mean(axis=-1))

    name = f"attention to key {key} in layer {layer}, mean over heads (%)"
    return percentage(name, of, RECEIVED, note=READOUT, **at_position(key, seen=True))


def strongest_other_attention(key: int, layer: int) -> Measure:
    """Attention in one layer, mean over heads, to whichever other key receives most, among keys that enough queries see."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        received = _in_layer(data, layer)[..., : data.sizes["key"] - MIN_QUERIES + 1].mean(axis=-2)
        return np.asarray(100 * np.delete(received, key, axis=-1).max(axis=-1))

    name = f"attention to the strongest key but {key} in layer {layer}, mean over heads (%)"
    return percentage(name, of, RECEIVED, **at_position(key))


def _in_layer(data: xarray.Dataset, layer: int) -> NDArray[Any]:
    """Attention received in one layer, float[edit, prompt, head, key]. Raises Absent if the model has no such layer."""
    if layer >= data.sizes["layer"]:
        raise Absent(f"the model has no layer {layer}, as it has {data.sizes['layer']}")
    return np.asarray(data["attention_received"].values[..., layer, :, :])


@functools.cache
def mean_attention() -> Probe:
    """Ask for the attention that keys receive from later queries, mean over heads: without their axis, many edits stay small."""

    def over_heads(sums: jax.Array, lengths: jax.Array) -> jax.Array:
        seen_by = lengths[:, None, None] - 1 - jnp.arange(sums.shape[-1])[None, None, :]
        return (sums / jnp.maximum(seen_by, 1)).mean(axis=1)

    return Probe(extra=(Statistic("mean_attention", Site.WEIGHTS, later_sums, ("prompt", "layer", "key"), over_heads, "later"),))


def later_attention_to(key: int, layer: int) -> Measure:
    """Attention of later queries to a key in one layer, mean over heads, in per cent."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        return np.asarray(100 * data["mean_attention"].values[..., layer, key])

    name = f"attention to key {key} in layer {layer}, mean over heads (%)"
    return percentage(name, of, mean_attention(), note=LATER_READOUT, **at_position(key, seen=True))


@functools.cache
def attention_to_first() -> Probe:
    """Ask for each query's attention to the first key, mean over heads."""

    def of(weights: jax.Array, view: Any) -> jax.Array:
        return weights[..., 0].mean(axis=1)

    return Probe(extra=(Statistic("attention_to_first", Site.WEIGHTS, of, ("prompt", "layer", "query")),))


def attention_to_first_behind(position: int, layer: int | None = None) -> Measure:
    """Attention to key 0 from the queries after a position, mean over heads of one layer or of all, in per cent.

    It is what a token at the position can take: earlier queries do not see it, and have few keys to choose from.
    """

    def of(data: xarray.Dataset) -> NDArray[Any]:
        rows = data["attention_to_first"].values[..., position + 1 :]
        return np.asarray(100 * np.nanmean(rows.mean(axis=-2) if layer is None else rows[..., layer, :], axis=-1))

    where = "mean over heads and layers" if layer is None else f"in layer {layer}, mean over heads"
    name = f"attention to key 0 from queries behind position {position}, {where} (%)"
    return percentage(name, of, attention_to_first(), **at_position(position, seen=True))


def strongest_later_attention(key: int, layer: int) -> Measure:
    """Attention of later queries in one layer to whichever other key receives most, among keys that enough of them see."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        received = data["mean_attention"].values[..., layer, : data.sizes["key"] - MIN_QUERIES]
        return np.asarray(100 * np.delete(received, key, axis=-1).max(axis=-1))

    name = f"attention to the strongest key but {key} in layer {layer}, mean over heads (%)"
    return percentage(name, of, mean_attention(), **at_position(key))


def largest_activation(position: int, layers: Place | None = None) -> Measure:
    """Largest |h| at a position after some layers; with all layers, the embedding counts too."""
    name = f"largest |h| at position {position}{in_layers(layers)}"
    return Measure(name, lambda data: largest(data, layers)[..., position], SIZES, log=True, **at_position(position))


def largest_elsewhere(position: int) -> Measure:
    """Largest |h| over all depths and positions but one."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        return np.asarray(np.nanmax(np.delete(data["resid_max"].values.max(axis=-2), position, -1), axis=-1))

    return Measure(f"largest |h| at any position but {position}", of, SIZES, log=True, **at_position(position))


def typical_activation(layers: Place | None = None) -> Measure:
    """Largest |h| after some layers at a typical position: the median over positions 1 and later."""
    name = f"largest |h| at a typical position but 0{in_layers(layers)}"
    return Measure(name, lambda data: np.asarray(np.nanmedian(largest(data, layers)[..., 1:], axis=-1)), SIZES, log=True)


def largest(data: xarray.Dataset, layers: Place | None) -> NDArray[Any]:
    """Largest |h| at each position after some layers, with all layers the embedding's too: float[edit, prompt, position]."""
    sizes, count = data["resid_max"].values, data.sizes["depth"] - 1
    chosen = range(count) if layers is None or layers.layers is None else layers.layers
    depths = [one + 1 for one in chosen]
    return np.asarray(sizes[:, :, [0, *depths] if len(depths) == count else depths].max(axis=-2))


def loss(start: int = 0) -> Measure:
    """Mean negative log-likelihood of the next tokens, from position `start`, in nats per token."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        return np.asarray(data["nll"].isel(position=slice(start, None)).mean("position").values)

    name = f"loss (nats per token){f' from position {start}' if start else ''}"
    return Measure(name, of, Probe(nll=True), unit="nats")


def covers(one: Probe, other: Probe) -> bool:
    """Whether a probe asks for all that another asks for, in the same way."""
    pairs = [(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(Probe)]
    return all(set(more) <= set(mine) if isinstance(more, tuple) else not more or mine == more for mine, more in pairs)


def merged(one: Probe, other: Probe) -> Probe:
    """The probe that asks for what either of two asks for."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(Probe):
        mine, more = getattr(one, field.name), getattr(other, field.name)
        if field.name in ("capture", "extra"):
            named = {entry.name: entry for entry in mine}
            if odd := [name for name, entry in {entry.name: entry for entry in more}.items() if named.get(name, entry) != entry]:
                raise SinkjaxError(f"two measures ask for {odd[0]} in different ways, and a sweep can measure it in one only")
            changes[field.name] = (*mine, *(entry for entry in more if entry.name not in named))
        else:
            changes[field.name] = mine or more
    return Probe(**changes)


def probe_of(measures: Iterable[Measure], probe: Probe = Probe()) -> Probe:
    """Return the statistics that measures read, and those of a probe."""
    return functools.reduce(merged, (measure.asks for measure in measures), probe)


def read_measure(measure: Measure, data: xarray.Dataset) -> NDArray[Any]:
    """Compute a measure of every condition of a sweep.

    Args:
        measure: The measure.
        data: The sweep's dataset.

    Returns:
        float64[edit, prompt], NaN in prompts that overflowed.

    Raises:
        SinkjaxError: The sweep lacks a statistic that the measure needs; it returns other than these numbers.
    """
    try:
        with quietly():
            return only_finite(measure.of(data), data, measure.name)
    except KeyError as error:
        if isinstance(error, SinkjaxError):
            raise
        held = ", ".join(map(str, data.data_vars))
        raise SinkjaxError(f"the measure {measure.name!r} needs {error}, which was not measured; there is {held}") from error
