"""Training tasks; train and load by config, whose type determines the task. This module does not import JAX.

To add a task, write a config type and a module with `task(config) -> Task`, list them in `TASKS` and add a file in `configs`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sinkjax.config_files import documents
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import CONFIG_FILE, document, read_text, user_location
from sinkjax.config_files.locations import Location, reached, read_bytes
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.runtime.settings import fixed_settings
from sinkjax.train.config import KIND, SAVE_EVERY, Training
from sinkjax.train.mirror import local

if TYPE_CHECKING:
    from sinkjax.train.task import Task
    from sinkjax.train.trained import Trained

# task -> (module and name of its config type, module of the task)
TASKS: dict[str, tuple[str, str, str]] = {
    "backcopy": ("sinkjax.tasks.backcopy.config", "BackcopyTraining", "sinkjax.tasks.backcopy.task"),
    "finetune": ("sinkjax.tasks.language_model.config", "Finetune", "sinkjax.tasks.language_model.finetune"),
    "pretrain": ("sinkjax.tasks.language_model.config", "Pretrain", "sinkjax.tasks.language_model.task"),
    "trigger": ("sinkjax.tasks.trigger.config", "TriggerTraining", "sinkjax.tasks.trigger.task"),
    "trigger-capped": ("sinkjax.tasks.trigger.config", "CappedTraining", "sinkjax.tasks.trigger.capped"),
}


def config_type(name: Any) -> type[Training]:
    """Return the dataclass of a task's config. Errors: an unknown task."""
    if not isinstance(name, str) or name not in TASKS:
        raise unknown("task", name, TASKS)
    module, cls, _ = TASKS[name]
    return cast("type[Training]", getattr(importlib.import_module(module), cls))


def task(config: Training) -> Task:
    """Make the task of a config, by its type. Errors: the config belongs to no task; the task's own errors."""
    cls, modules = type(config), {(of_type, name): of_task for of_type, name, of_task in TASKS.values()}
    module = modules.get((cls.__module__, cls.__name__), "")
    known = ", ".join(name for _, name in modules)
    refuse(not module, f"{cls.__name__} is not the config of a training; those are {known}")
    return cast("Task", importlib.import_module(module).task(config))


def choose(name: str) -> tuple[Training, Location | None]:
    """Return the training that a user names: a shipped config ("trigger/softmax-1l1h"), a YAML file or an earlier training.

    Returns the config, and the folder of the earlier training. Errors: nothing of that name; a document that is not a training.
    """
    text, what, folder = document(name, KIND, "training")
    return read(text, what, written=folder is not None), folder


def read(text: str, what: str, written: bool = False) -> Training:
    """Return the config in a YAML document.

    written: whether a training wrote it: then every field must be in it. Errors: no `training`, an unknown task, or fields that
    do not fit it.
    """
    values = documents.parse(text, what)
    if KIND not in values:
        refuse("experiment" in values, f"{what} is a study, not a training; use: sinkjax run {what}")
        raise SinkjaxError(f"{what} lacks the key {KIND!r}, one of {', '.join(TASKS)}")
    try:
        cls = config_type(values.pop(KIND))
    except SinkjaxError as error:
        raise SinkjaxError(f"{what}: {error}") from None
    return documents.read_whole(cls, values, text, what) if written else documents.build(cls, values, what)


@fixed_settings
def train(
    config: Training,
    folder: str | Path,
    say: Callable[[str], None] = lambda line: None,
    *,
    on_log: Callable[[dict[str, Any]], object] | None = None,
    save_every: float = SAVE_EVERY,
    progress: bool = True,
) -> Trained:
    """Train every run of a config, resuming the state in `folder`; a finished training is only read.

    Args:
        config: The training; its type determines the task.
        folder: Folder of the training. For a URL ("gs://bucket/softmax") it runs in a temporary folder on this machine, and
            every checkpoint is copied from there; the extra `remote` and the protocol's own library must be installed.
        say: Called with a line of text at each stage.
        on_log: Called with each evaluation of a run as it is logged: a dict with the run's labels, `step`, `status` and the
            measured values (numbers, or lists of numbers). After an interruption, evaluations since the last checkpoint come
            again.
        save_every: Seconds between checkpoints.
        progress: Whether to show a progress bar. None of the last four arguments changes any number.

    Returns:
        The results of the runs.

    Raises:
        SinkjaxError: No task has such a config, or the task refuses it; it needs more memory than this machine has; the folder
            has other content, or a training with another config (every differing field is named); another process trains in it.
    """
    from sinkjax.runtime.backend import refuse_larger_than_memory
    from sinkjax.train import loop
    from sinkjax.train.state import least_bytes

    chosen = task(_begun(config, folder))
    refuse_larger_than_memory("a training", least_bytes(chosen))
    with loop.opened(chosen, folder, say, on_log) as training:
        return training.run(save_every, progress)


def _begun(config: Training, folder: str | Path) -> Training:
    """Return a config whose attention is "auto" with the attention of the training that is in the folder already, if one is."""
    name = "attention_impl"
    # Whatever is wrong with the folder, the training says.
    with contextlib.suppress(SinkjaxError, OSError, UnicodeError, KeyError):
        where = user_location(folder) / CONFIG_FILE
        if getattr(config, name, None) == "auto":
            with reached(where):
                values = documents.parse(read_bytes(where).decode(), CONFIG_FILE)
            return dataclasses.replace(config, **{name: values[name]})
    return config


def load_runs(folder: str | Path) -> Trained:
    """Read a finished training.

    Args:
        folder: Folder of the training, or its URL.

    Returns:
        The results of its runs.

    Raises:
        SinkjaxError: There is no training, or it is not finished.
    """
    from sinkjax.train.checkpoint import CHECKPOINTS
    from sinkjax.train.trained import load_trained

    with local(folder) as (here, mirror):
        file = here / CONFIG_FILE
        refuse(not file.is_file() or not (here / CHECKPOINTS).is_dir(), f"{here} is not the folder of a training")
        return load_trained(here, task(read(read_text(file), str(file), written=True)), mirror)
