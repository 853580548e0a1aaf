"""Sequences of the trigger task, generated on the device without a loop over samples."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.tasks.trigger.config import Trigger

BOS_FLAG, TRIGGER_FLAG, FIRST_NOISE, BIAS = 0, 1, 2, -1  # coordinates


@partial(jax.jit, static_argnames=("trigger", "count", "position"))
def sample(key: jax.Array, trigger: Trigger, count: int, position: int | None = None) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Draw `count` sequences: tokens x and targets y, float32 [count, L, n], and the triggers' positions j, int32 [count].

    key: noise is drawn from its first half, positions from its second. position: position of every trigger, by default uniform
    over `trigger.span`. May be traced in `key`. Errors: a position where no trigger can be.
    """
    for_noise, for_position = jax.random.split(key)
    L, n = trigger.length, trigger.width
    if position is None:
        first, last = trigger.span
        j = jax.random.randint(for_position, (count,), first, last + 1, jnp.int32)
    else:
        trigger.check_position(position)
        j = jnp.full(count, position, jnp.int32)
    # Noise is drawn for every number and masked: without concatenations, and in whole rows, that is three times as fast.
    noise = jax.random.uniform(for_noise, (count, L, n), jnp.float32, -trigger.noise, trigger.noise)
    fixed, noisy = _template(trigger)
    is_trigger = (jnp.arange(L) == j[:, None])[..., None]
    x = jnp.where(noisy, noise, fixed + is_trigger * _coordinates(n, {TRIGGER_FLAG: 1, BIAS: -1}))
    return x, targets(x, j, trigger), j


def targets(x: jax.Array, j: jax.Array, trigger: Trigger) -> jax.Array:
    """The targets for tokens x [B, L, n] with triggers at j [B], in the dtype of x."""
    token = jnp.arange(trigger.length)
    averaged = (token >= trigger.specials) & (token <= j[:, None])
    shares = averaged / (j - trigger.specials + 1).astype(x.dtype)[:, None]
    mean = jnp.einsum("BL,BLn->Bn", shares.astype(x.dtype), x, precision="highest")
    y = jnp.where((token == j[:, None])[..., None], mean[:, None], 0)
    return x + y if trigger.residual else y


def _template(trigger: Trigger) -> tuple[np.ndarray, np.ndarray]:
    """Return every sequence's values away from triggers, float32 [L, n], and a mask of noise, bool [L, n]."""
    L, n = trigger.length, trigger.width
    fixed = np.tile(_coordinates(n, {BIAS: 1}), (L, 1))
    noisy = np.zeros((L, n), bool)
    noisy[:, FIRST_NOISE:BIAS] = True
    specials = []  # flags, and whether the token has noise
    if trigger.bos != "none":
        specials.append(({BOS_FLAG: 1}, trigger.bos == "noisy"))
    if trigger.second_anchor:
        specials.append(({BOS_FLAG: 1, BIAS: 1}, False))
    if trigger.zero_token:
        specials.append(({}, False))
    for token, (flags, with_noise) in enumerate(specials):
        fixed[token] = _coordinates(n, flags)
        noisy[token] &= with_noise
    return fixed, noisy


def _coordinates(n: int, values: Mapping[int, float]) -> np.ndarray:
    """Make a token of n numbers with some values set and the others 0."""
    token = np.zeros(n, np.float32)
    token[[*values]] = [*values.values()]
    return token
