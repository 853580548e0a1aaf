"""What a sweep returns can be written as netCDF, and reads back with the same values and attributes."""

import json
from pathlib import Path

import xarray

import sinkjax
from tests.sweeps.small import MODEL, TOKENS


def test_a_result_is_the_same_from_netcdf(tmp_path: Path) -> None:
    edits = [sinkjax.mask_key(0).named("mask", layer=1, kind="a"), sinkjax.mask_key(1, layers=1)]
    stated = {"none": None, "list": [1, "two"], "nested": {"a": {"b": True}}, "number": 2.5}
    result = sinkjax.sweep(MODEL, TOKENS, edits, out=tmp_path / "a.zarr", attributes=stated, progress=False)
    for number, part in enumerate((result, result.sel(edit="mask"))):
        part.to_netcdf(tmp_path / f"{number}.nc")
        with xarray.open_dataset(tmp_path / f"{number}.nc") as found:
            assert found.equals(part)
            assert found.attrs["number"] == 2.5
            read = {name: json.loads(found.attrs[name]) for name in ("none", "list", "nested", "sweep", "unchanged")}
            assert read == {name: part.attrs[name] for name in read}
