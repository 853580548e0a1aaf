"""Edges of the sink on docs/how-to/explain.md: the strongest ones, and how much of the sink circuits of them keep.

python scripts/edges.py run [MODEL ...]   measure, and keep the numbers in docs/results/data/edges.json
python scripts/edges.py page              write the tables of the page from that file
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import xarray
from sections import END, replaced

import sinkjax
from sinkjax.data.corpora import packaged_documents
from sinkjax.report.markdown import table

ROOT = Path(__file__).resolve().parents[1]
DATA, PAGE = ROOT / "docs/results/data/edges.json", ROOT / "docs/how-to/explain.md"
BEGIN = "<!-- edges made by scripts/edges.py -->"
SIZES = {"mini-softmax": (8, 64), "smollm2-135m": (4, 24), "gemma3-270m": (4, 24)}  # prompts, and tokens of each
GROUPS, CHECKED, SHOWN = ((4, 16), (64, 256), (1024, 4096)), 8, 4  # sizes of circuits that are measured in one call


def sink(record: Any) -> jax.Array:
    """The mean attention to key 0, one number per prompt."""
    return record["attention_received"][..., 0].mean((1, 2))


def run(*names: str) -> None:
    """Measure the edges of the models, and save the numbers after each."""
    for name in names or SIZES:
        prompts, length = SIZES[name]
        model = sinkjax.load(name)
        tokens, lengths = sinkjax.encode(model, packaged_documents()[:prompts], length=length)
        given: dict[str, Any] = {"senders": ("head_out", "mlp_out"), "positions": 0, "lengths": lengths, "progress": False}
        begun = time.process_time()
        measure = partial(sinkjax.attribute_edges, model, tokens, sink, exact=None, **given)
        found = checked(measure(exact=CHECKED))
        for few in GROUPS:
            if counts := [number for number in few if number < found["edges"]]:
                found = joined(found, circuits(measure(circuits=counts)))
        seconds = time.process_time() - begun
        known = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else {}
        known[name] = {"prompts": prompts, "length": length, **found, "seconds": round(seconds)}
        DATA.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: {found['edges']:,} edges, {seconds:.0f} s of processor time", flush=True)


def checked(data: xarray.Dataset) -> dict[str, Any]:
    """The number of edges, and those with the largest estimates, by their exact effects."""
    rows = data[["estimate", "exact"]].mean("prompt").to_dataframe()[["estimate", "exact"]].dropna()
    rows = rows.reindex(rows["exact"].abs().sort_values(ascending=False).index)
    return {
        "edges": data.sizes["edge"],
        "unedited": float(data.baseline.mean()),
        "checked": [[edge, float(row["estimate"]), float(row["exact"])] for edge, row in rows.iterrows()],
    }


def circuits(data: xarray.Dataset) -> dict[str, Any]:
    """What circuits of some sizes keep, and that of no edge."""
    return {
        "faithfulness": {str(int(number)): float(value) for number, value in data.faithfulness.to_series().items()},
        "kept": {str(int(number)): float(value) for number, value in data.kept.mean("prompt").to_series().items()},
    }


def joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The numbers of two parts."""
    both = {name: one.get(name, {}) | other[name] for name in ("faithfulness", "kept")}
    return {**one, **both}


def write_page() -> None:
    """Write the tables from the file."""
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), BEGIN, END, tables(), PAGE.name), encoding="utf-8")


def tables() -> str:
    """The attention to key 0 that circuits keep, and the edges with the largest exact effects."""
    measured = json.loads(DATA.read_text(encoding="utf-8"))
    known: dict[str, Any] = {name: measured[name] for name in SIZES if name in measured}
    columns = [
        {number: f"{value:.3f} ({one['faithfulness'][number]:z.2f})" for number, value in one["kept"].items()}
        for one in known.values()
    ]
    sizes_kept = sorted({number for column in columns for number in column}, key=int)
    rows = [[f"{int(number):,}", *(column.get(number, "") for column in columns)] for number in sizes_kept]
    rows.append(["all", *(f"{one['unedited']:.3f} (1.00)" for one in known.values())])
    strongest = [
        [name, edge, f"{estimate:+.4f}", f"{exact:+.4f}"]
        for name, one in known.items()
        for edge, estimate, exact in one["checked"][:SHOWN]
    ]
    size = "{name}: {edges:,} edges, {prompts} packaged texts of {length} tokens, {seconds} s of processor time"
    sizes = "; ".join(size.format(name=name, **one) for name, one in known.items())
    signs = ", ".join(
        f"{sum(estimate * exact < 0 for _, estimate, exact in one['checked'])} of {len(one['checked'])} in {name}"
        for name, one in known.items()
    )
    further = ", ".join(
        f"{int(number):,} edges in {name}"
        for name, one in known.items()
        for number, faithfulness in one["faithfulness"].items()
        if faithfulness < 0
    )
    said = (
        f"Among the edges with the largest estimates, some have the wrong sign ({signs}), so check the edges that matter to you. "
        f"A small circuit can be further from the whole model than no edge at all ({further})."
    )
    circuit, checks = table(["edges kept", *known], rows), table(["model", "edge", "estimate", "exact"], strongest)
    return "\n\n".join([circuit, checks, said, f"*{sizes}.*"])


if __name__ == "__main__":
    {"run": run, "page": write_page}[sys.argv[1]](*sys.argv[2:])
