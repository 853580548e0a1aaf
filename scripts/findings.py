"""Write the page of findings: docs/data/claims.csv and docs/findings.md.

    sinkjax run kiya/mask --model smollm2-135m --out results/smollm2/kiya/mask
    python scripts/findings.py results

Every run of a study below the given folders is taken; of several runs of one study on one model, the last counts. Without
folders, the page is rendered again from docs/data/claims.csv. The columns are models; every number comes from a run's claims.csv.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from sinkjax.analysis.verdicts import COLUMNS
from sinkjax.config_files.files import CONFIG_FILE, write

DOCS = Path(__file__).resolve().parents[1] / "docs"
DATA = "data/claims.csv"
PAPERS = {
    "kiya": "Kiya et al. 2026",
    "gu": "Gu et al. 2025",
    "li": "Li et al. 2026",
    "background": "Background papers",
    "trigger": "Ran-Milo 2026",
}
ABOUT = {
    "smollm2-135m": "SmolLM2-135M-Instruct, 4-bit",
    "mini-softmax": "mini-softmax, trained here",
    "": "models trained for the study",
}
FIGURES = {
    "kiya/mask": (
        "masks-layers",
        "Masking the first key: heads that sink on it and on the next key, and their largest activations.",
    ),
    "kiya/self": (
        "alone-by-layer",
        "A token that sees only itself, in some layers: its sink and its largest activation by depth.",
    ),
}
TRIGGER = (
    "images/trigger-maps.png",
    "The trigger task: softmax needs a sink, ReLU attention does not ([the trigger task](trigger.md)).",
)
HEAD = """# Findings

{scope} One [rule](judgements.md) judges every claim. A cell has the word; the effect as a share of the whole, or in its own unit,
with its 95% interval; the number n of independent samples (genres, documents or positions); the number of matched random controls
below it; and the same share in the untrained twin.
[Every number](data/claims.csv) is a row of a CSV file, and `sinkjax run` with the name of a study writes its page."""
LIMITS = """## Limits

- One instruct model of 135M parameters, in 4 bits, and one small model trained here: nothing is said of models in general.
- These runs are small. Where n is below 8, the word says more about n than about the model; larger runs on two models come next.
- The documents are synthetic English, written for this project in 12 genres, which count as clusters.
- An interval by Student's t promises its level only for normal samples; its simulated error is in the page of each study.
- The trigger and pretraining studies train their own models and have [pages](trigger.md) of [their own](pretraining.md); a sample
  is a seed there.
- A claim that repeats a paper need not share its cause: an untrained twin that does the same is named with the word."""


def main() -> None:
    """Collect the claims of runs, and write the table and the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, help="folders with runs of studies, at any depth")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder of the documentation")
    options = parser.parse_args()
    table = options.docs / DATA
    rows = {key(row): row for row in (read(table) if table.exists() else [])}
    runs = sorted(path.parent for given in options.folders for path in given.rglob(CONFIG_FILE))
    for folder in runs:
        found = claims(folder)
        rows = {name: row for name, row in rows.items() if not found or name[:2] != key(found[0])[:2]}
        rows |= {key(row): row for row in found}
        picture(folder, options.docs)
    kept = sorted(rows.values(), key=lambda row: (row["study"], row["model"]))
    write(table, as_csv(kept))
    write(options.docs / "findings.md", page(kept, options.docs))
    print(f"{len(kept)} claims of {len({row['study'] for row in kept})} studies: {table}")


def key(row: Mapping[str, str]) -> tuple[str, str, str]:
    """Study, model and claim of a row."""
    return row["study"], row["model"], row["claim"]


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def claims(folder: Path) -> list[dict[str, str]]:
    """The claims of a run, as its claims.csv states them; none if the study is not judged by the one rule."""
    path = folder / "claims.csv"
    rows = read(path) if path.exists() else []
    return [row for row in rows if "word" in row]


def picture(folder: Path, docs: Path) -> None:
    """Copy the figure of a run that the page shows; the SmolLM2 run counts."""
    config = yaml.safe_load((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    study = config.get("experiment", "")
    if study in FIGURES and config.get("model") == "smollm2-135m":
        drawn = folder / "figures" / f"{FIGURES[study][0]}.png"
        if drawn.exists():
            (docs / image(study)).write_bytes(drawn.read_bytes())


def image(study: str) -> str:
    """The place of a study's figure in the documentation."""
    return f"images/findings-{study.replace('/', '-')}.png"


def as_csv(rows: Iterable[Mapping[str, str]]) -> str:
    """Rows as CSV."""
    out = io.StringIO()
    table = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return out.getvalue()


def page(rows: Sequence[Mapping[str, str]], docs: Path = DOCS) -> str:
    """The page: scope, the table of each paper, figures and limits."""
    models = sorted({row["model"] for row in rows}, key=lambda model: [*ABOUT, model].index(model))
    claimed = [row for row in rows if row["kind"] == "claim"]
    most = {model: max(int(row["n"] or 0) for row in claimed if row["model"] == model) for model in models if claimed}
    samples = "; ".join(f"{ABOUT.get(model, model)} (n up to {most.get(model, 0)})" for model in models)
    scope = f"The claims of the papers, repeated on the models at hand: {samples}."
    parts = [HEAD.format(scope=scope), counts(claimed, models)]
    for paper, title in PAPERS.items():
        here = [row for row in claimed if row["study"].startswith(f"{paper}/")]
        if here:
            parts += [f"## {title}", table(here, [model for model in models if any(row["model"] == model for row in here)])]
    checks = Counter(row["word"] for row in rows if row["kind"] == "identity")
    parts.append(f"Checks of the code (identities): {checks['holds']} hold, {checks['fails']} fail.")
    shown = [(image(study), caption) for study, (_, caption) in FIGURES.items()] + [TRIGGER]
    parts += [f"![{caption}]({name})\n\n*{caption}*" for name, caption in shown if (docs / name).exists()]
    return "\n\n".join([*parts, LIMITS]) + "\n"


def counts(rows: Sequence[Mapping[str, str]], models: Sequence[str]) -> str:
    """How many claims have which word on each model."""
    lines = []
    for model in models:
        found = Counter(row["word"] for row in rows if row["model"] == model)
        lines.append(f"- {ABOUT.get(model, model)}: {', '.join(f'{count} {word}' for word, count in found.most_common())}")
    return "\n".join(lines)


def table(rows: Sequence[Mapping[str, str]], models: Sequence[str]) -> str:
    """A line for each claim, a column for each model."""
    found: dict[tuple[str, str], dict[str, Mapping[str, str]]] = {}
    for row in rows:
        found.setdefault((row["study"], row["claim"]), {})[row["model"]] = row
    lines = [
        "| the paper says | " + " | ".join(ABOUT.get(model, model) for model in models) + " |",
        "|---" * (len(models) + 1) + "|",
    ]
    for (study, _), cells in found.items():
        first = next(iter(cells.values()))
        paper = f"; {first['paper']}" if first.get("paper") else ""
        where = f"{first['source'].partition('20')[2][2:].lstrip(', ') or first['source']}{paper}"
        said = [cell(cells[model]) if model in cells else "-" for model in models]
        lines.append(f"| {first['statement']} ({where}; `{study}`) | {' | '.join(said)} |".replace("|h|", "h"))
    return "\n".join(lines)


def cell(row: Mapping[str, str]) -> str:
    """A word with the numbers that decide it."""
    word = f"**{row['word']}**"
    if not row["d"]:
        return word
    numbers = share(row["s"], row["s_low"], row["s_high"]) if row["s"] else effect(row)
    controls = f"; {row['controls_below']} of {row['controls']} controls" if row["controls"] not in ("", "0") else ""
    twin = f"; twin {100 * float(row['twin_s']):.0f}%" if row["twin_s"] else ""
    return f"{word} {numbers}; n = {row['n']}{controls}{twin}"


def share(mean: str, low: str, high: str) -> str:
    """A share in percent with its interval."""
    whole = [f"{100 * float(one):z.0f}" for one in (mean, *((low, high) if low and high else ()))]
    return f"{whole[0]}%{f' [{whole[1]}, {whole[2]}]' if len(whole) > 1 else ''}"


def effect(row: Mapping[str, str]) -> str:
    """An effect in its unit; behind a logarithm, the ratio."""
    found = [float(row[name]) for name in ("d", "d_low", "d_high") if row[name]]
    ratio = row["unit"] == "log"
    mean, *ends = [f"{math.exp(one) if ratio else one:.3g}" for one in found]
    return f"{mean}{f' [{ends[0]}, {ends[1]}]' if ends else ''} {'times' if ratio else row['unit']}".rstrip()


if __name__ == "__main__":
    main()
