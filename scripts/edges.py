"""Edges of the sink on docs/how-to/explain.md: the strongest ones, and how much of the sink circuits of them keep.

python scripts/edges.py run [MODEL ...]   measure, and keep the numbers in docs/results/data/edges.json
python scripts/edges.py page              write the tables of the page from that file
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import pandas as pd
from sections import END, replaced

import sinkjax
from sinkjax.data.corpora import packaged_documents
from sinkjax.report.markdown import table

ROOT = Path(__file__).resolve().parents[1]
DATA, PAGE = ROOT / "docs/results/data/edges.json", ROOT / "docs/how-to/explain.md"
BEGIN = "<!-- edges made by scripts/edges.py -->"
SIZES = {"mini-sink": (8, 64), "smollm2-135m": (4, 24)}  # prompts, and tokens of each
KEPT, CHECKED, SHOWN = (4, 16, 64, 256, 1024, 4096), 8, 4


def sink(record: Any) -> jax.Array:
    """The mean attention to key 0, one number per prompt."""
    return record["attention_received"][..., 0].mean((1, 2))


def run(*names: str) -> None:
    """Measure the edges of the models, and save the numbers after each."""
    known = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}
    for name in names or SIZES:
        prompts, length = SIZES[name]
        model = sinkjax.load(name)
        tokens, lengths = sinkjax.encode(model, packaged_documents()[:prompts], length=length)
        given: dict[str, Any] = {"senders": ("head_out", "mlp_out"), "positions": 0, "lengths": lengths, "progress": False}
        begun = time.process_time()
        count = sinkjax.attribute_edges(model, tokens, sink, exact=None, **given).sizes["edge"]
        kept = [number for number in KEPT if number < count]
        data = sinkjax.attribute_edges(model, tokens, sink, exact=CHECKED, circuits=kept, **given)
        seconds = time.process_time() - begun
        checked = data[["estimate", "exact"]].mean("prompt").to_dataframe()[["estimate", "exact"]].dropna()
        checked = checked.reindex(checked["exact"].abs().sort_values(ascending=False).index)
        known[name] = {
            "edges": count,
            "prompts": prompts,
            "length": length,
            "seconds": round(seconds),
            "unedited": float(data.baseline.mean()),
            "faithfulness": {str(int(number)): float(value) for number, value in data.faithfulness.to_series().items()},
            "kept": {str(int(number)): float(value) for number, value in data.kept.mean("prompt").to_series().items()},
            "checked": [[edge, float(row["estimate"]), float(row["exact"])] for edge, row in checked.iterrows()],
        }
        DATA.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        print(name, known[name], flush=True)


def write_page() -> None:
    """Write the tables from the file."""
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), BEGIN, END, tables(), PAGE.name), encoding="utf-8")


def tables() -> str:
    """The attention to key 0 that circuits keep, and the edges with the largest exact effects."""
    known: dict[str, Any] = {name: one for name, one in json.loads(DATA.read_text(encoding="utf-8")).items() if name in SIZES}
    circuits = pd.DataFrame({name: one["kept"] for name, one in known.items()})
    circuits = circuits.reindex(sorted(circuits.index, key=int))
    rows = [
        [f"{int(number):,}", *("" if pd.isna(value) else f"{value:.3f}" for value in row)] for number, row in circuits.iterrows()
    ]
    rows.append(["all", *(f"{one['unedited']:.3f}" for one in known.values())])
    strongest = [
        [name, edge, f"{estimate:+.4f}", f"{exact:+.4f}"]
        for name, one in known.items()
        for edge, estimate, exact in one["checked"][:SHOWN]
    ]
    size = "{name}: {edges:,} edges, {prompts} packaged texts of {length} tokens, {seconds} s of processor time"
    sizes = "; ".join(size.format(name=name, **one) for name, one in known.items())
    return "\n\n".join(
        [table(["edges kept", *known], rows), table(["model", "edge", "estimate", "exact"], strongest), f"*{sizes}.*"]
    )


if __name__ == "__main__":
    {"run": run, "page": write_page}[sys.argv[1]](*sys.argv[2:])
