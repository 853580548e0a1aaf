"""Write docs/results/data/claims.csv and the pages made from it: docs/results/findings.md and docs/results/findings-more.md.

    python scripts/findings.py [RESULTS]

Every run of a study below the given folders is taken; of several runs of one study on one model, behind one token, of one
text, the last counts. Without folders, the pages are made again from docs/results/data/claims.csv. Their prose stands in
scripts/templates, with the names of its numbers (scripts/named.py).
"""

from __future__ import annotations

import argparse
import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml
from named import (
    CLAIMS,
    DOCS,
    GEMMA,
    MINIS,
    MODELS,
    SMOL,
    TRAINED,
    Condition,
    Named,
    Row,
    condition,
    effect,
    in_shares,
    is_far,
    is_in,
    key,
    numbers,
    percent,
    read,
)
from rejudge import worded
from templates import TEMPLATES, filled, page

from sinkjax.analysis.evidence import UNJUDGED
from sinkjax.analysis.intervals import FEWEST
from sinkjax.analysis.verdicts import COLUMNS
from sinkjax.config_files.files import CONFIG_FILE, write
from sinkjax.report.markdown import table as markdown

MAIN = {SMOL: "SmolLM2-135M-Instruct", GEMMA: "Gemma 3 270M behind `<bos>`"}
OTHERWISE = {
    SMOL._replace(bos="0"): "SmolLM2 behind `<|endoftext|>`",
    SMOL._replace(text="packaged"): "SmolLM2, packaged text",
    GEMMA._replace(bos="none"): "Gemma without `<bos>`",
    GEMMA._replace(bos="506"): "Gemma behind ` the`",
    GEMMA._replace(text="packaged"): "Gemma, packaged text",
}
SHORT = dict(MAIN)  # columns of the one table of the page, whose cells are short
CHOSEN = (  # its statements, in its order
    *("gu/sink-rate.text", "gu/sink-rate.random", "gu/sink-rate.repeat-loses"),
    *("kiya/mask.all", "kiya/mask.activation", "kiya/self.sink", "kiya/self.activation"),
    *("kiya/bos-swap.sink-first", "kiya/bos-swap.sink", "kiya/after-softmax.collapse"),
    *("li/isolate.sink", "li/variance.first", "li/amplify.sink", "li/super-neurons.gates"),
    *("background/massive.zero", "background/streaming.window", "background/streaming.first"),
)
INTERVENTIONS = {
    "masked": "key 0 masked: the second token",
    "isolated": "a text's own token isolated",
    "swapped": "the first token swapped with another",
    "placed": "a token put into texts and isolated there",
}
PAPERS = ("kiya", "gu", "li")
OURS = "ours, on "
NOT_APPLICABLE = "**not applicable**"
AS_ABOVE = f"{NOT_APPLICABLE}<br>as above"
WHOLE_NUMBER = re.compile(r"\b(\d+)\.0\b")  # a factor of 10.0 is 10
YEAR = re.compile(r"^(ours, on )?[\w.\- ]+ 20\d\d(, |$)")
ARTICLES = "15"  # samples of most claims, which the page says once
FIGURES = ("smollm:masks-layers",)  # taken from runs


def main() -> None:
    """Collect the claims of runs, and write the table and the pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, help="folders with runs of studies, at any depth")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder of the documentation")
    options = parser.parse_args()
    claimed = options.docs / CLAIMS
    rows = collect(read(claimed) if claimed.exists() else [], options.folders, options.docs)
    write(claimed, as_csv(rows))
    for name, tables in (("findings.md", main_tables(rows)), ("findings-more.md", other_tables(rows))):
        write(options.docs / "results" / name, page(name, Named(options.docs, **tables)))
    print(f"{len(rows)} claims of {len({row['study'] for row in rows})} studies: {claimed}")


# The table.


def collect(kept: Iterable[Row], folders: Sequence[Path], docs: Path) -> list[Row]:
    """The claims that are kept and those of runs in folders, as `joined` returns them."""
    files = sorted(path for each in folders for path in each.rglob(CONFIG_FILE))
    return joined(kept, {path.parent: condition(yaml.safe_load(path.read_text(encoding="utf-8"))) for path in files}, docs)


def joined(kept: Iterable[Row], runs: Mapping[Path, Condition], docs: Path) -> list[Row]:
    """The claims that are kept and those of runs, which take the place of older ones; copies the runs' figures."""
    rows = {key(row): row for row in kept}
    for folder, measured in runs.items():
        found = claims(folder, measured)
        studies = {row["study"] for row in found}
        rows = {name: row for name, row in rows.items() if row["study"] not in studies or not is_in(row, [measured])}
        rows |= {key(row): row for row in found}
        picture(folder, measured, docs)
    stays = {study_and_claim(row): row["stays"] for row in rows.values() if row.get("stays")}  # an untested claim may not say it
    everything = [{**row, "stays": stays.get(study_and_claim(row), "")} for row in rows.values()]
    return sorted(everything, key=lambda row: (row["study"], *condition(row)))


def claims(folder: Path, measured: Condition) -> list[dict[str, str]]:
    """The claims of a run, as its claims.csv states them, with the run's condition."""
    path = folder / "claims.csv"
    return [row | measured._asdict() for row in (read(path) if path.exists() else []) if "word" in row]


def as_csv(rows: Iterable[Row]) -> str:
    """Rows as CSV."""
    out = io.StringIO()
    written = csv.DictWriter(out, (COLUMNS[0], *Condition._fields, *COLUMNS[2:]), lineterminator="\n")
    written.writeheader()
    written.writerows(rows)
    return out.getvalue()


def picture(folder: Path, measured: Condition, docs: Path) -> None:
    """Copy the figures of a run that pages show."""
    for model, _, drawing in (name.partition(":") for name in FIGURES):
        file, copy = folder / "figures" / f"{drawing}.png", docs / "images" / f"findings-{model}-{drawing}.png"
        if measured == MODELS[model] and file.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())


# The pages.


def main_tables(rows: Sequence[Row]) -> dict[str, str]:
    """The tables of the page, and how many checks of the code hold. rows: the claims as kept."""
    place = {name: number for number, name in enumerate(CHOSEN)}
    named = [(".".join(study_and_claim(row)), row) for row in map(worded, rows) if is_in(row, SHORT)]
    chosen = sorted((one for one in named if one[0] in place), key=lambda one: place[one[0]])
    checks = Counter(row["word"] for row in rows if row["kind"] == "identity")
    tables = {"statements": table([row for _, row in chosen], SHORT), "predicted": predicted()}
    return tables | {word: str(checks[word]) for word in ("holds", "fails")}


def predicted(docs: Path = DOCS) -> str:
    """How many predictions of each intervention were right, for each model that has measured ones."""
    found = Named(docs)
    models = [one for one in MAIN if (docs / "results/predictions" / f"{one.model}-measured.csv").exists()]
    lines = []
    for name, title in INTERVENTIONS.items():
        counts = [f"predictions/{one.model}/{name}" for one in models]
        lines.append([title, *(f"{found(f'{one}/right')} of {found(f'{one}/all')}" for one in counts)])
    return markdown(["right predictions", *(MAIN[one] for one in models)], lines)


def other_tables(rows: Sequence[Row]) -> dict[str, str]:
    """The tables of everything: the four papers, others, our own statements, other tokens and text, and small models."""
    judged = [worded(row) for row in rows if row["kind"] == "claim"]
    own = [row for row in judged if row["source"].startswith(OURS)]
    papers = [row for row in judged if row["study"].startswith("background/") and row not in own]
    tested = {study_and_claim(row) for row in judged if is_tested(row)}
    theirs = [row for row in judged if row not in [*own, *papers]]
    shown = [row for row in theirs if is_in(row, MAIN) and study_and_claim(row) in tested]
    untested = [row for row in theirs if is_in(row, MAIN) and study_and_claim(row) not in tested]
    return {
        **{paper: table([row for row in shown if row["study"].startswith(f"{paper}/")], MAIN) for paper in PAPERS},
        "trigger": table([row for row in theirs if condition(row) == TRAINED], {TRAINED: "models trained for the study"}),
        "untestable": table(untested, MAIN),
        "others": table([row for row in papers if is_in(row, MAIN)], MAIN),
        "ours": table([row for row in own if is_in(row, MAIN)], MAIN),
        "ours-trigger": table([row for row in own if condition(row) == TRAINED], {TRAINED: "here"}),
        "otherwise": table([row for row in judged if is_in(row, OTHERWISE) and not is_in(row, MAIN)], OTHERWISE),
        "small": table([row for row in judged if is_in(row, MINIS)], MINIS),
    }


def study_and_claim(row: Row) -> tuple[str, str]:
    """The names of a row's study and claim."""
    return row["study"], row["claim"]


def is_tested(row: Row) -> bool:
    """Whether one of the main conditions tests a claim."""
    return is_in(row, MAIN) and row["word"] not in UNJUDGED


def table(rows: Sequence[Row], columns: Mapping[Condition, str]) -> str:
    """A line for each claim, a column for each condition that has a row; "" without rows."""
    found: dict[tuple[str, str], dict[Condition, Row]] = {}
    for row in rows:
        found.setdefault(study_and_claim(row), {})[condition(row)] = row
    present = [one for one in columns if any(one in cells for cells in found.values())]
    remarks = yaml.safe_load((TEMPLATES / "remarks.yaml").read_text(encoding="utf-8")) if {SMOL, GEMMA} <= {*columns} else {}
    lines, above = [], [""] * len(present)
    for (study, claim), cells in found.items():
        shown_as = short if columns is SHORT else cell
        here = [shown_as(cells[each]) if each in cells else "-" for each in present]
        shown = (AS_ABOVE if one == last else one for one, last in zip(here, above, strict=True))
        claimed = max(cells.values(), key=lambda row: row.get("stays", ""))
        remark = filled(remarks.get(f"{study}.{claim}", ""), Named()).replace("\n", " ")
        said = statement(study, claimed | {"paper": ""} if columns is SHORT else claimed)
        lines.append([" ".join(filter(None, (said, remark))), *shown])
        above = [one if one.startswith(f"{NOT_APPLICABLE}<br>") else last for one, last in zip(here, above, strict=True)]
    return markdown(["statement", *(columns[one] for one in present)], lines, pipe=r"\|") if lines else ""


def statement(study: str, row: Row) -> str:
    """What is claimed, where a paper shows it, and its number."""
    of_paper = study.split("/")[0] in (*PAPERS, "trigger")
    where = YEAR.sub("", row["source"]) if of_paper else row["source"]
    paper = f" Paper: {row['paper']}." if row.get("paper") else ""
    stays = " *Stays.*" if row.get("stays") else ""
    claimed = WHOLE_NUMBER.sub(r"\1", row["statement"])
    return f"{claimed}{stays} ({where}; `{study}`){paper}"


def cell(row: Row) -> str:
    """A word with the numbers that decide it."""
    word = f"*{row['word']}*" if is_small(row) else f"**{row['word']}**"
    why = row["reason"].partition(", so ")[0].rstrip(".")
    if not row["d"] or row["word"] in UNJUDGED:
        return f"{word}<br>{why}" if why else word
    matched = row["controls"] not in ("", "0") and not row.get("stays")
    controls = f"{row['controls_below']}/{row['controls']} controls" if matched else ""
    beside = ", ".join(filter(None, (samples(row), controls, twin(row))))
    reason = "" if row["d_low"] else why
    return "<br>".join(filter(None, (f"{word} {numbers(row)}", beside, reason)))


def short(row: Row) -> str:
    """The number that decides a word, and the word."""
    word = f"*{row['word']}*" if is_small(row) else f"**{row['word']}**"
    return word if not row["d"] or row["word"] in UNJUDGED else f"{numbers(row)} {word}"


def twin(row: Row) -> str:
    """The effect in the untrained model."""
    if row["twin_s"] and in_shares(row) and not is_far(row["twin_s"]):
        return f"untrained {percent(row['twin_s'])}%"
    return f"untrained {effect(row['unit'], row['twin_d'])}" if row["twin_d"] else ""


def is_small(row: Row) -> bool:
    """Whether a word stands on fewer than 8 independent samples."""
    return bool(row["d"]) and row["word"] not in UNJUDGED and int(row["n"]) < FEWEST


def samples(row: Row) -> str:
    """How many independent samples there are, where they are not the protocol's articles."""
    clustered = "cluster" in row["method"]
    return "" if row["n"] == ARTICLES and not clustered else f"n={row['n']}{' genres' * clustered}"


if __name__ == "__main__":
    main()
