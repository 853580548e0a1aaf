"""Shared by all commands: common options, the config argument, and the location of results."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sinkjax.cli.options import entries, read
from sinkjax.config_files import programs
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import configs, shipped, user_location, user_path
from sinkjax.config_files.locations import Location, url_protocol
from sinkjax.errors import SinkjaxError
from sinkjax.model.names import Attention
from sinkjax.runtime.folding import folded
from sinkjax.study.registry import Chosen, Own, as_series, choose, config_type, open_own, title_of, trains

GIGABYTE = 10**9

Verb = Callable[[Any], None]  # its name is the command's name, and its docstring the command's help
Listed = Callable[[], dict[str, str]]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options that affect how a command runs, but not its numbers."""

    platform: Literal["auto", "cpu", "gpu", "tpu"] = "auto"
    """platform to compute on; an error if JAX does not have it"""


@dataclass(frozen=True, kw_only=True)
class JoinOptions:
    """Options for a command that is one of several processes."""

    join: bool = False
    """join the processes that a launcher started (Slurm, Open MPI, Kubernetes, a TPU slice) or that JAX_COORDINATOR_ADDRESS,
    JAX_NUM_PROCESSES and JAX_PROCESS_ID name; a training is divided over all their devices"""


@dataclass(frozen=True, kw_only=True)
class PlannedOptions:
    """Options of commands that plan sweeps: memory, and the models of a study on several models."""

    memory: float | None = None
    """memory per device that a sweep may use, in GB; if none, 90% of the device, on CPUs half of free memory"""
    checkpoints: Path | None = None
    """run the study on every model in this folder, such as training checkpoints, instead of on `model`"""
    models: tuple[str, ...] = ()
    """run the study on each of these models instead"""
    revisions: tuple[str, ...] = ()
    """run the study on each of these branches, tags or commits of `model`, a hub id"""
    study: str | None = None
    """the file of your own study (.py, .yaml), for results or a config that name it"""

    @property
    def several(self) -> bool:
        """Whether the study is to run on several models."""
        return bool(self.checkpoints or self.models or self.revisions)

    def hardware(self) -> tuple[dict[str, int] | None, int | None, str]:
        """Return the axes of `--mesh` and `--devices`, the bytes of `--memory`, and the implementation of attention.

        Errors: the axes contradict each other or the machine; memory is not above 0.
        """
        from sinkjax.runtime.hardware import axes_of

        given = self if isinstance(self, DeviceOptions) else DeviceOptions()
        axes, memory = axes_of(given.mesh, given.devices), None if self.memory is None else self.memory * GIGABYTE
        wrong = memory is not None and not 0 < memory < 2**63
        refuse(wrong, f"--memory must be a finite number of gigabytes above 0, not {self.memory}")
        return axes, None if memory is None else int(memory), given.attention_impl


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Device options for sweeps of a given model. A study that trains its own models sets its devices in its config."""

    devices: int | None = None
    """number of devices to use; if none, all"""
    mesh: str | None = None
    """device mesh, e.g. data=4,model=2: prompts and edits are spread over data, the parameters of each copy over model"""
    attention_impl: Attention = "auto"
    """implementation of attention; auto: the fastest on these devices that supports the sweep, or the one that a store was begun
    with (sinkjax, if it names none)"""


def split_config(arguments: Sequence[str], verb: Verb, listed: Listed) -> tuple[str, list[str]]:
    """Return a command's config (its first argument) and its options. listed: the shipped configs, each with a description."""
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        print(listing(verb, listed))
        raise SystemExit(0)
    if name.startswith("-"):
        example, command = next(iter(listed()), "mine.yaml"), f"sinkjax {verb.__name__}"
        raise SinkjaxError(f"{command} takes a {noun(verb)} before its options, e.g. {command} {example} {name} ...")
    return name, rest


def own_study(path: str) -> Own:
    """Open the study whose file the user types. Errors: see `open_own`."""
    programs.typed(path)
    return open_own(user_path(path))


def read_study(verb: Verb, listed: Listed, arguments: Sequence[str], kind: Any) -> tuple[str, Chosen, Any]:
    """Return the study that the user types first: its name, the study as the options make it, and the options.

    `--study` is read before the other options because the study decides which there are: `kind` takes the type of its config,
    and a study that does not train its own models also has `DeviceOptions`.
    """
    name, options = split_config(arguments, verb, listed)
    programs.typed(name)
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--study", nargs="?", const="")
    stated, options = first.parse_known_args(options)
    file: str | None = stated.study
    refuse(file == "", "--study needs the file of your own study")
    refuse(bool(file) and name.endswith(programs.SUFFIX), f"--study is for results and configs, and {name} is a study")
    chosen = choose(name, own_study(file) if file else None)
    other = verb.__name__ == "sweep" and chosen.experiment != "sweep"
    refuse(other, f"{name} is a config of {chosen.experiment}, not of a sweep; use: sinkjax run {name}")
    form: Any = {"namespace": {"__doc__": kind.__doc__}, "frozen": True, "kw_only": True}
    kind = kind[config_type(chosen.experiment)]
    if not trains(chosen.experiment):
        kind = dataclasses.make_dataclass("WithDevices", (), bases=(DeviceOptions, kind), **form)
    given = read(kind, options, f"{verb.__name__} {name}", config=chosen.config)
    named = {option.removeprefix("--").partition("=")[0] for option in options if option.startswith("--")}
    chosen = dataclasses.replace(chosen, config=given.config, unstated=chosen.unstated - named)
    return name, as_series(chosen, given.checkpoints, given.models, given.revisions) if given.several else chosen, given


def noun(verb: Verb) -> str:
    """Return the noun for a command's first argument."""
    return "training" if verb.__name__ == "train" else "study"


def listing(verb: Verb, listed: Listed) -> str:
    """Return the text of `sinkjax run --help` without a config: the list of shipped configs."""
    wanted, named = listed(), noun(verb).upper()
    return (
        f"usage: sinkjax {verb.__name__} {named} [--FIELD VALUE ...]\n\n{folded(verb.__doc__ or '')}\n\n"
        f"{named} is one of these, a YAML file, or the folder of an earlier run:\n{entries(wanted)}\n\n"
        f"sinkjax {verb.__name__} {named} --help lists every field and option."
    )


def studies(only: str | None = None) -> dict[str, str]:
    """List the shipped study configs, each with a description. only: restrict the list to this study."""
    described: dict[str, str] = {}
    for name in shipped():
        kind, title = name.partition("/")[0], title_of(name)  # of a function, which need not be imported
        if title is None:
            chosen = choose(name)
            kind, summary = chosen.experiment, getattr(chosen.config, "summary", None)
            title = summary or str(config_type(kind).__doc__).splitlines()[0].rstrip(".")
        described |= {name: title} if only in (None, kind) else {}
    return described


def asked_location(name: str) -> Location:
    """Return the path or URL given as an option.

    Errors: as for `user_location`; content there would be lost with this process, or single files cannot be written there.
    """
    protocol = url_protocol(name)
    lost = f"{name} ends with this process, which would lose the results; choose a folder or an object store"
    refuse(protocol == "memory", lost)
    refuse(protocol == "hf", f"{name} makes one commit per file, so it cannot hold results; choose a folder and upload it")
    return user_location(name)


def default_folder(name: str) -> Path:
    """Return the default folder for the results of a config."""
    return Path("results") / (name if name in configs() else Path(name).stem)
