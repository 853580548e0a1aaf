"""The statements on the page of findings, measured once more on every article: runs that are listed first, then made.

    python scripts/protocol.py freeze                   # docs/results/protocol-0.4.md: the commit, the runs and their cost
    python scripts/protocol.py run --wikitext FILE      # what is not done; --share 0 2 and --share 1 2 divide the runs
    python scripts/protocol.py again NAME --commit C --wikitext FILE    # a finished run, since a defect of the code was mended
    python scripts/protocol.py list                     # the state of each run
    python scripts/protocol.py publish                  # finished studies into the tables of the pages; then scripts/findings.py
    python scripts/protocol.py adopt RUN ...            # a finished run that no list has, into data/mended; then publish

`run` refuses to begin before the freeze, and when the list differs from the frozen one. It uses the code of the frozen commit,
whatever this checkout has become. An interrupted run resumes in results/protocol-0.4. A finished one is kept in
docs/results/data/protocol-0.4; a study goes into the tables when all models are done, with one code. The articles are measured
and never kept.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gzip
import io
import json
import lzma
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import findings
from named import CLAIMS, DATA, DOCS, SUMMARY, Condition, Row, condition, read
from templates import given, page

from sinkjax.cli.main import main as command_line
from sinkjax.config_files import documents
from sinkjax.config_files.files import CONFIG_FILE, write
from sinkjax.report.markdown import table as markdown
from sinkjax.study.choice import choose

ROOT = Path(__file__).resolve().parents[1]
LISTED = "configs/queue/protocol-0.4.yaml"
PLAN = ROOT / LISTED
PAGE, KEPT, RESULTS = DOCS / "results" / "protocol-0.4.md", DOCS / DATA / "protocol-0.4", ROOT / "results" / "protocol-0.4"
MENDED, FACTS = DOCS / DATA / "mended", "run.json"
FROZEN = KEPT / "commit.txt"
CLAIMED, SUMMARISED = "claims.csv", "summary.csv"
FLOPS = re.compile(r"FLOPs\s+([0-9.e+]+)")


@dataclass(frozen=True)
class Run:
    """A study of a model. options: those of `sinkjax run`, by field."""

    study: str
    condition: Condition
    options: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.study.replace('/', '-')}-{self.condition.model}"

    def arguments(self, text: str, split: str) -> list[str]:
        """Those of `sinkjax run` and `sinkjax plan`."""
        given = {"model": self.condition.model, "bos": self.condition.bos, "text": text, "split": split, **self.options}
        lists = {field: value if isinstance(value, list) else [value] for field, value in given.items() if value is not None}
        return [self.study, *(str(part) for field, value in lists.items() for part in (f"--{field.replace('_', '-')}", *value))]


def main() -> None:
    """Freeze, run, list or publish."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("freeze", help="write the list, its commit and its cost")
    running = commands.add_parser("run", help="the runs that are not done")
    running.add_argument("--wikitext", required=True, help="the raw test split of WikiText-2")
    running.add_argument(
        "--share", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="one run in N, the I-th part from 0"
    )
    again = commands.add_parser("again", help="a finished run once more, with code in which a defect is mended")
    again.add_argument("name", choices=[run.name for run in runs()], metavar="NAME", help="as `list` names it")
    again.add_argument("--commit", required=True, help="the code")
    again.add_argument("--wikitext", required=True, help="the raw test split of WikiText-2")
    commands.add_parser("list", help="the state of each run")
    adopting = commands.add_parser("adopt", help="keep a finished run of a study that no list has")
    adopting.add_argument("folder", type=Path, help="the run, on the articles of WikiText-2's test split")
    adopting.add_argument("--commit", required=True, help="the code")
    adopting.add_argument("--seconds", type=float, required=True, help="its processor time")
    commands.add_parser("publish", help="put the claims and summaries of finished studies into the tables")
    options = parser.parse_args()
    match options.command:
        case "freeze":
            freeze()
        case "run":
            commit = frozen_commit()
            number, count = options.share
            for run in runs()[number::count]:
                if not facts(run).exists():
                    print(f"{run.name}: {carry_out(run, options.wikitext, commit)}", flush=True)
        case "again":
            (run,) = [run for run in runs() if run.name == options.name]
            print(repeat(run, options.wikitext, git("rev-parse", options.commit)))
        case "list":
            for run in runs():
                print(f"{run.name}: {state(run)}")
        case "adopt":
            adopt(options.folder, git("rev-parse", options.commit), options.seconds)
        case "publish":
            publish()


def plan() -> dict[str, Any]:
    """The studies, models and options."""
    return documents.parse(PLAN.read_text(encoding="utf-8"), PLAN.name)


def runs() -> list[Run]:
    """Every run, study by study."""
    every = plan()
    without = [tuple(pair) for pair in every["without"]]

    def options(study: str, own: Mapping[str, Any] | None) -> dict[str, Any]:
        controlled = hasattr(choose(study).config, "control_prompts")
        common = {"prompts": every["prompts"], **({"control_prompts": every["prompts"]} if controlled else {})}
        return common | dict(own or {})

    return [
        Run(study, Condition(model, bos, every["text"]), options(study, own))
        for study, own in every["studies"].items()
        for model, bos in every["models"].items()
        if (study, model) not in without
    ]


def kept(run: Run) -> Path:
    """The folder of what is kept of a run."""
    return KEPT / run.name


def facts(run: Run) -> Path:
    """The file of a finished run; it is written last."""
    return kept(run) / FACTS


def carry_out(run: Run, wikitext: str, commit: str) -> str:
    """Run a study to its end in a process of its own, and keep its settings, tables and the figure that pages show.

    They replace what an earlier run kept at once, when all are written.
    """
    out = RESULTS / commit[:8] / run.name
    cost = out.with_suffix(".seconds")
    out.parent.mkdir(parents=True, exist_ok=True)
    before = children() - (float(cost.read_text(encoding="utf-8")) if cost.exists() else 0.0)
    text = str(Path(wikitext).resolve())
    command = [sys.executable, "-m", "sinkjax", "run", *run.arguments(text, plan()["split"]), "--out", str(out)]
    try:
        subprocess.run(command, cwd=code(commit), env={**os.environ, "PYTHONPATH": "."}, check=True)
    finally:
        seconds = children() - before
        write(cost, f"{seconds:.1f}")
    keep(out, kept(run), run.condition.text, {"seconds": round(seconds), "commit": commit})
    return f"{seconds:.0f} s"


def adopt(out: Path, commit: str, seconds: float) -> None:
    """Keep a finished run of a study that no list has, on the same text."""
    settings = documents.parse((out / CONFIG_FILE).read_text(encoding="utf-8"), CONFIG_FILE)
    name = f"{settings['experiment'].replace('/', '-')}-{settings['model']}"
    keep(out, MENDED / name, plan()["text"], {"seconds": round(seconds), "commit": commit})


def keep(out: Path, target: Path, text: str, made: Mapping[str, object]) -> None:
    """Copy a run's settings, tables and shown figure into the repository, whole or not at all."""
    folder = target.with_suffix(".new")
    shutil.rmtree(folder, ignore_errors=True)
    settings = documents.parse((out / CONFIG_FILE).read_text(encoding="utf-8"), CONFIG_FILE)
    shown = Path("figures") / f"{findings.DRAWING}.png"
    (folder / shown.parent).mkdir(parents=True, exist_ok=True)
    write(folder / CONFIG_FILE, documents.dump({**settings, "text": text}))  # not where it lies
    write(folder / CLAIMED, (out / CLAIMED).read_bytes())
    write(folder / f"{SUMMARISED}.gz", gzip.compress((out / SUMMARISED).read_bytes(), mtime=0))
    if (out / shown).exists():
        write(folder / shown, (out / shown).read_bytes())
    write(folder / FACTS, json.dumps(made) + "\n")
    shutil.rmtree(target, ignore_errors=True)
    folder.rename(target)


def children() -> float:
    """Processor time of the processes that this one has started, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def repeat(run: Run, wikitext: str, commit: str) -> str:
    """Make a finished run again with another commit's code; the numbers of the first one stay in a folder `replaced`."""
    if not facts(run).exists():
        raise SystemExit(f"{run.name} is not done")
    if made_by(run) == commit:
        raise SystemExit(f"{run.name} is done with the code of {commit}")
    first = KEPT / "replaced" / run.name
    if not first.exists():
        copy = first.with_suffix(".new")
        shutil.copytree(kept(run), copy, dirs_exist_ok=True)
        copy.rename(first)
    return carry_out(run, wikitext, commit)


def state(run: Run) -> str:
    """The progress of a run, as text."""
    if not facts(run).exists():
        return "begun" if any(RESULTS.glob(f"*/{run.name}")) else "not run"
    seconds = json.loads(facts(run).read_text(encoding="utf-8"))["seconds"]
    return f"done in {seconds} s at {made_by(run)[:8]}"


def made_by(run: Run) -> str:
    """The commit whose code made a finished run; "" for one that is not finished."""
    return str(json.loads(facts(run).read_text(encoding="utf-8"))["commit"]) if facts(run).exists() else ""


def measured_by(commit: str) -> str:
    """What measures in a commit: git's names of sinkjax/ and configs/. Other commits may have the same."""
    return git("rev-parse", f"{commit}:sinkjax", f"{commit}:configs")


def publish() -> None:
    """Replace the rows of these studies and conditions in the tables of the pages, study by study.

    A study waits until its runs on all models are done, with one code.
    """
    commits: dict[str, set[str]] = {}
    for run in runs():
        commits.setdefault(run.study, set()).add(made_by(run))
    waiting = {study for study, found in commits.items() if "" in found or len(set(map(measured_by, found))) > 1}
    done = [run for run in runs() if run.study not in waiting]
    if not done:
        raise SystemExit("no study is done on all of its models")
    folders = {(run.study, run.condition): kept(run) for run in done}
    for folder in sorted(MENDED.glob("*")):
        settings = documents.parse((folder / CONFIG_FILE).read_text(encoding="utf-8"), CONFIG_FILE)
        folders[settings["experiment"], condition(settings)] = folder
    claims = findings.collect(read(DOCS / CLAIMS), [*folders.values()], DOCS)
    summary = [row for row in read(DOCS / DATA / SUMMARY) if (row["study"], condition(row)) not in folders]
    for (study, measured), folder in folders.items():
        summary += [{"study": study, **measured._asdict(), **row} for row in read(folder / f"{SUMMARISED}.gz")]
    write(DOCS / CLAIMS, findings.as_csv(claims))
    write(DOCS / DATA / SUMMARY, lzma.compress(as_csv(summary).encode(), preset=9))
    print(f"{len(claims)} claims; waiting: {', '.join(sorted(waiting)) or 'none'}; now: python scripts/findings.py")


def as_csv(rows: Sequence[Row]) -> str:
    """A summary as CSV, by study and condition."""
    out = io.StringIO()
    written = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    written.writeheader()
    written.writerows(sorted(rows, key=lambda row: (row["study"], *condition(row))))
    return out.getvalue()


def freeze() -> None:
    """Write the page of the runs, their commit and their cost."""
    if FROZEN.exists():
        raise SystemExit(f"the protocol was frozen at {FROZEN.read_text().strip()}")
    if git("status", "--porcelain", "--", "sinkjax", "configs"):
        raise SystemExit("sinkjax/ or configs/ have changes that are not committed")
    KEPT.mkdir(parents=True, exist_ok=True)
    rows = [(run, planned(run)) for run in runs()]
    lines = [[run.study, run.condition.model, f"{flops:.2g}" if flops else "-"] for run, flops in rows]
    numbers = {
        "commit": git("rev-parse", "HEAD"),
        "count": len(rows),
        "total": f"{sum(flops for _, flops in rows):.2g}",
        "runs": markdown(["study", "model", "FLOPs by plan"], lines),
    }
    write(PAGE, page("protocol-0.4.md", given(numbers)))
    write(FROZEN, numbers["commit"] + "\n")
    print(PAGE)


def planned(run: Run) -> float:
    """Floating-point operations of a run, by `sinkjax plan` on the packaged text; 0 if they are not counted."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        command_line(["plan", *run.arguments("packaged", "confirm")])
    return float((FLOPS.findall(out.getvalue()) or [0])[-1])


def frozen_commit() -> str:
    """The commit that the protocol names; refused without a protocol, or with another list of runs."""
    if not FROZEN.exists():
        raise SystemExit(f"there is no protocol yet: python {sys.argv[0]} freeze")
    commit = FROZEN.read_text(encoding="utf-8").split()[-1]
    if PLAN.read_text(encoding="utf-8").strip() != git("show", f"{commit}:{LISTED}"):
        raise SystemExit(f"{LISTED} differs from that of the frozen commit {commit}")
    return commit


def code(commit: str) -> Path:
    """A folder with sinkjax/ and configs/ as they are in a commit."""
    folder = RESULTS / f"code-{commit}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(["git", "archive", commit, "sinkjax", "configs"], cwd=ROOT, capture_output=True, check=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made, tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(Path(made) / "code", filter="data")
            (Path(made) / "code").rename(folder)
    return folder


def git(*arguments: str) -> str:
    """The output of a git command."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
