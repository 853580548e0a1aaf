"""Predict interventions from tokens alone, keep the predictions in a file, and compare them with the sweeps later.

    python scripts/predictions.py predict RUN FILE.csv model=gemma3-270m bos=model    before anything is edited
    sinkjax run RUN                                                                   the sweeps
    python scripts/predictions.py compare RUN FILE.csv MEASURED.csv                   predicted against measured

`predict` takes settings of kiya/predictions, and `scan=FOLDER`, a finished run of kiya/scan with the same prompts, so that its
tokens are not run again. The run keeps the predictions among its values, so the sweeps cannot change them, and `compare` refuses
a FILE that has others than the run.
"""

from __future__ import annotations

import csv
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import xarray
import yaml
from long_tables import as_text

import sinkjax
from sinkjax.config_files import documents
from sinkjax.config_files.files import user_place, write
from sinkjax.errors import SinkjaxError
from sinkjax.papers.kiya.predictions import HALF, SHARE, predict, predictions
from sinkjax.study.baseline import Unedited
from sinkjax.study.choice import by_name, choose, claim
from sinkjax.study.folder import SUMMARY, RunValues, open_store, store_path
from sinkjax.study.inputs import prompts
from sinkjax.study.work import TEXT, Batch
from sinkjax.sweeps.computation import prompts_identity

STUDY = "kiya/predictions"
COLUMNS = ("prediction", "ratio_alone", "sink_predicted")


def main(arguments: Sequence[str]) -> None:
    """Predict, or compare."""
    what, run, file, *rest = arguments
    if what == "predict":
        fields = {name: yaml.safe_load(value) for name, _, value in (one.partition("=") for one in rest)}
        write(Path(file), as_text(COLUMNS, predicted(Path(run), fields)))
    elif what == "compare":
        rows, counts = compared(Path(run), Path(file))
        write(Path(rest[0]), as_text((*COLUMNS, "share_measured", "sink_measured", "right"), rows))
        print(counts)
    else:
        raise SinkjaxError(f"{what!r} is neither predict nor compare")


def predicted(run: Path, fields: dict[str, object]) -> list[list[object]]:
    """Predict into the values of a run that has no sweep yet, and return the rows of the file."""
    chosen, scan = by_name(STUDY), fields.pop("scan", None)
    config = documents.build(type(chosen.config), {**documents.fields(chosen.config), **fields}, STUDY)
    chosen, folder = dataclasses.replace(chosen, config=config), user_place(run)
    claim(folder, chosen)
    if list(folder.glob("*.zarr")):
        raise SinkjaxError(f"{run} has sweeps already, so nothing in it is a prediction")
    values = RunValues(folder)
    if "predicted" not in values:
        model = sinkjax.load(config.model, dtype=config.dtype)
        batch = prompts(model, chosen, TEXT, config.prompts)
        values["predicted"] = predict(config, Unedited(model, batch), None if scan is None else known(Path(str(scan)), batch))
    return as_rows(values, config)


def as_rows(values: RunValues, config: Any) -> list[list[object]]:
    """The predictions that a run keeps, as rows of a file."""
    return [[one.label, f"{one.ratio:.6g}", int(one.sink)] for one in predictions(values["predicted"], config)]


def known(scan: Path, batch: Batch) -> xarray.Dataset:
    """Open the tokens of a run of kiya/scan. Raises an error if it compared them with other prompts."""
    data = open_store(store_path(user_place(scan), "tokens")).load()
    if data.attrs["sweep"]["prompts"] != prompts_identity(batch.tokens, batch.lengths):
        raise SinkjaxError(f"{scan} has other prompts than these predictions: set prompts, length, bos, split and seed alike")
    return data


def compared(run: Path, file: Path) -> tuple[list[list[object]], str]:
    """Join the file with the run's measurements, and count right and wrong predictions."""
    with file.open(newline="") as lines:
        said = list(csv.DictReader(lines))
    with (run / SUMMARY).open(newline="") as lines:
        shares = {row["edit"]: float(row["mean"]) for row in csv.DictReader(lines) if row["measure"] == SHARE}
    own = {str(row[0]): [str(value) for value in row] for row in as_rows(RunValues(user_place(run)), choose(str(run)).config)}
    if changed := [row["prediction"] for row in said if own.get(row["prediction"]) != [row[name] for name in COLUMNS]]:
        raise SinkjaxError(f"{file} differs from what {run} predicted, in {len(changed)} lines, such as {changed[0]!r}")
    if missing := sorted({row["prediction"] for row in said} ^ set(shares)):
        raise SinkjaxError(f"{file} and {run} have different predictions, {len(missing)} of them, such as {missing[0]!r}")
    rows = []
    for row in said:
        sink, share = int(row["sink_predicted"]), shares[row["prediction"]]
        rows.append([*row.values(), f"{share:.4f}", int(share > HALF), int(sink == (share > HALF))])
    lines_of = ["intervention  predicted  right  wrong"]
    for name in dict.fromkeys(str(row[0]).partition(",")[0] for row in rows):
        for sink in (1, 0):
            of = [row for row in rows if str(row[0]).partition(",")[0] == name and int(str(row[2])) == sink]
            right = sum(int(str(row[-1])) for row in of)
            lines_of.append(f"{name:12}  {'sink' if sink else 'no sink':9}  {right:5}  {len(of) - right:5}")
    return rows, "\n".join(lines_of)


if __name__ == "__main__":
    main(sys.argv[1:])
