"""background/elsewhere: sinks and massive activations on other tokens than the first (Sun et al. 2024, sections 2.2 and 4).

Delimiters, and frequent words for comparison, are measured where the text has them, and where an edit of the embedding puts them:
at one position of every prompt. Controls put random tokens there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import Any, Literal

import numpy as np
import xarray
from numpy.typing import ArrayLike, NDArray

from sinkjax import Capture, Edit, Probe, Site, edit, forward
from sinkjax.analysis import intervals
from sinkjax.analysis.summary import Rank, Row
from sinkjax.checkpoints.model import Model
from sinkjax.config_files.checks import MIN_QUERIES, refuse
from sinkjax.papers.background._massive import massive, massive_prompts
from sinkjax.report.figures.dots import Mark, points
from sinkjax.report.section import Drawing
from sinkjax.study import *
from sinkjax.study import SIZES, without_replacement

NATURAL = "in the text"
SINKS, SIZE = "heads that sink there (%)", "largest |h| there over that of the median position"
NOTE = """Sizes are the largest over depths of max |h| at a position over that of the prompt's median position, because in deep
    layers every position's largest |h| is high."""


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Sinks, Mapped):
    stops: tuple[str, ...] = (".", "\n")
    """tokens whose first one in a text the claims are about"""
    tokens: tuple[str, ...] = (".", "\n", ",", ";", ":", " the", " of", " and")
    """tokens that are measured; each must be one token of the model"""
    shown: str = "."
    """the token whose effect is a further readout of the claims and whose maps are drawn"""
    place: int = 8
    """position where each token is put, in place of the text's own"""
    placed_prompts: int = 16
    """number of prompts for these"""


def study(lab: Lab, s: Settings) -> None:
    """Sinks and massive activations on other tokens than the first."""
    width = lab.architecture.width
    sink, size = sink_rate(s.place, s.eps), over_median(s.place)
    columns = (sink, size, massive_prompts(s.place))

    blank = np.zeros((len(s.tokens), width))
    rows = lab.donor("rows", lambda run: rows_of(run.model, ids_of(run.model, s.tokens)), blank, of_edited=True)
    draw_others = partial(random_embeddings, s.tokens, s.controls, s.seed)
    others = lab.donor("others", draw_others, np.zeros((s.controls, width)), of_edited=True)

    put = partial(edit, "embed", "set", queries=s.place)

    def another_token(rng: np.random.Generator, case: Layers) -> Edit:
        number = int(rng.integers(len(others)))
        return put(others[number], label=f"random token {number}")

    text = lab.sweep("text", measures=columns, title="text")
    edits = {ALL.at(token=token): put(row, label=repr(token)) for token, row in zip(s.tokens, rows, strict=True)}
    placed = lab.sweep("placed", edits, columns, another_token, prompts=s.placed_prompts)
    lab.noop(edit("embed", "scale", 1.0, queries=s.place))

    shown, sun = placed.at(token=s.shown), "Sun et al. 2024, section"
    activation, heads = (at_first_of(s.stops, of, text, s.eps) for of in ("activation", "sink"))
    lab.claim("activation", f"{sun} 2.2", activation, massive(text, 0), [moved(over_median(0), size, shown)])
    lab.claim("sink", f"{sun} 4", heads, beside=[moved(sink_rate(0, s.eps), sink, shown)])
    lab.describe("tokens", f"{sun} 2.2", lambda read: tokens_in_text(read, s.tokens, text, s.eps))

    lab.draw(by_token, s.tokens, text, s.eps)
    lab.draw(dots, sink, size, over=placed)
    lab.draw(by_layer, partial(over_median, s.place), partial(sink_rate, s.place, s.eps), conditions=[shown])
    lab.maps(shown)


def over_median(position: int, layers: Layers = ALL) -> Measure:
    """Largest |h| at a position over the median one's, after some layers; with all layers, the embedding counts too."""
    name = f"largest |h| at position {position} over that of the median position{layers.suffix}"
    return Measure(name, lambda data: ratios(data, layers)[..., position], SIZES, log=True, note=NOTE, position=position)


def ratios(data: xarray.Dataset, layers: Layers = ALL) -> NDArray[Any]:
    """Largest |h| at each position over the median position's, largest over depths: float[..., prompt, position]."""
    sizes = data["resid_max"].values
    depths = [layer + 1 for layer in layers.layers or range(sizes.shape[-2] - 1)]
    over = sizes / np.nanmedian(sizes, axis=-1, keepdims=True)
    return np.asarray((over if len(depths) == sizes.shape[-2] - 1 else over[..., depths, :]).max(axis=-2))


def sinks(data: xarray.Dataset, eps: float) -> NDArray[Any]:
    """Return the percentage of heads that sink on each key: float[..., prompt, key]."""
    return np.asarray(100 * (data["attention_received"].values > eps).mean(axis=(-3, -2)))


# Where the text has a token.


def candidates(text: xarray.Dataset) -> NDArray[np.bool_]:
    """Positions except the first that enough queries see: bool[prompt, position]."""
    position = np.arange(text.sizes["position"])
    return np.asarray((position > 0) & (position + MIN_QUERIES <= text["length"].values[:, None]))


def occurrences(text: xarray.Dataset, token: str) -> NDArray[np.bool_]:
    """Positions of the candidates that are the token, with or without a space before it: bool[prompt, position]."""
    size = text.sizes["position"]
    texts = [[*(one.strip(" ") for one in row), *[""] * (size - len(row))] for row in text.attrs["study"]["token_texts"]]
    return np.asarray((np.array(texts, object) == token.strip(" ")) & candidates(text))


@from_results
def at_first_of(read: Numbers, tokens: Sequence[str], of: Literal["activation", "sink"], sweep: Sweep, eps: float) -> Parts:
    """Return the excess of the first of some tokens in each text over a typical position; the whole is position 0's excess.

    Args:
        read: The results.
        tokens: The tokens.
        of: "activation" (the logarithm of its ratio to the median position) or "sink" (heads that sink on it, in per cent).
        sweep: The sweep whose unedited model is read.
        eps: Attention above which a head sinks on a key.
    """
    text = read.data(sweep.name).isel(edit=0)
    values = np.log(ratios(text)) if of == "activation" else sinks(text, eps)
    typical = np.nanmedian(np.where(candidates(text), values, np.nan), axis=-1)
    there = np.any([occurrences(text, token) for token in tokens], axis=0)
    found = np.where(there.any(axis=-1), values[np.arange(len(values)), there.argmax(axis=-1)], np.nan)
    label = f"{of} at the first {' or '.join(map(repr, tokens))}, above a typical position"
    span, unit = (None, "log") if of == "activation" else ((0.0, 100.0), "percentage points")
    why = "nothing is edited, and typical positions are the comparison"
    return Parts(found - typical, None, values[:, 0] - typical, span, unit, label, uncontrolled=why)


def tokens_in_text(read: Numbers, tokens: Sequence[str], sweep: Sweep, eps: float) -> list[Row]:
    """Activation and sink where the text has each token, ranked among as many random other positions of the same prompts."""
    text, s, rows = read.data(sweep.name).isel(edit=0), read.settings, []
    clusters, usable = read.clusters(text.sizes["prompt"], sweep.name), candidates(text)
    for token in tokens:
        where, rng = occurrences(text, token), intervals.generator(s.seed, f"background/elsewhere in the text {token}")
        drawn = without_replacement(s.controls, partial(random_places, where, usable, rng), methodcaller("tobytes"))
        present = where.any(axis=-1)
        for name, values in ((SINKS, sinks(text, eps)), (SIZE, ratios(text))):
            here, *random = (_mean_at(values, chosen) for chosen in (where, *drawn))
            value = intervals.interval(here, seed=s.seed, clusters=clusters)
            rank = Rank.among(here[present].mean(), [mean[present].mean() for mean in random]) if present.any() else None
            rows.append(Row(f"{token!r} {NATURAL}", NATURAL, name, value, rank=rank))
    return rows


def random_places(where: NDArray[np.bool_], usable: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Choose as many random candidates in each prompt, excluding the chosen ones (fewer if there are not enough)."""
    others = usable & ~where
    order = np.where(others, rng.random(where.shape), np.inf).argsort(axis=-1).argsort(axis=-1)
    return np.asarray(others & (order < where.sum(axis=-1, keepdims=True)))


def _mean_at(values: NDArray[Any], where: NDArray[np.bool_]) -> NDArray[Any]:
    """Return the mean of values[prompt, position] over the chosen positions: float[prompt], NaN if there are none."""
    count, sums = where.sum(axis=-1), np.where(where, values, 0).sum(axis=-1)
    return np.asarray(np.divide(sums, count, out=np.full(len(where), np.nan), where=count > 0))


def by_token(read: Numbers, tokens: Sequence[str], sweep: Sweep, eps: float) -> Drawing:
    """Draw the activation and the sink where the text has each token."""
    rows = tokens_in_text(read, tokens, sweep, eps)
    marks = {name: [Mark(row.condition, row.value, NATURAL) for row in rows if row.measure == name] for name in (SINKS, SIZE)}
    caption = "Heads that sink on a token, and its largest |h| over that of the median position, where the text has it."
    return read.drawing("tokens-in-text", points(marks, "value"), caption, sweep.name)


# Tokens that are put at a position.


def random_embeddings(tokens: Sequence[str], count: int, seed: int, run: Unedited) -> NDArray[Any]:
    """The embeddings of `count` random tokens, neither special nor among `tokens`: float[count, width]."""
    model = run.model
    assert model.tokenizer is not None
    ordinary = np.setdiff1d(np.arange(model.config.vocab_size or 0), [*model.tokenizer.special, *ids_of(model, tokens)])
    refuse(ordinary.size < count, f"{count} controls are more than the model's {ordinary.size} other tokens")
    return rows_of(model, intervals.generator(seed, "background/elsewhere controls").choice(ordinary, count, replace=False))


def ids_of(model: Model, tokens: Sequence[str]) -> list[int]:
    """Return the ids of tokens after a word. Raises an error if a text is not a single token of the model."""
    assert model.tokenizer is not None
    ids = [model.tokenizer.encode(f"a{token}")[-1] for token in tokens]
    for token, number in zip(tokens, ids, strict=True):
        several = model.tokenizer.tokens([number]) != [token]
        refuse(several, f"{token!r} is not one token of this model's tokenizer; choose other tokens")
    return ids


def rows_of(model: Model, ids: ArrayLike) -> NDArray[Any]:
    """Embeddings as they enter the stream, with the factor that a model such as Gemma multiplies them by: float[token, width]."""
    probe, tokens = Probe(capture=(Capture(Site.EMBED),)), np.asarray(ids, np.int32)[:, None]  # more than a context may hold
    return np.asarray(forward(model.params, tokens, model.config, probe=probe, logits=False).record["embed"][:, 0], np.float32)
