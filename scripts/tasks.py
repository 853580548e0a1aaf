"""What models answer with and without a sink: task scores under edits, few bits and their remedies.

python scripts/tasks.py run MODEL [LIMIT]   score MODEL in every setting that docs/results/data/tasks.csv lacks (needs lm-eval)
python scripts/tasks.py page                docs/results/tasks.md, from that file
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from templates import given, page

import sinkjax
import sinkjax.cards.files
from sinkjax.report.markdown import table as markdown

ROOT = Path(__file__).resolve().parents[1]
DATA, PAGE = ROOT / "docs" / "results" / "data" / "tasks.csv", ROOT / "docs" / "results" / "tasks.md"
TASKS = ("sinkjax_choice", "sinkjax_last_word", "sinkjax_copy")
METRICS = {
    "choice": ("sinkjax_choice", "acc"),
    "last word": ("sinkjax_last_word", "acc"),
    "copy": ("sinkjax_copy", "exact_match"),
}
NAMES = {"smollm2-135m": "SmolLM2-135M-Instruct", "gemma3-270m": "Gemma 3 270M", "mini-softmax": "mini-softmax"}


def settings(name: str, model: sinkjax.Model) -> dict[str, dict[str, Any]]:
    """The arguments of `LM` for each row but the first; `background/massive.held` sets as many dims."""
    tokens, lengths = sinkjax.encode(model, [json.loads(line)["text"] for line in QUESTIONS.read_text().splitlines()[:8]])
    probe = sinkjax.Probe(capture=[sinkjax.Capture("resid")])
    h = np.asarray(sinkjax.forward(model, tokens, probe=probe, lengths=lengths, logits=False).record["resid"])  # [B, L, T, d]
    dims = np.abs(h[:, :, 0]).max(axis=(0, 1)).argsort()[-2:]
    later = np.arange(1, h.shape[2]) < lengths[:, None] - 1
    mean = h[:, :, 1:][..., dims].transpose(0, 2, 1, 3)[later].mean(axis=0)  # [L, 2]
    at = [sinkjax.set_residual(0, row, dims=dims, layers=layer) for layer, row in enumerate(mean)]
    found: dict[str, dict[str, Any]] = {
        "activation of the first token at the others' mean": {"edits": sinkjax.compose(*at)},
        "activation of the first token at 0": {"edits": sinkjax.set_residual(0, 0.0, dims=dims)},
        "first key hidden": {"edits": sinkjax.mask_key(0)},
    }
    clamp = json.loads((DATA.parent / "cards" / f"{name}.json").read_text())["clamp"]
    if clamp:
        found["activation clamped (the card's clamp)"] = {"edits": sinkjax.cards.files.clamp(clamp)}
    eight: dict[str, Any] = {"activations": 8}
    found |= {
        "8 bits": eight,
        "8 bits, first token unrounded": eight | {"keep": (0,)},
        "8 bits, rotated": eight | {"rotate": True},
    }
    return found | {"8 bits behind the sink prefix": eight | {"past": sinkjax.sink_prefix(model)}, "4 bits": {"activations": 4}}


QUESTIONS = ROOT / "sinkjax" / "interop" / "tasks" / "last_word.jsonl"


def run(name: str, limit: str = "") -> None:
    """Score a model in every setting."""
    from sinkjax.interop.lm_eval import LM, compared, scored

    model, most = sinkjax.load(name), int(limit) if limit else None
    known = pd.read_csv(DATA) if DATA.exists() else pd.DataFrame(columns=["model", "setting"])
    plain = scored(LM(model), TASKS, limit=most)
    for setting, options in ({"as it is": {}} | settings(name, model)).items():
        if not ((known["model"] == name) & (known["setting"] == setting)).any():
            result = scored(LM(model, **options), TASKS, limit=most) if options else plain
            rows = pd.DataFrame([{"model": name, "setting": setting, **row} for row in compared(plain, result)])
            known = pd.concat([known, rows.round(5)])
            known.to_csv(DATA, index=False)
            print(name, setting, rows["score"].tolist(), flush=True)


def cell(row: pd.Series) -> str:
    """A score, and its difference from the first row with its interval."""
    change = "" if row["setting"] == "as it is" else f" ({row['difference']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}])"
    return f"{row['score']:.2f}{change}"


def write_page() -> None:
    """Write the page."""
    data, tables = pd.read_csv(DATA), {}
    for name in data["model"].unique():
        own = data[data["model"] == name].set_index(["setting", "task", "metric"], drop=False)
        rows = [(setting, *(cell(own.loc[(setting, *key)]) for key in METRICS.values())) for setting in own["setting"].unique()]
        tables[name] = f"## {NAMES[name]}\n\n{markdown(['', *METRICS], rows)}"
    counts = data.groupby("task")["questions"].max()
    PAGE.write_text(page("tasks.md", given({"tables": "\n\n".join(tables.values()), **counts}), 130), encoding="utf-8")


if __name__ == "__main__":
    write_page() if sys.argv[1] == "page" else run(*sys.argv[2:])
