"""One clean run of every study of a given model: a list that is frozen first, then run, then published.

    python scripts/protocol.py freeze            # docs/results/protocol.md: the commit, the runs and their cost by plan
    python scripts/protocol.py run --wikitext FILE [--share 0 2]    # every second run, then what is left; skips what is done
    python scripts/protocol.py list              # the state of each run
    python scripts/protocol.py times             # their processor time, into docs/results/benchmarks-full.md

`run` refuses to begin before the freeze, and when `sinkjax/` or `configs/` differ from the frozen commit. An interrupted run
resumes in `results/protocol`; the claims of a finished one join docs/results/data/claims.csv, from which `scripts/findings.py`
makes the page, and its summary and settings the tables in `docs/results/data/protocol`. WikiText-2's test articles are
measured and never kept.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gzip
import io
import json
import math
import re
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import yaml
from filelock import FileLock
from findings import MAIN, as_csv, joined
from measured import FULL, HEAD
from named import CLAIMS, DOCS, SUMMARY, Condition, Row, condition, is_in, read
from sections import write_section
from templates import given, page

from sinkjax.cli.main import main as command_line
from sinkjax.config_files.files import write
from sinkjax.report.markdown import table as markdown
from sinkjax.studies.registry import choose

ROOT = Path(__file__).resolve().parents[1]
PAGE, KEPT, RESULTS = (ROOT / path for path in ("docs/results/protocol.md", "docs/results/data/protocol", "results/protocol"))
FROZEN = "commits.txt"
FLOPS = re.compile(r"FLOPs\s+([0-9.e+]+)")
ONE_LINE = 10_000  # width of a paragraph that is not wrapped
RUNS = "runs.csv"  # a row for each run that is done or refused
PAPERS = ("kiya", "gu", "li", "background")
PROMPTS = 15  # articles, the most that Student's t judges; bets on so few shares decide nothing (docs/judgements.md)
# Half of the study's own, and of its cost: with 16 its intervals were within 1% of the whole.
POSITIONS = ["--positions", "1", "3", "5", "8", "12", "20", "30", "42"]
OTHERWISE = ("kiya/mask", "kiya/self", "kiya/bos-swap", "gu/sink-rate")  # run again behind other tokens and on packaged text
OWN_NUMBER = ("li/variance",)  # reads sequences of random tokens, through one block, and needs many for a variance over them
OF_BOS = ("kiya/embedding", "kiya/rope")  # SmolLM2 was pretrained with <|endoftext|> between documents
MINIS = ("mini-softmax", "mini-head-norm")
SMOL, GEMMA = "smollm2-135m", "gemma3-270m"
END_OF_TEXT, THE = "0", "506"  # SmolLM2's <|endoftext|>; Gemma's " the", in the place of <bos>


@dataclass(frozen=True)
class Run:
    """One study of one model. bos: as `--bos` takes it. text: "wikitext" or "packaged"."""

    study: str
    model: str
    bos: str
    text: str = "wikitext"

    @property
    def name(self) -> str:
        return f"{self.study}/{self.model}-{self.bos}-{self.text}"

    @property
    def condition(self) -> Condition:
        return Condition(self.model, self.bos, self.text)

    @property
    def is_main(self) -> bool:
        """Whether this is a language model on articles behind what it was trained with."""
        return self.condition in MAIN

    def options(self, wikitext: str) -> list[str]:
        """The options of `sinkjax run` and `sinkjax plan`. wikitext: the file of its articles."""
        text = wikitext if self.text == "wikitext" else "packaged"
        fewer = 0 < getattr(choose(self.study).config, "control_prompts", 0) < PROMPTS  # only documents with controls count
        controls = ["--control-prompts", str(PROMPTS)] if fewer else []
        positions = POSITIONS if self.study == "kiya/self" else []
        number = [] if self.study in OWN_NUMBER else ["--prompts", str(PROMPTS), *controls]
        whole = ["--text", text, "--split", "confirm"]  # WikiText-2 is a file here, of which "auto" would be all
        return [self.study, "--model", self.model, "--bos", self.bos, *number, *positions, *whole]


def main() -> None:
    """Freeze, run or list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("freeze", help="write the list, its commit and its cost")
    running = commands.add_parser("run", help="the runs that are not done")
    running.add_argument("--wikitext", required=True, help="the raw test split of WikiText-2")
    running.add_argument(
        "--share", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="begin with every N-th run from I on"
    )
    commands.add_parser("list", help="the state of each run")
    commands.add_parser("times", help="write the processor time of the runs into docs/results/benchmarks-full.md")
    options = parser.parse_args()
    match options.command:
        case "freeze":
            freeze()
        case "run":
            check_frozen()
            number, count = options.share
            everything = list(runs())
            rest = everything[::-1] if number else everything  # so that two shares meet once, and on the last run
            for run in [*everything[number::count], *rest]:
                if not facts(run):
                    print(f"{run.name}: {carry_out(run, options.wikitext)}", flush=True)
        case "list":
            for run in runs():
                print(f"{run.name}: {state(run)}")
        case "times":
            write_section(FULL, "protocol", times({run: seconds(run) for run in runs()}), HEAD)


def runs() -> Iterator[Run]:
    """Every run, in order: all studies on both language models, then other tokens in front, other text, and the small models."""
    names = [study for paper in PAPERS for study in studies(paper)]
    for study in names:
        yield Run(study, SMOL, "none")
        yield Run(study, GEMMA, "model")
    for study in OTHERWISE:
        yield Run(study, SMOL, END_OF_TEXT)
        if study != "kiya/bos-swap":  # which itself puts BOS in front
            yield Run(study, GEMMA, "none")
        yield Run(study, GEMMA, THE)
        yield Run(study, SMOL, "none", "packaged")
        yield Run(study, GEMMA, "model", "packaged")
    for study in OF_BOS:
        yield Run(study, SMOL, END_OF_TEXT)
    for model in MINIS:
        yield from (Run(study, model, "model") for study in names)


def studies(paper: str) -> list[str]:
    """The studies of a paper on a given model, by the files of their text."""
    files = sorted((ROOT / "configs" / paper).glob("*.yaml"))
    return [f"{paper}/{file.stem}" for file in files if file.stem != "all"]


def carry_out(run: Run, wikitext: str) -> str:
    """Run a study to its end in a process of its own, and keep its tables and figures; a refusal is kept as its sentence."""
    out = RESULTS / run.name
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "sinkjax", "run", *run.options(wikitext), "--out", str(out)],
        cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if done.returncode not in (0, 2):  # a signal, or a defect: the run is not done, and the same command goes on
        raise SystemExit(f"{run.name} ended with {done.returncode}:\n{done.stderr}")
    said = done.stderr.strip().splitlines()[-1] if done.returncode else ""
    if run.model == SMOL and run.text == "packaged" and not said:  # a figure of articles may show their words
        subprocess.run([sys.executable, "scripts/gallery.py", str(out)], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    keep(run, out, {"refused": said, "seconds": round(seconds, 1), "commit": head()})
    return said or f"{seconds:.0f} s"


def keep(run: Run, out: Path, found: dict[str, object]) -> None:
    """Add a run to the tables, of which that of runs comes last; other processes wait."""
    settings = ""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with FileLock(RESULTS / "lock"):
        if (out / "config.yaml").exists():
            stated = yaml.safe_load((out / "config.yaml").read_text(encoding="utf-8"))
            settings = json.dumps({**stated, "text": run.text})  # not where it lies
            write(DOCS / CLAIMS, as_csv(joined(read(DOCS / CLAIMS), {out: run.condition}, DOCS)))
        if (out / "summary.csv").exists():
            add(KEPT.parent / SUMMARY, run, read(out / "summary.csv"))
        add(KEPT / RUNS, run, [{**found, "settings": settings}])


def add(file: Path, run: Run, rows: Sequence[Mapping[str, object]]) -> None:
    """Add the rows of a run to a table, in the place of those that it has; equal rows give equal bytes."""
    named = {"study": run.study, **run.condition._asdict()}
    others = [row for row in (read(file) if file.exists() else []) if any(row[name] != value for name, value in named.items())]
    every = sorted([*others, *({**named, **row} for row in rows)], key=lambda row: [str(row[name]) for name in named])
    out = io.StringIO()
    written = csv.DictWriter(out, list(every[0]), lineterminator="\n")
    written.writeheader()
    written.writerows(every)
    text = out.getvalue()
    write(file, gzip.compress(text.encode(), mtime=0) if file.suffix == ".gz" else text)


def facts(run: Run) -> Row | None:
    """The row of a run that is done or refused."""
    rows = read(KEPT / RUNS) if (KEPT / RUNS).exists() else []
    return next((row for row in rows if (row["study"], condition(row)) == (run.study, run.condition)), None)


def state(run: Run) -> str:
    """The progress of a run, as text."""
    found = facts(run)
    if not found:
        return "begun" if (RESULTS / run.name).exists() else "not run"
    done = f"done in {float(found['seconds']):.0f} s at {found['commit'][:8]}"
    return f"refused: {found['refused']}" if found["refused"] else done


def seconds(run: Run) -> float | None:
    """The processor time of a run; None if it is not done, or was refused."""
    found = facts(run)
    return float(found["seconds"]) if found and not found["refused"] else None


def times(taken: Mapping[Run, float | None]) -> str:
    """The section of the benchmarks: the time of each study of Kiya et al. on both models, and the sum of each paper."""
    both = [
        (study, taken.get(Run(study, SMOL, "none")), taken.get(Run(study, GEMMA, "model")))
        for paper in PAPERS
        for study in studies(paper)
    ]
    found = [(study, first, second) for study, first, second in both if first and second]
    lines = [one for one in found if one[0].startswith("kiya/")]
    for paper in PAPERS:
        if each := [one[1:] for one in found if one[0].startswith(f"{paper}/")]:
            lines.append((f"all {len(each)} of {paper}/ that run on both", *map(sum, zip(*each, strict=True))))
    others = {run: time for run, time in taken.items() if time and run.study == "kiya/self" and not run.is_main}
    found = {
        "times": markdown(
            ["study", "SmolLM2", "Gemma behind `<bos>`", "ratio"],
            ([name, f"{first:,.0f}", f"{second:,.0f}", f"{second / first:.2f}"] for name, first, second in lines),
        ),
        "others": ", ".join(
            f"{run.name.split('/')[-1]} {time:,.0f}" for run, time in others.items() if run.model in (SMOL, GEMMA)
        ),
    }
    return page("protocol-times.md", given(found), ONE_LINE)


def freeze() -> None:
    """Write the page of the runs, their commit and their cost."""
    if PAGE.exists():
        raise SystemExit(f"{PAGE} is there: the protocol was frozen at {frozen()}")
    if git("status", "--porcelain", "--", "sinkjax", "configs"):
        raise SystemExit("sinkjax/ or configs/ have changes that are not committed")
    rows = [(run, planned(run)) for run in runs()]
    total = sum(flops for _, flops in rows if flops)
    table = markdown(
        ["run", "FLOPs by plan"],
        [[run.name, "refused" if flops is None else f"{flops:.2g}" if flops else "-"] for run, flops in rows],
    )
    least = power(read(DOCS / CLAIMS))
    numbers = {"commit": head(), "count": len(rows), "total": f"{total:.2g}", "prompts": PROMPTS, "power": least, "runs": table}
    write(PAGE, page("protocol.md", given(numbers)))
    write(KEPT / FROZEN, head() + "\n")
    print(PAGE)


def power(rows: Sequence[Mapping[str, str]]) -> str:
    """The smallest effects that PROMPTS articles would show, as a table, from the intervals of earlier runs on packaged text.

    The smallest effect seen is half an interval's width, times sqrt(n / PROMPTS).
    """
    least: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        judged = is_in(row, MAIN) and row["kind"] == "claim" and row["study"].split("/")[0] in PAPERS
        if judged and row["s_low"]:
            seen = (float(row["s_high"]) - float(row["s_low"])) / 2 * math.sqrt(int(row["n"]) / PROMPTS)
            least.setdefault((row["study"], row["model"]), []).append(seen)
    lines = [
        [study, model, str(len(seen)), f"{median(seen):.1%}", f"{max(seen):.1%}"]
        for (study, model), seen in sorted(least.items())
    ]
    return markdown(["study", "model", "claims with a whole", "median", "largest"], lines)


def planned(run: Run) -> float | None:
    """Floating-point operations of a run, by `sinkjax plan`; None if it is refused, 0 if they are not counted."""
    if run.model in MINIS:
        return 0.0
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        refused = command_line(["plan", *run.options("packaged")])
    found = FLOPS.findall(out.getvalue())
    return None if refused else float(found[-1]) if found else 0.0


def check_frozen() -> None:
    """Refuse to run without a protocol, or by other code than it names."""
    commit = frozen()
    if subprocess.run(["git", "diff", "--quiet", commit, "--", "sinkjax", "configs"], cwd=ROOT, check=False).returncode:
        raise SystemExit(f"sinkjax/ or configs/ differ from the frozen commit {commit}")


def frozen() -> str:
    """The commit of the protocol, or the last one that mended it: the last line of a file beside the results."""
    if not (KEPT / FROZEN).exists():
        raise SystemExit(f"there is no protocol yet: python {sys.argv[0]} freeze")
    return (KEPT / FROZEN).read_text(encoding="utf-8").split()[-1]


def head() -> str:
    """The commit that is checked out."""
    return git("rev-parse", "HEAD")


def git(*arguments: str) -> str:
    """The output of a git command."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
