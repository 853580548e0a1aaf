"""kiya/scan: every token of the vocabulary alone, next to the first token of texts (ours, on property 3).

If positions are relative, a token that sees only itself in all layers computes the same as that token alone, so one
forward of it says what isolating it anywhere in a text would show.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import xarray
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.analysis.summary import Row
from sinkjax.checkpoints.model import Model
from sinkjax.config_files.checks import refuse
from sinkjax.papers._shared import exact_rows
from sinkjax.papers.kiya import _first_block as first_block
from sinkjax.report.figures.lines import histogram
from sinkjax.report.section import Drawing
from sinkjax.study import Batch, Calculation, Lab, Numbers, Sinks, has_twin

NAMED = 40  # maximum number of exceptions that are named
OF_TWIN = 2_000  # tokens of the untrained twin, whose distribution is as clear with few
PERCENTILES = (0.1, 5, 50, 95, 99.9)
RATIO, COSINE = "largest |h| over the first token's", "cosine with the first token's state"
LIKE = "heads that sink whose score of the key is nearer to the first token's"


@dataclass(frozen=True, kw_only=True)
class Settings(Sinks):
    prompts: int = 16
    tokens: int | Literal["all"] = 50_000
    """how many tokens are run, drawn by the seed, next to every special one; "all" is the whole vocabulary"""
    distance: int = 16
    """positions between a token's key and the query that reads it"""
    twin: bool = True
    """whether some of the tokens are run on the same architecture with random weights"""

    def check(self) -> None:
        for name in ("tokens", "distance"):
            value = getattr(self, name)
            refuse(value != "all" and value < 1, f"{name} is {value}, and must be at least 1")


def study(lab: Lab, s: Settings) -> None:
    """Every token alone."""
    lab.needs("scores without a kernel")

    def run(name: str, tokens: int | Literal["all"], twin: bool) -> Calculation:
        given = (tokens, s.seed, s.eps, s.distance)
        return lab.calculate(name, partial(scanned, *given), VARIABLES, {"scan": [*given]}, s.prompts, twin=twin)

    tokens = run("tokens", s.tokens, False)
    untrained = run("untrained", OF_TWIN if s.tokens == "all" else min(s.tokens, OF_TWIN), True) if has_twin(s) else None
    lab.describe("alone", "ours, on Kiya et al. 2026, property 3", lambda read: distribution(read.data(tokens.name)))
    lab.describe("exceptions", "ours", lambda read: exceptions(read.data(tokens.name)))
    lab.draw(sizes, tokens, untrained)


def distribution(data: xarray.Dataset) -> list[Row]:
    """How many tokens are like the first one, and percentiles of their activation, state and keys."""
    alone, special, rows = compared(data), data["special"].values, list[Row]()
    for name, of in {"first token of the texts": "first_largest", "a typical later token of the texts": "other_largest"}.items():
        rows += exact_rows(name, "in text", {f"largest |h| after layer {alone.layer}": data[of][alone.layer]})
    return [*rows, *_of("ordinary tokens", alone, ~special), *_of("special tokens", alone, special)]


def _of(kind: str, found: Alone, where: NDArray[np.bool_]) -> list[Row]:
    if not where.any():
        return []
    numbers = {
        "tokens": where.sum(),
        f"tokens with more than {HALF:g} of the first token's largest |h|": found.makes[where].sum(),
        "the same (%)": 100 * found.makes[where].mean(),
        f"{LIKE}, mean over tokens (%)": 100 * found.like[where].mean(),
    }
    numbers |= {f"{RATIO}, percentile {part:g}": np.percentile(found.ratio[where], part) for part in PERCENTILES}
    numbers[f"{COSINE}, percentile 5"] = np.percentile(found.cosine[where], 5)
    numbers[f"{COSINE}, median"] = np.median(found.cosine[where])
    return exact_rows(kind, kind, numbers)


def exceptions(data: xarray.Dataset) -> list[Row]:
    """The tokens that make no sink alone, or, if most make none, the few that make one; the farthest first."""
    found, named = compared(data), names(data)
    most = found.makes.mean() > HALF
    order = np.argsort(found.ratio if most else -found.ratio, kind="stable")
    odd = order[(found.makes != most)[order]]
    series = f"{len(odd):,} of {len(order):,} tokens that {'make no sink' if most else 'make a sink'} alone"
    rows = exact_rows(series, series, {"tokens": len(odd)})
    for one in odd[:NAMED]:
        numbers = {RATIO: found.ratio[one], COSINE: found.cosine[one], f"{LIKE} (%)": 100 * found.like[one]}
        rows += exact_rows(named[one], series, numbers)
    return rows


def sizes(read: Numbers, tokens: Calculation, untrained: Calculation | None) -> Drawing:
    """Draw how many tokens have which activation alone, here and in the untrained twin."""
    data = read.data(tokens.name)
    layer, special = compared(data).layer, data["special"].values
    largest = data["largest"].values[:, layer]
    kinds = {"ordinary tokens": largest[~special], "special tokens": largest[special]}
    if untrained is not None and untrained.name in read:
        kinds["untrained twin"] = read.data(untrained.name)["largest"].values[:, layer]
    marks = {"first token of texts": "first_largest", "typical later token of texts": "other_largest"}
    lines = {name: float(data[of][layer]) for name, of in marks.items()}
    shown = {name: sizes for name, sizes in kinds.items() if sizes.size}
    figure = histogram(shown, lines, f"largest |h| after layer {layer}", "tokens")
    caption = f"Largest |h| after layer {layer}, where the first token's is largest, of each token when it sees only itself."
    return read.drawing("tokens-alone", figure, caption, tokens.name, bands=False)


# Tokens that see only themselves, next to the first token of texts: which are run, and which are like it.


VARIABLES = (
    "cosine", "first_largest", "first_score", "largest", "other_largest", "other_score", "received", "score", "special",
)  # fmt: skip
HALF = 0.5  # a token makes a sink if it has more than this share of the first token's activation, fixed before any run


@dataclass(frozen=True)
class Alone:
    """Tokens alone, compared with the first token in the layer where its activation is largest.

    Attributes:
        layer: That layer.
        ratio: Largest |h| over the first token's: float[token].
        cosine: Cosine of the state with the first token's: float[token].
        like: Share of the heads that sink whose score of the token's key is nearer to the first token's than to the others':
            float[token], NaN if none sinks.
        makes: Whether the token is predicted to make a sink wherever it sees only itself: bool[token].
    """

    layer: int
    ratio: NDArray[Any]
    cosine: NDArray[Any]
    like: NDArray[Any]
    makes: NDArray[np.bool_]


def compared(data: xarray.Dataset) -> Alone:
    """Compare tokens with the first token of texts.

    The rule for predictions is this one line: a token makes a sink if, alone, its largest |h| is above half of the first token's
    in the layer where the latter is largest. It reads no attention and no edited run.

    Args:
        data: The result of `sinkjax.scan`.
    """
    layer = int(data["first_largest"].values.argmax())
    ratio = data["largest"].values[:, layer] / float(data["first_largest"][layer])
    middle = ((data["first_score"] + data["other_score"]) / 2).values
    score, above = data["score"].values, np.sign((data["first_score"] - data["other_score"]).values)
    like = (above * (score - middle) > 0).mean(axis=1) if score.shape[1] else np.full(len(score), np.nan)
    return Alone(layer, ratio, data["cosine"].values[:, layer], like, ratio > HALF)


def chosen(model: Model, tokens: int | Literal["all"], seed: int) -> NDArray[np.intp]:
    """Return the ids of all tokens, or of every special token and of some others drawn by the seed, in order."""
    if tokens == "all":
        return np.arange(model.config.vocab_size or 0)
    ordinary, every = np.flatnonzero(first_block.tokens(model)), np.flatnonzero(first_block.tokens(model, special=True))
    drawn = intervals.generator(seed, "kiya/scan tokens").choice(ordinary, min(tokens, ordinary.size), replace=False)
    return np.union1d(np.setdiff1d(every, ordinary), drawn)


def scanned(tokens: int | Literal["all"], seed: int, eps: float, distance: int, model: Model, batch: Batch) -> xarray.Dataset:
    """Run tokens alone, next to the first token of the prompts: `sinkjax.scan`, and whether each token is a special one."""
    ids = chosen(model, tokens, seed)
    data = sinkjax.scan(model, ids, text=batch.tokens, lengths=batch.lengths, distance=distance, eps=eps)
    return data.assign(special=("token", ~first_block.tokens(model)[ids]))


def names(data: xarray.Dataset) -> list[str]:
    """Return how a page names tokens: their text, if the model has a tokenizer, and their id."""
    texts = data["text"].values.tolist() if "text" in data.coords else [""] * data.sizes["token"]
    return [f"{text!r} ({token})" if text else str(token) for text, token in zip(texts, data["token"].values, strict=True)]
