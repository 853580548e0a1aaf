"""Optional dependencies: extras of `pyproject.toml`, their modules, and the error for a missing one."""

from __future__ import annotations

from importlib.util import find_spec

from sinkjax.errors import SinkjaxError

# Extra -> the modules that only it installs.
EXTRAS = {
    "train": ("optax", "orbax.checkpoint", "datasets"),
    "report": ("jinja2", "matplotlib"),
    "hub": ("huggingface_hub", "transformers"),
    "remote": ("fsspec", "upath"),
    "tensorboard": ("tensorboardX",),
    "explore": ("anywidget", "starlette", "uvicorn"),
    "eval": ("lm_eval",),
}


def missing(extra: str) -> list[str]:
    """List the modules of an extra that are not installed, without importing any."""
    return [name for name in EXTRAS[extra] if not _is_there(name)]


def require(what: str, extra: str, *modules: str) -> None:
    """Raise unless some modules of an extra, by default all, are installed. what: the feature that needs them ("training")."""
    lacking = [name for name in missing(extra) if name in modules or not modules]
    if lacking:
        names, verb = ", ".join(lacking), "is" if len(lacking) == 1 else "are"
        raise SinkjaxError(f"{what} needs {names}, which {verb} not installed: pip install 'sinkjax[{extra}]'")


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # its parent package is not installed either
        return False
