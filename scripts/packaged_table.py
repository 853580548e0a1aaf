"""Write what was found on the four packaged models into docs/pretraining.md, between its markers, from docs/findings.json.

python scripts/packaged_table.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sections import markdown, write_section

from sinkjax.analysis.estimates import in_digits

DOCS = Path(__file__).resolve().parents[1] / "docs"
MODELS = ("mini-softmax", "mini-sink", "mini-head-norm", "mini-nosink")
ROWS = {  # line of the table -> (study, estimate)
    "heads that sink on BOS (%)": ("gu/sink-rate", "the share of heads that sink on key 0 of natural text"),
    "the same, random tokens behind BOS (%)": ("gu/sink-rate", "the share of heads that sink on key 0 of random tokens"),
    "heads that sink on token 1 with BOS hidden from all later tokens (%)": (
        "kiya/mask",
        "heads that sink on key 1 (%) (all layers)",
    ),
    "heads that sink on BOS once it has changed places with a later token (%)": (
        "kiya/bos-swap",
        "the share of heads of all layers that sink on the moved BOS (with BOS)",
    ),
    "norm of BOS's hidden state over the others'": ("gu/norms", "the norm of the first token's hidden state over the others'"),
    "of its keys": ("gu/norms", "the norm of the first token's keys over the others'"),
    "of its values": ("gu/norms", "the norm of the first token's values over the others'"),
}


def main() -> None:
    """Read the findings and write the table."""
    claims: dict[tuple[str, str], list[dict[str, Any]]] = {
        (entry["model"].partition(",")[0], entry["study"]): entry["claims"]
        for entry in json.loads((DOCS / "findings.json").read_text("utf-8"))
    }
    lines = [[name, *(cell(claims[model, study], estimate) for model in MODELS)] for name, (study, estimate) in ROWS.items()]
    write_section(DOCS / "pretraining.md", "packaged", markdown(["", *MODELS], lines), "# The pretraining lab")


def cell(claims: list[dict[str, Any]], name: str) -> str:
    """A mean with its interval, if it has one."""
    found = next(one for claim in claims for one in claim["estimates"] if one["name"] == name)
    mean, low, high = (in_digits(found[part]) for part in ("mean", "low", "high"))
    return mean if low == high else f"{mean} [{low}, {high}]"


if __name__ == "__main__":
    main()
