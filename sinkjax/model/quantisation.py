"""Fake quantisation: round numbers to values that a few bits can represent, and compute in the model's own dtype.

Rounding is symmetric, with 2^(bits - 1) - 1 steps on either side of zero and the largest absolute value as the last of them
(absmax calibration); the floats of a block format have a scale for each block of dims instead. Rotations are
randomised Hadamard matrices, as in QuaRot (Ashkboos et al. 2024, arXiv 2404.00456): x W = (x R) (R^T W), so both factors can be
rounded after the rotation. Shape suffixes: B prompts, T positions, G groups of dims
that have a scale of their own, D dims of a group.

Block formats are four-bit floats in blocks that share a scale, as recent GPUs compute them: NVFP4 and MXFP4.
An element is E2M1: 0, 0.5, 1, 1.5, 2, 3, 4 or 6, with a sign. MXFP4 (OCP Microscaling Formats, version 1.0) has blocks of 32 with
a power of two as scale (E8M0), so that the largest element lies in the top binade, where values above 6 saturate. NVFP4 has
blocks of 16 with a scale in E4M3, times one float32 scale of the tensor that maps its largest value to 448 times 6.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.config_files.checks import refuse
from sinkjax.errors import one_of, short

LARGEST, LARGEST_SCALE = 6.0, 448.0  # E2M1's and E4M3's


@dataclass(frozen=True)
class BlockFormat:
    """A format: the size of its blocks along the last axis, and the scale of each block.

    scale: Maps the largest |x| of each block, and of the whole tensor, to the scales of the blocks.
    """

    block: int
    scale: Callable[[jax.Array, jax.Array], jax.Array]

    def rounded(self, x: jax.Array, axes: tuple[int, ...], counts: jax.Array | None = None) -> jax.Array:
        """Round x, float [..., D], and compute in at least float32; a last block may be shorter.

        axes: the axes of one tensor, the last included. counts: the entries that are rounded, broadcast against x; others do not
        affect the scale of the tensor.
        """
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        blocks = jnp.pad(wide, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % self.block)])
        blocks = blocks.reshape(*x.shape[:-1], -1, self.block)
        size = jnp.abs(wide) if counts is None else jnp.where(counts, jnp.abs(wide), 0)
        whole = size.max(axis=axes, keepdims=True)[..., None]
        scale = self.scale(jnp.abs(blocks).max(axis=-1, keepdims=True), whole)
        return (e2m1(blocks / jnp.where(scale > 0, scale, 1)) * scale).reshape(*x.shape[:-1], -1)[..., : x.shape[-1]]


def e2m1(x: jax.Array) -> jax.Array:
    """Round to the nearest E2M1 value, ties to the even one; larger values saturate."""
    size = jnp.minimum(jnp.abs(x), LARGEST)
    step = jnp.where(size < 2, 0.5, jnp.where(size < 4, 1.0, 2.0))
    return jnp.sign(x) * jnp.round(size / step) * step


def _mx(top: jax.Array, whole: jax.Array) -> jax.Array:
    del whole
    _, exponent = jnp.frexp(top)  # top = m 2^exponent with m in [0.5, 1); the top binade of E2M1 begins at 2^2
    return jnp.where(top > 0, jnp.ldexp(jnp.ones_like(top), jnp.clip(exponent - 3, -127, 127)), 0)


def _nv(top: jax.Array, whole: jax.Array) -> jax.Array:
    tensor = whole / (LARGEST * LARGEST_SCALE)
    tensor = jnp.where(tensor > 0, tensor, 1)
    scale = jnp.minimum(top / LARGEST / tensor, LARGEST_SCALE)
    return scale.astype(jnp.float8_e4m3fn).astype(top.dtype) * tensor


BLOCK_FORMATS = {"nvfp4": BlockFormat(16, _nv), "mxfp4": BlockFormat(32, _mx)}
SCALES = ("tensor", "channel", "token")
MATRICES = {"q": 1, "k": 1, "v": 1, "o": 2, "gate": 1, "up": 1, "down": 1}  # leaf -> axes of its input, except for summed heads
LARGEST_FACTOR = 64  # a product with a Hadamard matrix of a power of two is done by factors of at most this size


@dataclass(frozen=True, kw_only=True)
class Quantisation:
    """Numbers of bits for a model. Norms, biases, gates, the embedding and the unembedding are unchanged.

    Attributes:
        weights: Bits of the matrices of attention and the MLP, 2 to 16, or a block format ("nvfp4", "mxfp4"), whose blocks lie
            along the input of a matrix and along the dims of a vector, whatever `scale`; None for no rounding.
        activations: Bits of the inputs that these matrices multiply, in each expert of a mixture, but not in its router.
        kv: Bits of keys and values in their cached form: keys after their rotary rotation, or before it under a cache policy.
        scale: The unit that shares a scale. For activations, keys and values: "tensor", one prompt, over the tokens that are
            computed at a time; "channel", each dim of it; "token", each token, and each head of keys and values. Of weights:
            "tensor", a matrix; else each of its outputs.
        rotate: Whether to apply a randomised Hadamard rotation before rounding and its inverse afterwards.
    """

    weights: int | str | None = None
    activations: int | str | None = None
    kv: int | str | None = None
    scale: str = "tensor"
    rotate: bool = False

    def __post_init__(self) -> None:
        for name in ("weights", "activations", "kv"):
            bits: Any = getattr(self, name)
            fits = bits is None or (type(bits) is int and 2 <= bits <= 16) or (isinstance(bits, str) and bits in BLOCK_FORMATS)
            formats = " or ".join(f'"{entry}"' for entry in BLOCK_FORMATS)
            refuse(not fits, f"{name} must be None or a number of bits from 2 to 16, or {formats}, not {short(bits)}")
        one_of("scale", self.scale, SCALES)
        refuse(not isinstance(self.rotate, bool), f"rotate must be True or False, not {self.rotate!r}")

    @property
    def off(self) -> bool:
        """Whether it changes nothing."""
        return self.weights is None and self.activations is None and self.kv is None and not self.rotate

    def params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return a model's parameters with its matrices rounded."""
        if self.weights is None and not self.rotate:
            return dict(params)
        done = self._matrices({name: w for name, w in params["layers"].items() if name in MATRICES})
        return {**params, "layers": {**params["layers"], **done}}

    def vectors(self, x: jax.Array, bits: int | str | None, groups: int, chosen: jax.Array) -> jax.Array:
        """Round vectors of tokens, x [B, T, ...]. chosen: bool [B, T], which; others do not affect the scale."""
        if bits is None and not self.rotate:
            return x
        x_BTGD = x.reshape(*x.shape[:2], groups, -1)
        turned = rotate(x_BTGD) if self.rotate else x_BTGD
        if bits is not None:
            counts = chosen[:, :, None, None]
            axes = {"tensor": (1, 2, 3), "channel": (1,), "token": (3,)}[self.scale]
            turned = jnp.where(counts, _to_bits(turned, bits, (1, 2, 3), axes, counts), turned)
        return (rotate(turned, back=True) if self.rotate else turned).reshape(x.shape).astype(x.dtype)

    @functools.partial(jax.jit, static_argnums=0)  # one program for all of them
    def _matrices(self, matrices: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {name: self._matrix(name, w) for name, w in matrices.items()}

    def _matrix(self, name: str, w: jax.Array) -> jax.Array:
        """Round a stack of matrices [L, (experts,) inputs, outputs]."""
        inputs = min(MATRICES[name], w.ndim - 2)  # one axis of summed heads
        begin = 2 if name in ("gate", "up", "down") and w.ndim == 4 else 1
        stack, inner, outer = w.shape[:begin], w.shape[begin : begin + inputs], w.shape[begin + inputs :]
        flat = w.reshape(*stack, math.prod(inner), math.prod(outer)).swapaxes(-1, -2)  # outputs, inputs
        flat = rotate(flat) if self.rotate else flat
        if self.weights is not None:
            flat = _to_bits(flat, self.weights, (-2, -1), (-2, -1) if self.scale == "tensor" else (-1,))
        flat = rotate(flat, back=True) if self.rotate else flat
        return flat.swapaxes(-1, -2).reshape(w.shape).astype(w.dtype)


def _to_bits(
    x: jax.Array, bits: int | str, whole: tuple[int, ...], axes: tuple[int, ...], counts: jax.Array | None = None
) -> jax.Array:
    """Round to a block format, or to a number of bits. whole: the axes of one tensor. axes: those that share a scale of bits."""
    return BLOCK_FORMATS[bits].rounded(x, whole, counts) if isinstance(bits, str) else rounded(x, bits, axes, counts)


def rounded(x: jax.Array, bits: int, axes: Sequence[int], counts: jax.Array | None = None) -> jax.Array:
    """Return s round(x / s), with s = max |x| / (2^(bits - 1) - 1) over `axes`, among entries that count; at least float32."""
    steps = 2 ** (bits - 1) - 1
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    size = jnp.abs(wide) if counts is None else jnp.where(counts, jnp.abs(wide), 0)
    top = size.max(axis=tuple(axes), keepdims=True)
    scale = jnp.where(top > 0, top, 1) / steps
    return jnp.clip(jnp.round(wide / scale), -steps, steps) * scale


def rotate(x: jax.Array, back: bool = False) -> jax.Array:
    """Return x R over the last axis, or x R^T, for R = diag(signs) H / sqrt(n), using the Kronecker factors of H (+1 and -1).

    If no H of this width is known, R has blocks of the largest power of two that divides it.
    """
    n = x.shape[-1]
    parts = factors(n)
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    signs = jnp.asarray(np.random.default_rng(0).integers(0, 2, n) * 2 - 1, wide.dtype)
    wide = wide if back else wide * signs
    wide = wide.reshape(*x.shape[:-1], *(len(part) for part in parts))
    for number, part in enumerate(parts):
        axis = number - len(parts)
        matrix = jnp.asarray(part.T if back else part, wide.dtype)
        wide = jnp.moveaxis(jnp.matmul(jnp.moveaxis(wide, axis, -1), matrix, precision="highest"), -1, axis)
    wide = wide.reshape(x.shape)
    return (wide * signs if back else wide).astype(x.dtype)


@functools.cache
def factors(n: int) -> tuple[np.ndarray, ...]:
    """Return orthogonal factors whose Kronecker product has width n; each has entries of equal size, or is an identity."""
    from scipy.linalg import hadamard

    twos = n & -n
    odd = n // twos
    parts: list[np.ndarray] = []
    made = [matrix for power in range(twos.bit_length()) if (matrix := _paley(odd * 2**power)) is not None]
    if odd > 1:
        parts.append(made[0] / math.sqrt(len(made[0])) if made else np.eye(odd))
    rest = n // len(made[0]) if odd > 1 and made else twos
    while rest > 1:
        size = min(rest, LARGEST_FACTOR)
        parts.append(hadamard(size, float) / math.sqrt(size))
        rest //= size
    return tuple(parts) or (np.eye(1),)


def _paley(n: int) -> np.ndarray | None:
    """Return a Hadamard matrix of width n by Paley's first or second construction over a prime field, or None."""
    for prime, second in ((n - 1, False), (n // 2 - 1, True)):
        fits = prime % 4 == (1 if second else 3) and n == (2 * (prime + 1) if second else prime + 1)
        if prime < 3 or not fits or any(prime % factor == 0 for factor in range(2, math.isqrt(prime) + 1)):
            continue
        squares = {value * value % prime for value in range(1, prime)}
        of = np.array([0] + [1 if value in squares else -1 for value in range(1, prime)], float)
        core = np.ones((prime + 1, prime + 1))
        core[0, 0] = 0
        core[1:, 1:] = of[np.subtract.outer(np.arange(prime), np.arange(prime)) % prime]
        if second:
            return np.kron(core, [[1, 1], [1, -1]]) + np.kron(np.eye(prime + 1), [[1, -1], [-1, -1]])
        core[1:, 0] = -1
        return core + np.eye(prime + 1)
    return None
