"""background/mechanism: the parts of GPT-2's sink circuit (Ran-Milo, Ofek and Mendel 2026, arXiv 2604.14722, Table 1).

The study removes query biases, position vectors and MLPs one at a time, and repeats the paper's own controls. Matched controls
of the three columns of W_K are three random other columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sinkjax import Capture, Edit, Probe, Site, Statistic, compose, edit, edit_weights, forward
from sinkjax.papers._shared import mean_weight
from sinkjax.probes.statistics import PairView, column_sums
from sinkjax.study import *

FIRST, LAST = 3, 1  # number of first and last layers that the paper leaves out
TABLE = "Ran-Milo et al. 2026, Table 1"
COLUMNS = 3  # number of largest dims of the effective vector whose columns of W_K are set to 0


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled):
    prompts: int = 16


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors of the first two positions, and the first MLP's output.

    Attributes:
        positions: p, float[2, dim].
        effective: p + MLP_0(p), float[2, dim], with no norm before the MLP, as in the paper's code.
        written: The first MLP's output at position 0 of each prompt, float[prompt, dim].
    """

    positions: NDArray[Any]
    effective: NDArray[Any]
    written: NDArray[Any]


def study(lab: Lab, s: Settings) -> None:
    """The parts of GPT-2's sink circuit."""
    lab.needs("position vectors", "query biases", "MLP")
    seen, size = second_half_attention_to(0, middle(lab.layers)), largest_activation(0)

    unit = np.eye(2, lab.architecture.width, dtype=np.float32)
    blank = Vectors(unit, unit, np.zeros((lab.prompts, unit.shape[1]), np.float32))
    vectors = lab.donor("vectors", vectors_of, blank, of_edited=True)

    replaced = edit("position_vector", "set", vectors.positions[1], queries=0)
    ways = {  # claim -> intervention and edit
        "bias": ("no query bias", edit_weights("q_bias", "scale", 0.0)),
        "vector": ("first position vector replaced", replaced),
        "effective": ("effective vectors exchanged", exchanged(vectors.effective, vectors.written)),
        "positions": ("position vectors exchanged", exchanged(vectors.positions, vectors.written)),
        "token": ("no first token", edit("embed", "scale", 0.0, queries=0)),
        "mlp": ("no MLP", edit("mlp_out", "scale", 0.0)),
        "none": ("no position vectors", edit("position_vector", "scale", 0.0)),
    }
    edited = lab.sweep("edited", {ALL.at(way=way): made for way, made in ways.values()}, [seen, size], title="intervention")

    order = np.argsort(-np.abs(vectors.effective[0]), kind="stable")

    def other_columns(rng: np.random.Generator, case: Layers) -> Edit:
        ranks = rng.choice(np.arange(COLUMNS, len(order)), COLUMNS, replace=False)
        label = f"columns of dims by rank {', '.join(map(str, sorted(ranks.tolist())))}"  # a plan does not know the dims
        return edit_weights("k", "scale", 0.0, rows=sorted(order[ranks].tolist()), label=label)

    largest = edit_weights("k", "scale", 0.0, rows=sorted(order[:COLUMNS].tolist()))
    columns = lab.sweep("columns", {ALL: largest}, [seen, size], other_columns, title="three columns of W_K")
    lab.noop(edit("position_vector", "scale", 1.0))

    sinks = is_sink(attention_to(0, lab.half), edited, strongest_other_attention(0, lab.half))

    for name, (way, _) in ways.items():
        stays = name in ("positions", "token")
        lab.claim(name, TABLE, effect(seen, edited.at(way=way)), sinks, sign=1 if stays else -1, stays=stays, took=WRITTEN)
    lab.claim("columns", TABLE, effect(seen, columns.every), sinks, sign=-1, took=WRITTEN)

    lab.draw(dots, seen, size, over=edited)
    lab.draw(dots, seen, over=columns)


def middle(layers: int) -> Layers:
    """All layers except the first three and the last (Ran-Milo et al. 2026). A model of up to four keeps its last but one."""
    first, end = min(FIRST, max(layers - LAST - 1, 0)), max(layers - LAST, 1)
    return Layers(f"layers {first} to {end - 1}" if end - first > 1 else f"layer {first}", tuple(range(first, end)))


def vectors_of(run: Unedited) -> Vectors:
    """The vectors of a model."""
    model, batch = run.model, run.batch
    first = Capture(Site.MLP_OUT, layers=(0,), positions=(0, 1), name="out")
    probe = Probe(capture=(first, Capture(Site.POSITION_VECTOR, positions=(0, 1), name="vector")))

    def captured(prompts: slice, made: Edit) -> tuple[NDArray[Any], NDArray[Any]]:
        tokens, lengths = batch.tokens[prompts], batch.lengths[prompts]
        record = forward(model.params, tokens, model.config, made, probe, lengths, logits=False).record
        return np.asarray(record["vector"][0]), np.asarray(record["out"])[:, 0]

    p, written = captured(slice(None), compose())
    values = np.zeros((1, 1, batch.tokens.shape[1], p.shape[1]), np.float32)
    values[0, 0, :2] = p
    _, from_p = captured(slice(1), edit("mlp_in", "set", values, layers=0, queries=[0, 1], label="positions alone"))
    return Vectors(p, p + from_p[0], written[:, 0])


def exchanged(pair: NDArray[Any], written: NDArray[Any]) -> Edit:
    """Exchange two vectors in the first MLP's output.

    At the first position, its component along the first vector is turned into the direction of the second; the second position
    gets the opposite change.
    """
    own, other = pair.astype(np.float64) / np.linalg.norm(pair.astype(np.float64), axis=1, keepdims=True)
    change = ((written @ own)[:, None] * (other - own)).astype(np.float32)
    return compose(*(edit("mlp_out", "add", sign * change, layers=0, queries=row) for row, sign in ((0, 1), (1, -1))))


def second_half_sums(weights: jax.Array, view: PairView) -> jax.Array:
    """Sum of the attention to each key from queries in the second half of the prompt: [B, H, S]."""
    return column_sums(jnp.where((view.rows[None, :] >= (view.lengths // 2)[:, None])[:, None, :, None], weights, 0), view)


def mean_over_heads(sums: jax.Array, lengths: jax.Array) -> jax.Array:
    """Sums over the queries of the second half, divided by their number, mean over heads: [B, S]."""
    return (sums / (lengths - lengths // 2)[:, None, None]).mean(axis=1)


AXES = ("prompt", "layer", "key")
SECOND_HALF = Probe(extra=(Statistic("second_half_attention", Site.WEIGHTS, second_half_sums, AXES, mean_over_heads),))


def second_half_attention_to(key: int, layers: Layers) -> Measure:
    """Attention to a key in percent, mean over queries in the second half of the prompt, heads and layers."""

    name = f"attention to key {key} from the second half's queries (%){layers.suffix}"
    note = "The paper's measure: attention from queries in the second half of the prompt, averaged over queries, heads, layers."
    return mean_weight(name, SECOND_HALF, "second_half_attention", (layers.index, key), note=note, position=key)
