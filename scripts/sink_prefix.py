"""Measure a sink prefix (loss, cost of 8 bits, of a window of 16 keys, controls): docs/results/data/sink-prefix.csv.

    python scripts/sink_prefix.py run MODEL FOLDER   evaluate what the file lacks; FOLDER has a .txt file for each novel
    python scripts/sink_prefix.py page               its part of docs/how-to/sink-prefix.md, from that file

Every condition is scored on the same tokens: the text without its BOS and its first token. "random" is the prefix of a token
drawn from the vocabulary (seeds 0 and 1), the control of "best", which the scan chose, and of "bos".
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from in_use import DATA as IN_USE
from in_use import NAMES, pieces, shown
from sections import END, replaced
from templates import given, page

import sinkjax
from sinkjax.report.markdown import table as markdown

ROOT = Path(__file__).resolve().parents[1]
DATA, PAGE = (ROOT / "docs" / name for name in ("results/data/sink-prefix.csv", "how-to/sink-prefix.md"))
BEGIN = "<!-- measured made by scripts/sink_prefix.py -->"
COLUMNS = ["model", "prefix", "token", "text", "way", "document", "loss"]
FULL, BITS, WINDOW = "full precision, all keys", "activations of 8 bits, one scale per tensor", "window of 16 keys"
SPARED, FIRST = f"{BITS}, first token in full precision", "4 first and 12 last keys"
WAYS: dict[str, dict[str, Any]] = {
    FULL: {},
    BITS: {"activations": 8},
    WINDOW: {"cache": sinkjax.Streaming(0, 16)},
    SPARED: {"activations": 8, "keep": (0,)},
    FIRST: {"cache": sinkjax.Streaming(4, 12)},
}
SHORT = {FULL: "loss", BITS: "bits", WINDOW: "window", SPARED: "spared", FIRST: "first"}
PLAIN, BARE = "with BOS", "without BOS"
RUNS = [  # prefix, text, ways
    ("none", PLAIN, (FULL, BITS, WINDOW)),
    ("best", BARE, (FULL, BITS, WINDOW)),
    ("bos", BARE, (FULL, BITS, WINDOW)),
    ("random 0", BARE, (FULL, BITS, WINDOW)),
    ("none", PLAIN, (SPARED, FIRST)),
    ("none", BARE, (FULL, BITS, WINDOW)),
    ("best", PLAIN, (FULL, BITS, WINDOW)),
    ("random 1", BARE, (FULL, BITS, WINDOW)),
    ("none", BARE, (SPARED, FIRST)),
]


def read() -> pd.DataFrame:
    """What has been evaluated."""
    return pd.read_csv(DATA, keep_default_na=False) if DATA.exists() else pd.DataFrame(columns=COLUMNS)


def run(source: str, folder: str) -> None:
    """Evaluate each condition and way that the file lacks, saving after each."""
    model, known = sinkjax.load(source), read()
    ids, documents = pieces(model, Path(folder), "model")
    prefixes: dict[str, Any] = {"none": None}
    for name, text, ways in RUNS:
        for way in ways:
            if ((known["model"] == source) & (known["prefix"] == name) & (known["text"] == text) & (known["way"] == way)).any():
                continue
            if name not in prefixes:
                prefixes[name] = sinkjax.sink_prefix(model, token(model, name, known))
            past, bos = prefixes[name], text == PLAIN
            nll = sinkjax.evaluate(model, ids if bos else ids[:, 1:], past=past, **WAYS[way]).nll[:, int(bos) :]
            losses = np.nanmean(nll, axis=1)
            spelled = "" if past is None else model.tokenizer.tokens(list(past.tokens))[0]
            own = {"model": source, "prefix": name, "token": spelled, "text": text, "way": way}
            known = pd.concat([known, pd.DataFrame({**own, "document": documents, "loss": losses.round(5)})])
            known.to_csv(DATA, index=False)
            print(f"{source}, {name} {spelled!r}, {text}, {way}: {losses.mean():.3f}", flush=True)


def token(model: sinkjax.Model, name: str, known: pd.DataFrame) -> int | None:
    """The token of a prefix by its name."""
    if name == "bos":
        return int(model.source["bos"])
    if name == "best":
        return None
    rng = np.random.default_rng(int(name.split()[1]))
    return int(rng.choice(np.setdiff1d(np.arange(model.config.vocab_size), model.tokenizer.special)))


def by_way(data: pd.DataFrame, source: str, prefix: str, text: str) -> dict[str, np.ndarray]:
    """The losses of a condition by way, in the order of the novels."""
    own = data[(data["model"] == source) & (data["prefix"] == prefix) & (data["text"] == text)]
    return {way: each.sort_values("document")["loss"].to_numpy(float) for way, each in own.groupby("way")}


def table(data: pd.DataFrame, source: str) -> str:
    """The loss of each condition in full, and what 8 bits and a window add to it."""
    lines = []
    for (prefix, text), own in data[data["model"] == source].groupby(["prefix", "text"], sort=False):
        losses = by_way(data, source, prefix, text)
        cells = [shown(losses[way] - losses[FULL]) if way in losses else "" for way in (BITS, SPARED, WINDOW, FIRST)]
        token = own["token"].iloc[0]
        spoken = f"{prefix}, `{token}`" if token and "|" not in token else prefix
        lines.append([spoken, text, f"{losses[FULL].mean():.3f}", *cells])
    ways = ["8 bits", "8 bits, first token spared", "window of 16", "4 first, 12 last"]
    return f"**{NAMES.get(source, source)}**\n\n" + markdown(["prefix", "text", "loss", *ways], lines)


def write_page() -> None:
    """Write the part of the page that has numbers."""
    data = read()
    numbers: dict[str, object] = {"novels": data["document"].nunique()}
    for source in dict.fromkeys(data["model"]):
        short = source.partition("-")[0].rstrip("0123456789")
        numbers[f"{short} table"] = table(data, source)
        for prefix, text, ways in RUNS:
            losses = by_way(data, source, prefix, text)
            for way in ways:
                name = f"{short} {prefix} {'bos' if text == PLAIN else 'bare'} {SHORT[way]}"
                numbers[name] = float(losses[way].mean() - (0 if way == FULL else losses[FULL].mean()))
    used = pd.read_csv(IN_USE).query("model == 'smollm2-135m' and edit == 'as it is'").groupby("way")["loss"].mean()
    numbers["smollm in use"] = float(used[SPARED.replace("per tensor", "a tensor")] - used[FULL])
    text = page("sink-prefix.md", given(numbers)).rstrip()
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), BEGIN, END, text, str(PAGE)), encoding="utf-8")


if __name__ == "__main__":
    {"run": run, "page": write_page}[sys.argv[1]](*sys.argv[2:])
