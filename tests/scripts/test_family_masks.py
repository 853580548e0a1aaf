"""The section on masks of the families: means and paired changes over seeds, kept row by row, and placed between its markers."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "family_masks.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> dict:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return runpy.run_path(str(SCRIPT))


def series(folder: Path, row: str, sinks: list[float]) -> None:
    """A table as a series writes it: one seed for each share of sinks, all of which the mask moves to key 1."""
    lines = ["checkpoint,step,edit,group,measure,mean,low,high"]
    for seed, share in enumerate(sinks):
        for edit, first, second in (("no edit", share, 0.0), ("all layers", 0.0, share), ("layer 0", 1.0, 1.0)):
            values = (first, second, 4.0, 0.5, 5.0 + second / 100)
            lines += [
                f'run-{seed:03d},,{edit},group,"{measure}",{value},0,9' for measure, value in zip(MEASURES, values, strict=True)
            ]
    (folder / row).mkdir(parents=True)
    (folder / row / "series.csv").write_text("\n".join(lines) + "\n")


MEASURES = (
    "heads that sink on key 0 (%)",
    "heads that sink on key 1 (%)",
    "largest |h| at position 0",
    "largest |h| at position 1",
    "loss (nats per token)",
)


def test_rows_are_kept_and_join_one_table(script, tmp_path, monkeypatch):
    page, logs = tmp_path / "page.md", tmp_path / "logs"
    for number, (row, sinks) in enumerate((("gpt2", [10.0, 30.0]), ("llama", [50.0, 50.0]))):
        series(tmp_path / str(number), row, sinks)
        arguments = [str(SCRIPT), str(tmp_path / str(number)), "--out", str(page), "--logs", str(logs)]
        monkeypatch.setattr(sys, "argv", arguments)
        script["main"]()
    text = page.read_text()
    assert text.count("<!-- begin pretrain/families masks -->") == 1
    (llama,) = (line for line in text.splitlines() if line.startswith("| Llama"))
    (gpt2,) = (line for line in text.splitlines() if line.startswith("| GPT-2"))
    assert llama.split(" | ")[1:5] == ["2", "50.0", "0", "+50.0"]
    assert gpt2.split(" | ")[1:3] == ["2", "20.0 [-107, 147]"]  # Student's t of two seeds
    assert gpt2.split(" | ")[-1].startswith("+0.200 ")
    assert "Not run: Pythia" in text
    assert "GPT-2" not in text.partition("Not run: ")[2].partition("\n")[0]
