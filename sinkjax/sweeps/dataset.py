"""The dataset that a sweep returns: xarray's, which can also be written as netCDF, and the arrays of one in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray

from sinkjax.sweeps.header import COORDINATES, Fixed, Measured
from sinkjax.sweeps.schedule import Chunk


class Dataset(xarray.Dataset):
    """An `xarray.Dataset` whose attributes may be nested, as in zarr."""

    __slots__ = ()

    def to_netcdf(self, *arguments: Any, **options: Any) -> Any:
        """Write the dataset as netCDF, whose attributes are numbers and strings: the nested ones become JSON.

        Args:
            *arguments, **options: As for `xarray.Dataset.to_netcdf`.

        Returns:
            As for `xarray.Dataset.to_netcdf`.
        """
        flat = {
            name: value if isinstance(value, str | float) or type(value) is int else json.dumps(value)
            for name, value in self.attrs.items()
        }
        return xarray.Dataset.to_netcdf(self.assign_attrs(flat), *arguments, **options)


class Memory:
    """Arrays [edit, prompt, ...] of the results of calls.

    variables: their dims, shapes and dtypes. block: prompts per call. done: bool [edit, prompt_block], whether it is computed.
    """

    def __init__(self, variables: Measured, block: int):
        self.block, self.dims = block, {name: dims for name, (dims, _, _) in variables.items()}
        self.arrays = {name: np.empty(shape, dtype) for name, (_, shape, dtype) in variables.items()}
        edits, prompts = next(iter(self.arrays.values())).shape[:2]
        self.done = np.zeros((edits, -(-prompts // block)), bool)

    def write(self, chunk: Chunk, block: int, values: Mapping[str, np.ndarray]) -> None:
        """Keep the results of a call, by variable [edits of the chunk, prompts of the block, ...]."""
        prompts = slice(block * self.block, (block + 1) * self.block)
        for name, array in values.items():
            for row, edit in enumerate(chunk.edits):
                self.arrays[name][edit, prompts] = array[row]
        self.done[list(chunk.edits), block] = True

    def dataset(self, attributes: Mapping[str, Any], fixed: Fixed) -> Dataset:
        """Return the results as a dataset, like that of a store with these attributes and fixed arrays."""
        variables = {name: (self.dims[name], array) for name, array in self.arrays.items()}
        known = {name: (dims, np.array(values)) for name, (dims, values) in fixed.items()}
        attributes = dict(attributes)
        further = attributes.pop(COORDINATES, "").split()
        dataset = Dataset(variables | known, attrs=attributes)
        return dataset.set_coords([name for name in known if name in further])
