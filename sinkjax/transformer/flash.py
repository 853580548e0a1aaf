"""`attention_impl="pallas"`: softmax attention as two Pallas kernels, with only one tile of scores in memory.

The first kernel returns the outputs of the heads and the log-sum-exp of every row of scores, in at least float32. The second sums
exp(score - log-sum-exp) over the queries of each key, and runs only if the probe measures such sums. Both are in `tiles.py` and
compute the same tiles of scores, including soft cap, ALiBi, window, prefix and edits at LOGITS, so no T x T array is ever stored.
In 16 bits, weights are rounded to the dtype of the values before their product, as in every fused attention.

The kernels compile through Triton on a GPU and through Mosaic on a TPU. A CPU interprets them, which is slow and meant for tests.

Shape suffixes: B prompts, T positions, H query heads, K key-value heads, D head width, Q queries and N keys of a tile.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.config_files.checks import LARGEST
from sinkjax.edits.apply import at_layer
from sinkjax.edits.term import Edits, Resolved
from sinkjax.errors import SinkjaxError
from sinkjax.model.attention_bias import ValueBias
from sinkjax.model.config import Config
from sinkjax.model.extra_key import ExtraKeys, extra_keys
from sinkjax.model.normalisers import OffByOne, SinkLogit, Softmax
from sinkjax.model.positions import Alibi, PowerAlibi, ScorePosition
from sinkjax.model.site import Site
from sinkjax.probes.probe import Probe
from sinkjax.transformer.attention import HeadInputs, needs_pairs, score_scale
from sinkjax.transformer.tape import Tape
from sinkjax.transformer.tiles import LOWEST, Arrays, Tiling, columns, forward, padded

NORMALISERS = (Softmax, SinkLogit, OffByOne)  # exp(score) over its sum, with or without a sink logit


def attend(heads: HeadInputs, tape: Tape) -> tuple[jax.Array, jax.Array]:
    """Compute `attention.attend` for every request that `cannot` does not list."""
    q_BTHD, k_BTKD, v_BTKD, by_head_BTHD, window, w = heads
    B, T, H, _ = q_BTHD.shape
    config = tape.spec.config
    wide = jnp.promote_types(q_BTHD.dtype, jnp.float32)
    terms = tape.at(Site.LOGITS)
    tiling = Tiling.of(T, q_BTHD.shape[-1], tape.spec, [term for _, term in terms], q_BTHD.dtype.itemsize > 2)
    scale = score_scale(tape, wide)
    q, k, v = (x.swapaxes(1, 2) for x in (q_BTHD, k_BTKD, v_BTKD if by_head_BTHD is None else by_head_BTHD))
    extra = extra_keys(w, config, tape.spec.past, tape.lengths, wide, tape.spec.precision)
    extra_scores = _extra_scores(q, extra, scale, heads, tape)
    q, k, v = (_no_derivative(padded(x, tiling)) for x in (q, k, v))
    total = q.shape[2]
    rows = None
    if extra_scores is not None:  # their exponentials enter the sum of each row as one
        rows = jnp.pad(jax.nn.logsumexp(extra_scores, axis=-1, keepdims=True), [(0, 0), (0, 0), (0, total - T), (0, 0)])
    arrays = _arrays(total, scale, window, tape, wide)
    out, lse, counts = forward(q, k, v, rows, arrays, tiling)

    real_BT = jnp.arange(T) < tape.lengths[:, None]
    lse_BHT, out_BHTD = lse[:, :, :T, 0], out[:, :, :T, : v_BTKD.shape[-1]]
    no_key: jax.Array | None = None
    of_past: jax.Array | None = None
    if extra_scores is not None:
        of_extra = jnp.exp(extra_scores - lse_BHT[..., None])
        no_key = of_extra[..., 0]
        if extra is not None:
            out_BHTD = extra.add(out_BHTD.astype(wide), of_extra)
            no_key, of_past = extra.shares(of_extra, None)
    counted = jnp.where((jnp.arange(total) < tape.lengths[:, None])[:, None, :, None], lse, -LOWEST)  # padding rows contribute 0
    for entry in tape.probe.statistics:
        if entry.site != Site.WEIGHTS:
            continue
        if entry.sums in ("no key", "past"):
            shares = no_key if entry.sums == "no key" else of_past
            shares = jnp.zeros((B, H, T), wide) if shares is None else shares
            tape.record[entry.name] = jnp.where(real_BT[:, None], shares, 0).sum(axis=-1)
        else:
            sums = columns(q, k, counted, arrays, tiling, later=entry.sums == "later")
            tape.record[entry.name] = sums[:, :, 0, :T]
    empty = jnp.zeros(B, jnp.int32)
    if terms:
        *cells, seen = (count[:, :, :T, 0] for count in counts)
        empty = (real_BT[:, None] & (seen == 0)).sum(axis=(1, 2))
        for at, (number, _) in enumerate(terms):
            addressed, changed = (each.sum(axis=(1, 2), dtype=jnp.float32) for each in cells[2 * at : 2 * at + 2])
            tape.counts[number] = addressed, changed
    out_BTHD = out_BHTD.swapaxes(1, 2)
    if isinstance(config.kv_bias, ValueBias):
        out_BTHD = out_BTHD.astype(wide) + w["attention_bias"]["output"]
    return out_BTHD.astype(v_BTKD.dtype), empty


def cannot(config: Config, edits: Edits, probe: Probe, past: int = 0) -> dict[str, bool]:
    """Map each feature that the kernels do not support to whether it is requested."""
    of_distances = isinstance(config.position, ScorePosition)
    extra = not isinstance(config.kv_bias, ValueBias | None)
    return {
        **needs_pairs(edits, probe),
        "edits of distances": any(term.site == Site.LOGITS and term.distance is not None for term in edits),
        f"the normaliser {config.normaliser!r}": not isinstance(config.normaliser, NORMALISERS),
        f"the position {config.position!r}": of_distances and _slopes(config) is None,
        f"the kv_bias {config.kv_bias!r} here": extra and (of_distances or config.normaliser != Softmax()),
        f"a past with the normaliser {config.normaliser!r}": past > 0 and config.normaliser != Softmax(),
    }


@jax.custom_jvp
def _no_derivative(x: jax.Array) -> jax.Array:
    return x


@_no_derivative.defjvp
def _(primals: tuple, tangents: tuple) -> tuple:
    raise SinkjaxError('attention_impl "pallas" has no derivative; choose "sinkjax"')


def _arrays(total: int, scale: jax.Array | float, window: jax.Array | None, tape: Tape, wide: jnp.dtype) -> Arrays:
    """Collect a tile's other inputs: each array is [B or 1, H or 1, T or 1, T or 1], by prompt, head, query and key.

    For each term at LOGITS: whether it selects the query, the key and the head, its value, and whether it hides the key.
    """
    config = tape.spec.config
    slopes = _slopes(config)

    def selected(positions: jax.Array) -> jax.Array:
        return jnp.pad(positions, [(0, 0), (0, total - positions.shape[1])]).astype(jnp.int32)

    def edit(term: Resolved) -> Arrays:
        value = at_layer(term.value, tape.layer)[:, :, None, None].astype(wide)
        hides = value == -jnp.inf
        return {
            "query": selected(term.query)[:, None, :, None],
            "key": selected(term.key)[:, None, None, :],
            "head": term.layer_head[tape.layer].astype(jnp.int32)[None, :, None, None],
            "value": jnp.where(hides, 0, value),
            "hides": hides.astype(jnp.int32),
        }

    return {
        "length": tape.lengths.astype(jnp.int32)[:, None, None, None],
        "scale": jnp.asarray(scale, wide).reshape(1, 1, 1, 1),
        "window": jnp.asarray(LARGEST if window is None else window, jnp.int32).reshape(1, 1, 1, 1),
        "slope": None if slopes is None else jnp.asarray(slopes, wide).reshape(1, -1, 1, 1),
        "edits": [edit(term) for _, term in tape.at(Site.LOGITS)],
    }


def _extra_scores(
    q_BHTD: jax.Array, extra: ExtraKeys | None, scale: jax.Array | float, heads: HeadInputs, tape: Tape
) -> jax.Array | None:
    """Return scores [B, H, T, E] that enter each row's sum without a column: of keys in front, or a sink logit."""
    (B, H, T, _), config = q_BHTD.shape, tape.spec.config
    if extra is not None:
        index = tape.spec.past + jnp.arange(T)
        scores = extra.scores(q_BHTD, index, tape.spec.past + T + 1, scale, heads.w, config, tape.spec.precision)
        return jnp.where(extra.visible(index, heads.window), scores, LOWEST)
    if isinstance(config.normaliser, Softmax):
        return None
    wide = jnp.promote_types(q_BHTD.dtype, jnp.float32)
    logit = heads.w["normaliser"]["sink"].astype(wide) if isinstance(config.normaliser, SinkLogit) else jnp.zeros(H, wide)
    return jnp.broadcast_to(logit[:, None, None], (B, H, T, 1))


def _slopes(config: Config) -> np.ndarray | None:
    """Return the change of a score per step back, by head, float [H]; None if positions do not bias scores linearly."""
    if not isinstance(config.position, Alibi | PowerAlibi) or getattr(config.position, "rounded", False):
        return None
    return config.position.by_distance(2, config.heads, {})[:, 1]
