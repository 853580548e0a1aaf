"""`sinkjax run` and `sinkjax sweep`: run studies into folders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from sinkjax.cli.common import (
    DeviceOptions,
    JoinOptions,
    Listed,
    Options,
    PlannedOptions,
    Verb,
    asked_location,
    default_folder,
    read_study,
    studies,
)
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.locations import reached
from sinkjax.errors import printable
from sinkjax.report.terminal import terminal
from sinkjax.runtime.backend import start_jax, use_all_cores
from sinkjax.runtime.progress import say
from sinkjax.study.registry import SERIES

if TYPE_CHECKING:
    from sinkjax.report.section import Report

C = TypeVar("C")


@dataclass(frozen=True, kw_only=True)
class RunOptions(PlannedOptions, JoinOptions, Options, Generic[C]):
    """Run a study, or all of a paper, into a folder of stores, figures, a summary and a page. The same command resumes."""

    config: C
    out: str | None = None
    """folder for the results, or a URL like s3://bucket/mask; if none, results/NAME for the config NAME, or the folder of the
    earlier run"""
    trim: bool = False
    """in a series, delete each model from the hub's cache once it has been measured, unless it was there before"""
    strict: bool = False
    """refuse to resume on other hardware, where numbers agree only to rounding"""


def run(arguments: Sequence[str]) -> None:
    """run a study, given by NAME, YAML file or the folder of an earlier run, with optional overrides"""
    _run(run, studies, arguments)


def sweep(arguments: Sequence[str]) -> None:
    """run any list or grid of edits written in a YAML file"""
    _run(sweep, partial(studies, "sweep"), arguments)


def _run(verb: Verb, listed: Listed, arguments: Sequence[str]) -> None:
    """Run the study that is named, with the overridden config fields. listed: the shipped configs."""
    name, chosen, options = read_study(verb, listed, arguments, RunOptions)
    usual = default_folder(name)
    usual = usual.with_name(f"{usual.name}-series") if options.several else chosen.folder or usual
    out = usual if options.out is None else asked_location(options.out)
    if not isinstance(options, DeviceOptions):  # it trains
        use_all_cores()
    refuse(options.trim and chosen.experiment != SERIES, "--trim requires a series: --models, --revisions or --checkpoints")
    start_jax(options.platform, options.config.dtype, options.join)
    from sinkjax.runtime import processes
    from sinkjax.runtime.hardware import is_joined, make_mesh
    from sinkjax.study import folder, run, suite

    axes, memory, attention_impl = options.hardware()
    mesh = make_mesh(axes) if axes else None
    divided = is_joined(mesh) and chosen.experiment != "sweep"
    refuse(divided, "with --join, --mesh works for sinkjax sweep only: a study runs on the devices of one process")
    machine = run.Machine(memory, mesh, options.strict, options.trim, attention_impl)
    missing = ""
    report_line = say if processes.first() else lambda line: None
    with reached(out):
        if chosen.suite:
            report = suite.carry_out(chosen, out, machine, report_line)
            show: Callable[[], None] = partial(terminal, report)
            missing = refusals(report, chosen.experiment == SERIES)
        else:
            show = partial(terminal, run.carry_out(chosen, out, machine, report_line))
    if processes.first():
        show()
        print(printable(str(out / folder.PAGE)))
    refuse(bool(missing), missing)


def refusals(report: Report, series: bool) -> str:
    """Explain a failure: any failed run in a series, or all runs in a suite; otherwise "".

    A suite may contain studies that not every model supports, such as one of the BOS.
    """
    if not report.skipped or (report.sections and not series):
        return ""
    number, every = len(report.skipped), len(report.skipped) + len(report.sections)
    name, why = next(iter(report.skipped.items()))
    return f"{number} of {every} {'models were' if series else 'studies were'} not measured, such as {name}: {why}"
