"""What was measured: a dict of arrays, everywhere, and its one conversion to a labelled `xarray.Dataset`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sinkjax.errors import MissingStatistic, SinkjaxError, unknown

if TYPE_CHECKING:
    import xarray


@jax.tree_util.register_pytree_with_keys_class
class Record(dict):
    """Statistic name -> array. Asking for one that was not measured is an error that says how to ask for it.

    The axes of each array are given by `sinkjax.probe.dims`, e.g. `attention_received` is (prompt, layer, head, key).
    """

    def __missing__(self, name: str) -> Any:
        error = unknown("statistic", name, self, f"; ask for it with Probe({name}=True) before the run")
        raise MissingStatistic(str(error))

    def tree_flatten_with_keys(self) -> tuple[tuple, tuple[str, ...]]:
        names = tuple(sorted(self))
        return tuple((jax.tree_util.DictKey(name), self[name]) for name in names), names

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], values: Iterable[Any]) -> Record:
        return cls(zip(names, values, strict=True))


def to_dataset(record: Mapping[str, Any], labels: Mapping[str, Any] | None = None) -> xarray.Dataset:
    """A record as a labelled dataset.

    record: statistic -> array whose axes are `sinkjax.probe.dims(name)`, with an extra leading `edit` axis if it comes from a
    sweep. labels: coordinate name -> values along the dimension of that name (`prompt`, `edit`, `layer`, ...); dimensions
    without labels count from 0.
    Errors: an array whose rank fits neither its dims nor edit + dims; labels of another length than their dimension.
    """
    import xarray

    from sinkjax.probe import describe, dims

    variables = {}
    for name, array in record.items():
        array = np.asarray(array)
        axes = dims(name)
        if array.ndim == len(axes) + 1:
            axes = ("edit", *axes)
        if array.ndim != len(axes):
            raise SinkjaxError(f"{name} has {array.ndim} axes, but is measured over {', '.join(axes)}")
        variables[name] = (axes, array, {"description": describe(name)})
    dataset = xarray.Dataset(variables)
    coordinates = {axis: np.arange(size) for axis, size in dataset.sizes.items()}
    for axis, values in (labels or {}).items():
        if axis in coordinates and len(values) != dataset.sizes[axis]:
            raise SinkjaxError(f"{len(values)} labels for {dataset.sizes[axis]} entries of {axis!r}")
        coordinates[axis] = np.asarray(values)
    return dataset.assign_coords({axis: coordinates[axis] for axis in dataset.sizes})
