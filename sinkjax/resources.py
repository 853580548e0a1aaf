"""What lies outside of the code: the configs that ship with the library, found by name from a wheel and from a checkout alike,
and this user's caches."""

from __future__ import annotations

import os
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from sinkjax.errors import SinkjaxError, unknown

SUFFIX = ".yaml"


def root() -> Traversable:
    """The folder of configs: a wheel has it inside the package, a checkout (an editable install) beside it."""
    package = files("sinkjax")
    for folder in (package / "configs", package / ".." / "configs"):
        if folder.is_dir():
            return folder
    raise SinkjaxError("this installation of sinkjax has no configs folder; install it again from a wheel or a checkout")


def configs() -> dict[str, Traversable]:
    """Every shipped config, sorted: name "paper/study", or "all" -> its YAML file."""
    folders = {"": root()} | {f"{folder.name}/": folder for folder in root().iterdir() if folder.is_dir()}
    return {
        f"{family}{file.name.removesuffix(SUFFIX)}": file
        for family, folder in sorted(folders.items())
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(SUFFIX)
    }


def config_path(name: str) -> Traversable:
    """The YAML file of the shipped config `name`, e.g. "kiya/mask". Errors: a name that is not shipped."""
    shipped = configs()
    if name not in shipped:
        raise unknown("config", name, shipped)
    return shipped[name]


def cache_folder() -> Path:
    """Where this user's caches of sinkjax lie."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sinkjax"
