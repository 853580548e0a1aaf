"""Each notebook is committed with the outputs of a run, small and without paths of its machine; a new run has outputs alike."""

from __future__ import annotations

import re
import runpy
import subprocess
from pathlib import Path

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "notebooks.py"))
NOTEBOOKS = {path.stem: nbformat.read(path, as_version=4) for path in sorted((ROOT / "colab").glob("*.ipynb"))}
PATHS = re.compile(r"(?<![\w.:/])/(?:home|root|tmp|work|usr|opt|Users)/|site-packages")
each = pytest.mark.parametrize("name", NOTEBOOKS)


@pytest.mark.notebook
@each
def test_a_notebook_runs_and_shows_what_it_is_committed_with(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SINKJAX_NOTEBOOK_FAST", "1")  # fewer prompts and seeds, the same cells
    ran = SCRIPT["execute"](NOTEBOOKS[name], tmp_path, seconds=600)
    assert SCRIPT["kinds"](ran) == SCRIPT["kinds"](NOTEBOOKS[name])


@each
def test_its_outputs_are_small_and_name_no_path_of_the_machine(name: str):
    text = (ROOT / "colab" / f"{name}.ipynb").read_text(encoding="utf-8")
    outputs = [output for cell in NOTEBOOKS[name].cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert len(text.encode()) <= SCRIPT["LARGEST"]
    assert not any(output.output_type == "error" or output.get("name") == "stderr" for output in outputs)
    for output in outputs:
        shown = [output.get("text", ""), *(data for form, data in output.get("data", {}).items() if form != "image/png")]
        assert PATHS.search("\n".join(shown)) is None


def test_all_begin_with_a_cell_that_installs_what_is_missing_and_asks_nothing(monkeypatch: pytest.MonkeyPatch):
    first = {next(cell.source for cell in notebook.cells if cell.cell_type == "code") for notebook in NOTEBOOKS.values()}
    (cell,) = first
    assert cell.startswith("REPOSITORY = ")
    assert max(map(len, cell.splitlines())) <= 120
    assert "input(" not in cell
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("sinkjax is installed, so that nothing is to be done"))
    exec(cell, {})


@pytest.mark.notebook
def test_a_sweep_in_a_notebook_shows_one_line_that_ends_at_its_end(tmp_path: Path):
    code = """import numpy as np, sinkjax
model = sinkjax.load("mini-softmax")
sinkjax.sweep(model, np.ones((2, 8), np.int32), [sinkjax.compose(), sinkjax.mask_key(0)])
None"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    options = {"kernel_name": "python3", "resources": {"metadata": {"path": str(tmp_path)}}}
    [output] = nbclient.NotebookClient(notebook, timeout=300, **options).execute().cells[0].outputs
    assert output.data["text/plain"].startswith("sweep: 2 of 2, ")


def test_there_are_all_that_the_documentation_names_and_the_first_is_short():
    listed = re.findall(r"\(generated/(\w+)\.ipynb\)", (ROOT / "docs" / "tutorials.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(NOTEBOOKS)
    assert len(NOTEBOOKS["quickstart"].cells) <= 10
