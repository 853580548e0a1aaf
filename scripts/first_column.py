"""Draw the attention maps of README.md, docs/images/first-column.png; results/data/first-column.csv has their numbers.

    python scripts/first_column.py [--wikitext FILE]

Each map is the mean over all heads and layers on one sentence. With the raw test split of WikiText-2, the share of heads
that sink on a later token without a BOS is measured too, on the 64 passages of `kiya/baseline`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from long_tables import COLUMNS, replace
from named import DOCS
from numpy.typing import NDArray

import sinkjax
from sinkjax import Probe, intervals, metrics
from sinkjax.config_files.checks import MIN_QUERIES
from sinkjax.config_files.files import write
from sinkjax.data.corpora import passages
from sinkjax.report.figures.style import COLOURS, canvas, draw_map, render, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATA, IMAGE = DOCS / "results/data/first-column.csv", DOCS / "images/first-column.png"
SENTENCE = "They sent for Ness at half past two to bring the doctor over."
PLACE = 8  # where `<bos>` is put into the sentence
SMOLLM, GEMMA = "smollm2-135m", "gemma3-270m"
BRIGHTEST = 0.8  # attention with the last colour


class Map(NamedTuple):
    """A map to draw: `ids` of one prompt, whose sink should be at position `sink`."""

    title: str
    model: str
    ids: list[int]
    sink: int


def prompts(models: dict[str, sinkjax.Model]) -> list[Map]:
    """The sentence as SmolLM2 reads it, without its first token, and with Gemma's `<bos>` in front of it or inside it."""
    plain, words = (models[name].tokenizer.encode(SENTENCE) for name in (SMOLLM, GEMMA))
    bos = [models[GEMMA].tokenizer.bos]
    return [
        Map("SmolLM2: “They” is first", SMOLLM, plain, 0),
        Map("SmolLM2: “sent” is first", SMOLLM, plain[1:], 0),
        Map("Gemma 3: <bos> is first", GEMMA, [*bos, *words], 0),
        Map("Gemma 3: <bos> elsewhere", GEMMA, [*words[:PLACE], *bos, *words[PLACE:]], PLACE),
    ]


def attention(model: sinkjax.Model, ids: Sequence[int]) -> NDArray[np.float64]:
    """Attention of one prompt, mean over heads and layers: float64[query, key]."""
    tokens = np.array([ids], np.int32)
    record = sinkjax.forward(model, tokens, probe=Probe(attention=True), lengths=np.array([len(ids)])).record
    return np.asarray(record["attention"][0], np.float64).mean(axis=(0, 1))


def received(weights: NDArray[np.float64], key: int) -> float:
    """The share of the later queries' attention that a key gets, in per cent."""
    return float(100 * weights[key + 1 :, key].mean())


@styled
def figure(maps: Sequence[tuple[Map, NDArray[np.float64], list[str]]]) -> Figure:
    """Draw the maps, two in a row and wider than high, so that a telephone and a first screen show all four."""
    from matplotlib.colors import Normalize

    drawn, scale = canvas(5.8, 4.1), Normalize(0, BRIGHTEST)
    axes = drawn.subplots(2, 2)
    for panel, (one, weights, tokens) in zip(axes.flat, maps, strict=True):
        size = len(tokens)
        image = draw_map(panel, np.where(np.tri(size, dtype=bool), weights, np.nan), scale)
        panel.set_aspect("auto")
        panel.set_title(one.title, loc="left", fontsize=11, fontweight="bold")
        panel.set_xticks(range(size), [token.strip() for token in tokens], rotation=90, fontsize=10)
        panel.set_yticks([])
        panel.tick_params(length=0, pad=2)
        panel.get_xticklabels()[one.sink].set(color=COLOURS[1], fontweight="bold")
    for panel in axes[:, 0]:
        panel.set_ylabel("attending token \u2192", rotation=270, labelpad=12, fontsize=10)  # queries go down
    bar = drawn.colorbar(image, ax=axes, shrink=0.5, aspect=25, pad=0.02, ticks=(0, 0.4, BRIGHTEST))
    bar.set_label("attention", fontsize=10)
    return drawn


def later_sinks(name: str, model: sinkjax.Model, wikitext: Path, count: int = 64, length: int = 64) -> list[tuple[object, ...]]:
    """Heads of a model that sink on a later key without a BOS: on the one that most heads sink on, and on any."""
    texts = passages(wikitext, count, length=length, size=lambda text: len(model.tokenizer.encode(text))).texts
    tokens, lengths = sinkjax.encode(model, list(texts), bos="none", length=length)
    record = sinkjax.forward(model, tokens, probe=Probe(attention_received=True), lengths=lengths).record
    later = np.tile(np.arange(length) > 0, (count, 1))
    single = [metrics.sink_rate(record, key=key) for key in range(1, length - MIN_QUERIES + 1)]
    rows = {"the strongest one": np.max(single, axis=0), "any": metrics.sink_rate_among(record, later, min_queries=MIN_QUERIES)}
    lines = []
    for which, shares in rows.items():
        whole = intervals.interval(100 * shares)
        lines.append(("later tokens", f"{name}: {which}", "heads that sink (%)", whole.mean, whole.low, whole.high, count, ""))
    return lines


def main() -> None:
    """Measure, draw and keep the numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--wikitext", type=Path, help="the raw test split of WikiText-2")
    options = parser.parse_args()
    models = {name: sinkjax.load(name) for name in (SMOLLM, GEMMA)}
    maps = [
        (one, attention(models[one.model], one.ids), models[one.model].tokenizer.tokens(np.array(one.ids)))
        for one in prompts(models)
    ]
    lines = [
        ("maps", one.title, "attention from later tokens (%)", received(weights, one.sink), "", "", "", "")
        for one, weights, _ in maps
    ]
    if options.wikitext:
        lines += [line for name, model in models.items() for line in later_sinks(name, model, options.wikitext)]
    replace(DATA, COLUMNS, lines)
    write(IMAGE, render(figure(maps), "png"))


if __name__ == "__main__":
    main()
