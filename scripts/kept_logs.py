"""The kept logs of trainings: docs/results/data/trainings/SERIES.parquet, a row for each evaluation of a run.

The column `log` names the training: STUDY/ROW, with its seed where each seed is a training of its own. `header` is the first
line of its log, as JSON, and `fields` are its measurements, in order; every other column is one of these. Numbers are float32
where all of a column were: `read` returns the numbers of the log, each the shortest decimal of its float32.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from sinkjax.config_files.files import write

LOGS = Path(__file__).resolve().parents[1] / "docs" / "results" / "data" / "trainings"
ABOUT = ("log", "header", "fields")
Log = tuple[dict[str, Any], list[dict[str, Any]]]  # the first line, and the evaluations


def names(under: str, folder: Path | None = None) -> list[str]:
    """The kept logs, as SERIES/LOG, of a series or of a part of it."""
    series = under.partition("/")[0]
    found = [f"{series}/{name}" for name in _series(_file(series, folder))[1]]
    return [name for name in found if f"{name}/".startswith(f"{under}/")]


def read(name: str, folder: Path | None = None) -> Log:
    """A kept log. Errors: KeyError if it is not kept."""
    series, _, log = name.partition("/")
    table, rows = _series(_file(series, folder))
    own = table.slice(*rows[log])
    fields = own["fields"][0].as_py().split(",")
    columns = [_numbers(own[field]) for field in fields]
    return json.loads(own["header"][0].as_py()), [dict(zip(fields, values, strict=True)) for values in zip(*columns, strict=True)]


def keep(name: str, first: dict[str, Any], lines: Sequence[dict[str, Any]], folder: Path | None = None) -> None:
    """Add a log to its series, in the place of one of its name. Equal logs give equal bytes; other processes wait."""
    series, _, log = name.partition("/")
    file = _file(series, folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{file}.lock"):
        keep_all(file, {**{each: read(f"{series}/{each}", folder) for each in _series(file)[1]}, log: (first, lines)})


def keep_all(file: Path, logs: dict[str, Log]) -> None:
    """Write a series anew."""
    ordered = [(log, json.dumps(first), lines) for log, (first, lines) in sorted(logs.items())]
    entries = [(log, first, ",".join(lines[0]), line) for log, first, lines in ordered for line in lines]
    fields = dict.fromkeys(field for *_, line in entries for field in line)
    columns = {name: pa.array([entry[number] for entry in entries]) for number, name in enumerate(ABOUT)}
    columns |= {field: _column([line.get(field) for *_, line in entries]) for field in fields}
    buffer, texts = io.BytesIO(), [name for name, column in columns.items() if pa.types.is_string(column.type)]
    single = [_path(name, column.type) for name, column in columns.items() if _leaf(column.type) == pa.float32()]
    pq.write_table(
        pa.table(columns), buffer, compression="zstd", compression_level=19, use_dictionary=texts, use_byte_stream_split=single
    )
    write(file, buffer.getvalue())


def _file(series: str, folder: Path | None) -> Path:
    return (LOGS if folder is None else folder) / f"{series}.parquet"


def _series(file: Path) -> tuple[pa.Table, dict[str, tuple[int, int]]]:
    """A series, and the first row of each log with their number; nothing of a series that is not there."""
    if not file.exists():
        return pa.table({}), {}
    state = file.stat()
    return _read(file, state.st_mtime_ns, state.st_size)


@functools.lru_cache(8)
def _read(file: Path, changed: int, size: int) -> tuple[pa.Table, dict[str, tuple[int, int]]]:
    table = pq.read_table(file)
    rows: dict[str, tuple[int, int]] = {}
    for number, log in enumerate(table["log"].to_pylist()):
        first, count = rows.get(log, (number, 0))
        rows[log] = first, count + 1
    return table, rows


def _column(values: Iterable[Any]) -> pa.Array:
    """Values of every evaluation, in float32 if that keeps all of them."""
    found = pa.array(values)
    if _leaf(found.type) != pa.float64():
        return found
    single = found.cast(_single(found.type))
    return single if _numbers(single) == found.to_pylist() else found


def _numbers(column: Any) -> list[Any]:
    """The values of a column, as their log has them."""
    return [_decimal(value) for value in column.to_pylist()] if _leaf(column.type) == pa.float32() else column.to_pylist()


def _decimal(value: Any) -> Any:
    if isinstance(value, list):
        return [_decimal(each) for each in value]
    return None if value is None else float(str(np.float32(value)))


def _leaf(kind: pa.DataType) -> pa.DataType:
    return _leaf(kind.value_type) if pa.types.is_list(kind) else kind


def _single(kind: pa.DataType) -> pa.DataType:
    return pa.list_(_single(kind.value_type)) if pa.types.is_list(kind) else pa.float32()


def _path(name: str, kind: pa.DataType) -> str:
    return _path(f"{name}.list.element", kind.value_type) if pa.types.is_list(kind) else name
