"""Train one run of a language model on one core, and keep its log, packed, with its cost in processor time.

    nice -n 19 taskset -c 1 python scripts/pretrain_runs.py search e1 0 --text FOLDER_OF_BOOKS    # a setting of docs/pretraining-plan.md
    python scripts/pretrain_runs.py show search    # the numbers of the kept runs

The same command resumes an interrupted run and does nothing for one that is kept. A kept log is
`docs/pretraining-logs/STUDY/ROW/seed-N.jsonl.gz`: the lines of the training's log, whose first has an entry "processor_seconds".
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from sinkjax.backend import start_jax
from sinkjax.config_files import documents
from sinkjax.studies.papers._pretrain.sizes import SIZES
from sinkjax.tasks import registry, train
from sinkjax.train import log
from sinkjax.train.config import ALL_STEPS, DIVERGED

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "docs" / "pretraining-logs"
RESULTS = ROOT / "results"
HEAD, SPIKE = 0.3, 50.0  # from which on a head counts, and a spike
SECONDS = "processor_seconds"

# The settings of docs/pretraining-plan.md, as fields that differ from those of the size "mini".
E1 = {"batch": 2, "steps": 8000, "eval_every": 200}
NARROW = {"width": 64, "mlp_width": 192, "head_dim": 32, "vocabulary": 512, "context": 128}
F1 = NARROW | {"batch": 8, "steps": 4000, "eval_every": 200}
SEARCH: dict[str, dict[str, Any]] = {
    "e1": E1,
    "e2": E1 | {"schedule": "cosine"},
    "e3": E1 | {"heads": 4},
    "e4": E1 | {"weight_decay": 1.0},
    "e5-slow": E1 | {"learning_rates": (2e-3,)},
    "e5-fast": E1 | {"learning_rates": (8e-3,)},
    "e6": E1 | {"context": 128, "batch": 4},
    "e7": E1 | {"vocabulary": 1024},
    "f1": F1,
    "f2": F1 | {"heads": 4},
    "f3": F1 | {"rope_theta": 500_000.0},
    "f4": F1 | {"learning_rates": (8e-3,)},
    "f5": F1 | {"weight_decay": 1.0},
    "f6": F1 | {"schedule": "cosine"},
    "f7": F1 | {"batch": 4, "steps": 8000, "learning_rates": (3e-3,)},
    "f8": F1 | {"layers": 6},
}


def main() -> None:
    """Train a run, or show those that are kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", help='"search", or "show"')
    parser.add_argument("row", help="a setting's name, or the study to show")
    parser.add_argument("seed", type=int, nargs="?")
    parser.add_argument("--text", default="packaged", help="the training text")
    options = parser.parse_args()
    if options.study == "show":
        for file in sorted((LOGS / options.row).glob("*/seed-*.jsonl.gz")):
            print(summary(file))
        return
    fields = SIZES["mini"].fields | SEARCH[options.row] | {"text": options.text}
    print(summary(run(options.study, options.row, options.seed, fields)))


def run(study: str, row: str, seed: int, fields: dict[str, Any]) -> Path:
    """Train one seed to its end, from where it was interrupted, and keep its log."""
    home = LOGS / study / row / f"seed-{seed}.jsonl.gz"
    if not home.exists():
        start_jax("cpu", "float32")
        config = documents.build(registry.config_type("pretrain"), {**fields, "seed": seed, "seeds": 1}, f"{study}/{row}")
        folder = RESULTS / study / row / f"seed-{seed}"
        train(config, folder, progress=False)
        keep(folder, home, time.process_time())
    return home


def keep(folder: Path, home: Path, seconds: float) -> None:
    """Pack a training's log: the same lines give the same bytes."""
    first, lines = log.read(folder)
    first["config"]["text"] = Path(first["config"]["text"]).name  # not where it lies
    first[SECONDS] = round(seconds, 1)
    home.parent.mkdir(parents=True, exist_ok=True)
    home.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in (first, *lines)).encode(), mtime=0))


def read(home: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The first line of a kept log, and its evaluations."""
    first, *lines = map(json.loads, gzip.decompress(home.read_bytes()).splitlines())
    return first, lines


def numbers(first: dict[str, Any], line: dict[str, Any]) -> dict[str, Any]:
    """The measures of the plan in one evaluation: mean attention to the first token, heads, spike, and whether it qualifies."""
    received = np.array(line["received"], float)
    heads, spike = int((received >= HEAD).sum()), float(np.max(line["spike"]))
    return {
        "first": float(received.mean()),
        "middle": float(np.sort(received.ravel())[received.size // 2]),
        "heads": f"{heads} of {received.size}",
        "spike": spike,
        "loss": line["loss"],
        "qualifies": bool(2 * heads >= received.size and spike >= SPIKE and line["status"] != DIVERGED),
    }


def summary(home: Path) -> str:
    """A kept run in a line."""
    first, lines = read(home)
    found = numbers(first, lines[-1])
    end = lines[-1]
    state = ALL_STEPS if end["step"] == first["config"]["steps"] else f"{end['status']} at step {end['step']}"
    return (
        f"{home.parent.name} seed {end['seed']}: first token {found['first']:.3f}, median head {found['middle']:.3f}, {found['heads']} heads,"
        f" spike {found['spike']:.0f}, loss {found['loss']:.3f}, qualifies {found['qualifies']}, {first[SECONDS]:.0f} s, {state}"
    )


if __name__ == "__main__":
    main()
