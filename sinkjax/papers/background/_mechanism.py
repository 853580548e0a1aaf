"""Interventions on GPT-2's sink circuit of query biases, position vectors and the first MLP (Ran-Milo, Ofek and Mendel 2026)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.studies.known import Unedited
from sinkjax.studies.scope import Layers, Place, Placed, Scope, percentage
from sinkjax.studies.vocabulary import EditWord, F, Known

if TYPE_CHECKING:
    import jax
    import xarray

    from sinkjax.probes.statistics import PairView

FIRST, LAST = 3, 1  # number of first and last layers that the paper leaves out
WAYS = (
    *("no query bias", "first position vector replaced", "effective vectors exchanged", "position vectors exchanged"),
    *("no first token", "no MLP", "no position vectors"),
)
COLUMNS = 3  # number of largest dims of the effective vector whose columns of W_K are set to 0
Vectors = Mapping[str, NDArray]


@Place.define()
def middle_layers(scope: Scope) -> list[Placed]:
    """All layers except the first three and the last (Ran-Milo et al. 2026). A model of up to four keeps its last but one."""
    L = scope.architecture.layers
    first, end = min(FIRST, max(L - LAST - 1, 0)), max(L - LAST, 1)
    name = f"layers {first} to {end - 1}" if end - first > 1 else f"layer {first}"
    return [Placed(middle_layers(), name, tuple((number, None) for number in range(first, end)))]


MIDDLE = middle_layers()


@functools.cache
def second_half_attention() -> sinkjax.Statistic:
    """Attention that each key receives from queries in the second half of the prompt, mean over these queries and over heads."""
    import jax.numpy as jnp

    from sinkjax.probes.statistics import column_sums

    def sums(weights: jax.Array, view: PairView) -> jax.Array:
        late = view.rows[None, :] >= (view.lengths // 2)[:, None]
        return column_sums(jnp.where(late[:, None, :, None], weights, 0), view)

    def over_heads(found: jax.Array, lengths: jax.Array) -> jax.Array:
        return (found / (lengths - lengths // 2)[:, None, None]).mean(axis=1)

    return sinkjax.Statistic("second_half_attention", sinkjax.Site.WEIGHTS, sums, ("prompt", "layer", "key"), over_heads)


@percentage(
    label="attention to key {key} from the second half's queries (%)",
    asks=lambda **_: sinkjax.Probe(extra=(second_half_attention(),)),
    note="The paper's measure: attention from queries in the second half of the prompt, averaged over queries, heads and layers.",
)
def second_half_attention_to(data: xarray.Dataset, key: int, layers: Layers = MIDDLE) -> NDArray:
    """Return the attention to a key in percent, mean over queries in the second half of the prompt, heads and layers."""
    return np.asarray(100 * data["second_half_attention"].values[..., layers, key].mean(axis=-1))


def _blank(scope: Scope, prompts: int) -> Vectors:
    unit = np.eye(2, scope.architecture.width, dtype=np.float32)
    return {"positions": unit, "effective": unit, "written": np.zeros((prompts, unit.shape[1]), np.float32)}


@Known.define(blank=_blank, of_edited=True)
def effective_vectors(scope: Scope, run: Unedited) -> Vectors:
    """Return the vectors of the first two positions and the first MLP's output.

    Returns:
        "positions": p, float[2, dim]. "effective": p + MLP_0(p), float[2, dim], with no norm before the MLP, as in the paper's
        code. "written": the first MLP's output at position 0 of each prompt, float[prompt, dim].
    """
    model, batch = run.loaded
    first = sinkjax.Capture(sinkjax.Site.MLP_OUT, layers=(0,), positions=(0, 1), name="out")
    probe = sinkjax.Probe(capture=(first, sinkjax.Capture(sinkjax.Site.POSITION_VECTOR, positions=(0, 1), name="vector")))

    def forward(tokens: NDArray, lengths: NDArray, edit: sinkjax.Edit) -> tuple[NDArray, NDArray]:
        record = sinkjax.forward(model.params, tokens, model.config, edit, probe, lengths, logits=False).record
        return np.asarray(record["vector"]), np.asarray(record["out"])[:, 0]

    vectors, written = forward(batch.tokens, batch.lengths, sinkjax.compose())
    p = vectors[0]
    read = np.zeros((1, 1, batch.tokens.shape[1], p.shape[1]), np.float32)
    read[0, 0, :2] = p
    alone = sinkjax.edit("mlp_in", "set", read, layers=0, queries=[0, 1], label="positions alone")
    _, made = forward(batch.tokens[:1], batch.lengths[:1], alone)
    return {"positions": p, "effective": p + made[0], "written": written[:, 0]}


@EditWord.define()
def intervention(scope: Scope, way: object, vectors: object = F.vectors) -> sinkjax.Edit:
    """Make one of the paper's interventions.

    Args:
        scope: A scope with the known `vectors`.
        way: One of `WAYS`. The first position's vector is replaced by the second's. Vectors are exchanged in the first MLP's
            output: at the first position, its component along the first vector is turned into the direction of the second; the
            second position gets the opposite change.
        vectors: `effective_vectors`.
    """
    name, known = scope.get(way), scope.get(vectors)
    if name == "no query bias":
        return sinkjax.edit_weights("q_bias", "scale", 0.0)
    if name == "first position vector replaced":
        return sinkjax.edit("position_vector", "set", known["positions"][1], queries=0)
    if name == "no first token":
        return sinkjax.edit("embed", "scale", 0.0, queries=0)
    if name == "no MLP":
        return sinkjax.edit("mlp_out", "scale", 0.0)
    if name == "no position vectors":
        return sinkjax.edit("position_vector", "scale", 0.0)
    pair = known["effective" if name == "effective vectors exchanged" else "positions"].astype(np.float64)
    own, other = pair / np.linalg.norm(pair, axis=1, keepdims=True)
    change = (known["written"] @ own)[:, None] * (other - own)
    return sinkjax.compose(
        sinkjax.edit("mlp_out", "add", change.astype(np.float32), layers=0, queries=0),
        sinkjax.edit("mlp_out", "add", -change.astype(np.float32), layers=0, queries=1),
    )


@EditWord.define()
def without_columns(scope: Scope, vectors: object = F.vectors, random: bool = False) -> sinkjax.Edit:
    """Set the columns of W_K that read the largest dims of the first effective vector to 0 in every layer.

    Args:
        scope: A scope with the known `vectors`.
        vectors: `effective_vectors`.
        random: Whether to set columns that read random other dims instead.
    """
    size = np.abs(scope.get(vectors)["effective"][0])
    order = np.argsort(-size, kind="stable")
    if random:
        ranks = scope.random.choice(np.arange(COLUMNS, len(order)), COLUMNS, replace=False)
        label = f"columns of dims by rank {', '.join(map(str, sorted(ranks.tolist())))}"  # a plan does not know the dims
        return sinkjax.edit_weights("k", "scale", 0.0, rows=sorted(order[ranks].tolist()), label=label)
    return sinkjax.edit_weights("k", "scale", 0.0, rows=sorted(order[:COLUMNS].tolist()))
