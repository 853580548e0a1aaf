"""Run the notebooks of colab/ and keep their outputs: python scripts/notebooks.py [NAME ...]

Outputs are kept without what differs between two runs of the same numbers (times, counters), and without paths of this machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from sinkjax.runtime.progress import MARK

FOLDER = Path(__file__).parents[1] / "colab"
LARGEST = 600_000  # bytes of a notebook


def execute(notebook: nbformat.NotebookNode, folder: Path, seconds: int) -> nbformat.NotebookNode:
    """A notebook with the outputs of a new run in `folder`. seconds: what a cell may take. Errors: those of its cells."""
    ran = nbformat.from_dict(notebook)
    options = {"resources": {"metadata": {"path": str(folder)}}, "record_timing": False, "coalesce_streams": True}
    NotebookClient(ran, timeout=seconds, kernel_name="python3", **options).execute()
    ran.metadata = notebook.metadata  # a kernel writes its version there
    for cell in ran.cells:
        if cell.cell_type == "code":
            kept = [output for output in cell.outputs if output.get("name") != "stderr" and output.get("metadata") != MARK]
            cell.outputs = [plain(output, folder) for output in kept]
            cell.execution_count = None
    return ran


def plain(output: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    """An output without its counter and without the name of the folder that it was run in."""
    if "execution_count" in output:
        output.execution_count = None
    if "text" in output:
        output.text = output.text.replace(f"{folder}/", "")
    output.pop("metadata", None)  # the format wants it with data only
    if "data" in output:
        output.metadata = {}
    return output


def kinds(notebook: nbformat.NotebookNode) -> list[list[tuple[str, ...]]]:
    """The structure of a notebook: for each code cell, its outputs' types and what forms each is given in."""
    return [
        [(output.output_type, output.get("name", ""), *sorted(output.get("data", {}))) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def main(names: list[str]) -> None:
    """Run the notebooks of these names, by default all, in place."""
    for path in [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            ran = execute(nbformat.read(path, as_version=4), Path(folder), seconds=3600)
        text = nbformat.writes(ran)
        if len(text.encode()) > LARGEST:
            raise SystemExit(f"{path} would have {len(text.encode()):,} bytes, more than {LARGEST:,}: draw less")
        path.write_text(text + "\n", encoding="utf-8")
        print(f"{path.name}: {len(text.encode()):,} bytes", file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    main(parser.parse_args().names)
