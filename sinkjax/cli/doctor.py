"""`sinkjax doctor`: facts about the machine and the installation for a bug report."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import constants

from sinkjax.data import corpora
from sinkjax.report.terminal import in_words, show
from sinkjax.runtime.backend import CACHE_VARIABLE, cache_folder, host_memory
from sinkjax.runtime.extras import EXTRAS, missing
from sinkjax.version import __version__

PACKAGES = (
    *("jax", "jaxlib", "flax", "numpy", "optax", "orbax-checkpoint", "xarray", "zarr", "matplotlib"),
    *("transformers", "tokenizers", "huggingface_hub", "datasets", "gguf", "safetensors"),
)
PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin", "libtpu")  # listed if installed
JAX_VARIABLES = ("JAX_PLATFORMS", "JAX_ENABLE_X64", "XLA_FLAGS", "CUDA_VISIBLE_DEVICES")
VARIABLES = (*JAX_VARIABLES, "HF_HUB_OFFLINE", "HF_HOME", "XDG_CACHE_HOME")


@dataclass(frozen=True)
class DoctorOptions:
    """Show versions, devices, precision, caches, disk space and whether the Hub responds, on one screen for a bug report."""


def doctor(options: DoctorOptions) -> None:
    """show versions, devices, caches and whether the Hub responds, for a bug report"""
    show(f"sinkjax {__version__}", ("", ""), list(facts()))


def facts() -> Iterator[tuple[str, str]]:
    """Collect the facts by name; anything that is broken is reported on its own line."""
    import jax

    yield "installed in", str(Path(__file__).parents[1])
    yield "Python", f"{platform.python_version()}, {sys.executable}"
    yield "system", platform.platform()
    yield "packages", ", ".join(_versions())
    yield "extras", ", ".join(name + " lacks " * bool(missing(name)) + ", ".join(missing(name)) for name in EXTRAS)
    yield "devices", _devices()
    wide = "on" if jax.dtypes.canonicalize_dtype("float64") == "float64" else "off"
    yield "precision", f"float32, matrix products at 'highest' unless stated otherwise; float64 is {wide}"
    yield "memory", f"{in_words(host_memory())} available of {in_words(host_memory('MemTotal'))}"
    folders = {
        "cache of sinkjax": cache_folder(),
        "compiled programs": Path(os.environ.get(CACHE_VARIABLE) or cache_folder() / "programs"),
        "cache of the hub": Path(constants.HF_HUB_CACHE),
        "this folder": Path.cwd(),
    }
    for name, folder in folders.items():
        there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
        yield name, f"{folder}, {in_words(shutil.disk_usage(there).free)} free"
    yield "hub", _hub()
    yield "environment", ", ".join(f"{name}={os.environ[name]}" for name in VARIABLES if os.environ.get(name)) or "nothing set"


def _versions() -> Iterator[str]:
    for name in (*PACKAGES, *PLUGINS):
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            if name not in PLUGINS:
                yield f"{name} is missing"


def _devices() -> str:
    import jax

    try:
        return f"{jax.default_backend()}, {jax.device_count()} x {jax.devices()[0].device_kind}"
    except RuntimeError as error:  # a plugin that does not match its jaxlib, or a missing platform
        return f"none: {str(error).splitlines()[0]}"


def _hub() -> str:
    if constants.HF_HUB_OFFLINE:
        return "not checked, because HF_HUB_OFFLINE is set"
    return "answers" if corpora.hub_answers() else f"{constants.ENDPOINT} did not respond within {corpora.PATIENCE_SECONDS:g} s"
