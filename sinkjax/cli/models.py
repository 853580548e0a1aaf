"""`sinkjax models` and `sinkjax sites`: which models can be loaded, and where an edit can act in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import tyro

from sinkjax.cli.options import read
from sinkjax.runtime.backend import start_jax


@dataclass(frozen=True)
class ModelsOptions:
    """List the presets and supported families, or print the architecture of one model."""

    source: tyro.conf.Positional[str | None] = None
    """preset, folder, hub id or .gguf file"""
    ignore_keys: tuple[str, ...] = ()
    """keys of its config.json, of its metadata, and tensors to leave out, if no number depends on them"""
    verbose: bool = False
    """whether to list what separated documents in each family's pretraining, so that you can choose `bos`"""


@dataclass(frozen=True)
class SitesOptions:
    """List where an edit can act: the array at each site, its shape and bytes, and the operations allowed."""

    model: tyro.conf.Positional[str] = "smollm2-135m"
    """preset, folder, hub id or .gguf file"""
    ignore_keys: tuple[str, ...] = ()
    """keys of its config.json, of its metadata, and tensors to leave out, if no number depends on them"""
    prompts: int = 1
    """prompts in a batch"""
    length: int = 64
    """tokens of each prompt"""
    dtype: Literal["float32", "bfloat16", "float16", "float64"] = "float32"
    """precision of the parameters and activations"""


def models(arguments: Sequence[str]) -> None:
    """list the available models, or print one model's architecture"""
    options = read(ModelsOptions, arguments, "models")
    from sinkjax.report.models import show_model, show_models

    show_models(options.verbose) if options.source is None else show_model(options.source, options.ignore_keys)


def sites(arguments: Sequence[str]) -> None:
    """list the sites of a model where edits act, with shapes and bytes"""
    options = read(SitesOptions, arguments, "sites")
    start_jax("cpu", options.dtype)
    from sinkjax.report.models import show_sites

    show_sites(options.model, options.prompts, options.length, options.dtype, options.ignore_keys)
