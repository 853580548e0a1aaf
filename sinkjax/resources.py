"""The experiment configs that ship with the library, found by name from a wheel and from a checkout alike."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

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
    """Every shipped config, sorted: name "family/experiment" -> its YAML file."""
    families = sorted((folder for folder in root().iterdir() if folder.is_dir()), key=lambda folder: folder.name)
    return {
        f"{family.name}/{file.name.removesuffix(SUFFIX)}": file
        for family in families
        for file in sorted(family.iterdir(), key=lambda file: file.name)
        if file.name.endswith(SUFFIX)
    }


def config_path(name: str) -> Traversable:
    """The YAML file of the shipped config `name`, e.g. "kiya/mask". Errors: a name that is not shipped."""
    shipped = configs()
    if name not in shipped:
        raise unknown("config", name, shipped)
    return shipped[name]
