"""Mixtures of experts: a router sends each token to a few of E MLPs, whose weighted outputs are summed.

This is exact, as in transformers: no token is dropped at any load. Rows are sorted by expert into blocks of one expert each, so
that an expert computes little more than its own tokens. Shape suffixes: N tokens, k experts of a token, R = N k rows, E experts,
d residual width, F hidden width of an expert.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sinkjax.config_files.checks import refuse

BLOCK = 128  # maximum rows of one expert multiplied at a time


@dataclass(frozen=True)
class Experts:
    """A mixture of `count` experts in place of an MLP, each of the config's mlp_width; a token uses `active` of them.

    The router's logits are x W_r; a token uses the experts with the largest, weighted by the softmax over all experts. The
    weights are divided by their sum if `normalised` (Mixtral, gpt-oss), else unchanged (Qwen3-MoE, unless its config says
    otherwise). bias: whether the logits have a bias. Parameters: layers/router [L, d, E], router_bias [L, E], gate and up [L, E,
    d, F], down [L, E, F, d], and their biases.
    """

    count: int
    active: int
    normalised: bool = True
    bias: bool = False

    def __post_init__(self) -> None:
        refuse(not 1 <= self.active <= self.count, f"a token takes from 1 to all of {self.count} experts, not {self.active}")


@dataclass(frozen=True)
class ClampedSwiGLU:
    """A gate with both inputs clipped: g sigmoid(alpha g) (u + 1) for g = min(gate, limit), u = clip(up, limit) (gpt-oss)."""

    alpha: float
    limit: float

    def __call__(self, gate: jax.Array, up: jax.Array) -> jax.Array:
        gate = jnp.minimum(gate, self.limit)
        return gate * jax.nn.sigmoid(self.alpha * gate) * (jnp.clip(up, -self.limit, self.limit) + 1)


class Routing(NamedTuple):
    """The experts of each token, most preferred first, int [N, k], and their weights, at least float32."""

    experts: jax.Array
    weights: jax.Array


def route(logits_NE: jax.Array, experts: Experts) -> Routing:
    """Choose each token's experts from the router's logits."""
    top, chosen = jax.lax.top_k(logits_NE.astype(jnp.promote_types(logits_NE.dtype, jnp.float32)), experts.active)
    whole = top if experts.normalised else logits_NE.astype(top.dtype)
    return Routing(chosen, jnp.exp(top - jax.nn.logsumexp(whole, axis=-1, keepdims=True)))


def by_expert(expert_R: jax.Array, count: int) -> Callable[..., jax.Array]:
    """Make a function of rows [R, a], weights [E, a, b] and biases [E, b] or None that applies each row's expert to it."""
    rows = expert_R.size
    size = max(1, min(BLOCK, rows // count))
    blocks = rows // size + min(count, rows)  # each expert fills all of its blocks except the last
    taken = jnp.zeros(count, jnp.int32).at[expert_R].add(1)
    used = -(-taken // size)
    order = jnp.argsort(expert_R, stable=True)
    sorted_R = expert_R[order]
    nth_R = jnp.arange(rows) - (jnp.cumsum(taken) - taken)[sorted_R]
    sorted_place_R = (jnp.cumsum(used) - used)[sorted_R] * size + nth_R
    place_R = jnp.zeros_like(sorted_place_R).at[order].set(sorted_place_R)
    owner = jnp.minimum(jnp.searchsorted(jnp.cumsum(used), jnp.arange(blocks), side="right"), count - 1)

    def product(x_Ra: jax.Array, w_Eab: jax.Array, bias_Eb: jax.Array | None, precision: str) -> jax.Array:
        padded = jnp.zeros((blocks * size, x_Ra.shape[1]), x_Ra.dtype).at[place_R].set(x_Ra)
        multiply = lambda block: jnp.matmul(block[0], w_Eab[block[1]], precision=precision)  # noqa: E731
        out = jax.lax.map(multiply, (padded.reshape(blocks, size, -1), owner))
        out = out.reshape(blocks * size, -1)[place_R]
        return out if bias_Eb is None else out + bias_Eb[expert_R]

    return product


def units(hidden_NkF: jax.Array, experts_Nk: jax.Array, count: int) -> jax.Array:
    """Return hidden units at index expert * F + unit, [N, E F]; 0 for experts that a token does not use."""
    N, _, F = hidden_NkF.shape
    spread = jnp.zeros((N, count, F), hidden_NkF.dtype).at[jnp.arange(N)[:, None], experts_Nk].set(hidden_NkF)
    return spread.reshape(N, count * F)


def taken_units(units_NU: jax.Array, experts_Nk: jax.Array, count: int) -> jax.Array:
    """Select the units of each token's experts, [N, k, F]."""
    N = units_NU.shape[0]
    return units_NU.reshape(N, count, -1)[jnp.arange(N)[:, None], experts_Nk]
