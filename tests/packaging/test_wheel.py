"""The wheel by itself: what is in it, and that it works in an environment that has never seen the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.wheel


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of a command, which must succeed, run where no checkout is on the path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel alone; its dependencies (a gigabyte) are read from the environment of the tests.

    A .pth file lends their folder: Python does not follow .pth files found there, so the editable install stays unseen.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", wheel, cwd=folder)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_the_wheel_holds_the_package_and_the_configs_and_nothing_else(wheel: Path):
    tree = {
        target / path.relative_to(ROOT / source)
        for source, target in (("sinkjax", Path("sinkjax")), ("configs", Path("sinkjax/configs")))
        for path in (ROOT / source).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {Path(name) for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == tree
    assert {Path("sinkjax/py.typed"), Path("sinkjax/configs/kiya/mask.yaml")} <= packed


def test_the_wheel_is_light(wheel: Path):
    assert wheel.stat().st_size < 5_000_000  # bytes


def test_the_environment_imports_the_wheel_and_not_the_checkout(environment: Path):
    found = run(environment / "bin" / "python", "-c", "import sinkjax; print(sinkjax.__file__)", cwd=environment)
    assert Path(found.strip()).is_relative_to(environment)


def test_the_wheel_finds_the_same_configs_as_the_checkout(environment: Path):
    from sinkjax.config_files.files import configs

    script = "from sinkjax.config_files.files import configs; print(*configs())"
    assert run(environment / "bin" / "python", "-c", script, cwd=environment).split() == list(configs())


def test_the_wheel_finds_the_same_models_as_the_checkout_and_loads_what_is_among_them(environment: Path):
    from sinkjax.checkpoints.presets import packaged

    script = (
        "from sinkjax.checkpoints.presets import packaged; import sinkjax; print(*[m for m in packaged() if sinkjax.load(m)])"
    )
    assert run(environment / "bin" / "python", "-c", script, cwd=environment).split() == list(packaged())
    add = """
import sinkjax
from sinkjax.checkpoints.presets import MODELS
config = sinkjax.Config(
    layers=1, width=4, heads=1, kv_heads=1, head_dim=4, mlp_width=8, vocab_size=9, context=8, activation="silu", tied=True,
    norm=sinkjax.model.config.RMSNorm(1e-5), position=sinkjax.model.config.Rope(1e4),
)
sinkjax.save(sinkjax.Model(config, sinkjax.model.params.init(config, 0), None, {}), MODELS / "tiny")
"""
    run(environment / "bin" / "python", "-c", add, cwd=environment)
    assert "tiny" in run(environment / "bin" / "python", "-c", script, cwd=environment).split()


def test_a_shipped_config_is_planned_from_the_wheel(environment: Path):
    before = set(environment.iterdir())
    plan = run(environment / "bin" / "sinkjax", "plan", "kiya/mask", cwd=environment)
    assert all(word in plan for word in ("edits", "prompts", "compilations", "memory", "FLOPs"))
    assert set(environment.iterdir()) == before
