"""Measurements as a dict of arrays, and the conversion to a labelled `xarray.Dataset`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sinkjax.config_files.checks import refuse
from sinkjax.errors import MissingStatistic, SinkjaxError, short
from sinkjax.runtime import display
from sinkjax.viewing.records import maps_of

if TYPE_CHECKING:
    import xarray

    from sinkjax.viewing.maps import Maps


@jax.tree_util.register_pytree_with_keys_class
class Record(dict[str, Any]):
    """Mapping from statistic name to array; the lookup of one that was not measured is an error that says how to request it.

    dims: statistic name -> the names of its axes, e.g. ("prompt", "layer", "head", "key"); a static part of the pytree.
    """

    def __init__(
        self, values: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), dims: Mapping[str, tuple[str, ...]] | None = None
    ):
        super().__init__(values)
        self.dims = {name: tuple(axes) for name, axes in (dims or {}).items()}

    def __missing__(self, name: str) -> Any:
        held = ", ".join(map(str, self)) or "nothing"
        raise MissingStatistic(
            f"{name!r} was not measured; the record has {held}; request it with Probe({name}=True) before the run"
        )

    def _rows(self) -> list[tuple[str, str]]:
        return [(name, display.axes(array, self.dims.get(name, ()))) for name, array in self.items()]

    def __repr__(self) -> str:
        return f"Record({', '.join(f'{name}: {what}' for name, what in self._rows())})"

    def _repr_html_(self) -> str:
        return display.table("Record", ("statistic", "axes"), self._rows())

    def show(
        self,
        after: Record | None = None,
        tokens: Sequence[str] | None = None,
        prompt: int = 0,
        layers: Sequence[int] | None = None,
    ) -> Maps:
        """Show one prompt's maps in a notebook: `attention`, `attention_received`, `resid_max` and `resid_norm`, if measured. The
        saved notebook keeps them.

        Args:
            after: Another record of the same prompts, drawn next to this one.
            tokens: Text of each position (`model.tokenizer.tokens(tokens[0])`); None shows its index.
            prompt: Index of the prompt, from 0.
            layers: Layer labels of `attention`; None counts from 0.

        Returns:
            The maps; `.html()` returns a standalone page.

        Raises:
            SinkjaxError: None of these statistics was measured; the records do not fit each other, the tokens or the prompt.
        """
        return maps_of({"record": self} if after is None else {"before": self, "after": after}, tokens, prompt, layers=layers)

    def tree_flatten_with_keys(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        names = tuple(sorted(self))
        return tuple((jax.tree_util.DictKey(name), self[name]) for name in names), (names, tuple(sorted(self.dims.items())))

    @classmethod
    def tree_unflatten(cls, static: tuple[Any, ...], values: Iterable[Any]) -> Record:
        names, dims = static
        return cls(zip(names, values, strict=True), dict(dims))


def to_dataset(record: Record, labels: Mapping[str, Any] | None = None) -> xarray.Dataset:
    """Convert a record to a labelled dataset.

    Args:
        record: Measurements whose arrays have the axes `record.dims[name]`, with an extra leading `edit` axis if they come from a
            sweep.
        labels: Dimension -> values along it (`prompt`, `edit`, `layer`, ...); dimensions without labels count from 0.

    Returns:
        The dataset.

    Raises:
        SinkjaxError: An array has the name of an axis, or its rank fits neither its dims nor edit + dims; the number of labels
            differs from the size of their dimension.
    """
    import xarray

    refuse(not isinstance(record, Record), f"to_dataset takes the record of a forward, not {short(record)}")
    variables = {}
    for name, array in record.items():
        array, axes = np.asarray(array), record.dims[name]
        if array.ndim == len(axes) + 1:
            axes = ("edit", *axes)
        refuse(array.ndim != len(axes), f"{name} has {array.ndim} axes, but is measured over {', '.join(axes)}")
        variables[name] = (axes, array)
    shadowed = variables.keys() & {axis for axes, _ in variables.values() for axis in axes}
    refuse(bool(shadowed), f"{', '.join(sorted(shadowed))} is the name of an axis: give the capture or statistic another name")
    dataset = xarray.Dataset(variables)
    coordinates = {axis: np.arange(size) for axis, size in dataset.sizes.items()}
    for axis, values in (labels or {}).items():
        if axis in coordinates and len(values) != dataset.sizes[axis]:
            raise SinkjaxError(f"{len(values)} labels for {dataset.sizes[axis]} entries of {axis!r}")
        coordinates[axis] = np.asarray(values)
    return dataset.assign_coords({axis: coordinates[axis] for axis in dataset.sizes})
