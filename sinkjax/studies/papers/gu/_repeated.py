"""Attention in a prompt of one token repeated, in closed form, and the bound on it (Gu et al. 2025, Propositions 1 to 4).

Without absolute positions all hidden states of such a prompt are equal (attention then averages equal values), so all queries are
the same q and all keys the same k before the rotation, and the score of a query for the key `back` positions before it is a
function s(back) of the distance alone. With |s| <= xi, and t keys to see, no weight exceeds e^{2 xi} / (e^{2 xi} + t - 1).

The closed form is in float64, with NumPy. Shape suffixes: D head width, N tokens; leading axes are free.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.checkpoints.model import Model
from sinkjax.edits.site import Site
from sinkjax.model import rope
from sinkjax.model.config import Config
from sinkjax.model.rotary import DynamicScaling
from sinkjax.probes.probe import Capture, Probe

if TYPE_CHECKING:
    import xarray

Floats = NDArray[np.float64]
BLOCK = 2  # prompts whose attention maps of all layers are held at a time
STEP = 4  # from one length to the next


def scores(query: NDArray, key: NDArray, frequencies: NDArray, factor: float, tokens: int) -> Floats:
    """Scores q R(back) k / sqrt(D) for back = 0 to tokens - 1: float64[..., tokens].

    query, key: [..., D], before the rotation. frequencies: [D / 2], radians per index. factor: of the rotary tables (YaRN's).
    """
    q1, q2 = np.split(np.asarray(query, np.float64), 2, axis=-1)
    k1, k2 = np.split(np.asarray(key, np.float64), 2, axis=-1)
    angles = np.asarray(frequencies, np.float64)[:, None] * np.arange(tokens)
    turned = (q1 * k1 + q2 * k2) @ np.cos(angles) + (q1 * k2 - q2 * k1) @ np.sin(angles)
    return turned * factor**2 / np.sqrt(np.shape(query)[-1])


def largest_scores(query: NDArray, key: NDArray, factor: float) -> Floats:
    """xi, which no score exceeds in size, from the norms and from the rotary pairs: float64[..., 2].

    From the norms (the paper's): |q| |k| / sqrt(D). From the rotary pairs: the sum over pairs of |q_p| |k_p| / sqrt(D), which is
    never larger, as a rotation mixes only the two entries of a pair.
    """
    halves = (np.stack(np.split(np.asarray(x, np.float64), 2, axis=-1)) for x in (query, key))
    q, k = (np.sqrt(np.square(half).sum(axis=0)) for half in halves)
    norms = np.sqrt(np.square(q).sum(axis=-1) * np.square(k).sum(axis=-1))
    return np.stack([norms, (q * k).sum(axis=-1)], axis=-1) * factor**2 / np.sqrt(np.shape(query)[-1])


def weights(by_distance: Floats, tokens: int) -> Floats:
    """Attention of each query to each key, 0 where it sees none: float64[..., tokens, tokens]. by_distance: `scores`."""
    back = np.arange(tokens)[:, None] - np.arange(tokens)
    shown = np.where(back >= 0, by_distance[..., np.maximum(back, 0)], -np.inf)
    powers = np.exp(shown - shown.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def to_first(by_distance: Floats) -> Floats:
    """Attention of each query to key 0: float64[..., N]."""
    return np.exp(by_distance - np.logaddexp.accumulate(by_distance, axis=-1))


def largest_weight(by_distance: Floats) -> Floats:
    """The largest weight in each query's row: float64[..., N]."""
    return np.exp(np.maximum.accumulate(by_distance, axis=-1) - np.logaddexp.accumulate(by_distance, axis=-1))


def bound(xi: NDArray, tokens: int) -> Floats:
    """e^{2 xi} / (e^{2 xi} + t - 1) for t = 1 to tokens: float64[..., tokens]."""
    others = np.arange(tokens, dtype=np.float64)
    return 1 / (1 + others * np.exp(-2 * np.asarray(xi, np.float64))[..., None])


def running_mean(values: Floats, tokens: NDArray) -> Floats:
    """Means of the first entries along the last axis, for each number of tokens: float64[..., tokens]. (alpha of Gu et al.)"""
    return values.cumsum(axis=-1)[..., tokens - 1] / tokens


def reach(config: Config, longest: int) -> int:
    """The longest prompt for which the closed form holds: as long as all layers see all keys by the same rotary table."""
    scaling = config.rope.scaling
    rescaled = [scaling.original_context] if isinstance(scaling, DynamicScaling) else []
    return min([longest, config.context, *windows(config), *rescaled])


def windows(config: Config) -> list[int]:
    """How many keys a layer sees, of the layers that do not see all."""
    return [window for window in config.windows or () if window is not None]


def lengths(shortest: int, longest: int) -> NDArray:
    """Lengths from the shortest on, each STEP times the one before."""
    found = [shortest]
    while found[-1] * STEP <= longest:
        found.append(found[-1] * STEP)
    return np.array(found)


def measured(model: Model, prompts: NDArray, tokens: NDArray) -> xarray.Dataset:
    """Hidden states and weights of the forward pass, weights in closed form, and their bounds.

    prompts: int[prompt, T], each of one token. tokens: lengths for which the closed form is computed.
    """
    import xarray

    parts = [_block(model, prompts[start : start + BLOCK], tokens) for start in range(0, len(prompts), BLOCK)]
    heads = ("prompt", "layer", "head")
    axes = {"hidden": heads[:2], "closed": (*heads, "tokens"), "bound": (*heads, "xi_from", "tokens")}
    axes |= dict.fromkeys(("xi", "excess", "forward_excess"), (*heads, "xi_from"))
    axes |= dict.fromkeys(("received", "closed_received"), (*heads, "key"))
    named = {name: (axes.get(name, heads), np.concatenate([part[name] for part in parts])) for name in parts[0]}
    return xarray.Dataset(named, coords={"tokens": tokens, "xi_from": ["norms", "pairs"]})


def _block(model: Model, prompts: NDArray, tokens: NDArray) -> dict[str, NDArray]:
    """Arrays [prompt, layer, (head, ...)] of a few prompts."""
    config, T = model.config, prompts.shape[1]
    captured = (Capture(Site.QUERY, positions=(0,)), Capture(Site.KEY, positions=(0,)), Capture(Site.RESID))
    everywhere = tuple(range(config.layers))
    run = partial(sinkjax.forward, model.params, prompts, config, logits=False)
    record = run(probe=Probe(attention_received=True, attention=everywhere, capture=captured)).record
    still = run(edits=sinkjax.set_positions(query=0, key=0), probe=Probe(attention=everywhere)).record
    query = np.asarray(record["queries"], np.float64)[:, :, 0]
    key = np.repeat(np.asarray(record["keys"], np.float64)[:, :, 0], config.group, axis=2)
    frequencies, factor = rope.frequencies(config.rope, config.head_dim, jnp.array([T]), jnp.dtype("float32"))
    by_distance = scores(query, key, np.asarray(frequencies[0]), factor, int(tokens[-1]))
    xi = largest_scores(query, key, factor)
    bounds = bound(xi, int(tokens[-1]))
    forward, hidden = (np.asarray(record[name], np.float64) for name in ("attention", "resid"))
    even = np.tril(np.ones((T, T))) / np.arange(1, T + 1)[:, None]
    by_query = weights(by_distance, T)
    return {  # the first query, which sees one key, has the weight 1 and the bound 1
        "hidden": np.abs(hidden - hidden[:, :, :1]).max(axis=(2, 3)) / np.abs(hidden[:, :, 0]).max(axis=-1),
        "received": np.asarray(record["attention_received"]),
        "closed_received": by_query.sum(axis=3) / np.arange(T, 0, -1),
        "error": np.abs(forward - by_query).max(axis=(3, 4)),
        "without_positions": np.abs(np.asarray(still["attention"]) - even).max(axis=(3, 4)),
        "closed": running_mean(to_first(by_distance), tokens),
        "xi": xi,
        "bound": running_mean(bounds, tokens),
        "excess": (largest_weight(by_distance)[:, :, :, None] - bounds)[..., 1:].max(axis=-1),
        "forward_excess": (forward.max(axis=4)[:, :, :, None] - bounds[..., :T])[..., 1:].max(axis=-1),
    }
