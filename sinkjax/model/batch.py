"""Checks of arrays and batches of prompts before they reach jitted code."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config


def as_array(what: str, value: Any) -> Any:
    """Convert `value` to an array: JAX arrays, traced or not, are unchanged; anything else goes through NumPy."""
    if isinstance(value, jax.Array):
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise SinkjaxError(f"{what} must be an array without a mask, because masked entries would be read too")
    try:
        return np.asarray(value)
    except ValueError:
        raise SinkjaxError(f"{what} must be an array, but its rows have different lengths") from None


def check_batch(tokens: Any, lengths: Any, config: Config) -> tuple[jax.Array, jax.Array, np.ndarray]:
    """Return tokens and lengths as arrays, and the lengths known on the host (T if they are traced).

    tokens: int [B, T], or float [B, T, d] for a config without a vocabulary. lengths: int [B] or None (T for all).
    Errors: wrong rank or kind; a token outside the vocabulary; a length of 0 or beyond T; T beyond the context.
    """
    tokens = as_array("tokens", tokens)
    if config.vocab_size is None:
        if tokens.ndim != 3 or not jnp.issubdtype(tokens.dtype, jnp.floating) or tokens.shape[2] != config.width:
            raise SinkjaxError(
                f"a model without a vocabulary takes float [B, T, {config.width}], not {tokens.dtype} {tuple(tokens.shape)}"
            )
    elif tokens.ndim != 2 or tokens.dtype.kind not in "iu":
        raise SinkjaxError(f"tokens must be int [B, T], not {tokens.dtype} {tuple(tokens.shape)}")
    B, T = tokens.shape[:2]
    refuse(B == 0 or T == 0, "the batch is empty: it has no prompt or no position")
    refuse_beyond_context(T, config)
    if lengths is None:
        lengths = np.full(B, T, np.int32)
    known = np.full(B, T) if isinstance(lengths, jax.core.Tracer) else np.asarray(as_array("lengths", lengths))
    refuse(known.shape != (B,) or known.dtype.kind not in "iu", f"lengths must be int [{B}], not {known.dtype} {known.shape}")
    if known.min() < 1 or known.max() > T:
        prompt = int(np.argmax((known < 1) | (known > T)))
        raise SinkjaxError(f"prompt {prompt} has length {known[prompt]}; it must have 1 to {T} tokens")
    if config.vocab_size is not None and not isinstance(tokens, jax.core.Tracer):
        refuse_outside(np.asarray(tokens), config.vocab_size)
        tokens = tokens.astype(np.int32) if tokens.dtype.itemsize < 4 else tokens
    return jnp.asarray(tokens), jnp.asarray(lengths, jnp.int32), known


def refuse_beyond_context(T: int, config: Config) -> None:
    """Raise if T positions are more than the context."""
    refuse(T > config.context, f"{T} positions are more than the model's context of {config.context}")


def refuse_outside(ids: np.ndarray, vocab_size: int) -> None:
    """Raise if a token of int [B, T] is not in the vocabulary; the error names the first one."""
    wrong = (ids < 0) | (ids.astype(np.uint64) >= vocab_size)
    if wrong.any():
        b, t = np.argwhere(wrong)[0]
        raise SinkjaxError(f"token {ids[b, t]} (prompt {b}, position {t}) is out of range: the vocabulary has {vocab_size}")
