"""Train and load by config: the type of a config determines its task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp

from sinkjax.config_files.files import CONFIG_FILE, read_text
from sinkjax.errors import SinkjaxError
from sinkjax.model import params
from sinkjax.runtime.backend import refuse_larger_than_memory
from sinkjax.tasks import registry
from sinkjax.train import loop
from sinkjax.train.checkpoint import CHECKPOINTS
from sinkjax.train.config import Training
from sinkjax.train.mirror import local
from sinkjax.train.runs import table
from sinkjax.train.task import HostDataTask, ModelTask, Task
from sinkjax.train.trained import Trained, load_trained


def train(
    config: Training,
    folder: str | Path,
    say: Callable[[str], None] = lambda line: None,
    *,
    tensorboard: bool = False,
    save_every: float = loop.SAVE_EVERY,
    progress: bool = True,
) -> Trained:
    """Train every run of a config, resuming the state in `folder`; a finished training is only read.

    Args:
        config: The training; its type determines the task.
        folder: Where the training is stored. For a URL ("gs://bucket/softmax") it runs in a temporary folder of this machine,
            and every checkpoint is copied from there; the extra `remote` and the protocol's own library must be installed.
        say: Called with a line of text at each stage.
        tensorboard: Whether to write TensorBoard event files.
        save_every: Seconds between checkpoints.
        progress: Whether to show a progress bar. None of the last four arguments changes a number.

    Returns:
        The results of the runs.

    Raises:
        SinkjaxError: No task has such a config, or the task refuses it; it needs more memory than this machine has; the folder
            has other content, or another config's (naming each field that differs); another process trains in it.
    """
    task = registry.task(config)
    refuse_larger_than_memory("a training", least_bytes(task, config))
    return loop.train(task, folder, say, tensorboard=tensorboard, save_every=save_every, progress=progress)


def load_runs(folder: str | Path) -> Trained:
    """Read a finished training.

    Args:
        folder: The folder that it was trained into, or its URL.

    Returns:
        The results of its runs.

    Raises:
        SinkjaxError: There is no training, or one that is not finished.
    """
    with local(folder) as (here, mirror):
        document = here / CONFIG_FILE
        if not document.is_file() or not (here / CHECKPOINTS).is_dir():
            raise SinkjaxError(f"{here} is not the folder of a training")
        config = registry.read(read_text(document), str(document), here).config
        return load_trained(here, registry.task(config), mirror)


COPIES = 3  # copies of a run's parameters: weights and Adam's two means


def least_bytes(task: Task, config: Training) -> int:
    """Least memory of a training: the state of all runs, and the batches of a call where the host makes them."""
    runs = table(config, task)
    count = params.count(task.model(task.variants[0])) if isinstance(task, ModelTask) else 0
    state = COPIES * count * jnp.dtype(config.dtype).itemsize * len(runs)
    shapes = jax.tree.leaves(task.batch_shapes()) if isinstance(task, HostDataTask) else []
    batch = sum(leaf.size * leaf.dtype.itemsize for leaf in shapes)
    return state + batch * config.eval_every * len({run.seed for run in runs})
