"""The spectrum of a prompt's hidden states X [T, d], and what Queipo-de-Llano et al. (2026, section 3) read from it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import sinkjax
from sinkjax.studies.papers.background._position import real


def _scaled(x: Any, view: Any) -> Any:
    """x [B, T, d] over its largest |x|, so that squares stay in range; zeros beyond each prompt's length."""
    import jax.numpy as jnp

    x = real(x, view)
    return x / jnp.abs(x).max(axis=(1, 2), keepdims=True)


def spectrum(x: Any, view: Any) -> Any:
    """Shares p_j = sigma_j^2 / ||X||_F^2 of the squared singular values, in descending order: [B, T] from [B, T, d]."""
    import jax.numpy as jnp

    x = _scaled(x, view)
    squares = jnp.maximum(jnp.linalg.eigvalsh(jnp.einsum("BTd,BSd->BTS", x, x, precision="highest"))[:, ::-1], 0)
    return squares / squares.sum(axis=-1, keepdims=True)


@functools.cache
def bound_by(position: int) -> Callable[[Any, Any], Any]:
    """The lower bound on p_1 from a position's norm and its alignment with the others (Theorem 1, corollary): [B].

    M = ||x_k||^2, R = sum of ||x_i||^2 over the others, alpha R = sum of ||x_i||^2 cos^2(x_i, x_k):
    p_1 >= (M + alpha R) / (M + R).
    """

    def bound(x: Any, view: Any) -> Any:
        import jax.numpy as jnp

        x = _scaled(x, view)
        one = x[:, position]
        M = jnp.square(one).sum(axis=-1)
        along = jnp.square(jnp.einsum("BTd,Bd->BT", x, one, precision="highest")).sum(axis=-1) / M  # its own M included
        return along / jnp.square(x).sum(axis=(1, 2))

    return bound


def statistics(position: int) -> tuple[sinkjax.Statistic, sinkjax.Statistic]:
    """The spectrum at each depth, and the bound on its largest share."""
    return (
        sinkjax.Statistic("spectrum", sinkjax.Site.RESID, spectrum, ("prompt", "depth", "rank")),
        sinkjax.Statistic("bound", sinkjax.Site.RESID, bound_by(position), ("prompt", "depth")),
    )


def matrix_entropy(shares: ArrayLike) -> NDArray:
    """-sum p log2 p over the last axis, in bits, with 0 log 0 = 0."""
    shares = np.asarray(shares, np.float64)
    return -(shares * np.log2(np.where(shares > 0, shares, 1))).sum(axis=-1)


def correlation(x: NDArray, y: NDArray) -> NDArray:
    """Pearson's r along the last axis, NaN where either is constant or there are fewer than three values."""
    if x.shape[-1] < 3:
        return np.full(x.shape[:-1], np.nan)
    x, y = x - x.mean(axis=-1, keepdims=True), y - y.mean(axis=-1, keepdims=True)
    size = np.sqrt((x**2).sum(axis=-1) * (y**2).sum(axis=-1))
    return np.divide((x * y).sum(axis=-1), size, out=np.full(x.shape[:-1], np.nan), where=size > 0)
