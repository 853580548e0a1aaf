"""Each token of the vocabulary when it sees only itself.

If positions are relative, a token isolated in all layers equals that token alone at position 0, so one forward of it says what
isolation would show anywhere in a text, at the cost of one token. (Not with learned or sinusoidal positions, nor where rotated
queries meet a learned key without a position.) The scan compares tokens with the first token of texts.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray

from sinkjax.checkpoints.model import check_model
from sinkjax.data.corpora import passages
from sinkjax.data.prompts import first_tokens, is_integer
from sinkjax.errors import SinkjaxError
from sinkjax.model.batch import as_array, check_batch, refuse_outside
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.model.site import Site
from sinkjax.probes.probe import Capture, Probe
from sinkjax.probes.statistics import Statistic, View, abs_max, unit
from sinkjax.runtime.hardware import Hardware
from sinkjax.runtime.settings import fixed_settings
from sinkjax.transformer.attention import score_scale
from sinkjax.transformer.block import block
from sinkjax.transformer.embed import embed
from sinkjax.transformer.forward import run
from sinkjax.transformer.layers import over_blocks, windows
from sinkjax.transformer.rotation import rotary
from sinkjax.transformer.sink_token import with_sink_token
from sinkjax.transformer.spec import ForwardSpec
from sinkjax.transformer.tape import Tape

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model

EPS = 0.3  # a head sinks above this mean attention to the first token (Gu et al. 2025)
ROWS = 1024  # tokens of a call: wide enough that its products are bound by arithmetic
PROMPTS, LENGTH = 16, 64  # packaged passages of a scan that is given no text


@fixed_settings
def scan(
    model: Model,
    tokens: Any = None,
    text: Any = None,
    lengths: Any = None,
    distance: int = 16,
    eps: float = EPS,
    precision: str = "highest",
) -> xarray.Dataset:
    """Run each token alone, and compare it with the first token of texts.

    Args:
        model: The model.
        tokens: Token ids to run, int [N]; None for the whole vocabulary.
        text: Prompts with the sink, int [B, T], padded on the right; None for packaged passages of 64 tokens, with the prefix
            that the model's tokenizer adds.
        lengths: int [B], number of tokens of each prompt, by default T for all.
        distance: Positions between the token's key and the query that reads it.
        eps: A head sinks if its mean attention to the prompts' first token is above this.
        precision: Matrix product precision, as in `sinkjax.forward`.

    Returns:
        A dataset over `token` (the ids), `layer` and `sink` (the heads that sink, with coordinates `sink_layer` and
        `sink_head`): `largest` (token, layer), the largest |h| of the residual stream after a block; `cosine` (token, layer),
        its cosine with the first token's mean direction; `score` (token, sink), the score of the token's key by the head's mean
        query in the prompts, on the scale of the scores, before a soft cap and a position bias. For comparison, the means over
        the prompts: `first_largest` (layer), and `other_largest` (layer) of a typical later token (the median); `first_score`
        (sink), and `other_score` (sink) of the mean key of all later tokens; `received` (sink), the attention to the first
        token. If the model has a tokenizer, each token has its string, `text`.

    Raises:
        SinkjaxError: The model has no vocabulary, or no tokenizer while `text` is None, or maps queries and keys by a kernel; a
            token is outside the vocabulary; `distance` is below 1; prompts do not fit.
    """
    check_model(model)
    config = model.config
    if config.vocab_size is None:
        raise SinkjaxError("this model has no vocabulary, so there are no tokens to scan")
    if config.normaliser.kernel:
        raise SinkjaxError("keys of this model are not scored: it maps queries and keys by a kernel before their product")
    if not is_integer(distance) or distance < 1:
        raise SinkjaxError(f"distance must be an integer of at least 1, not {distance!r}")
    ids = np.arange(config.vocab_size) if tokens is None else np.asarray(as_array("tokens", tokens))
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or not len(ids):
        raise SinkjaxError(f"tokens must be ids, int [N] with N at least 1, not {ids.dtype} {ids.shape}")
    refuse_outside(ids[:, None], config.vocab_size)
    if text is None:
        text, lengths = packaged(model)
    text, lengths, _ = check_batch(text, lengths, config)
    on_cpu = Hardware.holding(model.params).kind == "cpu"
    spec = ForwardSpec(config=config, probe=_asked(config), logits=False, precision=precision, in_place=on_cpu)
    seen = _in_text(model.params, text, lengths, np.int32(distance), spec=spec)
    received = np.asarray(seen.pop("received"))
    layer, head = np.nonzero(received > eps)
    calls, rows = [], min(ROWS, len(ids))
    for part in np.pad(ids, (0, -len(ids) % rows), "edge").astype(np.int32).reshape(-1, rows):  # one shape: one program compiles
        alone = _alone(model.params, part, seen["direction"], seen["query"], spec=spec)
        largest, cosine, score = map(np.asarray, alone)
        calls.append((largest, cosine, score[layer, :, head]))
    largest, cosine, score = (np.concatenate(each, axis=1)[:, : len(ids)].T for each in zip(*calls, strict=True))
    of_text = {name: np.asarray(value) for name, value in seen.items()}
    data = xarray.Dataset(
        {
            "largest": (("token", "layer"), largest),
            "cosine": (("token", "layer"), cosine),
            "score": (("token", "sink"), score),
            **{name: ("layer", of_text[name]) for name in ("first_largest", "other_largest")},
            **{name: ("sink", of_text[name][layer, head]) for name in ("first_score", "other_score")},
            "received": ("sink", received[layer, head]),
        },
        {"token": ids, "layer": np.arange(config.layers), "sink_layer": ("sink", layer), "sink_head": ("sink", head)},
        {"distance": int(distance), "eps": float(eps)},
    )
    return data if model.tokenizer is None else data.assign_coords(text=("token", list(model.tokenizer.tokens(ids.tolist()))))


def packaged(model: Model, bos: str = "tokenizer") -> tuple[np.ndarray, np.ndarray]:
    """Return the prompts of a scan without any. bos: as in `encode`. Errors: the model has no tokenizer."""
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise SinkjaxError("a model without a tokenizer needs text: token ids, int [B, T]")
    length = min(LENGTH, model.config.context)
    texts = passages("packaged", PROMPTS, length=length, size=lambda text: len(tokenizer.encode(text))).texts
    return first_tokens(model, texts, bos, length)


def _asked(config: Config) -> Probe:
    """Ask for the sink, the first token's states, and the first and the mean key and query."""
    dims = ("prompt", "layer", "head", "head_dim")
    statistics = (
        Statistic("query", Site.QUERY, _sum_of_later, dims),
        Statistic("other_key", Site.KEY, _sum_of_later, ("prompt", "layer", "kv_head", "head_dim")),
    )
    whole = config.normaliser.rows_sum_to_1
    capture = (Capture(Site.RESID, positions=(0,), name="first"), Capture(Site.KEY, positions=(0,), name="first_key"))
    return Probe(resid_max=True, attention_received=whole, attention_share=not whole, capture=capture, extra=statistics)


def _sum_of_later(x: jax.Array, view: View) -> jax.Array:
    """Sum over all tokens of a prompt but the first: [B, H, D]."""
    place = jnp.arange(x.shape[1])
    chosen = (place > 0) & (place < view.lengths[:, None])
    return jnp.einsum("BT,BTHD->BHD", chosen.astype(x.dtype), x, precision="highest")


@partial(jax.jit, static_argnames="spec")
def _in_text(params: Params, text: jax.Array, lengths: jax.Array, distance: jax.Array, *, spec: ForwardSpec) -> dict[str, Any]:
    """Measure the prompts: the first token by layer, and each head's mean query, rotated and scaled, with its scores of keys."""
    config = spec.config
    record = run(params, text, lengths, (), spec=spec).record
    states = record["first"][:, :, 0].astype(jnp.promote_types(record["first"].dtype, jnp.float32))  # [B, L, d]
    count = jnp.maximum((lengths - 1).sum(), 1)
    query, other = (record[name].sum(axis=0) / count for name in ("query", "other_key"))
    at_query, at_key = _rotations(config, lengths[:1], distance, query.dtype)

    def scores(_: None, xs: tuple[jax.Array, ...]) -> tuple[None, tuple[jax.Array, ...]]:
        layer, q, *keys = xs
        tape = Tape(spec, (), lengths[:1], layer)
        q = at_query(tape, q[None, None], q[None, None])[0][0, 0] * score_scale(tape, q.dtype)
        turned = (at_key(tape, key[None, None], key[None, None])[1][0, 0] for key in keys)
        return None, (q, *(_score(q, key[None], config)[0] for key in turned))

    xs = (jnp.arange(config.layers), query, record["first_key"][:, :, 0].mean(axis=0), other)
    _, (query, first_score, other_score) = jax.lax.scan(scores, None, xs)
    name = "attention_received" if spec.probe.attention_received else "attention_share"
    return {
        "received": record[name][..., 0].mean(axis=0),
        "direction": unit(unit(states).mean(axis=0)),
        "first_largest": jnp.abs(states).max(axis=-1).mean(axis=0),
        "other_largest": jnp.nanmedian(record["resid_max"][:, 1:, 1:], axis=-1).mean(axis=0),
        "query": query,
        "first_score": first_score,
        "other_score": other_score,
    }


@partial(jax.jit, static_argnames="spec")
def _alone(
    params: Params, tokens: jax.Array, direction: jax.Array, query: jax.Array, *, spec: ForwardSpec
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Run tokens [N] alone: largest |h| [L, N], cosine with `direction` [L, N], score by `query` [L, N, H]."""
    config, lengths = spec.config, jnp.ones(len(tokens), jnp.int32)
    spec = dataclasses.replace(spec, probe=Probe(capture=(Capture(Site.KEY, name="key"),)))
    params = with_sink_token(params, spec)
    h, _ = embed(params, tokens[:, None], lengths, (), spec)
    wide = jnp.promote_types(h.dtype, jnp.float32)
    _, rotate = _rotations(config, lengths, jnp.int32(0), wide)
    seen_keys = windows(config)

    def step(h: jax.Array, xs: tuple[Any, ...]) -> tuple[jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
        layer, w, towards, q = xs
        tape = Tape(spec, (), lengths, layer)
        h, _ = block(h, w, None if seen_keys is None else seen_keys[layer], rotate, tape)
        key = tape.record["key"].astype(wide)
        turned = rotate(tape, key, key)[1][:, 0]
        state = h[:, 0].astype(wide)
        cosine = jnp.einsum("Nd,d->N", unit(state), towards, precision="highest")
        return h, (abs_max(state, View(lengths)), cosine, _score(q, turned, config))

    _, results = over_blocks(step, h, params["layers"], spec, direction, query)
    largest, cosine, score = results
    return largest, cosine, score


def _rotations(config: Config, lengths: jax.Array, distance: jax.Array, dtype: Any) -> tuple[Any, Any]:
    """Make the rotations of a query `distance` after a key, and of that key at position 0."""
    place = jnp.zeros((1, 1), jnp.int32)
    return rotary(config, lengths, place + distance, dtype, ()), rotary(config, lengths, place, dtype, ())


def _score(query: jax.Array, keys: jax.Array, config: Config) -> jax.Array:
    """Return the scores [N, H] of keys [N, K, D] by each head's query [H, D]."""
    grouped = query.reshape(config.kv_heads, -1, query.shape[-1])
    scores = jnp.einsum("KGD,NKD->NKG", grouped.astype(keys.dtype), keys, precision="highest")
    return scores.reshape(len(keys), config.heads)
