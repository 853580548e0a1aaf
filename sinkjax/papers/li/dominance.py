"""li/dominance: one dim dominates the first token's state, the norm keeps it, and keys lock in on it (Li et al. 2026, Table 1).

Nothing is edited. The first token is compared with ordinary tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.analysis.summary import Row
from sinkjax.checkpoints.model import Model
from sinkjax.model.norms import AfterRotation, AllHeads, EachHead, gains
from sinkjax.model.ops import rms_norm
from sinkjax.model.site import Site
from sinkjax.papers._shared import exact_rows, in_blocks
from sinkjax.papers.gu._geometry import mean_over_queries_after
from sinkjax.probes.probe import Capture, Probe
from sinkjax.probes.statistics import PairView, Statistic
from sinkjax.report.figures.dots import Cloud, scatter
from sinkjax.report.figures.lines import Panel, lines
from sinkjax.report.section import Drawing
from sinkjax.study import HALF, Batch, Calculation, Controlled, Lab, Numbers, Parts, from_results

VARIABLES = (
    "after", "alignment", "before", "dim", "key_alignment", "mean", "other_alignment", "other_rows", "own_row", "positive", "top",
)  # fmt: skip
BEFORE, AFTER = "dominance ratio at position 0, before the norm", "dominance ratio at position 0, after the norm"
ALIGNED, POSITIVE = "cos(u_1, k_0), mean over heads", "queries with a positive score of key 0 (%)"
ORDINARY = "nothing is edited, and ordinary tokens are the comparison"
ROW = "|cos| of k_0 and its dominant dim's row of W_K"


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled):
    """The shared settings."""


def study(lab: Lab, s: Settings) -> None:
    """Dominance of one dim, and the lock-in of keys on it."""
    lab.needs("keys without a LayerNorm", "norm", "RMSNorm", "pre-norm")
    lab.needs("embedding without positions", "scores without positions", "scores without a kernel")
    of = lab.calculate("dominance", partial(with_random_rows, s), VARIABLES, {"with_random_rows": s.controls}, s.prompts)

    source, table, lock_in = "Li et al. 2026, dimension disparity", "Li et al. 2026, Table 1", "Li et al. 2026, lock-in"
    lab.claim("ratio", source, dominates(of))
    lab.claim("norm", table, norm_keeps(of))
    lab.describe("table", table, lambda read: largest_state(read, of))
    lab.claim("row", lock_in, key_is_row(of))
    lab.claim("lock-in", lock_in, locks_in(of))
    lab.claim("positive", lock_in, scores_are_positive(of))
    lab.describe("layers", source, lambda read: of_layers(read, of))
    lab.draw(by_layer, of)
    lab.draw(by_head, of)


def with_random_rows(s: Settings, model: Model, batch: Batch) -> xarray.Dataset:
    """Dominance ratios by depth and position, and the alignment of queries and of rows of W_K, also random ones, with keys."""
    rng, width = intervals.generator(s.seed, "li/dominance rows"), model.config.width
    return measure(model, batch, rng.choice(width, min(s.controls, width), replace=False).tolist())


def formed(data: xarray.Dataset) -> slice:
    """Return the layers from the first one whose input has more than half of the largest mean dominance ratio at position 0."""
    ratio = data["before"].values[:, :-1, 0].mean(axis=0)
    return slice(int(np.argmax(ratio > HALF * ratio.max())), None)


def at_peaks(data: xarray.Dataset) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return both ratios, per prompt and position, in the state with the largest ratio before the norm: float[prompt,
    position]."""
    before, after = data["before"].values, data["after"].values
    peaks = np.where(np.isnan(before), -np.inf, before).argmax(axis=1)[:, None]
    first, second = (np.take_along_axis(ratio, peaks, axis=1)[:, 0] for ratio in (before, after))
    return first, second


def _above_ordinary(values: NDArray[Any]) -> NDArray[Any]:
    """Return the log of a ratio at position 0 divided by its median over the other positions: float[prompt]."""
    return np.asarray(np.log(values[:, 0]) - np.log(np.nanmedian(values[:, 1:], axis=1)))


@from_results
def dominates(read: Numbers, of: Calculation) -> Parts:
    """The dominance ratio of the first token over an ordinary token's, each in the state where its own is largest.

    The whole is the largest possible ratio, the width, over an ordinary token's.
    """
    before, _ = at_peaks(read.data(of.name))
    label = "largest dominance ratio of the first token over that of an ordinary token"
    whole = np.log(read.architecture.width) - np.log(np.nanmedian(before[:, 1:], axis=1))
    return Parts(_above_ordinary(before), None, whole, None, "log", label, uncontrolled=ORDINARY)


@from_results
def norm_keeps(read: Numbers, of: Calculation) -> Parts:
    """Like `dominates`, after the norm that reads these states; the whole is the value before the norm."""
    before, after = map(_above_ordinary, at_peaks(read.data(of.name)))
    return Parts(after, None, before, None, "log", "the same ratio after the norm", uncontrolled=ORDINARY)


@from_results
def key_is_row(read: Numbers, of: Calculation) -> Parts:
    """|cosine| of key 0 with the dominant dim's row of W_K, mean over key heads and the layers where one dim dominates.

    Controls are the rows of random dims. The whole is 1, for equal directions.
    """
    data = read.data(of.name)
    own, others = (data[name].values[..., formed(data), :].mean(axis=(-2, -1)) for name in ("own_row", "other_rows"))
    return Parts(own, others, np.ones_like(own), (0.0, 1.0), "", ROW)


@from_results
def locks_in(read: Numbers, of: Calculation) -> Parts:
    """Cosine of the queries' first singular direction with key 0 minus that with ordinary keys, mean over heads and layers.

    The whole is the distance of ordinary keys from 1, for equal directions.
    """
    data = read.data(of.name)
    own, others = (data[name].values[:, formed(data)].mean(axis=(1, 2)) for name in ("alignment", "other_alignment"))
    label = "cos(u_1, k_0) minus cos(u_1, k_j) of ordinary keys"
    return Parts(own - others, None, 1 - others, (-1.0, 1.0), "", label, uncontrolled=ORDINARY)


@from_results
def scores_are_positive(read: Numbers, of: Calculation) -> Parts:
    """Queries with a positive score of key 0 in each layer's best-aligned head, minus the same for ordinary keys, in percent.

    The whole is what ordinary keys lack of 100%.
    """
    data = read.data(of.name)
    there, keys = formed(data), data.sizes["key"] // 2 + 1
    best = data["key_alignment"].values[there, :, :keys].argmax(axis=1)  # [layer, key]
    shares = 100 * data["positive"].values[:, there, :, :keys]
    found = np.take_along_axis(shares, best[None, :, None], axis=2)[:, :, 0].mean(axis=1)  # [prompt, key]
    ordinary = np.nanmean(found[:, 1:], axis=1)
    label = f"{POSITIVE} minus that of ordinary keys, best-aligned head of each layer"
    return Parts(found[:, 0] - ordinary, None, 100 - ordinary, (0.0, 100.0), "percentage points", label, uncontrolled=ORDINARY)


def largest_state(read: Numbers, of: Calculation) -> list[Row]:
    """The first token's state with the largest mean ratio: both ratios and, after the norm, largest |x|, mean |x| and dim."""
    data = read.data(of.name)
    depth = int(data["before"].values[..., 0].mean(axis=0).argmax())
    dim = np.bincount(data["dim"].values[:, depth]).argmax()
    found = {BEFORE: data["before"].values[:, depth, 0], AFTER: data["after"].values[:, depth, 0]}
    found |= {f"{name} |x| after the norm": data[key].values[:, depth] for name, key in (("largest", "top"), ("mean", "mean"))}
    labels = f"{_state(data, depth)}, largest ratio", "state with the largest ratio"
    rows = [Row(*labels, name, read.interval(values)) for name, values in found.items()]
    return rows + exact_rows(*labels, {"dim of the largest |x|": dim})


def of_layers(read: Numbers, of: Calculation) -> list[Row]:
    """Return each number in every state that a layer reads."""
    data = read.data(of.name)
    numbers = {
        BEFORE: data["before"].values[..., 0],
        AFTER: data["after"].values[..., 0],
        ALIGNED: data["alignment"].mean("head").values,
        POSITIVE: 100 * data["positive"].isel(key=0).mean("head").values,
        ROW: data["own_row"].mean("kv_head").values,
    }
    return [
        Row(_state(data, depth), "state that a layer reads", name, read.interval(values[:, depth]))
        for name, values in numbers.items()
        for depth in range(values.shape[1])
    ]


def _state(data: xarray.Dataset, depth: int) -> str:
    """Name the state at a depth by the layer that reads it."""
    return f"layer {depth}" if depth < data.sizes["layer"] else "final norm"


def by_layer(read: Numbers, of: Calculation) -> Drawing:
    """Dominance ratios and cosines against the layer, for the first token and for ordinary ones."""
    data = read.data(of.name)
    ratios = {f"position 0, {when} the norm": data[when].values[..., 0] for when in ("before", "after")}
    ratios["an ordinary position, before the norm"] = np.nanmedian(data["before"].values[..., 1:], axis=-1)
    cosines = {"cos(u_1, k_0)": data["alignment"], "cos(u_1, k_j), ordinary keys": data["other_alignment"]}
    values = {name: array.mean("head").values for name, array in cosines.items()} | {ROW: data["own_row"].mean("kv_head").values}
    drawn = [[read.curve(name, range(curve.shape[-1]), curve) for name, curve in curves.items()] for curves in (ratios, values)]
    grid = [[Panel("", "max |x| / mean |x|", drawn[0], log=True)], [Panel("", "cosine", drawn[1], signed=True)]]
    figure = lines(grid, "layer that reads the state (0-based)")
    caption = "Dominance ratios (top); cosines of keys with u_1 of the queries and with the dominant dim's row of W_K (bottom)."
    return read.drawing("lock-in-by-layer", figure, caption, of.name)


def by_head(read: Numbers, of: Calculation) -> Drawing:
    """Alignment of each head against its share of positive scores, for key 0 and for another key."""
    data = read.data(of.name)
    other = data.sizes["key"] // 4
    share = 100 * data["positive"].mean("prompt").values
    clouds = [
        Cloud("key 0", data["alignment"].mean("prompt").values.ravel(), share[..., 0].ravel()),
        Cloud(f"key {other}", data["key_alignment"].values[..., other].ravel(), share[..., other].ravel()),
    ]
    figure = scatter({"": clouds}, "cos(u_1, k)", "queries with a positive score (%)", limits=((-1.02, 1.02), (-3, 103)))
    caption = "Each dot is a head: cosine of a key with u_1 of its queries, and the share of later queries with a positive score."
    return read.drawing("lock-in-by-head", figure, caption, of.name, bands=False)


# Dominance of one dim in hidden states, and the lock-in of keys and queries on it: reductions inside the forward pass.


BLOCK = 4  # prompts per forward pass, whose hidden states are in memory at the same time
HEADS, KV_HEADS = ("prompt", "layer", "head"), ("prompt", "layer", "kv_head")


def _queries(view: PairView, dtype: jnp.dtype) -> jax.Array:
    """Rotated queries of real positions except the first, zeros elsewhere: [B, H, Q, D]."""
    return jnp.where((view.real_rows & (view.rows > 0)[None, None, :, None]), view.query.astype(dtype), 0)


def gram(scores: jax.Array, view: PairView) -> jax.Array:
    """Sum of q q' over all queries except the first: [B, H, D, D]."""
    queries = _queries(view, scores.dtype)
    return jnp.einsum("BHQD,BHQE->BHDE", queries, queries, precision="highest")


def query_sum(scores: jax.Array, view: PairView) -> jax.Array:
    """Sum of all queries except the first: [B, H, D]."""
    return _queries(view, scores.dtype).sum(axis=2)


def rotated_keys(scores: jax.Array, view: PairView) -> jax.Array:
    """The rotated keys, [B, K, S, D], in the first block of queries, as every block sees them."""
    return jnp.where(view.rows[0] == 0, view.key.astype(scores.dtype), 0)


def positive(scores: jax.Array, view: PairView) -> jax.Array:
    """Number of later queries with a positive score for each key: [B, H, S]."""
    later = view.rows[:, None] > jnp.arange(scores.shape[-1])[None, :]
    return ((scores > 0) & later & view.real_rows).sum(axis=2).astype(scores.dtype)


STATISTICS = (
    Statistic("query_gram", Site.LOGITS, gram, (*HEADS, "dim", "other_dim")),
    Statistic("query_sum", Site.LOGITS, query_sum, (*HEADS, "dim")),
    Statistic("rotated_keys", Site.LOGITS, rotated_keys, ("prompt", "layer", "kv_head", "key", "dim")),
    Statistic("positive", Site.LOGITS, positive, (*HEADS, "key"), mean_over_queries_after),
)


@partial(jax.jit, static_argnames="eps")
def ratios(states: jax.Array, factors: jax.Array, *, eps: float) -> dict[str, jax.Array]:
    """Dominance of hidden states [B, depth, T, d] before and after the norm that reads them, with factors [depth, d].

    before, after: [B, depth, T]. top, mean, dim: the first token's largest and mean |x| after the norm, and the dim of
    the largest, [B, depth].
    """
    sizes, normed = jnp.abs(states), jnp.abs(rms_norm(states, factors[:, None, :], eps))
    size = normed[:, :, 0]
    return {
        "before": sizes.max(axis=-1) / sizes.mean(axis=-1),
        "after": normed.max(axis=-1) / normed.mean(axis=-1),
        "top": size.max(axis=-1),
        "mean": size.mean(axis=-1),
        "dim": size.argmax(axis=-1),
    }


def measure(model: Model, batch: Batch, controls: Sequence[int]) -> xarray.Dataset:
    """Measure dominance by depth and position, and the lock-in of each head.

    Args:
        model: The model.
        batch: Prompts.
        controls: Dims whose rows of W_K take the place of the dominant dim's.

    Returns:
        before, after [prompt, depth, position] and top, mean, dim [prompt, depth], as `ratios`; NaN beyond a prompt. alignment
        and other_alignment [prompt, layer, head]: cos(u_1, k_0), and the mean of cos(u_1, k_j) over later keys of the first half
        of a prompt. key_alignment [layer, head, key]: mean over prompts of cos(u_1, k_j). positive [prompt, layer, head, key]:
        share of later queries with a positive score. own_row [prompt, layer, kv_head]: |cosine| of k_0 with the row of W_K, times
        the gain of a norm of keys, of the dim that dominates there. other_rows [control, prompt, layer, kv_head]: the same
        with the rows of the controls.
    """
    joined = in_blocks(batch, BLOCK, partial(_block, model))
    gram, queries, keys, count = (joined[name].sum(0) for name in ("gram", "queries", "keys", "count"))
    first, group = first_direction(gram, queries), model.config.group
    of_heads = np.repeat(keys / np.maximum(count, 1), group, axis=1)
    rows = unit(key_rows(model))
    chosen = np.stack([matrix[:, dims] for matrix, dims in zip(rows, joined["dim"].T[:-1], strict=True)])  # [L, K, N, D]
    others = rows[:, :, list(controls)]
    keys_of = {"alignment": joined["key_0"], "other_alignment": joined["key_others"]}
    aligned = {name: np.einsum("NLHD,LHD->NLH", np.repeat(key, group, axis=2), first) for name, key in keys_of.items()}
    return xarray.Dataset(
        {name: (("prompt", "depth", "position"), joined[name]) for name in ("before", "after")}
        | {name: (("prompt", "depth"), joined[name]) for name in ("top", "mean", "dim")}
        | {name: (HEADS, values) for name, values in aligned.items()}
        | {
            "key_alignment": (("layer", "head", "key"), np.einsum("LHSD,LHD->LHS", of_heads, first)),
            "positive": ((*HEADS, "key"), joined["positive"]),
            "own_row": (KV_HEADS, np.abs(np.einsum("NLKD,LKND->NLK", joined["key_0"], chosen))),
            "other_rows": (("control", *KV_HEADS), np.abs(np.einsum("NLKD,LKCD->CNLK", joined["key_0"], others))),
        }
    )


def key_rows(model: Model) -> NDArray[Any]:
    """Return the key that each single dim of the stream makes: rows of W_K times the gain of the keys' norm, float[L, K, d,
    D]."""
    layers, norm = model.params["layers"], model.config.qk_norm
    rows = np.asarray(layers["k"], np.float32).transpose(0, 2, 1, 3)
    norm = norm.norm if isinstance(norm, EachHead | AllHeads | AfterRotation) else norm
    if norm is None or "" not in norm.learned():
        return rows
    return np.asarray(rows * np.asarray(gains(norm, layers["k_norm"])).reshape(len(rows), -1, 1, rows.shape[-1]))


def _block(model: Model, tokens: NDArray[Any], lengths: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Compute the arrays for `measure` from a few prompts; sums (gram, queries, keys, count) have a first axis of length 1."""
    probe = Probe(capture=(Capture(Site.EMBED), Capture(Site.RESID)), extra=STATISTICS)
    record = sinkjax.forward(model.params, tokens, model.config, probe=probe, lengths=lengths, logits=False).record
    states = jnp.concatenate([record["embed"][:, None], record["resid"]], axis=1)
    norm = model.config.norm
    assert norm is not None
    every = gains(norm, jnp.concatenate([model.params["layers"]["attn_norm"], model.params["final_norm"][None]]))
    found = {name: np.asarray(array) for name, array in ratios(states, every, eps=norm.eps).items()}
    real = (np.arange(tokens.shape[1]) < lengths[:, None])[:, None]
    found |= {name: np.where(real, found[name], np.nan) for name in ("before", "after")}
    keys = unit(np.asarray(record["rotated_keys"], np.float32))
    there = np.isfinite(keys).all(axis=-1, keepdims=True)
    return found | {
        "key_0": keys[:, :, :, 0],
        "key_others": np.nanmean(keys[:, :, :, 1 : tokens.shape[1] // 2 + 1], axis=3),
        "positive": np.asarray(record["positive"], np.float32),
        "gram": np.asarray(record["query_gram"], np.float64).sum(0, keepdims=True),
        "queries": np.asarray(record["query_sum"], np.float64).sum(0, keepdims=True),
        "keys": np.where(there, keys, 0).sum(0, keepdims=True),
        "count": there.sum(0, keepdims=True),
    }


def first_direction(gram: NDArray[Any], total: NDArray[Any]) -> NDArray[Any]:
    """Return u_1 of each head: the first eigenvector of gram [..., D, D], with a positive product with the sum of the queries."""
    vectors = np.linalg.eigh(gram)[1][..., -1]
    return vectors * np.where((vectors * total).sum(-1, keepdims=True) < 0, -1, 1)


def unit(vectors: NDArray[Any]) -> NDArray[Any]:
    """Divide vectors by their norm; a zero vector stays 0."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.finfo(np.float32).tiny))
