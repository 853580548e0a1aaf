"""`sinkjax plan`: the cost of a study."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from sinkjax.cli.common import PlannedOptions, read_study, studies
from sinkjax.config_files.checks import refuse
from sinkjax.errors import one_of
from sinkjax.runtime.backend import start_jax
from sinkjax.runtime.folding import folded
from sinkjax.study.registry import SERIES, Chosen, by_name

C = TypeVar("C")


@dataclass(frozen=True, kw_only=True)
class PlanOptions(PlannedOptions, Generic[C]):
    """Print a study's runs and their cost, without reading any weights."""

    config: C
    platform: str = "auto"
    """hardware to plan for: auto, cpu, gpu or tpu of this machine, or a named device such as h200 or tpu-v5e"""
    processes: int = 1
    """number of processes that fill the same stores, each with its own devices"""


def plan(arguments: Sequence[str]) -> None:
    """print the edits, compilations, bytes and FLOPs of a study before anything runs"""
    written = any(argument.partition("=")[0] == "--out" for argument in arguments[1:])
    refuse(written, "sinkjax plan writes nothing, so it has no --out")
    name, chosen, options = read_study(plan, studies, arguments, PlanOptions)
    elsewhere = options.platform not in ("auto", "cpu", "gpu", "tpu")
    start_jax("cpu" if elsewhere else options.platform, options.config.dtype)
    from sinkjax.runtime.hardware import PLATFORMS, Hardware
    from sinkjax.study import run, suite
    from sinkjax.study.plan import show_parts

    one_of("platform", options.platform, ["auto", "cpu", "gpu", "tpu", *PLATFORMS])
    axes, memory, how = options.hardware()
    hardware = Hardware.of(None, memory)
    if axes or elsewhere:
        axes = axes or {"data": 1, "model": 1}
        hardware = Hardware(memory, axes["data"], axes["model"], options.platform if elsewhere else None)
    refuse(options.processes < 1, f"--processes must be at least 1, not {options.processes}")
    hardware = dataclasses.replace(hardware, processes=options.processes)
    if not (options.several or chosen.suite):
        chosen = run.fitted(chosen)
    every = suite.plans(chosen, hardware, how) if chosen.suite else ((name, run.work(chosen, hardware, attention_impl=how)),)
    for study, plans in every:
        if isinstance(plans, str):
            print(folded(f"{study} does not run: {plans}", hang="  ") + "\n")
        else:
            show_parts(study, plans, partial(_length, chosen, study), options.config.dtype, hardware)


def _length(chosen: Chosen, study: str) -> Any:
    """Prompt length of a study: the value set for the series or suite, else the study's own."""
    if chosen.experiment == SERIES:
        stated = chosen.config.settings.get("length")
        return stated or by_name(chosen.config.study).config.length
    return chosen.config.length or by_name(study).config.length
