"""Two stores of the same edits: values side by side, differences paired where the prompts are the same."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.cli import main as cli
from sinkjax.errors import SinkjaxError
from sinkjax.study import compare
from sinkjax.study import folder as results
from sinkjax.study.folder import write_whole
from tests.study.tiny import SENTENCE, write_model

TEXTS = [SENTENCE, SENTENCE[20:], SENTENCE[40:]]
EDITS = (sinkjax.compose(label="none"), sinkjax.mask_key(0).named("masked"))
PROBE = sinkjax.Probe(attention_received=True, resid_max=True, nll=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores: trained and random on the same prompts, other prompts, other edits, another statistic, no edits."""
    out = tmp_path_factory.mktemp("stores")
    path = write_model(tmp_path_factory.mktemp("model"))
    trained, random = sinkjax.load(path), sinkjax.load(f"untrained:{path}")

    def sweep(name: str, model: sinkjax.Model = trained, texts=TEXTS, edits=EDITS, probe=PROBE) -> None:
        tokens, lengths = sinkjax.encode(model, texts, bos="none", length=12)
        sinkjax.sweep(model, tokens, edits, probe=probe, lengths=lengths, out=out / f"{name}.zarr", progress=False)

    sweep("trained")
    sweep("random", random)
    sweep("prompts", texts=TEXTS[::-1])
    sweep("edits", edits=(*EDITS, sinkjax.mask_key(1).named("more")))
    sweep("order", edits=EDITS[::-1])
    sweep("norms", probe=sinkjax.Probe(resid_norm=True))
    write_whole(xarray.Dataset({"number": ("layer", np.arange(3))}), out / "numbers.zarr", {"calculation": "numbers"}, {})
    return out


def section(folder: Path, first: str, second: str):
    paths = {name: folder / f"{store}.zarr" for name, store in (("A", first), ("B", second))}
    stores = [results.open_store(path) for path in paths.values()]
    return compare.compare(*stores, {name: path.name for name, path in paths.items()})


def test_values_stand_side_by_side_and_differences_are_paired(folder):
    rows = {(row.condition, row.measure): row.value for row in section(folder, "trained", "random").rows}
    loss = {
        name: xarray.open_zarr(folder / f"{name}.zarr", chunks=None)["nll"].sel(edit="masked") for name in ("trained", "random")
    }
    means = {name: np.nanmean(values, axis=-1) for name, values in loss.items()}
    assert rows["masked", "loss (nats per token): A"].mean == pytest.approx(means["trained"].mean())
    assert rows["masked", "loss (nats per token): B"].mean == pytest.approx(means["random"].mean())
    difference = rows["masked", "loss (nats per token): B - A"]
    each = means["random"] - means["trained"]
    assert difference.mean == pytest.approx(each.mean(), rel=1e-3)
    assert difference.low < difference.mean < difference.high  # by t, so with three prompts it reaches beyond their values
    assert len(rows) == 2 * 4 * 3


def test_two_folders_are_compared_by_the_sweeps_that_they_share(folder, tmp_path, capsys):
    first, second = tmp_path / "first", tmp_path / "second"
    for place, stores in (
        (first, {"masks": "trained", "more": "edits", "masks-twin": "random"}),
        (second, {"masks": "random", "more": "trained", "masks-twin": "random"}),
    ):
        place.mkdir()
        for name, store in stores.items():
            shutil.copytree(folder / f"{store}.zarr", place / f"{name}.zarr")
    report, out = compare.carry_out(first, second)
    assert [section.title.partition(":")[0] for section in report.sections] == ["masks"]
    assert "'more' is only in" in report.skipped["more"]
    assert (out / "masks" / "summary.csv").is_file()
    assert cli.main(["report", str(first), str(second)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(out / "report.html")
    shutil.rmtree(second / "masks.zarr")
    for other, said in ((second, "'more' is only in"), (folder / "trained.zarr", "a store and a folder")):
        with pytest.raises(SinkjaxError, match=said):
            compare.carry_out(first, other)


def test_the_command_line_writes_page_and_summary_beside_the_first_store(folder, capsys):
    assert cli.main(["report", str(folder / "trained.zarr"), str(folder / "random.zarr")]) == 0
    out = folder / f"trained-and-{folder.name}-random"
    assert capsys.readouterr().out.splitlines()[-1] == str(out / "report.html")
    lines = list(csv.DictReader(io.StringIO((out / "summary.csv").read_text())))
    assert {line["edit"] for line in lines} == {"none", "masked"}
    assert "paired by prompt" in (out / "report.html").read_text()
    assert (out / "figures" / "by-edit.png").is_file()
    assert cli.main(["report", str(folder / "trained.zarr"), str(folder / "none.zarr")]) == 2
