"""The repository's address stands in pyproject.toml only; scripts write it where it is read, and notebooks install from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

import nbformat
import pytest

SCRIPT = "address.py"
ROOT = Path(__file__).parents[2]
WHERE = "https://github.com/somebody/sinkjax"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that have the address."""
    shutil.copytree(ROOT / "colab", tmp_path / "colab")
    for name in ("CITATION.cff", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in (folder / "CITATION.cff", *(folder / "colab").iterdir())}


def with_address(folder: Path, where: str) -> None:
    file = folder / "pyproject.toml"
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("Repository =")]
    place = lines.index("[project.urls]") + 1
    file.write_text("\n".join([*lines[:place], f'Repository = "{where}"', *lines[place:]]), encoding="utf-8")


def test_the_committed_files_have_the_address_of_pyproject(script, copy: Path):
    before = texts(copy)
    script["fill"](copy)
    assert texts(copy) == before


def test_an_address_fills_citation_notebooks_badge_and_commands_and_can_be_taken_back(script, copy: Path):
    before = texts(copy)
    with_address(copy, f"{WHERE}/")
    script["fill"](copy)
    assert script["address"](copy) == WHERE
    assert f"repository-code: {WHERE}\n" in (copy / "CITATION.cff").read_text(encoding="utf-8")
    for path in (copy / "colab").glob("*.ipynb"):
        first = next(cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code").source
        assert first.startswith(f'REPOSITORY = "{WHERE}"')
    assert "/github/somebody/sinkjax/blob/main/colab/quickstart.ipynb" in script["badge"](WHERE)
    assert f'pip install "sinkjax[report] @ git+{WHERE}"' in script["install"](WHERE)
    with_address(copy, "")
    script["fill"](copy)
    assert texts(copy) == before


def test_without_an_address_on_github_a_comment_says_what_to_set(script):
    for where in ("", "https://example.org/sinkjax"):
        assert script["badge"](where).startswith("<!-- Colab badge: set Repository in pyproject.toml")
    assert 'pip install ".[report]"' in script["install"]("")


def test_another_address_is_refused(script, copy: Path):
    with_address(copy, "github.com/somebody/sinkjax")
    with pytest.raises(SystemExit, match="it must begin with https://"):
        script["address"](copy)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment without sinkjax, which borrows its dependencies, as in tests/packaging/test_wheel."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin" / "python"
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).stdout.strip()
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.wheel
def test_the_cell_says_what_to_set_or_installs_from_a_clone(script, bare: Path, tmp_path: Path):
    cell = tmp_path / "cell.py"
    cell.write_text(script["first_cell"](""), encoding="utf-8")
    done = run(bare, cell, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("set REPOSITORY to its repository's address, and run this again")
    cell.write_text(script["first_cell"](ROOT.as_uri()) + "\n\nimport sinkjax\nprint(sinkjax.__file__)\n", encoding="utf-8")
    done = run(bare, cell, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith(str(bare.parents[1]))
    assert run(bare, cell, cwd=tmp_path).returncode == 0  # and a second time it does nothing
