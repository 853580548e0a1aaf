"""Sequences of the trigger task, made on the device: no loop over samples, nothing read from anywhere."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from sinkjax.data.trigger_config import Trigger

BOS_FLAG, TRIGGER_FLAG, FIRST_NOISE, BIAS = 0, 1, 2, -1  # coordinates


@partial(jax.jit, static_argnames=("trigger", "count", "position"))
def sample(key: jax.Array, trigger: Trigger, count: int, position: int | None = None) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Draw `count` sequences: tokens x and targets y, float32 [count, L, n], and the triggers' positions j, int32 [count].

    key: noise is drawn from its first half, positions from its second. position: of every trigger, by default uniform over
    `trigger.span`. May be traced in `key`. Errors: a position at which no trigger can stand.
    """
    for_noise, for_position = jax.random.split(key)
    L, n = trigger.length, trigger.width
    if position is None:
        first, last = trigger.span
        j = jax.random.randint(for_position, (count,), first, last + 1, jnp.int32)
    else:
        trigger.check_position(position)
        j = jnp.full(count, position, jnp.int32)
    noise = jax.random.uniform(for_noise, (count * L * (n - 3),), jnp.float32, -trigger.noise, trigger.noise)
    noise = noise.reshape(count, L, n - 3)  # drawn flat: the same numbers, and an eighth of the time to compile
    triggers = (jnp.arange(L) == j[:, None]).astype(jnp.float32)[..., None]
    x = jnp.concatenate([jnp.zeros_like(triggers), triggers, noise, 1 - triggers], axis=-1)
    x = jnp.concatenate([_specials(x, trigger), x[:, trigger.specials :]], axis=1)
    return x, targets(x, j, trigger), j


def targets(x: jax.Array, j: jax.Array, trigger: Trigger) -> jax.Array:
    """What a model should give for tokens x [B, L, n] with triggers at j [B], in the dtype of x."""
    token = jnp.arange(trigger.length)
    averaged = (token >= trigger.specials) & (token <= j[:, None])
    mean = jnp.where(averaged[..., None], x, 0).sum(axis=1) / (j - trigger.specials + 1).astype(x.dtype)[:, None]
    y = jnp.where((token == j[:, None])[..., None], mean[:, None], 0)
    return x + y if trigger.residual else y


def _specials(x: jax.Array, trigger: Trigger) -> jax.Array:
    """The tokens before the ordinary ones, [B, specials, n], from ordinary ones in their places."""
    empty = jnp.zeros_like(x[:, :1])
    rows = []
    if trigger.bos != "none":
        rows.append((x[:, :1].at[..., BIAS].set(0) if trigger.bos == "noisy" else empty).at[..., BOS_FLAG].set(1))
    if trigger.second_anchor:
        rows.append(empty.at[..., jnp.array([BOS_FLAG, BIAS])].set(1))
    if trigger.zero_token:
        rows.append(empty)
    return jnp.concatenate([x[:, :0], *rows], axis=1)
