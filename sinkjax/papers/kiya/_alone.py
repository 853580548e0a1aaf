"""Tokens that see only themselves, next to the first token of texts: which are run, and which are like it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xarray
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.checkpoints.model import Model
from sinkjax.papers.kiya import _first_block as first_block
from sinkjax.study import Batch

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
