"""Tokens in the text and tokens placed at one position: their activations, and the heads that sink on them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.analysis.summary import Rank, Row
from sinkjax.config_files.checks import MIN_QUERIES, refuse
from sinkjax.report.section import Drawing
from sinkjax.studies.known import Unedited
from sinkjax.studies.readings import Parts, Readings
from sinkjax.studies.scope import Layers, Scope
from sinkjax.studies.specs import without_replacement
from sinkjax.studies.vocabulary import ALL, Contrast, Described, EditWord, F, FigureWord, Known, Measure

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model

NATURAL = "in the text"
SINKS, SIZE = "heads that sink there (%)", "largest |h| there over that of the median position"


def ratios(data: xarray.Dataset, layers: list[int] | None = None) -> NDArray:
    """Largest |h| at each position over the median position's, largest over depths: float[..., prompt, position]."""
    sizes = np.asarray(data["resid_max"].values)
    over = sizes / np.nanmedian(sizes, axis=-1, keepdims=True)
    whole = layers is None or len(layers) == sizes.shape[-2] - 1
    return np.asarray((over if whole else over[..., [layer + 1 for layer in layers or ()], :]).max(axis=-2))


def sinks(data: xarray.Dataset, eps: float) -> NDArray:
    """Return the percentage of heads that sink on each key: float[..., prompt, key]."""
    return np.asarray(100 * (data["attention_received"].values > eps).mean(axis=(-3, -2)))


@Measure.define(
    label="largest |h| at position {position} over that of the median position",
    asks=("resid_max",),
    log=True,
    note="""Sizes are the largest over depths of max |h| at a position over that of the prompt's median position, because in deep
        layers every position's largest |h| is high.""",
)
def over_median(data: xarray.Dataset, position: int, layers: Layers = ALL) -> NDArray:
    """Largest |h| at a position over the median one's, after some layers; with all layers, the embedding counts too."""
    return np.asarray(ratios(data, layers)[..., position])


# Where the text has a token.


def candidates(text: xarray.Dataset) -> NDArray[np.bool_]:
    """Positions except the first that enough queries see: bool[prompt, position]."""
    position = np.arange(text.sizes["position"])
    return (position > 0) & (position + MIN_QUERIES <= text["length"].values[:, None])


def occurrences(text: xarray.Dataset, token: str) -> NDArray[np.bool_]:
    """Positions of the candidates that are the token, with or without a space before it: bool[prompt, position]."""
    size = text.sizes["position"]
    texts = [[*(one.strip(" ") for one in row), *[""] * (size - len(row))] for row in text.attrs["study"]["token_texts"]]
    return (np.array(texts, object) == token.strip(" ")) & candidates(text)


@Contrast.define(uncontrolled="nothing is edited, and typical positions are the comparison")
def at_first_of(read: Readings, tokens: object, of: str, grid: str) -> Parts:
    """Excess of the first of some tokens in each text over a typical position; the whole is position 0's excess.

    Args:
        read: The stores.
        tokens: The tokens.
        of: "activation" (the logarithm of its ratio to the median position) or "sink" (heads that sink on it, in per cent).
        grid: The grid whose first condition is read.
    """
    text, named = read.results[read.store(grid)].isel(edit=0), read.scope.get(tokens)
    values = np.log(ratios(text)) if of == "activation" else sinks(text, read.scope.config.eps)
    typical = np.nanmedian(np.where(candidates(text), values, np.nan), axis=-1)
    there = np.any([occurrences(text, token) for token in named], axis=0)
    found = np.where(there.any(axis=-1), values[np.arange(len(values)), there.argmax(axis=-1)], np.nan)
    label = f"{of} at the first {' or '.join(map(repr, named))}, above a typical position"
    if of == "activation":
        return Parts(found - typical, None, values[:, 0] - typical, None, "log", label)
    whole, ends = values[:, 0] - typical, (-100.0, 100.0)
    return Parts(found - typical, None, whole, (0.0, 100.0), "percentage points", label, whole_range=ends)


@Described.define()
def tokens_in_text(read: Readings, tokens: object, grid: str) -> list[Row]:
    """Activation and sink where the text has each token, ranked among as many random other positions of the same prompts."""
    text = read.results[grid].isel(edit=0)
    values = {SINKS: sinks(text, read.scope.config.eps), SIZE: ratios(text)}
    return [row for token in read.scope.get(tokens) for row in _rows(read, text, grid, token, values)]


def _rows(read: Readings, text: xarray.Dataset, grid: str, token: str, values: dict[str, NDArray]) -> Iterator[Row]:
    where, usable, seed = occurrences(text, token), candidates(text), read.scope.config.seed
    rng = intervals.generator(seed, f"background/elsewhere in the text {token}")
    count = read.scope.config.controls
    drawn = without_replacement(count, partial(random_places, where, usable, rng), methodcaller("tobytes"))
    present = where.any(axis=-1)
    for name, found in values.items():
        here, *random = (_mean_at(found, chosen) for chosen in (where, *drawn))
        value = intervals.interval(here, seed=seed, clusters=read.results.clusters(len(here), grid))
        rank = Rank.among(here[present].mean(), [mean[present].mean() for mean in random]) if present.any() else None
        yield Row(f"{token!r} {NATURAL}", NATURAL, name, value, rank=rank)


def random_places(where: NDArray[np.bool_], usable: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Choose as many random candidates in each prompt, excluding the chosen ones (fewer if there are not enough)."""
    others = usable & ~where
    order = np.where(others, rng.random(where.shape), np.inf).argsort(axis=-1).argsort(axis=-1)
    return np.asarray(others & (order < where.sum(axis=-1, keepdims=True)))


def _mean_at(values: NDArray, where: NDArray[np.bool_]) -> NDArray:
    """Return the mean of values[prompt, position] over the chosen positions: float[prompt], NaN if there are none."""
    count = where.sum(axis=-1)
    return np.divide(np.where(where, values, 0).sum(axis=-1), count, out=np.full(len(where), np.nan), where=count > 0)


@FigureWord.define()
def by_token(read: Readings, tokens: object, grid: str) -> Drawing:
    """Activation and sink where the text has each token."""
    from sinkjax.report.figures.points import Point, points

    rows = tokens_in_text(tokens, grid).evaluate(read)
    found = {name: [Point(row.condition, row.value, NATURAL) for row in rows if row.measure == name] for name in (SINKS, SIZE)}
    caption = "Heads that sink on a token, and its largest |h| over that of the median position, where the text has it."
    return read.drawing("tokens-in-text", points(found, "value"), caption, grid)


# Tokens that are put at a position.


@Known.define(blank=lambda scope, _: np.zeros((len(scope.config.tokens), scope.architecture.width)), of_edited=True)
def embeddings_of(scope: Scope, run: Unedited, tokens: object) -> NDArray:
    """The embeddings of some tokens: float[token, width].

    Raises:
        SinkjaxError: A text is not a single token of the model.
    """
    model, _ = run.loaded
    return _rows_of(model, ids_of(model, scope.get(tokens)))


@Known.define(blank=lambda scope, _: np.zeros((scope.config.controls, scope.architecture.width)), of_edited=True)
def random_embeddings(scope: Scope, run: Unedited, tokens: object) -> NDArray:
    """The embeddings of as many random tokens as there are controls, neither special nor under study: float[control, width]."""
    (model, _), count = run.loaded, scope.config.controls
    assert model.tokenizer is not None
    vocabulary = np.arange(model.config.vocab_size or 0)
    ordinary = np.setdiff1d(vocabulary, [*model.tokenizer.special, *ids_of(model, scope.get(tokens))])
    refuse(ordinary.size < count, f"{count} controls are more than the model's {ordinary.size} other tokens")
    rng = intervals.generator(scope.config.seed, "background/elsewhere controls")
    return _rows_of(model, rng.choice(ordinary, count, replace=False))


def ids_of(model: Model, tokens: tuple[str, ...]) -> list[int]:
    """Return the ids of tokens after a word."""
    assert model.tokenizer is not None
    found = [model.tokenizer.encode(f"a{token}")[-1] for token in tokens]
    for token, number in zip(tokens, found, strict=True):
        other = model.tokenizer.tokens([number]) != [token]
        refuse(other, f"{token!r} is not one token of this model's tokenizer; choose other tokens")
    return found


def _rows_of(model: Model, ids: ArrayLike) -> NDArray:
    """Embeddings as they enter the stream, with the factor that a model such as Gemma multiplies them by: float[token, width]."""
    probe, tokens = sinkjax.Probe(capture=(sinkjax.Capture(sinkjax.Site.EMBED),)), np.asarray(ids, np.int32)[None]
    record = sinkjax.forward(model.params, tokens, model.config, probe=probe, logits=False).record
    return np.asarray(record["embed"][0], np.float32)


@EditWord.define()
def put_token(scope: Scope, token: object = None) -> sinkjax.Edit:
    """Put the embedding of one of the study's tokens, or of a random one (None), at the study's place."""
    name = scope.get(token)
    if name is None:
        others = scope.get(F.others)
        number = int(scope.random.integers(len(others)))
        row, label = others[number], f"random token {number}"
    else:
        row, label = scope.get(F.rows)[scope.config.tokens.index(name)], repr(name)
    return sinkjax.edit("embed", "set", row, queries=scope.config.place, label=label)
