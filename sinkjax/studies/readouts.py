"""Measures as words: each is a function of a sweep's data that returns a number for each condition and document.

A new measure is one function, here or in a module of `papers/`. Its decorator states the label (with its arguments in braces),
the unit, the statistics that it asks the probe for, the range of its values, and whether it is compared in logarithms, as sizes
without an upper bound are.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import metrics
from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.finite import only_finite, quietly
from sinkjax.config_files.checks import MIN_QUERIES
from sinkjax.errors import SinkjaxError
from sinkjax.studies.places import ALL
from sinkjax.studies.scope import HALF_DEPTH, Layers, Measure, Place, Scope, percentage
from sinkjax.studies.words import F, Number, Word

if TYPE_CHECKING:
    import xarray

AXIS = re.compile(r"(?:key|position) \[(\w+)\]")  # "key [position]" of an axis reads "the position"
UNMEASURED = re.compile(r"(?:No variable named )?'(\w+)'")  # the start of the errors of xarray and of a record
WORDS = 300  # characters of an error in a measure's own code
EDITS, PROMPTS = 2, 3  # the size of the dataset that a measure is tried on
HALF = 0.5  # a quantity along depth counts as formed above this share of its largest value


def sinking_statistic(eps: float, shares: bool = False, **others: object) -> sinkjax.Probe:
    from sinkjax.probes.statistics import sinking_heads

    return sinkjax.Probe(extra=(sinking_heads(eps, shares=shares),))


def mean_statistic(**others: object) -> sinkjax.Probe:
    return sinkjax.Probe(extra=(mean_attention(),))


@functools.cache
def mean_attention() -> sinkjax.Statistic:
    """The attention that each key receives from later queries, mean over heads: without a head axis, many edits stay small."""
    import jax
    import jax.numpy as jnp

    from sinkjax.probes.statistics import later_sums

    def over_heads(sums: jax.Array, lengths: jax.Array) -> jax.Array:
        seen_by = lengths[:, None, None] - 1 - jnp.arange(sums.shape[-1])[None, None, :]
        return (sums / jnp.maximum(seen_by, 1)).mean(axis=1)

    return sinkjax.Statistic("mean_attention", sinkjax.Site.WEIGHTS, later_sums, ("prompt", "layer", "key"), over_heads, "later")


@percentage(
    label="heads that sink on key {key} (%)",
    asks=("attention_received",),
    seen=("key",),
    note="""A head sinks on a key if its mean attention to it, over the key's own and all later queries, also those whose window
        has lost the key, is above eps (Gu et al. 2025).""",
)
def sink_rate(data: xarray.Dataset, key: int, layers: Layers = ALL, eps: float = F.eps) -> NDArray:
    """Percentage of the heads of some layers that sink on a key (Gu et al. 2025)."""
    return 100 * metrics.sink_rate(data, key, eps, per="layer")[..., layers].mean(axis=-1)


@percentage(
    label="heads that sink on key {key} (%)",
    asks=sinking_statistic,
    seen=("key",),
    note="""A head sinks on a key if its attention to it, averaged over all later queries, is above eps (Gu et al. 2025, but
        without the query at the key itself, whose attention some edits decide).""",
)
def later_sink_rate(data: xarray.Dataset, key: int, layers: Layers = ALL, eps: float = F.eps, shares: bool = False) -> NDArray:
    """Percentage of the heads of some layers that sink on a key, as its later queries see it.

    shares: of each row's weight, for rows that do not sum to 1.
    """
    return np.asarray(100 * data["sinking_heads"].values[..., layers, key].mean(axis=-1))


@percentage(label="heads that sink on the strongest key but {key} (%)", asks=("attention_received",))
def strongest_other_sink(data: xarray.Dataset, key: int, eps: float = F.eps) -> NDArray:
    """Percentage of heads that sink on whichever other key has most of them, among keys that enough queries see."""
    keys = [other for other in range(data.sizes["key"] - MIN_QUERIES + 1) if other != key]
    return 100 * np.max([metrics.sink_rate(data, other, eps) for other in keys], axis=0)


@percentage(
    label="attention to key {key} in layer {layer}, mean over heads (%)",
    asks=("attention_received",),
    seen=("key",),
    note="""The paper's readout: attention averaged over the heads of one layer, and over the key's own and all later queries,
        also those whose window has lost the key.""",
)
def attention_to(data: xarray.Dataset, key: int, layer: int = HALF_DEPTH) -> NDArray:
    """Attention to a key in one layer, mean over heads, in per cent (Kiya et al. 2026, Figs. 2, 4 to 9)."""
    return np.asarray(100 * _in_layer(data, layer)[..., key].mean(axis=-1))


@percentage(label="attention to the strongest key but {key} in layer {layer}, mean over heads (%)", asks=("attention_received",))
def strongest_other_attention(data: xarray.Dataset, key: int, layer: int = HALF_DEPTH) -> NDArray:
    """Attention in one layer, mean over heads, to whichever other key receives most, among keys that enough queries see."""
    received = _in_layer(data, layer)[..., : data.sizes["key"] - MIN_QUERIES + 1].mean(axis=-2)
    return np.asarray(100 * np.delete(received, key, axis=-1).max(axis=-1))


@percentage(
    label="attention to key {key} in layer {layer}, mean over heads (%)",
    asks=mean_statistic,
    seen=("key",),
    note="""The paper's readout: attention averaged over the heads of one layer, and over the queries after the key. The query at
        the key itself, whose attention the edit decides, is left out.""",
)
def later_attention_to(data: xarray.Dataset, key: int, layer: int = HALF_DEPTH) -> NDArray:
    """Attention of later queries to a key in one layer, mean over heads, in per cent."""
    return np.asarray(100 * data["mean_attention"].values[..., layer, key])


@percentage(label="attention to the strongest key but {key} in layer {layer}, mean over heads (%)", asks=mean_statistic)
def strongest_later_attention(data: xarray.Dataset, key: int, layer: int = HALF_DEPTH) -> NDArray:
    """Attention of later queries in one layer to whichever other key receives most, among keys that enough of them see."""
    received = data["mean_attention"].values[..., layer, : data.sizes["key"] - MIN_QUERIES]
    return np.asarray(100 * np.delete(received, key, axis=-1).max(axis=-1))


@Measure.define(label="largest |h| at position {position}", asks=("resid_max",), log=True)
def largest_activation(data: xarray.Dataset, position: int, layers: Layers = ALL) -> NDArray:
    """Largest |h| at a position after some layers; with all layers, the embedding counts too."""
    return _largest(data, layers)[..., position]


def _largest(data: xarray.Dataset, layers: list[int]) -> NDArray:
    """Largest |h| at each position after some layers, with all layers the embedding's too: float[edit, prompt, position]."""
    depths = [layer + 1 for layer in layers]
    whole = len(depths) == data.sizes["depth"] - 1
    return np.asarray(data["resid_max"].values[:, :, [0, *depths] if whole else depths].max(axis=-2))


@Measure.define(label="largest |h| at any position but {position}", asks=("resid_max",), log=True)
def largest_elsewhere(data: xarray.Dataset, position: int) -> NDArray:
    """Largest |h| over all depths and positions but one."""
    return np.asarray(np.nanmax(np.delete(data["resid_max"].values.max(axis=-2), position, -1), axis=-1))


@Measure.define(label="largest |h| at a typical position but 0", asks=("resid_max",), log=True)
def typical_activation(data: xarray.Dataset, layers: Layers = ALL) -> NDArray:
    """Largest |h| after some layers at a typical position: the median over positions 1 and later."""
    return np.asarray(np.nanmedian(_largest(data, layers)[..., 1:], axis=-1))


@Measure.define(label="largest |h| at position 0 over that at a typical other position", asks=("resid_max",), log=True)
def activation_ratio(data: xarray.Dataset, layers: Layers = ALL) -> NDArray:
    """Largest |h| after some layers at position 0 over its size at a typical position, the median over the later ones."""
    found = _largest(data, layers)
    return np.asarray(found[..., 0] / np.nanmedian(found[..., 1:], axis=-1))


@percentage(
    label="documents with a massive activation at position {position} (%)",
    asks=("resid_max", "resid_median"),
    note="An activation is massive if |h| is above 100 and above 1,000 times the median of its hidden state (Sun et al. 2024).",
)
def massive_share(data: xarray.Dataset, position: int) -> NDArray:
    """100 for a document with a massive activation at a position after some layer, else 0 (Sun et al. 2024)."""
    return np.asarray(100 * metrics.massive_activations(data, position)[..., 1:].max(axis=-1))


@Measure.define(
    label="layers from the onset of the activation at position {position} to the onset of the sink",
    unit="layers",
    asks=("attention_received", "resid_max"),
    note="Each onset is the first layer where the quantity is above half of its largest value over the layers.",
)
def sink_lag(data: xarray.Dataset, position: int, eps: float = F.eps) -> NDArray:
    """Number of layers from a position's activation to its sink; negative if the sink comes first, NaN without a sink."""
    sinks = metrics.sink_rate(data, position, eps, per="layer")
    sizes = data["resid_max"].values[:, :, 1:, position]
    first = [np.argmax(values > HALF * values.max(axis=-1, keepdims=True), axis=-1) for values in (sinks, sizes)]
    return np.where(sinks.max(axis=-1) > 0, first[0] - first[1], np.nan)


@Measure.define(label="loss (nats per token)", unit="nats", asks=("nll",))
def loss(data: xarray.Dataset, start: int = 0) -> NDArray:
    """Mean negative log-likelihood of the next tokens, from position `start`."""
    return np.asarray(data["nll"].isel(position=slice(start, None)).mean("position").values)


def _in_layer(data: xarray.Dataset, layer: int) -> NDArray:
    """Attention received in one layer, float[edit, prompt, head, key]. Errors: Absent, the model has no such layer."""
    if layer >= data.sizes["layer"]:
        raise Absent(f"the model has no layer {layer}, as it has {data.sizes['layer']}")
    return np.asarray(data["attention_received"].values[..., layer, :, :])


# Reading a measure.


def arguments(measure: Measure, scope: Scope) -> dict[str, object]:
    """The arguments of a measure with their values; a place as a list of layers."""
    kinds = measure.meaning.kinds
    return {name: scope.layers(value) if kinds.get(name) is Place else scope.get(value) for name, value in measure.given.items()}


def read_measure(measure: Measure, scope: Scope, data: xarray.Dataset) -> NDArray:
    """A measure of every condition of a sweep.

    Args:
        measure: The word.
        scope: The values of its fields.
        data: The sweep's dataset.

    Returns:
        float64[edit, prompt], NaN in prompts that overflowed.

    Raises:
        SinkjaxError: The sweep lacks a statistic that the measure needs; it returns other than these numbers.
    """
    try:
        with quietly():
            return only_finite(measure.meaning.of(data, **arguments(measure, scope)), data, measure)
    except KeyError as error:
        if isinstance(error, SinkjaxError):
            raise
        named, held = UNMEASURED.match(str(error.args[0])), ", ".join(map(str, data.data_vars))
        wanted = repr(named[1]) if named else "a statistic"
        raise SinkjaxError(f"the measure {measure} needs {wanted}, which its probe does not measure; there is {held}") from error


def label_of(measure: Measure, scope: Scope) -> str:
    """The name of a measure for readers, such as "heads that sink on key 0 (%) in layers 0 to 3".

    An argument that is an axis of a grid, and so differs between conditions, is named instead.
    """
    shown: dict[str, object] = {}
    place = ""
    for name, value in measure.given.items():
        if measure.meaning.kinds.get(name) is Place:
            found = scope.places(value)
            place = "" if value == ALL or not found else f" in {found[0].label}"
        else:
            shown[name] = scope.get(value) if scope.knows(value) else f"[{value}]"
    text = AXIS.sub(r"the \1", str(measure.meaning.facts["label"]).format(**shown))
    start = f" from position {shown['start']}" if shown.get("start") else ""
    eps = f", eps {shown['eps']:g}" if isinstance(dict(measure.arguments).get("eps"), float) else ""
    return f"{text}{start}{eps}{place}"


def check_measure(measure: Measure, scope: Scope, probe: sinkjax.Probe) -> None:
    """Raise if a measure cannot read the results of this probe: try it on a dataset of their shape that holds one number.

    Errors: those of `read_measure`; an error in the measure's own code.
    """
    from sinkjax.probes.record import Record, to_dataset
    from sinkjax.sweeps.plan import record_shapes

    shapes = record_shapes(scope.architecture, scope.config.length, probe, scope.config.dtype)
    record = {}
    for name, array in shapes.items():  # strides of 0: a map takes no memory
        shape = (EDITS, PROMPTS, *array.shape[1:])
        record[name] = np.lib.stride_tricks.as_strided(np.full(1, HALF, array.dtype), shape, (0,) * len(shape))
    try:
        read_measure(measure, scope, to_dataset(Record(record, shapes.dims)))
    except Absent:  # which depends on the numbers
        return
    except SinkjaxError:
        raise
    except Exception as error:
        why = " ".join(str(error).split())[:WORDS]
        raise SinkjaxError(f"the measure {measure} fails: {type(error).__name__}: {why}") from error


def probe_of(measures: Iterable[Measure], scope: Scope) -> sinkjax.Probe:
    """The probe that asks for what some measures need."""
    asked = sinkjax.Probe()
    for measure in measures:
        asks: Callable[..., sinkjax.Probe] | tuple[str, ...] = measure.meaning.facts["asks"]
        if callable(asks):
            known = {name: scope.get(value) for name, value in measure.given.items() if _told(value, scope)}
            asked = merged(asked, asks(**known))
        else:
            asked = merged(asked, sinkjax.Probe.of(*asks))
    return asked


def _told(value: object, scope: Scope) -> bool:
    """Whether an argument is known before a sweep: a setting, or a number of the model where that is given."""
    number = isinstance(value, Number) and scope.architecture is not None
    return scope.knows(value) and (number or not isinstance(value, Word))


def merged(one: sinkjax.Probe, other: sinkjax.Probe) -> sinkjax.Probe:
    """The probe that asks for what either of two asks for."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(sinkjax.Probe):
        mine, more = getattr(one, field.name), getattr(other, field.name)
        if field.name in ("capture", "extra"):
            named = {entry.name: entry for entry in mine}
            if odd := [name for name, entry in {entry.name: entry for entry in more}.items() if named.get(name, entry) != entry]:
                raise SinkjaxError(f"two measures ask for {odd[0]} in different ways, and a grid can measure it in one only")
            changes[field.name] = (*mine, *(entry for entry in more if entry.name not in named))
        else:
            changes[field.name] = mine or more
    return sinkjax.Probe(**changes)


def check_positions(measure: Measure, scope: Scope) -> None:
    """Refuse a measure of a position that prompts do not have, or of a key that too few queries see."""
    for name, place in arguments(measure, scope).items():
        if name in ("key", "position") and isinstance(place, int | np.integer):
            if place >= scope.config.length:
                raise SinkjaxError(f"{name} {place} of {measure} is beyond prompts of {scope.config.length} tokens")
            if name in measure.meaning.facts.get("seen", ()) and place + MIN_QUERIES > scope.config.length:
                raise SinkjaxError(
                    f"{name} {place} of {measure} is seen by fewer than {MIN_QUERIES} of {scope.config.length} queries"
                )
