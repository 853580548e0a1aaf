"""The optimiser of a run: Adam at a constant rate, or, for a config with a `Schedule`, AdamW with warm-up, decay and clip."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from sinkjax.train.config import Schedule, Training


def optimiser_of(config: Training, learning_rate: jax.Array) -> optax.GradientTransformation:
    """learning_rate: float [], that of the run, the highest of its schedule."""
    if not isinstance(config, Schedule):
        return optax.adam(learning_rate, config.beta1, config.beta2)
    adamw = optax.adamw(
        lambda count: learning_rate * factor(config, count), config.beta1, config.beta2, weight_decay=config.weight_decay
    )
    return adamw if config.clip is None else optax.chain(optax.clip_by_global_norm(config.clip), adamw)


def factor(config: Schedule, count: jax.Array) -> jax.Array:
    """What the learning rate is multiplied with in the update after `count` others, float32 []."""
    count = jnp.asarray(count, jnp.float32)
    warm = jnp.minimum(1, (count + 1) / max(1, config.warmup))
    if config.schedule == "constant":
        return warm
    done = jnp.clip((count - config.warmup) / max(1, config.steps - config.warmup), 0, 1)
    return warm * (config.lowest + (1 - config.lowest) * (1 + jnp.cos(jnp.pi * done)) / 2)
