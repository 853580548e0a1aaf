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
METRICS = {
    "choice": ("sinkjax_choice", "acc"),
    "last word": ("sinkjax_last_word", "acc"),
    "copy": ("sinkjax_copy", "exact_match"),
}
NAMES = {"smollm2-135m": "SmolLM2-135M-Instruct", "gemma3-270m": "Gemma 3 270M", "mini-softmax": "mini-softmax"}


def settings(name: str, model: sinkjax.Model) -> dict[str, dict[str, Any]]:
    """The arguments of `LM` for each row but the first; `background/massive.held` sets as many dims."""
    stories = (ROOT / "sinkjax" / "interop" / "tasks" / "last_word.jsonl").read_text(encoding="utf-8").splitlines()[:8]
    tokens, lengths = sinkjax.encode(model, [json.loads(line)["text"] for line in stories])
    probe = sinkjax.Probe(capture=[sinkjax.Capture("resid")])
    h = np.asarray(sinkjax.forward(model, tokens, probe=probe, lengths=lengths, logits=False).record["resid"])  # [B, L, T, d]
    dims = np.abs(h[:, :, 0]).max(axis=(0, 1)).argsort()[-2:]
    later = np.arange(1, h.shape[2]) < lengths[:, None] - 1
    mean = h[:, :, 1:][..., dims].transpose(0, 2, 1, 3)[later].mean(axis=0)  # [L, 2]
    held = sinkjax.compose(*(sinkjax.set_residual(0, row, dims=dims, layers=layer) for layer, row in enumerate(mean)))
    found: dict[str, dict[str, Any]] = {"activation of the first token at the others' mean": {"edits": held}}
    found["activation of the first token at 0"] = {"edits": sinkjax.set_residual(0, 0.0, dims=dims)}
    others = np.random.default_rng(0).choice(np.setdiff1d(np.arange(h.shape[-1]), dims), 2, replace=False).tolist()
    found["two random dims of the first token at 0"] = {"edits": sinkjax.set_residual(0, 0.0, dims=others)}
    found["the same dims of the second token at 0"] = {"edits": sinkjax.set_residual(1, 0.0, dims=dims)}
    found["first key hidden"] = {"edits": sinkjax.mask_key(0)}
    clamp = json.loads((DATA.parent / "cards" / f"{name}.json").read_text(encoding="utf-8"))["clamp"]
    found |= {"activation clamped (the card's clamp)": {"edits": sinkjax.cards.files.clamp(clamp)}} if clamp else {}
    remedies = {"": {}, ", first token unrounded": {"keep": (0,)}, ", rotated": {"rotate": True}}
    remedies[" behind the sink prefix"] = {"past": sinkjax.sink_prefix(model, model.tokenizer.bos)}
    return (
        found
        | {f"8 bits{how}": {"activations": 8} | options for how, options in remedies.items()}
        | {"4 bits": {"activations": 4}}
    )


def run(name: str, limit: str = "") -> None:
    """Score a model in every setting."""
    from sinkjax.interop.lm_eval import LM, compared, scored

    model, most, tasks = sinkjax.load(name), int(limit) if limit else None, [task for task, _ in METRICS.values()]
    known = pd.read_csv(DATA) if DATA.exists() else pd.DataFrame(columns=["model", "setting"])
    plain = scored(LM(model), tasks, limit=most)
    for setting, options in ({"as it is": {}} | settings(name, model)).items():
        if not ((known["model"] == name) & (known["setting"] == setting)).any():
            result = scored(LM(model, **options), tasks, limit=most) if options else plain
            rows = pd.DataFrame([{"model": name, "setting": setting, **row} for row in compared(plain, result)])
            known = pd.concat([known, rows.round(5)])
            known.to_csv(DATA, index=False)
            print(name, setting, rows["score"].tolist(), flush=True)


def cell(row: pd.Series) -> str:
    """A score, and its difference from the first row with its interval."""
    change = "" if row["setting"] == "as it is" else f" ({row['difference']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}])"
    return f"{row['score']:.2f}{change}"


def write_page() -> None:
    """Write the page. Its template looks cells up as {model/setting/task}."""
    data, tables, cells = pd.read_csv(DATA), [], {}
    for name in (name for name in NAMES if name in set(data["model"])):
        own = data[data["model"] == name].set_index(["setting", "task", "metric"], drop=False)
        for setting in own["setting"].unique():
            cells |= {f"{name}/{setting}/{column}": cell(own.loc[(setting, *key)]) for column, key in METRICS.items()}
        rows = [(setting, *(cells[f"{name}/{setting}/{column}"] for column in METRICS)) for setting in own["setting"].unique()]
        tables.append(f"## {NAMES[name]}\n\n{own['questions'].max():.0f} questions per task.\n\n{markdown(['', *METRICS], rows)}")
    PAGE.write_text(page("tasks.md", given(cells | {"tables": "\n\n".join(tables)}), 130), encoding="utf-8")


if __name__ == "__main__":
    write_page() if sys.argv[1] == "page" else run(*sys.argv[2:])
