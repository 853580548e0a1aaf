"""Try wrong inputs, damaged files, races, kills, signals and full disks, and write the counts into docs/results/reliability.md.

python scripts/reliability.py --parts input mutations   # a first look: wrong input, and 3,000 mutated files for each parser
python scripts/reliability.py --mutations 100000        # everything: some hours on two cores
python scripts/reliability.py --parts suites --suites train/test_kill.py   # one suite; the rows of the others stay

Each part has a section of its own, which says when and how it was made; a suite has a row with its date.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["HF_HUB_OFFLINE"] = "1"

from long_tables import as_text  # noqa: E402
from named import read  # noqa: E402
from sections import write_section  # noqa: E402

from sinkjax.config_files.files import write  # noqa: E402
from sinkjax.report.markdown import table as markdown  # noqa: E402
from tests.robustness import broken, cases, fuzz  # noqa: E402

PAGE = ROOT / "docs" / "results" / "reliability.md"
COUNTS = ROOT / "docs" / "results/data" / "reliability.csv"
HEAD = "# Nothing lost, nothing silently wrong"
KINDS = {"cli": "wrong commands", "api": "wrong calls from Python"}
SUITES = {
    "robustness/test_stores.py": "stores that are damaged or half-made",
    "robustness/test_checkpoints.py": "checkpoints of trainings that are damaged",
    "robustness/test_races.py": "20 races of 2 and of 3 processes for one store; one that is killed",
    "robustness/test_models.py": "models: saved over, refused, broken off",
    "robustness/test_full_disk.py": "full disks",
    "robustness/test_signals.py": "SIGINT and SIGTERM, wherever they hit",
    "sweeps/test_kill.py": "sweeps killed 42 times while they write and 47 times while the store is made",
    "train/test_kill.py": "trainings of three kinds, each killed at least 40 times",
    "study/test_kill.py": "a study killed 44 times",
}


def main() -> None:
    """Try everything and write the section."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mutations", type=int, default=3_000, help="of each parser")
    parser.add_argument("--flips", type=int, default=50, help="of each file")
    parser.add_argument("--seed", type=int, default=0, help="of the mutations and flips")
    parts = {
        "input": wrong_input,
        "mutations": lambda: mutations(options.mutations, options.seed),
        "flips": lambda: flips(options.flips, options.seed),
        "suites": lambda: suites(options.suites),
    }
    parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts), help="what to try; all of it by default")
    parser.add_argument("--suites", nargs="+", choices=SUITES, default=list(SUITES), help="of the part suites; all by default")
    options = parser.parse_args()

    def measured(part: str) -> str:
        begun = time.monotonic()
        text = parts[part]()
        if part == "suites":  # whose rows have dates of their own
            return f"{text}\n\nEach row by `python scripts/reliability.py --parts suites`, with `--suites` for some of them."
        seeded = {"mutations": options.mutations, "flips": options.flips}
        said = f" --{part} {seeded[part]} --seed {options.seed}" if part in seeded else ""
        minutes = f"{(time.monotonic() - begun) / 60:.0f} minutes"
        return f"{text}\n\nMeasured on {date.today()} in {minutes} by `python scripts/reliability.py --parts {part}{said}`."

    with ThreadPoolExecutor(2) as pool:  # of the parts only the mutations compute in this process
        for part, text in zip(options.parts, pool.map(measured, options.parts), strict=True):
            write_section(PAGE, part, text, HEAD)
    print(PAGE)


def wrong_input() -> str:
    """Every case of wrong input, and how many were refused in their sentence."""
    lines = []
    for kind, what in KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            every, home = cases.cases(kind), broken.write(Path(folder))
            outcomes = dict(enumerate(cases.outcomes(kind, home)))
        wrong = {number: why for number, outcome in outcomes.items() if (why := outcome.wrong(every[number]))}
        for number, why in wrong.items():
            print(f"{every[number].given}: {why}", flush=True)
        slowest = max(outcome.seconds for outcome in outcomes.values())
        lines.append([what, str(len(every)), str(len(every) - len(wrong)), str(len(wrong)), f"{slowest:.1f} s"])
    head = ["", "tried", "refused in their sentence", "wrong", "processor time of the slowest"]
    return "### Wrong input\n\n" + markdown(head, lines)


def mutations(count: int, seed: int) -> str:
    """Mutated files of each parser, and what became of them."""
    lines = []
    for name in fuzz.PARSERS:
        found = fuzz.fuzz(name, seed, range(count))
        print(*found.wrong, sep="\n", flush=True)
        counts = [f"{found.outcomes[kind]:,}" for kind in (fuzz.READ, fuzz.REFUSED, fuzz.WRONG)]
        lines.append([name, f"{count:,}", *counts, f"{found.slowest:.2f} s"])
    head = ["parser", "tried", "read", "refused in a sentence", "wrong", "processor time of the slowest"]
    return f"### Mutated files (seed {seed})\n\n" + markdown(head, lines)


def flips(count: int, seed: int) -> str:
    """Flipped bits in every file of what sinkjax writes, and what became of the values that are read."""
    import jax
    import numpy as np

    import sinkjax
    from sinkjax.study.folder import open_store
    from sinkjax.tasks import load_runs, registry, train

    def of_training(folder: Path) -> object:
        return load_runs(folder).params

    def of_model(folder: Path) -> object:
        model = sinkjax.load(str(folder))
        return [model.params, model.config, model.tokenizer.encode("To the doctor, at half past two.")]

    def of_store(folder: Path) -> object:
        return {name: np.asarray(values) for name, values in open_store(folder).load().variables.items()}

    def equal(one: object, other: object) -> bool:
        return np.array_equal(one, other, equal_nan=np.asarray(one).dtype.kind == "f")

    lines, draw = [], np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as root:
        written, model = Path(root), sinkjax.load("mini-softmax")
        config = replace(registry.choose("trigger/softmax-1l1h")[0], seeds=2, steps=20, eval_every=10, batch=8)
        last = train(config, written / "training", progress=False).folder / "checkpoints" / "20"
        sinkjax.save(model, written / "saved")
        sinkjax.export(model, written / "exported")
        sinkjax.sweep(model, np.arange(3, 11)[None], [sinkjax.mask_key(0)], out=written / "x.zarr", progress=False)
        for what, folder, read, under in (
            ("the last checkpoint of a training", written / "training", of_training, last),
            ("a model of `save`", written / "saved", of_model, written / "saved"),
            ("a model of `export`", written / "exported", of_model, written / "exported"),
            ("a finished store", written / "x.zarr", of_store, written / "x.zarr"),
        ):
            wanted, outcomes = read(folder), Counter()
            for file in sorted(path for path in under.rglob("*") if path.is_file() and path.stat().st_size):
                content = file.read_bytes()
                for bit in draw.integers(8 * len(content), size=count):
                    changed = bytearray(content)
                    changed[bit // 8] ^= 1 << bit % 8
                    file.write_bytes(changed)
                    try:
                        found = read(folder)
                        outcomes["same" if jax.tree.all(jax.tree.map(equal, wanted, found)) else "wrong"] += 1
                    except sinkjax.SinkjaxError:
                        outcomes["refused"] += 1
                    except Exception as error:
                        print(f"{file}, bit {bit}: {error!r}", flush=True)
                        outcomes["traceback"] += 1
                file.write_bytes(content)
            counts = [f"{outcomes[kind]:,}" for kind in ("same", "refused", "wrong", "traceback")]
            lines.append([what, f"{outcomes.total():,}", *counts])
    head = ["", "bits flipped, one at a time", "without effect", "refused in a sentence", "other values", "traceback"]
    return f"### Flipped bits (seed {seed})\n\n" + markdown(head, lines)


def suites(names: list[str]) -> str:
    """Run the tests of these suites, the long ones too; return the table of how many passed, the others' older rows included."""
    known = {row["suite"]: row for row in (read(COUNTS) if COUNTS.exists() else [])}
    for name in names:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", f"tests/{name}"]
            done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
            counts = counted(report)
        print(done.stdout if done.returncode else f"tests/{name} passed", flush=True)
        minutes = f"{(time.monotonic() - begun) / 60:.0f}"
        known[name] = {"suite": name, **counts, "minutes": minutes, "date": str(date.today())}
        rows = [[*known[suite].values()] for suite in SUITES if suite in known]
        write(COUNTS, as_text([*known[name]], rows))  # after each suite, since all take two hours
    head = ["tests", "passed", "failed", "skipped", "minutes", "date"]
    rows = [[what, *(known[name][column] for column in head)] for name, what in SUITES.items() if name in known]
    return "### Damage, races, kills, signals and full disks\n\n" + markdown(["", *head], rows)


def counted(report: Path) -> dict[str, str]:
    """How many tests of a report of pytest ended in which way."""
    outcomes = Counter(outcome(case) for case in ET.parse(report).iter("testcase"))
    return {"tests": str(outcomes.total()), **{kind: str(outcomes[kind]) for kind in ("passed", "failed", "skipped")}}


def outcome(case: ET.Element) -> str:
    """What became of a test, by its element in a report of pytest."""
    tags = {child.tag for child in case}
    return "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"


if __name__ == "__main__":
    main()
