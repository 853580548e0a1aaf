"""Score the predictions of plans (docs/results/off-signal.md, off-subspace.md, qwen.md) from predictions and claims of kept runs.

    python scripts/scores.py

A prediction is right if it is the verdict of the run. Constant guesses stand beside the score.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from named import CLAIMS, DATA, DOCS, GEMMA, SMOL, Named, Row, is_in, read, share, shares_of
from templates import page

from sinkjax.analysis.summary import NOT_COMPARED
from sinkjax.config_files.files import write
from sinkjax.report.figures.dots import Mark, points
from sinkjax.report.figures.style import render
from sinkjax.report.markdown import table as markdown

PLANS = {
    "off-signal": "ours/off-signal",
    "off-subspace": "ours/off-subspace",
    "qwen": "",
}  # plan -> the study of its predictions, if it is one
ROWS = {  # plan -> claims of its figure -> their names
    "off-signal": {
        "mean": "mean row of other texts",
        "other": "row of another text",
        "permuted": "row permuted",
        "middle": "row permuted, first key kept",
        "even": "even row",
        "drawn": "random row",
        "early": "mean row, early layers only",
        "late": "mean row, later layers only",
        "converse": "first token: ordinary output",
    },
    "off-subspace": {
        "one": "1 leading direction",
        "most": "16 leading directions",
        "shared": "16 directions shared by layers",
        "switch": "ordinary mean - first tokens' mean",
        "late": "16 leading, later layers only",
    },
}
SAME = {"replicates": "holds", "confirmed": "holds", "opposite": "moves"}
REASONS = ("did not take", "nothing to undo")  # for which a claim is not applicable
NOT_RUN = "not run"
ENDS = {"mean": "", "low": "_low", "high": "_high"}  # of an interval -> endings of columns
Name = tuple[str, str]  # study, claim


def main() -> None:
    """Write the pages and the figure."""
    others = {(row["study"], row["claim"], row["model"]): row for row in read(DOCS / CLAIMS) if is_in(row, (SMOL, GEMMA))}
    for plan, study in PLANS.items():
        predictions = read(DOCS / DATA / plan / "predictions.csv")
        models = [name for name in predictions[0] if name not in ("study", "claim", "why")]
        runs = [row for file in sorted((DOCS / DATA / plan).glob("*/claims.csv")) for row in read(file)]
        claims = others | {(row["study"], row["claim"], row["model"]): row for row in runs}
        expected = {(row.get("study") or study, row["claim"]): row for row in predictions}
        columns = ("", "right", "wrong", "undecided", NOT_RUN, "always holds", "always absent", "as SmolLM2", "as Gemma 3")
        numbers = {
            "table": markdown(("statement", *models), [cells(name, models, claims, row) for name, row in expected.items()]),
            "score": markdown(columns, [score(model, claims, expected) for model in models]),
        }
        write(DOCS / "results" / f"{plan}.md", page(f"{plan}.md", Named(DOCS, **numbers)))
        if plan in ROWS:
            write(DOCS / "images" / f"{plan}.svg", figure(models, claims, study, ROWS[plan]))


def verdict(row: Row | None) -> str:
    """The verdict of a claim in the words of the plans."""
    if row is None:
        return NOT_RUN
    word = row["word"].partition(" (")[0]
    return next((reason for reason in REASONS if reason in word), SAME.get(word, word.partition(":")[0]))


def cells(name: Name, models: list[str], claims: dict[tuple[str, ...], Row], predicted: Row) -> list[str]:
    """The statement of a claim, and for each model the share of the whole, the verdict, and a prediction that is not right."""
    rows = [claims.get((*name, model)) for model in models]
    cells = [next((row["statement"] for row in rows if row is not None), f"{name[0]}: {name[1]}")]
    for model, row in zip(models, rows, strict=True):
        number = f"{share(*shares_of(row))} " if row and row["s"] else ""
        wrong = verdict(row) not in (NOT_RUN, SAME.get(predicted[model], predicted[model]))
        cells.append(number + (row["word"] if row else NOT_RUN) + f" (predicted: {predicted[model]})" * wrong)
    return cells


def score(model: str, claims: dict[tuple[str, ...], Row], expected: dict[Name, Row]) -> list[str]:
    """How many predictions of a model are right, and how many constant guesses would be."""
    found = {name: verdict(claims.get((*name, model))) for name in expected}
    count = Counter[str]()
    for name, word in found.items():
        right = word == SAME.get(expected[name][model], expected[name][model])
        count["right" if right else word if word in ("undecided", NOT_RUN) else "wrong"] += 1
    run = {name: word for name, word in found.items() if word != NOT_RUN}
    guesses = [sum(word == guess for word in run.values()) for guess in ("holds", "absent")]
    guesses += [sum(word == verdict(claims.get((*name, other.model))) for name, word in run.items()) for other in (SMOL, GEMMA)]
    return [model, *(str(count[kind]) for kind in ("right", "wrong", "undecided", NOT_RUN)), *map(str, guesses)]


def figure(models: list[str], claims: dict[tuple[str, ...], Row], study: str, rows: dict[str, str]) -> bytes:
    """The shares of the first token's attention that a token gets under an edit, a panel for each model."""
    columns: dict[str, list[Mark]] = {}
    for model in models:
        for name, text in rows.items():
            if (row := claims.get((study, name, model))) and row["s"]:
                ends: dict[str, Any] = {end: 100 * float(row[f"s{after}"]) for end, after in ENDS.items()}
                columns.setdefault(model, []).append(Mark(text, dataclasses.replace(NOT_COMPARED, note="", **ends), "share"))
    return render(points(columns, "share of the first token's attention (%)"), "svg")


if __name__ == "__main__":
    main()
