"""Parts that the verbs share: options of every command, the config that comes first, the place of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import shipped, user_place
from sinkjax.config_files.places import Place, url_protocol
from sinkjax.errors import SinkjaxError
from sinkjax.runtime.resources import configs
from sinkjax.studies.registry import Chosen, choose, config_type, trains

GIGABYTE = 10**9

Verb = Callable[[Sequence[str]], None]  # its name is the command's, its docstring the command's help
Listed = Callable[[], dict[str, str]]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a command runs; nothing here changes a number."""

    platform: Literal["auto", "cpu", "gpu", "tpu"] = "auto"
    """where to compute; an error if JAX does not have this platform"""


@dataclass(frozen=True, kw_only=True)
class JoinOptions:
    """Whether a command is one of several processes."""

    join: bool = False
    """join the processes that a launcher started (Slurm, Open MPI, Kubernetes, a TPU slice) or that JAX_COORDINATOR_ADDRESS,
    JAX_NUM_PROCESSES and JAX_PROCESS_ID name; a training is divided over all their devices"""


@dataclass(frozen=True, kw_only=True)
class PlannedOptions:
    """Options of a command that plans: its sweeps' memory, and the models of a study on several."""

    memory: float | None = None
    """memory per device that a sweep may use, in GB (default: 90% of the device; on CPUs, half of free memory)"""
    checkpoints: Path | None = None
    """a study on every model in this folder, such as the checkpoints of a training, instead of on `model`"""
    models: tuple[str, ...] = ()
    """a study on each of these models instead"""
    revisions: tuple[str, ...] = ()
    """a study on each of these branches, tags or commits of `model`, a hub id"""

    @property
    def several(self) -> bool:
        """Whether a study is asked of several models."""
        return bool(self.checkpoints or self.models or self.revisions)


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Where sweeps of a given model run. A study that trains its own models states its devices in its config."""

    devices: int | None = None
    """how many devices to take; by default all"""
    mesh: str | None = None
    """how to lay them out, like data=4,model=2: prompts and edits are spread over data, the parameters of each copy over model"""


def split_config(arguments: Sequence[str], verb: Verb, listed: Listed) -> tuple[str, list[str]]:
    """The config that a command names first, and its options. listed: the shipped configs that the command takes, with a line."""
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        print(listing(verb, listed))
        raise SystemExit(0)
    if name.startswith("-"):
        example, command = next(iter(listed()), "mine.yaml"), f"sinkjax {verb.__name__}"
        raise SinkjaxError(f"{command} takes a {noun(verb)} before its options, e.g. {command} {example} {name} ...")
    return name, rest


def noun(verb: Verb) -> str:
    """The first argument of a command."""
    return "training" if verb.__name__ == "train" else "study"


def listing(verb: Verb, listed: Listed) -> str:
    """The text of `sinkjax run --help` before a config is named: the shipped configs."""
    wanted, named = listed(), noun(verb).upper()
    width = max(map(len, wanted), default=0)
    lines = "\n".join(f"  {name:{width}}  {says}" for name, says in wanted.items())
    return (
        f"usage: sinkjax {verb.__name__} {named} [--FIELD VALUE ...]\n\n{verb.__doc__}\n\n"
        f"{named} is one of these, a YAML file, or the folder of a former run:\n{lines}\n\n"
        f"sinkjax {verb.__name__} {named} --help lists every field and option."
    )


def studies(only: str | None = None) -> dict[str, str]:
    """The shipped configs of studies, each with a line. only: this study's."""
    names = {name: choose(name) for name in shipped()}
    return {
        name: getattr(chosen.config, "summary", None) or str(config_type(chosen.experiment).__doc__).splitlines()[0].rstrip(".")
        for name, chosen in names.items()
        if only is None or chosen.experiment == only
    }


def over(options: Any, with_devices: Any, chosen: Chosen) -> Any:
    """A command's options, `with_devices` if the study is given a model, with the fields of the chosen config, as one type."""
    return (options if trains(chosen.experiment) else with_devices)[config_type(chosen.experiment)]


def asked_axes(options: PlannedOptions) -> dict[str, int] | None:
    """The axes of the mesh that `--mesh` and `--devices` ask for. Errors: they contradict each other or the machine."""
    from sinkjax.runtime.hardware import axes_of

    return axes_of(options.mesh, options.devices) if isinstance(options, DeviceOptions) else None


def asked_place(name: str) -> Place:
    """The path or URL that an option names.

    Errors: as for `user_place`; a place whose content ends with this process, or that takes no files one by one.
    """
    protocol = url_protocol(name)
    if protocol == "memory":
        raise SinkjaxError(f"{name} ends with this process, so no results would be left; choose a folder or an object store")
    refuse(protocol == "hf", f"{name} makes a commit of every file, so results do not go there; choose a folder and upload it")
    return user_place(name)


def default_folder(name: str) -> Path:
    """Where the results of a config go."""
    return Path("results") / (name if name in configs() else Path(name).stem)


def memory_bytes(gigabytes: float | None) -> int | None:
    """The bytes that `--memory` states. Errors: none above 0."""
    if gigabytes is not None and not 0 < gigabytes * GIGABYTE < 2**63:
        raise SinkjaxError(f"--memory must be above 0 gigabytes, and finite, not {gigabytes}")
    return None if gigabytes is None else int(gigabytes * GIGABYTE)
