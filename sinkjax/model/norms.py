"""Norms for the residual stream, queries and keys: frozen records that name their parameters and compute the norm.

A norm at the leaf NAME reads its gain there and its bias at NAME_bias. Sources. RMSNorm: Zhang & Sennrich 2019; with a gain
around 1: Gemma; LayerNorm: Ba et al. 2016, without a bias in MPT, without either in OLMo, with a gain around 1 in Nemotron;
single-scale RMSNorm: Park et al. 2025, arXiv 2506.19697; DynamicTanh: Zhu et al. 2025, arXiv 2503.10622.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from sinkjax.config_files.checks import is_number, refuse
from sinkjax.model.ops import rms_norm

Weights = Mapping[str, jax.Array]


@dataclass(frozen=True)
class Norm(ABC):
    """A norm over the last axis, computed in at least float32 and returned in the dtype of its input.

    single: the learned parts that are one number for all dims, with a last axis of 1.
    """

    eps: float
    single: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        refuse(not is_number(self.eps) or not self.eps >= 0, f"the epsilon of a norm must be at least 0, not {self.eps}")

    @abstractmethod
    def learned(self) -> Mapping[str, str]:
        """Initialisers by suffix of the leaf's name ("" for the gain, "_bias", ...)."""

    @abstractmethod
    def __call__(self, x: jax.Array, w: Weights, name: str, at: jax.Array | None = None) -> jax.Array:
        """Norm x with the parameters of the leaf `name` of w, whose last axis matches x's.

        at: the array, broadcastable to x, that determines the scale; None for x. If given, the norm is affine in x
        ("frozen").
        """


@dataclass(frozen=True)
class RMSNorm(Norm):
    """x * gain / sqrt(mean(x^2) + eps)."""

    def learned(self) -> Mapping[str, str]:
        return {"": "ones"}

    def __call__(self, x: jax.Array, w: Weights, name: str, at: jax.Array | None = None) -> jax.Array:
        return rms_norm(x, w[name], self.eps, at)


@dataclass(frozen=True)
class SingleScaleRMSNorm(RMSNorm):
    """An RMSNorm with one gain for all dims, so that no dim is scaled separately."""

    single: ClassVar[tuple[str, ...]] = ("",)


@dataclass(frozen=True)
class OffsetRMSNorm(Norm):
    """x * (1 + gain) / sqrt(mean(x^2) + eps)."""

    def learned(self) -> Mapping[str, str]:
        return {"": "zeros"}

    def __call__(self, x: jax.Array, w: Weights, name: str, at: jax.Array | None = None) -> jax.Array:
        return rms_norm(x, 1 + w[name].astype(jnp.promote_types(x.dtype, jnp.float32)), self.eps, at)


@dataclass(frozen=True)
class LayerNorm(Norm):
    """(x - mean) * gain / sqrt(variance + eps) + bias. gain, bias: whether it has them."""

    gain: bool = True
    bias: bool = True

    def learned(self) -> Mapping[str, str]:
        return ({"": "ones"} if self.gain else {}) | ({"_bias": "zeros"} if self.bias else {})

    def __call__(self, x: jax.Array, w: Weights, name: str, at: jax.Array | None = None) -> jax.Array:
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        centred = wide - wide.mean(axis=-1, keepdims=True)
        measured = centred if at is None else at.astype(wide.dtype) - at.astype(wide.dtype).mean(axis=-1, keepdims=True)
        normed = centred * jax.lax.rsqrt(jnp.square(measured).mean(axis=-1, keepdims=True) + self.eps)
        normed = normed * w[name] if self.gain else normed
        return (normed + w[f"{name}_bias"] if self.bias else normed).astype(x.dtype)


@dataclass(frozen=True)
class OffsetLayerNorm(Norm):
    """(x - mean) * (1 + gain) / sqrt(variance + eps) + bias."""

    def learned(self) -> Mapping[str, str]:
        return {"": "zeros", "_bias": "zeros"}

    def __call__(self, x: jax.Array, w: Weights, name: str, at: jax.Array | None = None) -> jax.Array:
        return LayerNorm(self.eps)(x, {name: 1 + w[name], f"{name}_bias": w[f"{name}_bias"]}, name, at)


@dataclass(frozen=True)
class DynamicTanh(Norm):
    """tanh(alpha * x) * gain + bias, with one learned alpha for all dims: no dim depends on another.

    eps: the size of alpha * x below which tanh counts as the identity, only for the slope (see `at`).
    """

    eps: float = 1e-5
    single: ClassVar[tuple[str, ...]] = ("_alpha",)

    def learned(self) -> Mapping[str, str]:
        return {"": "ones", "_bias": "zeros", "_alpha": "half"}

    def __call__(self, x: jax.Array, w: Weights, name: str, at: jax.Array | None = None) -> jax.Array:
        wide = jnp.promote_types(x.dtype, jnp.float32)
        alpha, x_wide = w[f"{name}_alpha"].astype(wide), x.astype(wide)
        if at is None:
            flat = jnp.tanh(alpha * x_wide)
        else:  # the slope of the line from 0 to the measured point
            inner = alpha * at.astype(wide)
            small = jnp.abs(inner) <= self.eps
            flat = alpha * x_wide * jnp.where(small, 1, jnp.tanh(inner) / jnp.where(small, 1, inner))
        return (flat * w[name] + w[f"{name}_bias"]).astype(x.dtype)


def gains(norm: Norm, stored: jax.Array) -> jax.Array:
    """Return a norm's factor: the stored gain, plus 1 if the norm stores it around 1; at least float32."""
    wide = stored.astype(jnp.promote_types(stored.dtype, jnp.float32))
    return wide + (norm.learned()[""] == "zeros")


@dataclass(frozen=True)
class EachHead:
    """`norm` of each head's queries and keys, with separate parameters per head (StableLM 2)."""

    norm: Norm


@dataclass(frozen=True)
class AllHeads:
    """`norm` over all heads of the queries, and of the keys, as one vector (OLMo 2)."""

    norm: Norm

    def __post_init__(self) -> None:
        refuse(bool(self.norm.single), f"{type(self.norm).__name__} over all heads has one number per head; choose EachHead")


@dataclass(frozen=True)
class AfterRotation:
    """`norm` of each head's queries and keys after their rotation, with parameters shared by all heads (Hunyuan)."""

    norm: Norm


# Norms of queries and keys; a plain norm acts on each head, with parameters shared by all heads (Qwen3).
QueryKeyNorm = Norm | EachHead | AllHeads | AfterRotation


def normed_heads(x: jax.Array, w: Weights, name: str, norm: QueryKeyNorm, at: jax.Array | None = None) -> jax.Array:
    """Norm queries or keys [..., heads, D] before their rotation. at: see `Norm`, in the shape of x."""
    if isinstance(norm, AfterRotation):
        return x
    if isinstance(norm, AllHeads):
        flat = {leaf: w[leaf].reshape(-1) for leaf in (name + part for part in norm.norm.learned())}
        at = None if at is None else at.reshape(*at.shape[:-2], -1)
        return norm.norm(x.reshape(*x.shape[:-2], -1), flat, name, at).reshape(x.shape)
    return (norm.norm if isinstance(norm, EachHead) else norm)(x, w, name, at)


def normed_late(x: jax.Array, w: Weights, name: str, norm: QueryKeyNorm | None, at: jax.Array | None = None) -> jax.Array:
    """Norm queries or keys [..., heads, D] after their rotation, if the model does. at: see `Norm`, rotated."""
    return norm.norm(x, w, name, at) if isinstance(norm, AfterRotation) else x
