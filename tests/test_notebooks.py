"""Each notebook is committed with the outputs of a run, small and without paths of its machine; a new run has outputs alike."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

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


def test_all_begin_with_one_line_that_installs_what_is_missing():
    first = {next(cell.source for cell in notebook.cells if cell.cell_type == "code") for notebook in NOTEBOOKS.values()}
    (line,) = first
    assert len(line.splitlines()) == 1
    names: dict = {"get_ipython": lambda: pytest.fail("sinkjax is installed, so that nothing is to be done")}
    exec(line, names)


def test_there_are_all_that_the_documentation_names_and_the_first_is_short():
    listed = re.findall(r"\(generated/(\w+)\.ipynb\)", (ROOT / "docs" / "tutorials.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(NOTEBOOKS)
    assert len(NOTEBOOKS["quickstart"].cells) <= 10
