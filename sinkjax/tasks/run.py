"""Train and load by config: the type of a config determines its task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sinkjax.config_files.files import CONFIG_FILE, read_text
from sinkjax.errors import SinkjaxError
from sinkjax.tasks import registry
from sinkjax.train import loop
from sinkjax.train.checkpoint import CHECKPOINTS
from sinkjax.train.config import Training
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
    """Train every run of a config, resuming what is in `folder`; a finished training is only read.

    Args:
        config: The training; its type determines the task.
        folder: Where the training is stored.
        say: Called with a line of text at each stage.
        tensorboard: Whether to write TensorBoard event files.
        save_every: Seconds between checkpoints.
        progress: Whether to show a progress bar. None of the last four arguments changes a number.

    Returns:
        What the runs learned.

    Raises:
        SinkjaxError: No task has such a config, or the task refuses it; the folder has other content, or that of another config
            (naming each field that differs); another process trains in it.
    """
    task = registry.task(config)
    return loop.train(task, folder, say, tensorboard=tensorboard, save_every=save_every, progress=progress)


def load_runs(folder: str | Path) -> Trained:
    """Read a finished training.

    Args:
        folder: The folder that it was trained into.

    Returns:
        What its runs learned.

    Raises:
        SinkjaxError: There is no training, or one that is not finished.
    """
    folder = Path(folder)
    document = folder / CONFIG_FILE
    if not document.is_file() or not (folder / CHECKPOINTS).is_dir():
        raise SinkjaxError(f"{folder} is not the folder of a training")
    config = registry.read(read_text(document), str(document)).config
    return load_trained(folder, registry.task(config))
