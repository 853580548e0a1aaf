"""`sinkjax train`: train models into folders."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from sinkjax.cli.common import JoinOptions, Options, asked_location, default_folder, split_config
from sinkjax.cli.options import read
from sinkjax.config_files import documents
from sinkjax.config_files.files import read_text, shipped, write
from sinkjax.config_files.locations import Location, reached
from sinkjax.errors import printable
from sinkjax.report.terminal import show, show_training
from sinkjax.runtime import extras
from sinkjax.runtime.backend import start_jax, use_all_cores
from sinkjax.runtime.progress import say
from sinkjax.tasks import registry
from sinkjax.train.config import KIND, AdamWTraining, Training

PAGE = "report.html"
C = TypeVar("C")


@dataclass(frozen=True, kw_only=True)
class TrainOptions(JoinOptions, Options, Generic[C]):
    """Train every run of a config into a folder: log, parameters and outcome of each run. The same command resumes."""

    config: C
    out: str | None = None
    """folder for the results, or a URL like s3://bucket/softmax; if none, results/NAME for the config NAME, or the folder of
    the earlier training"""


def train(arguments: Sequence[str]) -> None:
    """train models from scratch, given by NAME, YAML file or the folder of an earlier training, with optional overrides"""
    name, rest = split_config(arguments, train, trainings)
    stated, folder = registry.choose(name)
    options = read(TrainOptions[type(stated)], rest, f"train {name}", config=stated)  # type: ignore[misc]
    out = folder or default_folder(name) if options.out is None else asked_location(options.out)
    config = with_edits(options.config)
    use_all_cores()
    start_jax(options.platform, config.dtype, options.join)
    from sinkjax.runtime import processes

    trained = registry.train(config, out, say)
    if processes.first():
        show_training(trained)
        show_courses(out)


def show_courses(folder: Location) -> None:
    """Print where a training's measurements ended, and write its page with their courses; only the folder without the extra."""
    if lacking := extras.missing("report"):
        say(f"no page without {', '.join(lacking)}: pip install 'sinkjax[report]', then sinkjax report {folder}")
        print(printable(str(folder)))
        return
    from sinkjax.report.page import page
    from sinkjax.report.training import training_section

    with reached(folder):
        section = training_section([folder])
        (ends,) = section.blocks
        show(ends.title, ends.columns, ends.lines)
        write(folder / PAGE, page([section], section.title))
    print(printable(str(folder / PAGE)))


def with_edits(config: Training) -> Training:
    """Read a config's `edits` from their file, if they name one."""
    if not isinstance(config, AdamWTraining) or not config.edits or ":" in config.edits:
        return config
    listed = documents.parse(read_text(Path(config.edits)), config.edits)
    return dataclasses.replace(config, edits=documents.dump(listed))


def trainings() -> dict[str, str]:
    """List the shipped training configs, each with a description."""
    return {name: registry.choose(name)[0].summary for name in shipped(KIND)}
