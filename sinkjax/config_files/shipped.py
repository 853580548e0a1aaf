"""The document that a user names: a config that ships with the library, a YAML file, or the config of a former run."""

from __future__ import annotations

from pathlib import Path

from sinkjax.config_files import documents
from sinkjax.config_files.files import CONFIG_FILE, read_text
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.resources import config_path, configs


def shipped(kind: str = "experiment") -> list[str]:
    """The names of the shipped configs whose documents have the key `kind`: experiments, or what is trained."""
    return [name for name in configs() if kind in documents.parse(config_path(name).read_text(encoding="utf-8"), name)]


def document(name: str, kind: str = "experiment") -> tuple[str, str, Path | None]:
    """The document that a user names, what to call it, and its folder if it is that of a former run.

    kind: of the shipped configs that an unknown name may have meant. Errors: nothing of that name.
    """
    if name in configs():
        return config_path(name).read_text(encoding="utf-8"), name, None
    path = Path(name).expanduser()
    file = path / CONFIG_FILE if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise SinkjaxError(f"{path} is not the folder of a run: it holds no {CONFIG_FILE}")
    if not file.is_file():
        raise unknown("config", name, shipped(kind), "; or a YAML file, or the folder of a former run")
    return read_text(file), str(file), file.parent if file.name == CONFIG_FILE else None
