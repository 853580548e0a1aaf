"""Write docs/results/data/claims.csv, and what is made from it: statements.csv there, findings.md and findings-more.md.

    python scripts/findings.py [RESULTS]

Every run of a study below the given folders is taken; of several runs of one study on one model, behind one token, of one
text, the last counts. Without folders, the pages are made again from docs/results/data/claims.csv. Their prose stands in
scripts/templates, with the names of its numbers (scripts/named.py).
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml
from long_tables import as_text
from named import (
    CLAIMS,
    DATA,
    DOCS,
    GEMMA,
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

from sinkjax.analysis.evidence import NOT_TAKEN, UNJUDGED
from sinkjax.analysis.intervals import FEWEST
from sinkjax.analysis.verdicts import COLUMNS
from sinkjax.config_files.files import CONFIG_FILE, write
from sinkjax.report.markdown import table as markdown

MAIN = {SMOL: "SmolLM2-135M-Instruct", GEMMA: "Gemma 3 270M with `<bos>` first"}
SHORT = dict(MAIN)  # columns of the one table of the page
CHOSEN = (  # its statements, in its order
    *("gu/sink-rate.text", "gu/sink-rate.random", "gu/sink-rate.repeat-loses"),
    *("kiya/mask.all", "kiya/mask.activation", "kiya/self.sink", "kiya/self.activation"),
    *("kiya/bos-swap.sink-first", "kiya/bos-swap.sink", "kiya/after-softmax.collapse"),
    *("li/isolate.sink", "li/variance.first", "li/amplify.sink", "li/super-neurons.gates"),
    *("background/massive.zero", "background/massive.held", "background/streaming.window", "background/streaming.first"),
)
STATEMENTS = f"{DATA}/statements.csv"
PAPERS = {"kiya": "Kiya et al. 2026", "gu": "Gu et al. 2025", "li": "Li et al. 2026", "trigger": "Ran-Milo 2026"}
OTHERS, OURS = "other papers", "ours"
STATED = (
    *("model", "bos", "text", "of", "study", "claim", "statement", "stays", "source", "paper"),
    *("word", "number", "beside", "remark"),
)
WHOLE_NUMBER = re.compile(r"\b(\d+)\.0\b")  # a factor of 10.0 is 10
YEAR = re.compile(r"^(ours, on )?[\w.\- ]+ 20\d\d(, |$)")
DRAWING = "masks-layers"  # the figure that pages show, of a run on SmolLM2


def main() -> None:
    """Collect the claims of runs, and write the table and the pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, help="folders with runs of studies, at any depth")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder of the documentation")
    options = parser.parse_args()
    claimed = options.docs / CLAIMS
    rows = collect(read(claimed) if claimed.exists() else [], options.folders, options.docs)
    write(claimed, as_csv(rows))
    write(options.docs / STATEMENTS, as_text(STATED, [[line[name] for name in STATED] for line in statements(rows)]))
    for name, tables in (("findings.md", main_tables(rows)), ("findings-more.md", other_tables(rows))):
        write(options.docs / "results" / name, page(name, Named(options.docs, **tables)))
    print(f"{len(rows)} claims of {len({row['study'] for row in rows})} studies: {claimed}")


# The table.


def collect(kept: Iterable[Row], folders: Sequence[Path], docs: Path) -> list[Row]:
    """The claims that are kept and those of runs in folders, which take the place of older ones; copies a run's figure."""
    rows = {key(row): row for row in kept}
    for path in sorted(path for each in folders for path in each.rglob(CONFIG_FILE)):
        folder, measured = path.parent, condition(yaml.safe_load(path.read_text(encoding="utf-8")))
        found = claims(folder, measured)
        studies = {row["study"] for row in found}
        rows = {name: row for name, row in rows.items() if row["study"] not in studies or not is_in(row, [measured])}
        rows |= {key(row): row for row in found}
        picture(folder, measured, docs)
    stays = {study_and_claim(row): row["stays"] for row in rows.values() if row.get("stays")}  # an untested claim may not say it
    everything = [{**row, "stays": stays.get(study_and_claim(row), "")} for row in rows.values()]
    return sorted(checked(everything, docs), key=lambda row: (row["study"], *condition(row)))


def checked(rows: Iterable[Row], docs: Path) -> list[Row]:
    """Apply the manipulation checks of took.csv to claims that were judged before claims had them."""
    table = docs / DATA / "took.csv"
    checks = {key(row): row for row in (read(table) if table.exists() else [])}
    return [amended(row, checks[key(row)]) if key(row) in checks and not row.get("took") else row for row in rows]


def amended(row: Row, check: Row) -> Row:
    """A claim with its check. If the edit did not take, a judged claim is not applicable, and its numbers stay."""
    failed = check["holds"] == "0" and worded(row)["word"] not in UNJUDGED
    return {**row, "took": check["took"], **({"word": NOT_TAKEN, "reason": check["took"]} if failed else {})}


def claims(folder: Path, measured: Condition) -> list[dict[str, str]]:
    """The claims of a run, as its claims.csv states them, with the run's condition."""
    path = folder / "claims.csv"
    found = [row | measured._asdict() for row in (read(path) if path.exists() else []) if "word" in row]
    return [{**row, "split": row.get("split", row.get("ceiling", ""))} for row in found]  # as the protocol's code named it


def as_csv(rows: Iterable[Row]) -> str:
    """Rows as CSV."""
    columns = (COLUMNS[0], *Condition._fields, *COLUMNS[2:])
    return as_text(columns, [[row.get(name, "") for name in columns] for row in rows])


def picture(folder: Path, measured: Condition, docs: Path) -> None:
    """Copy the figure of a run that pages show."""
    file = folder / "figures" / f"{DRAWING}.png"
    if measured == SMOL and file.exists():
        write(docs / "images" / f"findings-smollm-{DRAWING}.png", file.read_bytes())


# The pages.


def main_tables(rows: Sequence[Row]) -> dict[str, str]:
    """The tables of the page, and how many checks of the code hold. rows: the claims as kept."""
    place = {name: number for number, name in enumerate(CHOSEN)}
    named = [(".".join(study_and_claim(row)), row) for row in map(worded, rows) if is_in(row, SHORT)]
    chosen = sorted((one for one in named if one[0] in place), key=lambda one: place[one[0]])
    checks = Counter(row["word"] for row in rows if row["kind"] == "identity")
    return {"statements": table([row for _, row in chosen], SHORT)} | {word: str(checks[word]) for word in ("holds", "fails")}


def other_tables(rows: Sequence[Row]) -> dict[str, str]:
    """How often each word was said, of each paper's statements and of ours."""
    columns = {**MAIN, TRAINED: "models trained for the study"}
    found: dict[tuple[str, Condition], Counter[str]] = {}
    for row in map(worded, rows):
        if row["kind"] == "claim":
            found.setdefault((of(row), condition(row)), Counter())[
                row["word"].partition(" (")[0].replace(NOT_TAKEN, "did not take")
            ] += 1
    said = {place: ", ".join(f"{count} {word}" for word, count in words.most_common()) for place, words in found.items()}
    lines = [[name, *(said.get((name, each), "-") for each in columns)] for name in (*PAPERS.values(), OTHERS, OURS)]
    mains = {"smollm": SMOL, "gemma": GEMMA}
    held = {name: Counter(row["word"] for row in map(worded, rows) if is_in(row, [each])) for name, each in mains.items()}
    held["li"] = Counter(row["word"] for row in map(worded, rows) if is_in(row, [SMOL]) and of(row) == PAPERS["li"])
    also = {f"untrained/{name}": str(words["replicates (untrained too)"]) for name, words in held.items()}
    all_of = {f"replicates/{name}": str(words["replicates"] + int(also[f"untrained/{name}"])) for name, words in held.items()}
    return {"words": markdown(["statements of", *columns.values()], lines), **also, **all_of}


def statements(rows: Sequence[Row]) -> list[dict[str, str]]:
    """Each claim in each condition, as a reader needs it: its word by the present rule, its number and what stands beside it."""
    remarks, found = yaml.safe_load((TEMPLATES / "remarks.yaml").read_text(encoding="utf-8")), []
    for row in (worded(row) for row in rows if row["kind"] == "claim"):
        number, beside = evidence(row)
        remark = remarks.get(".".join(study_and_claim(row)), "") if is_in(row, MAIN) else ""
        named = {"of": of(row), "number": number, "beside": beside, "remark": " ".join(filled(remark, Named()).split())}
        found.append({**row, **named})
    return found


def of(row: Row) -> str:
    """Whose statement a claim is."""
    return OURS if row["source"].startswith(OURS) else PAPERS.get(row["study"].split("/")[0], OTHERS)


def study_and_claim(row: Row) -> tuple[str, str]:
    """The names of a row's study and claim."""
    return row["study"], row["claim"]


def table(rows: Sequence[Row], columns: Mapping[Condition, str]) -> str:
    """A line for each claim, a column for each condition."""
    found: dict[tuple[str, str], dict[Condition, Row]] = {}
    for row in rows:
        found.setdefault(study_and_claim(row), {})[condition(row)] = row
    remarks = yaml.safe_load((TEMPLATES / "remarks.yaml").read_text(encoding="utf-8"))
    lines = []
    for (study, claim), cells in found.items():
        remark = filled(remarks.get(f"{study}.{claim}", ""), Named()).replace("\n", " ")
        said = statement(study, max(cells.values(), key=lambda row: row.get("stays", "")))
        lines.append(
            [
                " ".join(filter(None, (said, remark))),
                *(short(cells[each]) if each in cells else "-" for each in columns),
                samples([cells[each] for each in columns if each in cells]),
            ]
        )
    return markdown(["statement", *columns.values(), "n"], lines, pipe=r"\|") if lines else ""


def samples(cells: Sequence[Row]) -> str:
    """The samples that a line's numbers rest on."""
    found = [row["n"] for row in cells if is_judged(row)]
    return ", ".join(dict.fromkeys(found)) or "-"


def statement(study: str, row: Row) -> str:
    """What is claimed, and where a paper shows it."""
    where = YEAR.sub("", row["source"]) if study.split("/")[0] in PAPERS else row["source"]
    stays = " *Stays.*" if row.get("stays") else ""
    claimed = WHOLE_NUMBER.sub(r"\1", row["statement"])
    return f"{claimed}{stays} ({where}; `{study}`)"


def evidence(row: Row) -> tuple[str, str]:
    """The number that decides a word, and samples, controls and the untrained model; or the reason for having none."""
    why = row["reason"].partition(", so ")[0].rstrip(".")
    if not is_judged(row):
        return "", why
    matched = row["controls"] not in ("", "0") and not row.get("stays")
    controls = f"{row['controls_below']}/{row['controls']} controls" if matched else ""
    return numbers(row), ", ".join(filter(None, (f"n={row['n']}", controls, twin(row), "" if row["d_low"] else why)))


def short(row: Row) -> str:
    """The number that decides a word, and the word."""
    word = f"*{row['word']}*" if is_small(row) else f"**{row['word']}**"
    return f"{numbers(row)} {word}" if is_judged(row) else word


def twin(row: Row) -> str:
    """The effect in the untrained model."""
    if row["twin_s"] and in_shares(row) and not is_far(row["twin_s"]):
        return f"untrained {percent(row['twin_s'])}%"
    return f"untrained {effect(row['unit'], row['twin_d'])}" if row["twin_d"] else ""


def is_small(row: Row) -> bool:
    """Whether a word stands on fewer than 8 independent samples."""
    return is_judged(row) and int(row["n"]) < FEWEST


def is_judged(row: Row) -> bool:
    """Whether a number decides the word."""
    return bool(row["d"]) and row["word"] not in UNJUDGED


if __name__ == "__main__":
    main()
