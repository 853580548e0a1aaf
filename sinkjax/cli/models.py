"""`sinkjax models`, `sinkjax sites` and `sinkjax study`: list models, list sites of edits, and print a study."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from sinkjax.cli.options import DefaultModel
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import write_new
from sinkjax.errors import unknown
from sinkjax.runtime.backend import start_jax
from sinkjax.study.registry import LIST, STARTER, source, studies


@dataclass(frozen=True)
class ModelsOptions:
    """List the presets and supported families, or print the architecture of one model."""

    source: tyro.conf.Positional[Annotated[str | None, tyro.conf.arg(metavar="[MODEL]")]] = None
    """preset, folder, hub id or .gguf file"""
    ignore_keys: tuple[str, ...] = ()
    """keys of the model's config.json or metadata, or tensors, to ignore because no number depends on them"""
    verbose: bool = False
    """list the token that separated documents in each family's pretraining, to help you choose `bos`"""


@dataclass(frozen=True)
class SitesOptions:
    """List the sites where an edit can act: the array at each, its shape and bytes, and the allowed operations."""

    model: DefaultModel = "smollm2-135m"
    """preset, folder, hub id or .gguf file"""
    ignore_keys: tuple[str, ...] = ()
    """keys of the model's config.json or metadata, or tensors, to ignore because no number depends on them"""
    prompts: int = 1
    """number of prompts in a batch"""
    length: int | None = None
    """number of tokens per prompt; if none, 64, or the model's context if that is shorter"""
    dtype: Literal["float32", "bfloat16", "float16", "float64"] = "float32"
    """precision of the parameters and activations"""


def models(options: ModelsOptions) -> None:
    """list the available models, or print one model's architecture"""
    from sinkjax.report.models import show_model, show_models

    show_models(options.verbose) if options.source is None else show_model(options.source, options.ignore_keys)


def sites(options: SitesOptions) -> None:
    """list the sites of a model where edits act, with shapes and bytes"""
    start_jax("cpu", options.dtype)
    from sinkjax.report.models import show_sites

    show_sites(options.model, options.prompts, options.length, options.dtype, options.ignore_keys)


@dataclass(frozen=True)
class StudyOptions:
    """Print a study, or start your own from it: sinkjax study starter --copy mine.py; sinkjax run mine.py."""

    study: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="STUDY")]]
    """name of a study, such as kiya/mask, or "starter", a short one to begin from"""
    copy: Path | None = None
    """a new file for a copy of its program"""


def study(options: StudyOptions) -> None:
    """print a study's program and text, or start your own from it"""
    if (program := source(options.study)) is None:
        raise unknown("study", options.study, [*studies(), STARTER], f"; {LIST}, and a study of your own is its file")
    if options.copy is None:
        print(program.begin + (f"\n# {program.text_file}\n{program.text}" if program.text_file else ""), end="")
        return
    other = options.copy.suffix != program.suffix
    refuse(other, f"--copy needs a file that ends in {program.suffix}, not {options.copy}")
    made = write_new(options.copy, program.begin)
    refuse(not made, f"{options.copy} already exists")
    print(f"Change it, then: sinkjax run {options.copy}")
