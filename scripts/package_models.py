"""Put one run of a finished training into the package in half precision, where `sinkjax.load(NAME)` finds it.

    python scripts/package_models.py results/pretrain/mini/softmax 0 mini-softmax    # a training of --size 340k --seed 5

The text of the training must be where its config says. What the run had measured at its end is measured once more on the weights
as they are stored, and goes into the card.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import sinkjax
from sinkjax.checkpoints.native import CARD
from sinkjax.checkpoints.presets import MODELS
from sinkjax.config_files.files import write
from sinkjax.errors import SinkjaxError
from sinkjax.tasks import load_runs
from sinkjax.tasks.language_model.config import Pretrain
from sinkjax.tasks.language_model.task import PretrainTask
from sinkjax.train.folder import save_run
from sinkjax.train.log import read

DTYPE = "float16"
TOLERANCE = 2e-3  # nats, between the loss in the log and that of the stored weights


def main() -> None:
    """Write the folder, measure what is in it, and say so."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("training", type=Path, help="the folder of a finished training of a language model on text")
    parser.add_argument("run", type=int, help="its number in the table of runs")
    parser.add_argument("name", help="of the model")
    parser.add_argument("--out", type=Path, default=MODELS, help="where the folder of that name goes (default: the package)")
    options = parser.parse_args()
    try:
        folder = package(options.training, options.run, options.out / options.name)
    except SinkjaxError as error:
        parser.error(str(error))
    print(f"{folder}: {sum(file.stat().st_size for file in folder.iterdir()):,} bytes")


def package(training: Path, run: int, folder: Path) -> Path:
    """Save the run in `folder`.

    Errors: a training of something else; those of `save_run`; stored weights of another loss than the training ended with.
    """
    trained = load_runs(training)
    config, task = trained.config, trained.task
    if not (isinstance(config, Pretrain) and isinstance(task, PretrainTask)):
        raise SinkjaxError(f"{training} is no training of a language model on text")
    save_run(trained, run, folder, DTYPE)
    stored = sinkjax.load(folder)
    held_out = task.open(lambda line: None).held_out()
    found = jax.jit(task.evaluate)(stored.params, held_out, jnp.int32(0))
    measured = task.summarise({name: np.asarray(value) for name, value in found.items()})
    ended = [line for line in read(training)[1] if line["run"] == run][-1]
    if not abs(measured["loss"] - ended["loss"]) < TOLERANCE:
        raise SinkjaxError(f"stored as {DTYPE}, the loss is {measured['loss']:.4f} and not {ended['loss']:.4f} nats")
    card = folder / CARD
    said = (
        f"The weights are stored as {DTYPE} and computed with in float32. As stored: loss {measured['loss']:.4f} nats, where the"
        f" training ended with {ended['loss']:.4f}; Sink_1 {100 * measured['sink'][0]:.1f} and {100 * ended['sink'][0]:.1f} % of"
        f" heads and sequences; share of token 1 in the strongest head {max(map(max, measured['share'])):.3f}."
    )
    files = sorted(file.stem for file in Path(config.text).glob("*.txt"))
    text = f"The text, {config.text}: {', '.join(files)}.\n" if files else ""
    write(card, "\n\n".join([card.read_text(encoding="utf-8").rstrip(), said, text]).rstrip() + "\n")
    return folder


if __name__ == "__main__":
    main()
