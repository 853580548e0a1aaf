"""The command line: `sinkjax run | sweep | train | plan | report | models | sites`.

Each verb is a function of its arguments. What it needs of JAX is imported when it runs, so that help and mistakes answer at once.
A mistake is one sentence on standard error and exit code 2; an interruption is exit code 130.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import tyro

from sinkjax import __version__
from sinkjax.backend import start_jax, use_all_cores
from sinkjax.cli.options import read
from sinkjax.config_files.files import shipped
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.experiments.registry import Chosen, choose, config_type, trains
from sinkjax.resources import configs

C = TypeVar("C")
GIGABYTE = 10**9


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a command runs; nothing here changes a number."""

    backend: Literal["auto", "cpu", "gpu", "tpu"] = "auto"
    """where to compute; another back end than the one asked for is refused"""


@dataclass(frozen=True, kw_only=True)
class Planned(Options):
    """How a command runs that plans its memory."""

    memory: float | None = None
    """gigabytes of a device's memory that a sweep may plan with; by default what this device has"""


@dataclass(frozen=True, kw_only=True)
class Run(Planned, Generic[C]):
    """Run an experiment, or all of a paper, into a folder of stores, figures, a summary and a page. The same command resumes."""

    config: C
    out: Path | None = None
    """folder for the results; by default results/ and the name of the config, or where the former run lies"""


@dataclass(frozen=True, kw_only=True)
class Plan(Planned, Generic[C]):
    """Print what an experiment will run and what it costs. No weights are read."""

    config: C


@dataclass(frozen=True, kw_only=True)
class Train(Options, Generic[C]):
    """Train every run of a config into a folder: its log, its parameters, how each run ended. The same command resumes."""

    config: C
    out: Path | None = None
    """folder for the results; by default results/ and the name of the config, or where the former training lies"""
    tensorboard: bool = False
    """write TensorBoard event files too"""


@dataclass(frozen=True)
class Report:
    """Rebuild the summary, figures and page of a finished run from its stores, or compare two stores of the same edits."""

    results: tyro.conf.Positional[Path]
    """the folder of a run, or a store in it"""
    other: tyro.conf.Positional[Path | None] = None
    """a second store, to be compared with the first"""


@dataclass(frozen=True)
class Models:
    """List the presets and supported families, or print the architecture of one model."""

    source: tyro.conf.Positional[str | None] = None
    """preset, folder, hub id or .gguf file"""


@dataclass(frozen=True)
class Sites:
    """List where an edit can act: the array at each site, its shape and bytes, and the operations allowed."""

    model: tyro.conf.Positional[str] = "smollm2-135m"
    """preset, folder, hub id or .gguf file"""
    prompts: int = 1
    """prompts in a batch"""
    length: int = 64
    """tokens of each prompt"""
    dtype: Literal["float32", "bfloat16", "float16", "float64"] = "float32"
    """of the parameters and activations"""


def run(arguments: Sequence[str]) -> None:
    """run an experiment: NAME, a YAML file, or the folder of a former run, and fields that differ"""
    name, rest = _named(arguments, "run")
    chosen = choose(name)
    _run(name, chosen, read(over(Run, chosen), rest, f"run {name}", config=chosen.config))


def sweep(arguments: Sequence[str]) -> None:
    """run any list or grid of edits written in a YAML file"""
    name, rest = _named(arguments, "sweep")
    chosen = choose(name)
    if chosen.experiment != "sweep":
        raise SinkjaxError(f"{name} is a config of {chosen.experiment}, not of a sweep; use: sinkjax run {name}")
    _run(name, chosen, read(over(Run, chosen), rest, f"sweep {name}", config=chosen.config))


def train(arguments: Sequence[str]) -> None:
    """train models from scratch: NAME, a YAML file, or the folder of a former training, and fields that differ"""
    from sinkjax.tasks import registry

    name, rest = _named(arguments, "train")
    chosen = registry.choose(name)
    options = read(Train[type(chosen.config)], rest, f"train {name}", config=chosen.config)  # type: ignore[misc]
    out = options.out or chosen.folder or default_folder(name)
    use_all_cores()
    start_jax(options.backend, options.config.dtype)
    from sinkjax.report.terminal import show_training
    from sinkjax.tasks import train

    show_training(train(options.config, out, _say, tensorboard=options.tensorboard))
    print(out)


def plan(arguments: Sequence[str]) -> None:
    """print the edits, compilations, bytes and FLOPs of an experiment before anything runs"""
    name, rest = _named(arguments, "plan")
    if any(argument.partition("=")[0] == "--out" for argument in rest):
        raise SinkjaxError("sinkjax plan writes nothing, so it takes no --out")
    chosen = choose(name)
    options = read(over(Plan, chosen), rest, f"plan {name}", config=chosen.config)
    start_jax(options.backend, options.config.dtype)
    from sinkjax.experiments import run, suite
    from sinkjax.experiments.base import Calculation, Lesson
    from sinkjax.report.plan import show_calculation, show_lesson, show_plan

    chosen, memory = dataclasses.replace(chosen, config=options.config), _bytes(options.memory)
    every = suite.plans(chosen, memory) if chosen.suite else ((name, run.work(chosen, memory)),)
    for experiment, plans in every:
        if isinstance(plans, str):
            print(f"{experiment} does not run: {plans}\n")
            continue
        for job, architecture, planned in plans:
            title = f"{experiment}: {job.name}"
            if isinstance(job, Lesson):
                show_lesson(title, job, architecture)
            elif isinstance(job, Calculation):
                length = options.config.length or choose(experiment).config.length
                show_calculation(title, job, architecture, length, options.config.dtype)
            elif planned is not None:
                show_plan(title, planned, architecture, options.config.dtype)


def report(arguments: Sequence[str]) -> None:
    """rebuild the figures and the page of a run from its stores, or compare two stores"""
    options = read(Report, arguments, "report")
    if options.other is not None:
        _compare(options.results, options.other)
        return
    chosen = choose(str(options.results))
    if chosen.folder is None:
        raise SinkjaxError(f"{options.results} is a config, not the results of a run")
    from sinkjax.experiments import run, suite
    from sinkjax.experiments.results import PAGE
    from sinkjax.report.terminal import show_section, show_suite

    if chosen.suite:
        show_suite(suite.build(chosen, chosen.folder))
    else:
        show_section(run.build(chosen, chosen.folder))
    print(chosen.folder / PAGE)


def models(arguments: Sequence[str]) -> None:
    """list the models at hand, or print one model's architecture"""
    options = read(Models, arguments, "models")
    from sinkjax.report.models import show_model, show_models

    show_models() if options.source is None else show_model(options.source)


def sites(arguments: Sequence[str]) -> None:
    """list the sites of a model where edits act, with shapes and bytes"""
    options = read(Sites, arguments, "sites")
    start_jax("cpu", options.dtype)
    from sinkjax.report.models import show_sites

    show_sites(options.model, options.prompts, options.length, options.dtype)


VERBS: dict[str, Callable[[Sequence[str]], None]] = {
    verb.__name__: verb for verb in (run, sweep, train, plan, report, models, sites)
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0, 2 for a mistake, 130 for an interruption, 1 if nobody reads the output."""
    arguments = sys.argv[1:] if arguments is None else arguments
    verb, *rest = arguments or ["--help"]
    try:
        if verb in ("-h", "--help"):
            print(overview())
        elif verb == "--version":
            print(f"sinkjax {__version__}")
        elif verb in VERBS:
            VERBS[verb](rest)
        else:
            raise unknown("command", verb, VERBS)
    except SinkjaxError as error:
        return _fail(str(error), 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would complain at its exit
        return 1
    except OSError as error:
        return _fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 2)
    except KeyboardInterrupt:
        return _fail("interrupted; the same command resumes", 130)
    return 0


def overview() -> str:
    """What `sinkjax --help` prints."""
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:{width}}  {verb.__doc__}" for name, verb in VERBS.items())
    return (
        f"sinkjax {__version__}: attention sinks and massive activations, by causal intervention\n\n"
        f"usage: sinkjax COMMAND [...]\n\n{verbs}\n\n"
        "sinkjax COMMAND --help says more; sinkjax run NAME --help lists every field of an experiment's config."
    )


def listing(verb: str) -> str:
    """What `sinkjax run --help` prints, before a config is named: those that ship."""
    wanted = _listed(verb)
    width = max(map(len, wanted), default=0)
    lines = "\n".join(f"  {name:{width}}  {says}" for name, says in wanted.items())
    return (
        f"usage: sinkjax {verb} CONFIG [--FIELD VALUE ...]\n\n{VERBS[verb].__doc__}\n\n"
        f"CONFIG is one of these, a YAML file, or the folder of a former run:\n{lines}\n\n"
        f"sinkjax {verb} CONFIG --help lists every field and option."
    )


def _listed(verb: str) -> dict[str, str]:
    """The shipped configs that a command takes, each with a line."""
    if verb == "train":
        from sinkjax.tasks import registry

        return {name: registry.choose(name).config.summary for name in shipped(registry.KIND)}
    names = {name: choose(name) for name in shipped()}
    return {
        name: getattr(chosen.config, "summary", None) or _first_line(config_type(chosen.experiment))
        for name, chosen in names.items()
        if verb != "sweep" or chosen.experiment == "sweep"
    }


def over(options: Any, chosen: Chosen) -> Any:
    """The type of a command's options together with the fields of the chosen config."""
    return options[config_type(chosen.experiment)]


def default_folder(name: str) -> Path:
    """Where the results of a config go."""
    return Path("results") / (name if name in configs() else Path(name).stem)


def _run(name: str, chosen: Chosen, options: Run[Any]) -> None:
    """Run what was chosen, with the fields of its config as they were overridden."""
    out = options.out or chosen.folder or default_folder(name)
    if trains(chosen.experiment):
        use_all_cores()
    start_jax(options.backend, options.config.dtype)
    from sinkjax.experiments import run, suite
    from sinkjax.experiments.results import PAGE
    from sinkjax.report.terminal import show_section, show_suite

    chosen, memory = dataclasses.replace(chosen, config=options.config), _bytes(options.memory)
    if chosen.suite:
        show_suite(suite.carry_out(chosen, out, memory, _say))
    else:
        show_section(run.carry_out(chosen, out, memory, _say))
    print(out / PAGE)


def _compare(first: Path, second: Path) -> None:
    from sinkjax.experiments import compare
    from sinkjax.experiments.results import PAGE
    from sinkjax.report.terminal import show_section

    section, folder = compare.carry_out(first, second)
    show_section(section)
    print(folder / PAGE)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _named(arguments: Sequence[str], verb: str) -> tuple[str, list[str]]:
    """The config that a command names first, and its options."""
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        print(listing(verb))
        raise SystemExit(0)
    if name.startswith("-"):
        example = next(iter(_listed(verb)), "mine.yaml")
        raise SinkjaxError(f"sinkjax {verb} takes a config before its options, e.g. sinkjax {verb} {example} {name} ...")
    return name, rest


def _bytes(gigabytes: float | None) -> int | None:
    if gigabytes is not None and gigabytes <= 0:
        raise SinkjaxError(f"--memory must be above 0 gigabytes, not {gigabytes}")
    return None if gigabytes is None else int(gigabytes * GIGABYTE)


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").splitlines()[0].rstrip(".")


def _fail(message: str, code: int) -> int:
    print(f"sinkjax: {message}", file=sys.stderr)
    return code
