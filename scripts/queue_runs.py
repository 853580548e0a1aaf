"""Train the runs of docs/results/plan-0.4.md, measure each model when its training ends, and keep the numbers, not the weights.

    nice -n 19 taskset -c 1 python scripts/queue_runs.py queue --text FOLDER_OF_BOOKS    # goes on where it, or another one, ended
    python scripts/queue_runs.py list                     # every run that is known so far, and whether it is kept
    python scripts/queue_runs.py collect OTHER_CHECKOUT   # copy the runs that another checkout has finished into this one

A finished run is one line of docs/results/data/plan-0.4/PART.jsonl (settings, outcome, last evaluation, and the card of
`run_card.py`), and a line of PART.csv for each evaluation. A run found there is not trained again; an
interrupted one continues from its last checkpoint in `results/`. Runs that depend on others (the setting of a search, the best
rate) follow once those are kept. `--share I N` takes one run in N, for several machines.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import itertools
import json
import shutil
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from long_tables import as_text

from sinkjax.config_files import documents
from sinkjax.config_files.files import write
from sinkjax.tasks import registry
from sinkjax.train import log
from sinkjax.train.config import DIVERGED, Training

ROOT = Path(__file__).resolve().parents[1]
PLAN = ROOT / "configs" / "queue" / "plan-0.4.yaml"
KEPT = Path("docs") / "results" / "data" / "plan-0.4"
RESULTS = ROOT / "results" / "plan-0.4"
PARTS = ("bos", "search", "gu", "chance", "gates")
SEEDS, SEARCH_SEED, RATE_SEEDS = range(3, 11), 0, range(3)
BEST, COMBINED = 4, ((0, 1), (0, 2), (1, 2), (0, 3), (0, 1, 2), (0, 1, 2, 3))  # levers of the search, by rank
GROWN = 0.05  # mean sink rate of gu/base from which on rows are built on it
NO_BOS = {"bos": "none"}
# Columns of the CSV after row, seed, step and status: an entry of the log, and how it becomes a number.
COLUMNS: dict[str, tuple[str, Any]] = {
    **{name: (name, float) for name in ("loss", "train_loss", "gradient_norm")},
    **{f"sink_{key + 1}": ("sink", lambda values, key=key: values[key]) for key in range(3)},
    "received": ("received", np.mean),
    "spike": ("spike", np.max),
    "largest": ("largest", np.max),
    "norm_ratio": ("norm_ratio", np.max),
    "value_ratio": ("value_ratio", np.min),
    "effective_rank": ("effective_rank", np.mean),
    "disparity": ("disparity", np.mean),
    "kurtosis": ("kurtosis", np.max),
    "written": ("written", np.mean),
}
END = ("received", "largest", "norm_ratio", "value_ratio", "spike")  # entries of the last evaluation that are kept whole
Kept = dict[tuple[str, int], dict[str, Any]]  # (PART/ROW, seed) -> its line of the .jsonl


@dataclasses.dataclass(frozen=True)
class Run:
    """row: PART/ROW. fields: those of the training that differ from the plan's base."""

    row: str
    seed: int
    fields: Mapping[str, Any]

    @property
    def identity(self) -> str:
        """What makes a training, apart from its text: two rows may be one training."""
        return json.dumps({**self.fields, "seed": self.seed}, sort_keys=True)

    def config(self, text: str) -> Training:
        stated = plan()["base"] | self.fields | {"text": text, "seed": self.seed}
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in stated.items()}
        return documents.build(registry.config_type("pretrain"), values, self.row)


def main() -> None:
    """Train, list or collect."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    queue = commands.add_parser("queue", help="train what is not kept yet, in the plan's order")
    queue.add_argument("--text", required=True, help="folder of the training text")
    queue.add_argument(
        "--share", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="one run in N, the I-th part from 0"
    )
    commands.add_parser("list", help="the runs that are known so far")
    commands.add_parser("collect", help="copy finished runs of other checkouts here").add_argument(
        "checkouts", nargs="+", type=Path
    )
    options = parser.parse_args()
    match options.command:
        case "queue":
            while run := next(iter(missing(*options.share)), None):
                print(train(run, options.text), flush=True)
        case "list":
            done = kept()
            for run in planned(done):
                print(f"{run.row} seed {run.seed}: {'kept' if (run.row, run.seed) in done else 'not run'}")
        case "collect":
            collect([ROOT, *options.checkouts])


def plan() -> dict[str, Any]:
    """The rows of the plan."""
    return documents.parse(PLAN.read_text(encoding="utf-8"), PLAN.name)


def missing(share: int, of: int) -> Iterator[Run]:
    """Runs that are not kept and whose settings are known, in order; of one training in two rows, the first."""
    done = kept()
    runs = planned(done)
    trained = {run.identity for run in runs if (run.row, run.seed) in done}
    for run in runs:
        mine = zlib.crc32(f"{run.row} {run.seed}".encode()) % of == share  # by name: places change when a search ends
        if mine and run.identity not in trained:
            yield run


def planned(done: Kept) -> list[Run]:
    """All runs whose settings follow from the plan and from the runs that are kept, in the plan's order."""
    every = plan()

    def rows(part: str, under: Mapping[str, Any] = {}) -> Iterator[Run]:
        """Seed by seed, so that every row has run once before any has run twice."""
        for seed, (row, changes) in itertools.product(SEEDS, every[part].items()):
            yield Run(f"{part}/{row}", seed, {name: value for name, value in {**under, **changes}.items() if value is not None})

    bos, search = list(rows("bos")), list(searched(every["search"], done))
    rates = list(tried_rates(every["chance"]))
    found = best_setting(search, done)
    gu = [] if found is None else list(rows("gu", found))
    base = [run for run in gu if run.row == "gu/base"]
    rest = [run for run in gu if run.row != "gu/base"] if has_grown(base, done) else []
    chance = list(best_rates(rates, done))
    return [*bos[:6], *search, *base, *bos[6:], *rows("gates"), *rest, *rates, *chance]


def searched(search: Mapping[str, Any], done: Kept) -> Iterator[Run]:
    """Every lever alone, then combinations of the best ones. Of two levers that set one field, only the better one counts."""

    def run(*names: str) -> Run:
        changes = {name: value for lever in names for name, value in search["levers"][lever].items()}
        return Run(f"search/{'+'.join(names)}", SEARCH_SEED, {**NO_BOS, **changes, "steps": search["steps"]})

    alone = {lever: run(lever) for lever in search["levers"]}
    yield from alone.values()
    if not all((each.row, each.seed) in done for each in alone.values()):
        return
    ranked: list[str] = []
    for lever in sorted(alone, key=lambda lever: merit(alone[lever], done), reverse=True):
        if not any(search["levers"][lever].keys() & search["levers"][other].keys() for other in ranked):
            ranked.append(lever)
    for places in COMBINED:
        yield run(*(ranked[place] for place in places))


def merit(run: Run, done: Kept) -> tuple[float, float]:
    """Sink rate on the first token at the last step, then mean attention to it; a run that diverged is last."""
    found = done[run.row, run.seed]
    return (-1.0, -1.0) if found["outcome"] == DIVERGED else (found["end"]["sink"][0], float(np.mean(found["end"]["received"])))


def best_setting(search: list[Run], done: Kept) -> dict[str, Any] | None:
    """The fields of the search's best run, without its steps; None while a run is missing."""
    if len(search) == len(plan()["search"]["levers"]) or not all((run.row, run.seed) in done for run in search):
        return None
    best = max(search, key=lambda run: merit(run, done))
    return {name: value for name, value in best.fields.items() if name != "steps"}


def has_grown(base: list[Run], done: Kept) -> bool:
    """Whether the 8 seeds of the setting are kept and grew a sink, the premise of the rows on it."""
    if not base or not all((run.row, run.seed) in done for run in base):
        return False
    return float(np.mean([done[run.row, run.seed]["end"]["sink"][0] for run in base])) >= GROWN


def tried_rates(chance: Mapping[str, Any]) -> Iterator[Run]:
    """Three rates of each row, three seeds each; rate times decay is the base's."""
    base = plan()["base"]
    product = base["learning_rates"][0] * base["weight_decay"]
    for seed in RATE_SEEDS:
        for row, entry in chance.items():
            for rate in entry["rates"]:
                fields = {**entry["changes"], "learning_rates": [rate], "weight_decay": float(f"{product / rate:.6g}")}
                yield Run(
                    f"chance/{row}@{rate:g}", seed, {name: value for name, value in fields.items() if base.get(name) != value}
                )


def best_rates(rates: list[Run], done: Kept) -> Iterator[Run]:
    """Each row at the rate with the lowest mean loss, on other seeds, once all of its rates are kept."""
    rows: dict[str, dict[str, list[Run]]] = {}
    for run in rates:
        rows.setdefault(run.row.partition("@")[0], {}).setdefault(run.row, []).append(run)

    def loss(runs: list[Run]) -> float:
        ends = [done[run.row, run.seed] for run in runs]
        return float(np.mean([np.inf if end["outcome"] == DIVERGED else end["end"]["loss"] for end in ends]))

    ready = {
        row: min(tried.values(), key=loss)[0].fields
        for row, tried in rows.items()
        if all((run.row, run.seed) in done for runs in tried.values() for run in runs)
    }
    for seed, (row, fields) in itertools.product(SEEDS, ready.items()):
        yield Run(row, seed, fields)


@dataclasses.dataclass(frozen=True)
class Trained:
    """A run that has ended. seconds: processor time of all of its processes. first, lines: its log."""

    run: Run
    config: Training
    folder: Path
    seconds: float
    first: Mapping[str, Any]
    lines: list[dict[str, Any]]

    @property
    def end(self) -> dict[str, Any]:
        """The last evaluation."""
        return self.lines[-1]

    @property
    def diverged(self) -> bool:
        return bool(self.end["status"] == DIVERGED)

    @property
    def model(self) -> Path:
        """The folder of its model."""
        return self.folder / "models" / "run-000"

    def about(self) -> dict[str, Any]:
        """What is kept of every run."""
        return {
            "row": self.run.row,
            "seed": self.run.seed,
            "fields": dict(self.run.fields),
            "outcome": DIVERGED if self.diverged else "all steps",
            "steps": self.end["step"],
            **{name: self.first[name] for name in ("parameters", "devices", "versions")},
            "corpus": self.first["data"]["corpus"],
        }

    def clear(self) -> None:
        """Remove the weights, when everything is kept."""
        import jax

        shutil.rmtree(self.folder)
        cost_of(self.folder).unlink()
        jax.clear_caches()


def cost_of(folder: Path) -> Path:
    """The file with the processor time so far, beside the folder, which belongs to the training."""
    return folder.with_suffix(".seconds")


def to_its_end(run: Run, text: str) -> Trained:
    """Train a run to its end, from where it was interrupted."""
    from sinkjax.runtime.backend import start_jax

    start_jax("cpu", "float32")
    config, folder = run.config(text), RESULTS / run.row.replace("/", "-") / f"seed-{run.seed}"
    cost = cost_of(folder)
    began, before = time.process_time(), float(cost.read_text()) if cost.exists() else 0.0
    try:
        registry.train(config, folder, progress=False)
    finally:
        seconds = before + time.process_time() - began
        if folder.exists():
            cost.write_text(f"{seconds:.1f}")
    first, lines = log.read(folder)
    return Trained(run, config, folder, seconds, first, lines)


def train(run: Run, text: str) -> str:
    """Train a run, measure its model and keep both."""
    from run_card import card

    import sinkjax

    done = to_its_end(run, text)
    began, end = time.process_time(), done.end
    found = None if done.diverged else card(sinkjax.load(str(done.model)), done.config)
    entry = {
        **done.about(),
        "seconds": [round(done.seconds), round(time.process_time() - began)],
        "end": shortened({name: end[name] for name in ("loss", "sink", *END)}),
        "card": shortened(found, 3),
    }
    evaluations = [[run.row, run.seed, line["step"], line["status"], *numbers(line)] for line in done.lines]
    keep(run.row.partition("/")[0], evaluations, entry)
    done.clear()
    return f"{run.row} seed {run.seed}: {entry['outcome']}, {done.seconds:.0f} s, sink {end['sink'][0]:.3f}, loss {end['loss']}"


def numbers(line: Mapping[str, Any]) -> list[Any]:
    """An evaluation's columns of the CSV; nothing where the run was no longer finite."""

    def one(entry: str, reduce: Any) -> Any:
        values = line.get(entry)
        if values is None or np.any(np.equal(values, None)):
            return ""
        return f"{float(reduce(values)):.4g}"

    return [one(entry, reduce) for entry, reduce in COLUMNS.values()]


def shortened(value: Any, digits: int = 4) -> Any:
    """Numbers with a few digits, so that a run takes a few kB."""
    if isinstance(value, Mapping):
        return {name: shortened(entry, digits) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [shortened(entry, digits) for entry in value]
    if isinstance(value, np.ndarray):
        return shortened(value.tolist(), digits)
    if isinstance(value, float | np.floating):
        return float(f"{value:.{digits}g}") if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


HEAD = ("row", "seed", "step", "status", *COLUMNS)


def keep(part: str, evaluations: list[list[Any]], entry: Mapping[str, Any]) -> None:
    """Append a finished run. Its line of the .jsonl comes last: a run without one is trained again."""
    folder = ROOT / KEPT
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / f"{part}.csv"
    if not table.exists():
        write(table, as_text(HEAD, []))
    with table.open("a", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(evaluations)
    with (folder / f"{part}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry, separators=(",", ":")) + "\n")


def kept(root: Path = ROOT) -> Kept:
    """The finished runs of a checkout."""
    lines = (line for part in PARTS if (file := root / KEPT / f"{part}.jsonl").exists() for line in file.read_text().splitlines())
    entries = map(json.loads, lines)
    return {(entry["row"], entry["seed"]): entry for entry in entries}


def collect(checkouts: list[Path]) -> None:
    """Write the finished runs of several checkouts into this one, by row and seed; of a run in two, the first one's."""
    entries: Kept = {}
    tables: dict[tuple[str, int], list[list[str]]] = {}
    for root in checkouts:
        for key, entry in kept(root).items():
            if key in entries:
                continue
            with (root / KEPT / f"{key[0].partition('/')[0]}.csv").open(encoding="utf-8", newline="") as file:
                own = [line for line in csv.reader(file) if tuple(line[:2]) == (key[0], str(key[1]))]
            by_step = {line[2]: line for line in own}  # a run that was killed while it was kept has some lines twice
            entries[key], tables[key] = entry, list(by_step.values())
    for part in PARTS:
        keys = sorted(key for key in entries if key[0].startswith(f"{part}/"))
        if keys:
            (ROOT / KEPT).mkdir(parents=True, exist_ok=True)
            lines = (json.dumps(entries[key], separators=(",", ":")) + "\n" for key in keys)
            write(ROOT / KEPT / f"{part}.jsonl", "".join(lines))
            write(ROOT / KEPT / f"{part}.csv", as_text(HEAD, itertools.chain.from_iterable(tables[key] for key in keys)))
    print(f"{len(entries)} runs are kept")


if __name__ == "__main__":
    main()
