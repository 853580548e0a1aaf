"""Write the findings at the head of README.md and docs/index.md from docs/data/claims.csv.

    python scripts/front_page.py

Each finding is a statement of a paper, then in bold the word and the number of each model that tests it, and a figure. A model's
word and number come from its row in the CSV; scripts/findings.py writes that file.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from findings import MAIN, TRAINED, Condition, is_in

from sinkjax.analysis.intervals import FEWEST, Interval
from sinkjax.analysis.verdicts import said

ROOT = Path(__file__).resolve().parents[1]
CLAIMS = ROOT / "docs" / "data" / "claims.csv"
MARKED = re.compile(r"(?<=<!-- made by scripts/front_page.py -->\n\n).*?(?=\n\n<!-- end -->)", re.DOTALL)
MODELS = {
    **MAIN,
    Condition("mini-softmax", "model", "wikitext"): "`mini-softmax`",
    TRAINED: "Models trained here",
}


@dataclass(frozen=True)
class Finding:
    """A claim, by its study and its name there, and its figure in docs/images, with its alternative text and its caption."""

    study: str
    claim: str
    image: str
    alt: str
    caption: str


FINDINGS = (
    Finding(
        "kiya/mask",
        "all",
        image="findings-smollm-masks-layers.png",
        alt="Sinks and activations of the first two tokens while the first key is masked",
        caption="SmolLM2-135M-Instruct. Bands are 95% intervals over documents; dashed lines are the unedited model.",
    ),
    Finding(
        "kiya/self",
        "sink",
        image="findings-smollm-alone-by-layer-later-sink-rate.png",
        alt="Sink and activation of a token that sees only itself in some layers",
        caption="SmolLM2-135M-Instruct, the mean over 8 positions of the token. Bands are 95% intervals over documents.",
    ),
    Finding(
        "trigger/one-layer",
        "softmax",
        image="trigger-maps.png",
        alt="Attention of trained softmax and ReLU layers on the trigger task",
        caption="One model of each kind, 1,000 sequences: mean above, standard deviation below."
        " The arrow marks the trigger's row.",
    ),
)


def lines(rows: Sequence[Mapping[str, str]], docs: str) -> str:
    """The findings as Markdown; docs: the path of the folder docs from the page."""
    parts = []
    for finding in FINDINGS:
        found = [row for row in rows if (row["study"], row["claim"]) == (finding.study, finding.claim)]
        told = [f"{model}: {_told(row)}" for given, model in MODELS.items() for row in found if is_in(row, [given]) and row["d"]]
        if not told:
            raise SystemExit(f"{CLAIMS} has no number of the claim {finding.claim!r} of {finding.study}")
        parts.append(f"{found[0]['statement']} **{'; '.join(told)}.**")
        parts.append(f"![{finding.alt}]({docs}images/{finding.image})\n*{finding.caption}*")
    return "\n\n".join(parts)


def _told(row: Mapping[str, str]) -> str:
    effect = "s" if row["s"] else "d"
    low, mean, high = (float(row[name]) if row[name] else None for name in (f"{effect}_low", effect, f"{effect}_high"))
    count = int(row["n"])
    value = said(Interval(mean, low, high, count, 0, 0.95, ""), "share" if effect == "s" else row["unit"])
    few = f", {count} independent samples" if count < FEWEST else ""
    return f"{row['word']} ({value}{' of the whole' * (effect == 's')}{few})"


def main() -> None:
    """Rewrite both pages."""
    with CLAIMS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for page, docs in ((ROOT / "README.md", "docs/"), (ROOT / "docs" / "index.md", "")):
        text = page.read_text(encoding="utf-8")
        page.write_text(MARKED.sub(lambda _, docs=docs: lines(rows, docs), text), encoding="utf-8")


if __name__ == "__main__":
    main()
