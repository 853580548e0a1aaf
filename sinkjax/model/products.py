"""The two products of attention, with derivatives in a form that XLA computes fast on a CPU.

Numbers and shapes are those of the plain products. The gradient towards keys and values sums over queries, which are not the
last axis of what comes back; as a batched product XLA's CPU code then takes three times as long as for the same product of a
transposed copy (measured from 8 x 8 to 256 x 256). So there the tangents are written such that their transposes copy first: the
barriers keep XLA from undoing that. Elsewhere the plain product stands.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def score(q_BKRD: jax.Array, k_BKSD: jax.Array, precision: str) -> jax.Array:
    """Every query with every key: [B, K, R, S]."""
    return (_score if jax.default_backend() == "cpu" else _plain_score)(q_BKRD, k_BKSD, precision)


def mix(weights_BKRS: jax.Array, v_BKSD: jax.Array, precision: str) -> jax.Array:
    """The values, weighted: [B, K, R, D]."""
    return (_mix if jax.default_backend() == "cpu" else _plain_mix)(weights_BKRS, v_BKSD, precision)


def _plain_score(q_BKRD: jax.Array, k_BKSD: jax.Array, precision: str) -> jax.Array:
    return jnp.einsum("BKRD,BKSD->BKRS", q_BKRD, k_BKSD, precision=precision)


def _plain_mix(weights_BKRS: jax.Array, v_BKSD: jax.Array, precision: str) -> jax.Array:
    return jnp.einsum("BKRS,BKSD->BKRD", weights_BKRS, v_BKSD, precision=precision)


_score = jax.custom_jvp(_plain_score, nondiff_argnums=(2,))
_mix = jax.custom_jvp(_plain_mix, nondiff_argnums=(2,))


@_score.defjvp
def _(precision: str, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (q, k), (dq, dk) = primals, tangents
    by_key_BKSR = jnp.einsum("BKSD,BKRD->BKSR", dk, q, precision=precision)
    return _score(q, k, precision), _plain_score(dq, k, precision) + _transposed(by_key_BKSR)


@_mix.defjvp
def _(precision: str, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (weights, v), (d_weights, dv) = primals, tangents
    by_dim_BKDR = jnp.einsum("BKDS,BKRS->BKDR", _transposed(dv), weights, precision=precision)
    return _mix(weights, v, precision), _plain_mix(d_weights, v, precision) + _transposed(by_dim_BKDR)


def _transposed(x: jax.Array) -> jax.Array:
    """The last two axes exchanged, as a copy before any product, and of its derivative too."""
    return jax.lax.optimization_barrier(jnp.swapaxes(jax.lax.optimization_barrier(x), -1, -2))
