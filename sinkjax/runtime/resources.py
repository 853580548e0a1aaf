"""Files outside the code: the shipped configs, found by name in a wheel and in a checkout alike, and the user's cache folder."""

from __future__ import annotations

import os
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from sinkjax.errors import SinkjaxError, one_of

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
    one_of("config", name, shipped)
    return shipped[name]


def cache_folder() -> Path:
    """The folder of this user's caches of sinkjax."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sinkjax"
