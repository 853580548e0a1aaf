"""Train the runs of docs/results/pretraining-plan.md, one core each, and keep every log, packed, with its cost in processor time.

    nice -n 19 taskset -c 1 python scripts/pretrain_runs.py search f1 0 --text FOLDER_OF_BOOKS    # a setting, a seed
    nice -n 19 taskset -c 1 python scripts/pretrain_runs.py queue --text FOLDER_OF_BOOKS --share 0 2    # half of the queue
    python scripts/pretrain_runs.py learning --text FOLDER_OF_BOOKS    # the rows of docs/results/while-it-learns.md, seed by seed
    python scripts/pretrain_runs.py learning --text FOLDER_OF_BOOKS --together    # on a GPU, all seeds of a row at once
    python scripts/pretrain_runs.py list           # the queue in its order, and what is kept of it
    python scripts/pretrain_runs.py show search    # the numbers of the kept runs
    python scripts/pretrain_runs.py again --text FOLDER_OF_BOOKS       # on a CPU, a seed of each row that a GPU trained
    python scripts/pretrain_runs.py merge OUT      # OUT/STUDY/ROW/log.jsonl, all kept seeds of every row, as `so_far` reads it

Every command resumes: an interrupted run continues from its last checkpoint in `results/`, and a kept one is not trained again.
A kept log is `SERIES/STUDY/ROW/seed-N` of scripts/kept_logs.py: the lines of the training's log, whose first has an entry
"processor_seconds" and the device. A run that diverges is kept too. Memory in huge pages makes a step cheaper on Linux:

    GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=4294967296
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kept_logs
import numpy as np

from sinkjax.config_files import documents
from sinkjax.config_files.files import write
from sinkjax.lab.trained import specs
from sinkjax.papers.pretrain._sizes import SIZES, SizeName
from sinkjax.studies.registry import choose, documented, find
from sinkjax.tasks import registry
from sinkjax.train import log
from sinkjax.train.config import ALL_STEPS, DIVERGED, Training

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
HEAD, SPIKE = 0.3, 50.0  # from which on a head counts, and a spike
SECONDS = "processor_seconds"

# The settings of the search, as fields that differ from those of the size "mini".
E1 = {"batch": 2, "steps": 8000, "eval_every": 200}
NARROW = {"width": 64, "mlp_width": 192, "head_dim": 32, "vocabulary": 512, "context": 128}
F1 = NARROW | {"batch": 8, "steps": 4000, "eval_every": 200}
N = F1 | {"weight_decay": 0.2, "steps": 7000, "micro_batch": 2}
SEARCH: dict[str, dict[str, Any]] = {
    "e1": E1,
    "f1": F1,
    "f3": F1 | {"rope_theta": 500_000.0},
    "f8": F1 | {"layers": 6},
    "g3": F1 | {"layers": 8, "batch": 4, "steps": 6000, "learning_rates": (6e-3,), "schedule": "cosine"},
    "h1": F1 | {"weight_decay": 0.2},
    "k1": F1 | {"layers": 6, "weight_decay": 0.2, "learning_rates": (6e-3,), "steps": 4500, "eval_every": 250, "micro_batch": 4},
    "h4": F1 | {"weight_decay": 0.2, "steps": 6000},
    "h5": F1 | {"weight_decay": 0.2, "steps": 8000, "micro_batch": 4},
    "280k": N,
    "m1": N | {"head_dim": 64},
    "m2": N | {"heads": 4},
    "m3": N | {"layers": 6},
    "m4": N | {"weight_decay": 0.1},
}

# The queue: the size of its models, and its rows by rank (configs/pretrain/STUDY.yaml, row). All other rows follow, a seed each.
SIZE: SizeName = "340k"
BASELINE = "mini/softmax"
FIRST = (
    *("mini/no-bos", "mini/sigmoid", "mini/k-bias", "mini/head-norm", "mini/decay-0"),
    *("qiu-gates/element", "mini/sigmoid-sum", "gu-bias/sink-token", "gu-learning-rate/quarter", "gu-data/one-in-50"),
)
NEXT = (
    *("mini/gated", "mini/decay-2", "gu-fixed-token/second", "gu-bias/kv", "sink-logits/sink-logit", "gu-learning-rate/x2"),
    *("gu-window/w-16th", "gu-window/w-quarter", "gu-random-tokens/two", "gu-prefix/prefix-5", "gu-bias/v"),
    *("gu-normaliser/elu-kernel-sum", "gu-normaliser/identity", "gu-normaliser/elu", "gu-scale/a-0.1", "gu-position/learned"),
    *("gu-position/none", "gu-norm/post", "sink-logits/off-by-one", "gu-norm/sandwich"),
)
SEEDS = {"baseline": range(3, 19), "first": range(3, 11), "next": range(3, 7), "rest": range(3, 4)}
OTHER = "families"  # a study whose rows are not of the queue
# Studies of docs/results/while-it-learns.md, and the seeds of their rows.
LEARNING = {**dict.fromkeys(("hidden", "optimisers", "released", "chats"), SEEDS["first"]), "smollm2": SEEDS["rest"]}
AGAIN = 4  # a seed that rows trained on a GPU repeat on a CPU
FREE = {"seed", "seeds", "text"}  # fields that may differ between equal trainings


def main() -> None:
    """Train, list or show."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    search = commands.add_parser("search", help="one seed of a setting of the search")
    search.add_argument("row", choices=SEARCH)
    search.add_argument("seed", type=int)
    queue_ = commands.add_parser("queue", help="the runs of the queue, in its order")
    queue_.add_argument("--share", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="every N-th run, from the I-th on")
    queue_.add_argument("--only", nargs="*", help="rows to train, as STUDY/ROW")
    learning_ = commands.add_parser("learning", help="the rows of docs/results/while-it-learns.md, seed by seed")
    learning_.add_argument("--only", nargs="*", help="rows to train, as STUDY/ROW")
    again_ = commands.add_parser("again", help=f"on a CPU, seed {AGAIN} of each row of learning that a GPU trained with it")
    commands.add_parser("list", help="the queue")
    commands.add_parser("show", help="the numbers of the kept runs").add_argument("study", help='"search", or a size')
    commands.add_parser("merge", help="unpack the kept runs, a log for each row").add_argument("out", type=Path)
    for trains in (search, queue_, learning_, again_):
        trains.add_argument("--text", default="packaged", help="the training text")
    for trains in (queue_, learning_):
        trains.add_argument("--together", action="store_true", help="train all missing seeds of a row at once, on any device")
    options = parser.parse_args()
    match options.command:
        case "search":
            stated: dict[str, Any] = {**SIZES["mini"].fields, **SEARCH[options.row], "text": options.text, "seed": options.seed}
            config = documents.build(registry.config_type("pretrain"), stated, options.row)
            print(summary(*run(config, f"search/{options.row}")))
        case "queue" | "learning":
            share, of = getattr(options, "share", (0, 1))
            runs = list(queue() if options.command == "queue" else learning())[share::of]
            for row, seeds in batches([run for run in runs if not options.only or run[0] in options.only], options.together):
                for home in run(config_of(row, seeds.start, options.text, len(seeds)), kept_as(row)):
                    print(summary(home), flush=True)
        case "again":
            for row, seed in learning():
                if seed == AGAIN and on_gpu(row, seed):
                    print(summary(*run(config_of(row, seed, options.text), f"devices/{row}")), flush=True)
        case "list":
            for row, seed in queue():
                print(f"{row} seed {seed}: {'kept' if is_kept(f'{SIZE}/{row}', seed) else 'not run'}")
        case "show":
            for home in kept_logs.names(options.study):
                print(summary(home))
        case "merge":
            for row in (*rows(), *learning_rows()):
                if found := merged(kept_as(row)):
                    (options.out / row).mkdir(parents=True, exist_ok=True)
                    write(options.out / row / log.LOG, "".join(json.dumps(line) + "\n" for line in (found[0], *found[1])))


def queue() -> Iterator[tuple[str, int]]:
    """Row and seed of every run, in order; of rows that are one training only the first is run."""
    ranked = {BASELINE: "baseline"} | dict.fromkeys(FIRST, "first") | dict.fromkeys(NEXT, "next")
    known = {identity(row) for row in ranked}
    for row in rows():
        if (fields := identity(row)) not in known:
            known.add(fields)
            ranked[row] = "rest"
    for row, part in ranked.items():
        yield from ((row, seed) for seed in SEEDS[part])


def learning() -> Iterator[tuple[str, int]]:
    """Row and seed of the runs of LEARNING, one seed of every row after the other; runs of the queue are left to it."""
    queued = {(f"{SIZE}/{row}", seed) for row, seed in queue()}
    for seed in SEEDS["first"]:
        own = (row for row in learning_rows() if (kept_as(row), seed) not in queued)
        yield from ((row, seed) for row in own if seed in LEARNING[row.partition("/")[0]])


def batches(runs: list[tuple[str, int]], together: bool) -> Iterator[tuple[str, range]]:
    """Row and seeds of every training: one seed each, or together the consecutive missing ones of a row."""
    if not together:
        yield from ((row, range(seed, seed + 1)) for row, seed in runs)
        return
    for row in dict.fromkeys(row for row, _ in runs):
        left = [seed for each, seed in runs if each == row and not is_kept(kept_as(row), seed)]
        for first in (seed for seed in left if seed - 1 not in left):
            yield row, range(first, next(seed for seed in itertools.count(first) if seed not in left))


def learning_rows() -> list[str]:
    """STUDY/ROW of the studies in LEARNING."""
    return [f"{study}/{row}" for study in LEARNING for row in _table(study)]


@functools.cache
def kept_as(row: str) -> str:
    """The name of a row's kept logs, but for the seed; rows that are one training have one name."""
    of_queue = {identity(each): f"{SIZE}/{each}" for each, _ in queue()}
    return of_queue.get(identity(row), f"learning/{row}")


def rows() -> list[str]:
    """STUDY/ROW of all tables, in the order of the files' names."""
    names = [name for name in documented() if name.startswith("pretrain/") and choose(name).config.size == "mini"]
    tables = [name.partition("/")[2] for name in names if name != f"pretrain/{OTHER}"]
    return [f"{study}/{row}" for study in tables for row in _table(study)]


def config_of(row: str, seed: int, text: str = "packaged", seeds: int = 1) -> Training:
    """The training of a row at the queue's size. A text that its size names is not replaced."""
    study, name = row.split("/")
    stated = _table(study)[name]
    own = "text" in SIZES[_size(study)].fields
    return dataclasses.replace(stated, seed=seed, text=stated.text if own else text, seeds=seeds)


@functools.cache
def _table(study: str) -> dict[str, Training]:
    """The trainings of a table at the queue's size, or the one of its own, with that size's steps and one seed."""
    config = dataclasses.replace(choose(f"pretrain/{study}").config, size=_size(study), steps=None, seeds=1)
    return {spec.name: spec.training for spec in specs(find(f"pretrain/{study}").trace(config, None), config)}


def _size(study: str) -> SizeName:
    """The queue's size for tables of the size "mini"; the size of any other table."""
    size: SizeName = choose(f"pretrain/{study}").config.size
    return SIZE if size == "mini" else size


@functools.cache
def identity(row: str) -> str:
    """What makes a training, seeds and text apart: rows with equal ones are one training."""
    fields = documents.plain(documents.fields(config_of(row, 0)))
    return json.dumps({name: value for name, value in fields.items() if name not in FREE}, sort_keys=True)


def home_of(name: str, seed: int) -> str:
    """The name of a run's kept log."""
    return f"{name}/seed-{seed}"


def is_kept(name: str, seed: int) -> bool:
    """Whether the log of a run is kept."""
    return home_of(name, seed) in kept_logs.names(name)


def on_gpu(row: str, seed: int) -> bool:
    """Whether a run is kept and was not trained on a CPU."""
    name = kept_as(row)
    return is_kept(name, seed) and not kept_logs.read(home_of(name, seed))[0]["devices"].endswith("cpu")


def run(config: Training, name: str) -> list[str]:
    """Train to the end, from where it was interrupted, and keep the log of each seed. Several seeds take any device at hand."""
    seeds = range(config.seed, config.seed + config.seeds)
    homes = [home_of(name, seed) for seed in seeds]
    if all(is_kept(name, seed) for seed in seeds):
        return homes
    import jax

    from sinkjax.runtime.backend import start_jax
    from sinkjax.tasks import train

    start_jax("cpu" if config.seeds == 1 else "auto", "float32")
    folder = RESULTS / name / "-".join(("seed", *map(str, dict.fromkeys((seeds[0], seeds[-1])))))
    cost = folder.with_suffix(".seconds")  # beside the folder, which belongs to the training
    began, before = time.process_time(), float(cost.read_text()) if cost.exists() else 0.0
    try:
        train(config, folder, progress=False)
    finally:
        seconds = before + time.process_time() - began
        if folder.exists():
            cost.write_text(f"{seconds:.1f}")
    for run, home in enumerate(homes):
        keep(folder, home, seconds / config.seeds, run)
    jax.clear_caches()
    return homes


def keep(folder: Path, home: str, seconds: float, run: int = 0) -> None:
    """Keep the log of one run of a training, as if it had been trained alone."""
    first, lines = log.read(folder)
    seed = first["runs"][run]["seed"]
    first["config"] |= {"text": Path(first["config"]["text"]).name, "seed": seed, "seeds": 1}  # not where it lies
    first["runs"] = [{**first["runs"][run], "run": 0}]
    first[SECONDS] = round(seconds, 1)
    kept_logs.keep(home, first, [{**line, "run": 0} for line in lines if line["run"] == run])


def merged(name: str) -> kept_logs.Log | None:
    """The kept runs of a row as the log of one training, in the order of their seeds; None if there are none."""
    runs = sorted(map(kept_logs.read, kept_logs.names(name)), key=lambda run: run[0]["config"]["seed"])
    if not runs:
        return None
    first = {**runs[0][0], "runs": [{**own["runs"][0], "run": number} for number, (own, _) in enumerate(runs)]}
    first["config"] = {**first["config"], "seeds": len(runs)}
    first[SECONDS] = [own[SECONDS] for own, _ in runs]
    return first, [{**line, "run": number} for number, (_, lines) in enumerate(runs) for line in lines]


def numbers(line: dict[str, Any]) -> dict[str, Any]:
    """The measures of the plan in one evaluation: mean attention to the first token, heads, spike, and whether it qualifies."""
    received = np.array(line["received"], float)
    heads, spike = int((received >= HEAD).sum()), float(np.max(np.array(line["spike"], float)))
    return {
        "first": float(received.mean()),
        "middle": float(np.sort(received.ravel())[received.size // 2]),
        "heads": f"{heads} of {received.size}",
        "spike": spike,
        "loss": float("nan") if line["loss"] is None else line["loss"],
        "qualifies": bool(2 * heads >= received.size and spike >= SPIKE and line["status"] != DIVERGED),
    }


def summary(home: str) -> str:
    """A kept run in a line."""
    first, lines = kept_logs.read(home)
    found, end = numbers(lines[-1]), lines[-1]
    state = ALL_STEPS if end["step"] == first["config"]["steps"] else f"{end['status']} at step {end['step']}"
    return (
        f"{home.rpartition('/')[0].partition('/')[2]} seed {end['seed']}: first token {found['first']:.3f},"
        f" median head {found['middle']:.3f}, {found['heads']} heads, spike {found['spike']:.0f}, loss {found['loss']:.3f},"
        f" qualifies {found['qualifies']}, {first[SECONDS]:.0f} s, {state}"
    )


def table_of(study: str) -> dict[str, Any]:
    """The document of a table of pretraining."""
    name = f"pretrain/{study}"
    return documents.parse(documented()[name], name)


if __name__ == "__main__":
    main()
