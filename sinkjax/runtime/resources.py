"""Files outside the code: shipped configs, found by name in both a wheel and a checkout, and the user's cache folder."""

from __future__ import annotations

import os
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from sinkjax.errors import SinkjaxError, one_of

SUFFIX = ".yaml"


def root() -> Traversable:
    """Return the configs folder: inside the package in a wheel, next to it in a checkout (an editable install)."""
    package = files("sinkjax")
    for folder in (package / "configs", package / ".." / "configs"):
        if folder.is_dir():
            return folder
    raise SinkjaxError("this installation of sinkjax has no configs folder; install it again from a wheel or a checkout")


def configs() -> dict[str, Traversable]:
    """Map the names of all shipped configs ("paper/study", or "all"), sorted, to their YAML files."""
    folders = {"": root()} | {f"{folder.name}/": folder for folder in root().iterdir() if folder.is_dir()}
    return {
        f"{family}{file.name.removesuffix(SUFFIX)}": file
        for family, folder in sorted(folders.items())
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(SUFFIX)
    }


def config_path(name: str) -> Traversable:
    """Return the YAML file of the shipped config `name`, e.g. "kiya/mask". Errors: there is no such config."""
    shipped = configs()
    one_of("config", name, shipped)
    return shipped[name]


def cache_folder() -> Path:
    """Return the user's cache folder for sinkjax."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sinkjax"
