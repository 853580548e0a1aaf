"""Array operations of a block: projections, the norm, and the two products of attention.

Products of 16-bit numbers are accumulated in float32, where each of them is exact. In bfloat16, derivatives round the incoming
float32 gradient to bfloat16 first, as other libraries do: a product of bfloat16 with float32 numbers would run in float32, at a
sixteenth of an H100's rate.

In float32 on a CPU, the derivatives of the two products of attention are written in a form that XLA computes fast. The gradient
towards keys and values sums over queries, not the last axis of the incoming gradient; as a batched product, XLA's CPU code then
takes three times as long as for the same product of a transposed copy (measured from 8 x 8 to 256 x 256). The tangents are
therefore written so that their transposes copy first, and barriers keep XLA from undoing this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp


@partial(jax.tree_util.register_dataclass, data_fields=("base", "rows", "cols", "factors"), meta_fields=("contracted",))
@dataclass(frozen=True)
class Corrected:
    """A matrix and a change of some of its entries; `project` adds the effect of the change to the product.

    base: the matrix, which may itself be corrected. rows, cols: int [r] and [c], the inputs and outputs of the entries. factors:
    the change [r, c], or two factors of it, [r, k] and [k, c]. contracted: the number of leading axes that are inputs.
    """

    base: Any
    rows: jax.Array
    cols: jax.Array
    factors: tuple[jax.Array, ...]
    contracted: int

    @property
    def ndim(self) -> int:
        return len(self.base.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.base.shape)

    def product(self, x: jax.Array, precision: str, wide: bool) -> jax.Array:
        """Multiply x as `project` does."""
        out = project(x, self.base, precision, self.contracted, wide)
        change = x.reshape(*x.shape[: x.ndim - self.contracted], -1)[..., self.rows]
        for factor in self.factors:
            change = project(change.astype(x.dtype), factor.astype(x.dtype), precision, wide=wide)
        flat = out.reshape(*out.shape[: x.ndim - self.contracted], -1)
        return flat.at[..., self.cols].add(change.astype(flat.dtype)).reshape(out.shape)

    def dense(self) -> jax.Array:
        """Return the matrix with its change applied."""
        base = whole_matrix(self.base)
        flat = base.reshape(math.prod(base.shape[: self.contracted]), -1)
        wide = self._change().astype(jnp.promote_types(flat.dtype, jnp.float32))
        new = flat[self.rows[:, None], self.cols[None]].astype(wide.dtype) + wide
        return flat.at[self.rows[:, None], self.cols[None]].set(new.astype(flat.dtype)).reshape(base.shape)

    def _change(self) -> jax.Array:
        first, *others = self.factors
        return jnp.matmul(first, *others, precision="highest") if others else first


def whole_matrix(w: jax.Array | Corrected) -> jax.Array:
    return w.dense() if isinstance(w, Corrected) else w


def entries(w: jax.Array | Corrected, rows: jax.Array, cols: jax.Array, contracted: int) -> jax.Array:
    """Return a matrix's (or, with contracted=0, a vector's) entries at each input and output: [r, c], at least float32."""
    if not isinstance(w, Corrected):
        flat = w.reshape(math.prod(w.shape[:contracted]), -1)[rows[:, None], cols[None]]
        return flat.astype(jnp.promote_types(flat.dtype, jnp.float32))
    base = entries(w.base, rows, cols, contracted)
    same_rows, same_cols = rows[:, None] == w.rows[None], w.cols[:, None] == cols[None]
    change = w._change().astype(base.dtype)
    return base + jnp.matmul(
        jnp.matmul(same_rows.astype(base.dtype), change, precision="highest"), same_cols.astype(base.dtype), precision="highest"
    )


def project(x: jax.Array, w: jax.Array | Corrected, precision: str, contracted: int = 1, wide: bool = False) -> jax.Array:
    """Multiply x [B, T, ...] by w over the last `contracted` axes of x and the first of w, as one matrix product.

    If tokens have two axes, XLA's CPU code transposes a copy of the gradient, which takes twice as long as the products.
    wide: whether the result is at least float32.
    """
    if isinstance(w, Corrected):
        return w.product(x, precision, wide)
    rows, columns = x.shape[: x.ndim - contracted], w.shape[contracted:]
    flat = x.reshape(math.prod(rows), -1), w.reshape(-1, math.prod(columns))
    product = wide_product("RD,DV->RV", *flat, precision) if wide else jnp.matmul(*flat, precision=precision)
    return product.reshape(*rows, *columns)


def add_bias(x: jax.Array, bias: jax.Array | None) -> jax.Array:
    """Add a bias to x, if the model has one."""
    return x if bias is None else x + bias


def soft_cap(x: jax.Array, cap: float | None) -> jax.Array:
    """Return cap tanh(x / cap), or x without a cap."""
    return x if cap is None else cap * jnp.tanh(x / cap)


def rms_norm(x: jax.Array, gain: jax.Array, eps: float, at: jax.Array | None = None) -> jax.Array:
    """x * gain / sqrt(mean(at^2) + eps) over the last axis, in at least float32; returned in the dtype of x. at: x if None."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    measured = wide if at is None else at.astype(wide.dtype)
    scaled = wide * jax.lax.rsqrt(jnp.square(measured).mean(axis=-1, keepdims=True) + eps)
    return (scaled * gain).astype(x.dtype)


def score(q_BKRD: jax.Array, k_BKSD: jax.Array, scale: jax.Array | float, precision: str) -> jax.Array:
    """Return `scale` times the product of every query with every key, summed in at least float32: [B, K, R, S]."""
    product = _plain_score if _narrow(q_BKRD) or jax.default_backend() != "cpu" else _score
    if _narrow(q_BKRD):  # a scaled query would be rounded
        return product(q_BKRD, k_BKSD, precision) * scale
    # Scale queries, not scores: scaling scores would be fused into the softmax only if no edit comes in between.
    scaled = q_BKRD if isinstance(scale, int | float) and scale == 1 else q_BKRD * scale
    return product(scaled, k_BKSD, precision)


def mix(weights_BKRS: jax.Array, v_BKSD: jax.Array, precision: str) -> jax.Array:
    """Return the sum of values with these weights, cast to the values' dtype, in at least float32: [B, K, R, D]."""
    product = _plain_mix if _narrow(v_BKSD) or jax.default_backend() != "cpu" else _mix
    return product(weights_BKRS.astype(v_BKSD.dtype), v_BKSD, precision)


def wide_product(subscripts: str, a: jax.Array, b: jax.Array, precision: str) -> jax.Array:
    """Return the einsum of two arrays of one dtype, in at least float32."""
    # float16 is too narrow for gradients
    return (_rounding_einsum if a.dtype == b.dtype == jnp.bfloat16 else _wide_einsum)(subscripts, a, b, precision)


def _narrow(x: jax.Array) -> bool:
    return jnp.finfo(x.dtype).bits == 16


def _wide_einsum(subscripts: str, a: jax.Array, b: jax.Array, precision: str) -> jax.Array:
    wide = jnp.promote_types(b.dtype, jnp.float32)
    return jnp.einsum(subscripts, a, b, precision=precision, preferred_element_type=wide)


_rounding_einsum = jax.custom_jvp(_wide_einsum, nondiff_argnums=(0, 3))


@_rounding_einsum.defjvp
def _(subscripts: str, precision: str, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (a, b), (da, db) = primals, tangents
    out = _rounding_einsum(subscripts, a, b, precision)
    product = partial(jnp.einsum, subscripts, precision=precision)
    return out, product(da, b).astype(out.dtype) + product(a, db).astype(out.dtype)


def _plain_score(q_BKRD: jax.Array, k_BKSD: jax.Array, precision: str) -> jax.Array:
    return wide_product("BKRD,BKSD->BKRS", q_BKRD, k_BKSD, precision)


def _plain_mix(weights_BKRS: jax.Array, v_BKSD: jax.Array, precision: str) -> jax.Array:
    return wide_product("BKRS,BKSD->BKRD", weights_BKRS, v_BKSD, precision)


_score = jax.custom_jvp(_plain_score, nondiff_argnums=(2,))
_mix = jax.custom_jvp(_plain_mix, nondiff_argnums=(2,))


@_score.defjvp
def _(precision: str, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (q, k), (dq, dk) = primals, tangents
    by_key_BKSR = _plain_score(dk, q, precision)
    return _score(q, k, precision), _plain_score(dq, k, precision) + _transposed(by_key_BKSR)


@_mix.defjvp
def _(precision: str, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (weights, v), (d_weights, dv) = primals, tangents
    by_dim_BKDR = _plain_score(_transposed(dv), weights, precision)
    return _mix(weights, v, precision), _plain_mix(d_weights, v, precision) + _transposed(by_dim_BKDR)


def bits_in_place(x: jax.Array, index: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the bits of an array as unsigned integers, and an index, for a slice that is taken inside a loop on a CPU.

    XLA on a CPU cannot slice bfloat16: before the loop it would copy all of it to float32, or all integers without the barrier.
    """
    x, index = jax.lax.optimization_barrier((x, index))
    return jax.lax.bitcast_convert_type(x, f"uint{8 * x.dtype.itemsize}"), index


def _transposed(x: jax.Array) -> jax.Array:
    """Exchange the last two axes, as a copy before any product; the derivative copies too."""
    return jax.lax.optimization_barrier(jnp.swapaxes(jax.lax.optimization_barrier(x), -1, -2))
