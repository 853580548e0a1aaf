"""Save a training run, finished or at a step, as a model folder for `sinkjax.load`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sinkjax.checkpoints.model import Model
from sinkjax.checkpoints.native import save
from sinkjax.checkpoints.series import SERIES, series_path
from sinkjax.config_files import documents
from sinkjax.errors import one_of
from sinkjax.model import params
from sinkjax.train.config import KIND
from sinkjax.train.log import read, same_data
from sinkjax.train.runs import Run
from sinkjax.train.state import RUNNING, TrainState
from sinkjax.train.task import DataSource, Task
from sinkjax.train.trained import Trained

MODELS = "models"  # folder of a finished training

LIST = 12  # maximum numbers of a measurement shown in a card


def save_run(trained: Trained, run: int, folder: str | Path, dtype: str | None = None, source: DataSource | None = None) -> Path:
    """Write the model of one run, with its tokenizer and a card of how it was trained and evaluated.

    run: its index in the table of runs. dtype: dtype of the stored weights; None keeps the trained dtype. source: the training's
    open data. Errors: no such run; the data have changed; see `native.save`.
    """
    one_of("run", run, range(len(trained.runs)))
    task = trained.task
    config = task.model(trained.runs[run].run.variant)
    if task.on_host and source is None:
        source = task.open(lambda line: None)
        same_data(trained.folder, source.card)
    about = {"kind": "training", "name": f"{trained.name}, run {run}"}
    model = Model(config, trained.of(run), source.tokenizer if source else None, about)
    return save(model, folder, dtype, card(trained, run, params.count(config)))


def keep(
    folder: Path, name: str, task: Task, state: TrainState, every: Sequence[Run], step: int, source: DataSource | None
) -> None:
    """Save the models of all runs that have reached step `step` without stopping, in the series of the training `name`.

    A model that a killed training already wrote is rewritten with identical bits. Errors: as for `native.save`.
    """
    for run in every:
        if int(np.asarray(state.step)[run.run]) == step and int(np.asarray(state.status)[run.run]) == RUNNING:
            about = {"kind": "training", "name": f"{name}, run {run.run}", **run.labels(), "step": step}
            params = jax.tree.map(lambda leaf, row=run.run: leaf[row], state.params)
            model = Model(task.model(run.variant), params, source.tokenizer if source else None, about)
            save(model, series_path(folder, run.run, step))


def remove_unfinished(folder: Path) -> None:
    """Remove models that a killed process left incomplete. No other process may be training in the folder."""
    for left in (*folder.glob(f"{SERIES}/*/.*"), *folder.glob(f"{MODELS}/.*")):
        shutil.rmtree(left, ignore_errors=True)


def card(trained: Trained, run: int, parameters: int) -> str:
    """Write a run's model card in Markdown: training, data and the last evaluation in its log."""
    first, lines = read(trained.folder)
    ended = trained.runs[run]
    about = {
        **ended.labels(),
        "parameters": parameters,
        **first.get("data", {}),
        **{f"{package} version": number for package, number in first["versions"].items()},
        "trained on": first["devices"],
    }
    labels = {*ended.labels(), "step", "status"}
    last = [line for line in lines if line["run"] == run][-1]
    about["measured on held-out data"] = f"at step {last['step']}, layers and positions counted from 0"
    about |= {name: value for name, value in last.items() if name not in labels}
    rows = "\n".join(f"| {name} | {_short(value)} |" for name, value in about.items())
    document = documents.write(trained.task.name, trained.config, KIND)
    return (
        f"# {trained.config.summary}: {ended.run.label()}\n\nA model trained by sinkjax. `sinkjax.load(FOLDER)` reads it;"
        " `sinkjax.export` makes a Hugging Face folder of one that is shaped like a Llama.\n\n| | |\n| --- | --- |\n"
        f"{rows}\n\n`sinkjax train FILE.yaml` makes it again, where FILE.yaml holds:\n\n```yaml\n{document}```\n"
    )


def _short(value: Any) -> str:
    """Format a logged value in a few digits, abbreviating long lists."""
    if isinstance(value, list):
        shown = [_short(entry) for entry in value]
        return ", ".join(shown if len(shown) <= LIST else [*shown[: LIST // 2], "...", *shown[-LIST // 2 :]])
    return f"{value:.4g}" if isinstance(value, float) else str(value)
