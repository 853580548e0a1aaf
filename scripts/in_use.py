"""The costs and benefits of a sink in use: loss against bits and loss against cache, with the sink's activation and without it.

    python scripts/in_use.py run MODEL FOLDER [BOS] [NAME]   evaluate what docs/results/data/in-use.csv.xz lacks; resumable
    python scripts/in_use.py page                            docs/results/in-use.md and its figures, from that file

FOLDER has a .txt file for each document; LENGTH tokens from the middle of each are read, or as many as the model's context has.
BOS is as for `sinkjax.encode`, NAME what the file calls the model (by default MODEL). "sink-logit-340k" is models/run-000
of `sinkjax run pretrain/sink-logits --only sink-logit --size 340k --seed 5 --seeds 1 --text FOLDER`, beside `mini-softmax`.

Without the activation, the first token's largest dim is set to the mean of the other tokens' in each layer in which it is
massive (Sun et al. 2024 set it to its own mean over texts, which costs nothing), or in all layers if it is massive in none.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from templates import given, page

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.edits.edit import Edit
from sinkjax.report.markdown import table as markdown

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 130  # characters of a line of prose
DATA, TABLE, PAGE, IMAGE, SMALL_IMAGE = (
    ROOT / "docs" / name
    for name in (
        *("results/data/in-use.csv.xz", "results/data/in-use-table.csv", "results/in-use.md"),
        *("images/in-use.png", "images/in-use-small.png"),
    )
)
LENGTH, DOCUMENTS = 256, 8
MASSIVE = 100.0  # |h| of a massive activation (Sun et al. 2024)
PLAIN, WITHOUT, REMOVED = "as it is", "without the activation", "without the super weight"
SUPER_WEIGHT = {"smollm2-135m": (11, 1229, 507)}  # layer, row and column of `down` (docs/how-to/super-weights.md)
NAMES = {
    "smollm2-135m": "SmolLM2-135M-Instruct",
    "sink-logit-340k": "340k, learned sink logit",
}

FULL = "full precision, all keys"
BITS: dict[str, dict[str, Any]] = {
    **{f"activations of {bits} bits, one scale a tensor": {"activations": bits} for bits in (8, 6, 4)},
    **{f"activations of {bits} bits, one scale a token": {"activations": bits, "scale": "token"} for bits in (8, 6, 4)},
    **{
        f"activations of {bits} bits, one scale a tensor, {name}": {"activations": bits, **options}
        for name, options in (("first token in full precision", {"keep": (0,)}), ("rotated", {"rotate": True}))
        for bits in (8, 6, 4)
    },
    **{f"keys and values of {bits} bits, one scale a token": {"kv": bits, "scale": "token"} for bits in (8, 6, 4)},
    **{f"weights of {bits} bits, one scale an output": {"weights": bits, "scale": "token"} for bits in (8, 6, 4)},
}
CACHES: dict[str, dict[str, Any]] = {
    name: {"cache": policy}
    for keys in (LENGTH // 16, LENGTH // 4)
    for name, policy in {
        f"window of {keys} keys": sinkjax.Streaming(0, keys),
        **{
            f"{first} first and {keys - first} last keys": sinkjax.Streaming(first, keys - first)
            for first in ((1, 2, 4) if keys == LENGTH // 16 else (4,))
        },
        f"H2O, {keys} keys": sinkjax.H2O(keys),
    }.items()
}
WAYS = {FULL: {}, **BITS, **CACHES}
ROUNDED = "activations of 8 bits, one scale a tensor"
SHORT = (  # the rows of the page's table
    *(ROUNDED, f"{ROUNDED}, first token in full precision", f"{ROUNDED}, rotated", "activations of 8 bits, one scale a token"),
    *("window of 16 keys", "1 first and 15 last keys", "2 first and 14 last keys", "4 first and 12 last keys", "H2O, 16 keys"),
)
COMPARED = ("smollm2-135m", "mini-softmax", "mini-sigmoid")


def run(source: str, folder: str, bos: str = "model", name: str = "") -> None:
    """Evaluate a model in every way that is not in the file yet."""
    model, known, name = sinkjax.load(source), read(), name or source
    ids, documents = pieces(model, Path(folder), bos)
    edits: dict[str, Any] = {PLAIN: (), WITHOUT: mean_activation(model, ids[:1])}
    if name in SUPER_WEIGHT:
        layer, row, col = SUPER_WEIGHT[name]
        edits[REMOVED] = sinkjax.edit_weights("down", "set", 0.0, layers=layer, rows=row, cols=col)
    for way, options in WAYS.items():
        for label, edit in edits.items():
            if ((known["model"] == name) & (known["way"] == way) & (known["edit"] == label)).any():
                continue
            losses = sinkjax.evaluate(model, ids, edits=edit, **options).by_text()
            own = {"model": name, "bos": bos, "edit": label, "way": way}
            known = pd.concat([known, pd.DataFrame({**own, "document": documents, "loss": losses.round(5)})])
            known.to_csv(DATA, index=False)
            print(f"{name}, {label}, {way}: {losses.mean():.3f}", flush=True)


def read() -> pd.DataFrame:
    """What has been evaluated: model, bos, edit, way, document, loss."""
    if DATA.exists():
        return pd.read_csv(DATA, keep_default_na=False)
    return pd.DataFrame(columns=["model", "bos", "edit", "way", "document", "loss"])


def pieces(model: sinkjax.Model, folder: Path, bos: str) -> tuple[np.ndarray, list[str]]:
    """Tokens from the middle of documents, int [DOCUMENTS, T], each with the BOS first, and the documents' names."""
    length = min(LENGTH, model.config.context)
    files = sorted(folder.glob("*.txt"))[:DOCUMENTS]
    words = [file.read_text(encoding="utf-8").split() for file in files]
    texts = [" ".join(each[len(each) // 2 : len(each) // 2 + 2 * LENGTH]) for each in words]
    tokens, lengths = sinkjax.encode(model, texts, bos=int(bos) if bos.isdigit() else bos, length=length)
    assert (np.asarray(lengths) == length).all()
    return np.asarray(tokens), [file.stem for file in files]


def mean_activation(model: sinkjax.Model, ids: np.ndarray) -> Edit:
    """The first token's largest dim, set to the mean of the others' in each layer in which it is massive; in all if in none."""
    probe = sinkjax.Probe(capture=[sinkjax.Capture("resid")])
    h = np.asarray(sinkjax.forward(model.params, ids, model.config, probe=probe, logits=False).record["resid"])[0]
    size = np.abs(h[:, 0])
    dim = int(size.max(axis=0).argmax())
    massive = np.flatnonzero(size[:, dim] > MASSIVE)
    layers = massive if len(massive) else np.arange(len(h))
    return sinkjax.compose(
        *(sinkjax.set_residual(0, float(h[layer, 1:, dim].mean()), dims=dim, layers=int(layer)) for layer in layers)
    )


# The page.


def write_page() -> None:
    """Write the page and draw its figures."""
    data = read()
    models = list(dict.fromkeys(data["model"]))
    numbers = {"documents": DOCUMENTS, "length": LENGTH, "massive": f"{MASSIVE:g}", "comparison": comparison(data, COMPARED)}

    def look(name: str, form: str) -> str:
        """A number: {model/edit} is a loss in full precision, {model/way} what a way to run the model as it is adds to that."""
        model, _, what = name.partition("/")
        own = data[data["model"] == model]
        if not what:
            return given(numbers)(name, form)
        if what in (PLAIN, WITHOUT, REMOVED):
            return format(losses(own, what, FULL).mean(), form)
        added = losses(own, PLAIN, what) - losses(own, PLAIN, FULL)
        return format(added.mean(), form) if form else shown(added).replace("+", "")

    table(data).to_csv(TABLE, index=False)
    PAGE.write_text(page("in-use.md", look, WIDTH), encoding="utf-8")
    draw(data, models, IMAGE, SMALL_IMAGE)
    print(PAGE)


PANELS = {
    title: {"full": FULL, **{f"{bits} bits": way.format(bits=bits) for bits in (8, 6, 4)}}
    for title, way in {
        "activations, one scale per tensor": "activations of {bits} bits, one scale a tensor",
        "activations, one scale per token": "activations of {bits} bits, one scale a token",
        "weights, one scale per output": "weights of {bits} bits, one scale an output",
        "keys and values, one scale per token": "keys and values of {bits} bits, one scale a token",
    }.items()
}
PANELS |= {
    title: {"all keys": FULL, **{f"{keys} keys": way.format(keys=keys, last=keys - 4) for keys in (LENGTH // 4, LENGTH // 16)}}
    for title, way in {
        "cache: last keys only": "window of {keys} keys",
        "cache: first 4 and last keys": "4 first and {last} last keys",
    }.items()
}
REMEDIES = (("first token in full precision", "first token not rounded", "C4"), ("rotated", "rotated", "C5"))
LOSSES, ADDED = (4, 5, 6, 8, 10, 15, 20), (-0.1, -0.01, 0, 0.01, 0.1, 1)


def losses(data: pd.DataFrame, edit: str, way: str) -> np.ndarray:
    """The loss of each document, in the order of their names; empty if it was not measured."""
    chosen = data[(data["edit"] == edit) & (data["way"] == way)].sort_values("document")
    return chosen["loss"].to_numpy(float)


def comparison(data: pd.DataFrame, models: Sequence[str]) -> str:
    """The loss of some models in full, and what some ways to run them as they are add to it: means."""
    lines = []
    for way in (FULL, *SHORT):
        found = [(losses(own, PLAIN, way), losses(own, PLAIN, FULL)) for own in (data[data["model"] == name] for name in models)]
        added = [each.mean() if way == FULL else (each - full).mean() for each, full in found]
        lines.append([spelled(way), *(f"{value:.3f}" if way == FULL else f"{value:+.3f}" for value in added)])
    return markdown(["", *(NAMES.get(name, name) for name in models)], lines)


def spelled(way: str) -> str:
    """A way as the page writes it; the file keeps the older name."""
    return way.replace("one scale an ", "one scale a ").replace("one scale a ", "one scale per ")


def table(data: pd.DataFrame) -> pd.DataFrame:
    """The mean loss of each model, edit and way, and what the way adds to the same edit in full, with its interval."""
    lines = []
    for (name, edit), own in data.groupby(["model", "edit"], sort=False):
        for way in (way for way in WAYS if (own["way"] == way).any()):
            found, base = losses(own, edit, way), losses(own, edit, FULL)
            added = intervals.interval(found - base)
            low, high = (None, None) if way == FULL else (added.low, added.high)
            lines.append([name, own["bos"].iloc[0], edit, spelled(way), len(found), found.mean(), added.mean, low, high])
    columns = ["model", "bos", "edit", "way", "documents", "loss", "added", "added_low", "added_high"]
    return pd.DataFrame(lines, columns=columns).round(5)


def shown(values: np.ndarray) -> str:
    """A mean difference with its interval."""
    found = intervals.interval(values)
    return f"{values.mean():+.3f} [{found.low:+.3f}, {found.high:+.3f}]" if found.low is not None else f"{values.mean():+.3f}"


def draw(data: pd.DataFrame, models: Sequence[str], large: Path, small: Path) -> None:
    """Loss against bits and keys: that of the model with a super weight under each edit, and the loss added to the others."""
    lines = []
    for name in (name for name in models if name in SUPER_WEIGHT):
        own = data[data["model"] == name]
        lines += [Line(edit, own, edit, f"C{number}") for number, edit in enumerate((PLAIN, WITHOUT, REMOVED))]
        lines += [Line(f"as it is, {spoken}", own, PLAIN, color, f", {kind}") for kind, spoken, color in REMEDIES]
    drawn(lines).savefig(large, dpi=150)
    others = [(name, data[data["model"] == name]) for name in models if name not in SUPER_WEIGHT]
    lines = [Line(NAMES.get(name, name), own, PLAIN, f"C{number}") for number, (name, own) in enumerate(others)]
    lines += [Line("", own, WITHOUT, f"C{number}", dashed=True) for number, (_, own) in enumerate(others)]
    drawn(lines, added=True).savefig(small, dpi=150)


@dataclass(frozen=True)
class Line:
    """A line in each panel: a model under an edit, where it was measured. `suffix`: what the way's name ends with."""

    label: str
    data: pd.DataFrame
    edit: str
    color: str
    suffix: str = ""
    dashed: bool = False

    def values(self, way: str) -> np.ndarray:
        """The losses with a way to run; empty if they were not measured."""
        return losses(self.data, self.edit, way if way == FULL else way + self.suffix)

    @property
    def look(self) -> dict[str, Any]:
        """How it is drawn."""
        return {"color": self.color, "linestyle": "--", "linewidth": 1} if self.dashed else {"color": self.color, "marker": "o"}


def drawn(lines: Sequence[Line], added: bool = False) -> Figure:
    """A panel for each kind of rounding and of cache: the loss of each line, or the loss `added` to its own in full precision."""
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    grid = figure.subplots(2, 3, sharey=True)
    for ax, (title, ways) in zip(grid.flat, PANELS.items(), strict=True):
        for number, line in enumerate(lines):
            points = [(x, line.values(way)) for x, way in enumerate(ways.values())]
            points = [(x, values - line.values(FULL) if added else values) for x, values in points if len(values)]
            if len(points) == 1:
                continue
            x = np.array([x for x, _ in points]) + 0.03 * (number % 5 - 2)
            middle = [values.mean() for _, values in points]
            ax.plot(x, middle, markersize=4, **line.look)
            for place, (_, values) in zip(x, points, strict=True):
                found = intervals.interval(values)
                if not line.dashed and found.low is not None and found.high is not None:
                    ax.plot([place, place], [found.low, found.high], color=line.color, linewidth=1)
        ax.set_title(title, fontsize=11)
        ax.set_xticks(range(len(ways)), list(ways))
        ax.set_xlim(-0.25, len(ways) - 0.7)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="0.92")
        ax.set_axisbelow(True)
    for ax in grid.flat:
        if added:
            ax.axhline(0, color="0.6", linewidth=0.8)
            ax.set_yscale("symlog", linthresh=0.01, linscale=0.5)
        else:
            ax.set_yscale("log")
        ax.set_yticks(ADDED if added else LOSSES, [f"{tick:g}" for tick in (ADDED if added else LOSSES)])
        ax.minorticks_off()
    for ax in grid[:, 0]:
        ax.set_ylabel(f"{'added ' * added}loss (nats per token)")
    handles = [Line2D([], [], markersize=4, label=line.label, **line.look) for line in lines if line.label]
    if any(line.dashed for line in lines):
        handles.append(Line2D([], [], color="0.4", linestyle="--", linewidth=1, label=WITHOUT))
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False, fontsize=10)
    return figure


if __name__ == "__main__":
    {"run": run, "page": write_page}[sys.argv[1]](*sys.argv[2:])
