"""The dataset that a sweep returns: xarray's, which can also be written as netCDF."""

from __future__ import annotations

import json
from typing import Any

import xarray


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
