"""Checks of arrays and batches of prompts before they reach jitted code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError, short
from sinkjax.model.config import Config


class Special(Protocol):
    """A tokenizer, for the ids that may be padding."""

    @property
    def bos(self) -> int | None: ...

    @property
    def special(self) -> list[int]: ...


def as_array(what: str, value: Any) -> Any:
    """Convert `value` to an array: JAX arrays, traced or not, are unchanged; anything else goes through NumPy.

    A PyTorch tensor may need a gradient, be sparse, on a GPU or in bfloat16, which becomes float32. Errors: those of `dense`; a
    masked array; rows of different lengths; another library's array that NumPy cannot read.
    """
    if isinstance(value, jax.Array):
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise SinkjaxError(f"{what} must be an array without a mask, because masked entries would be read too")
    if is_torch(value):
        value = dense(what, value)
    try:
        return np.asarray(_on_host(value) if is_torch(value) else value)
    except ValueError:
        raise SinkjaxError(f"{what} must be an array, but its rows have different lengths") from None
    except (TypeError, RuntimeError) as error:  # another library's array, which says why
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise SinkjaxError(f"{what} cannot be read as an array, so pass one of NumPy or JAX: {reason}") from None


def as_indices(what: str, value: Any) -> tuple[int, ...]:
    """Return an int or a sequence of ints as a tuple; raise for negative ints, booleans, fractions and empty sequences."""
    entries = np.asarray(as_array(f"a {what} selector", value))
    refuse(entries.size == 0, f"an empty {what} selector selects nothing")
    if entries.dtype.kind not in "iu" or entries.ndim > 1:
        raise SinkjaxError(f"a {what} selector must be an int, a sequence of ints, a slice or None, not {short(value)}")
    refuse(entries.min() < 0, f"{what} {entries.min()} is negative; layers, heads, positions and dims count from 0")
    return tuple(int(entry) for entry in entries.reshape(-1))


def is_torch(value: Any) -> bool:
    """Whether a value is a PyTorch tensor, without importing PyTorch."""
    return hasattr(value, "detach") and hasattr(value, "layout")


def dense(what: str, tensor: Any) -> Any:
    """Return a PyTorch tensor detached, with all of its numbers in order: a sparse or mkldnn one is copied.

    Errors: a tensor without numbers (on the meta device), with rows of different lengths (nested) or with packed numbers
    (quantised); one that PyTorch cannot turn into a dense one.
    """
    refuse(tensor.is_nested, f"{what} is a nested tensor, whose rows have different lengths: pass its to_padded_tensor(...)")
    refuse(tensor.is_meta, f"{what} is on the meta device, so it has no numbers: load it onto a real one")
    refuse(tensor.is_quantized, f"{what} is a quantised tensor: pass its dequantize()")
    try:
        tensor = tensor.detach()
        return (tensor if str(tensor.layout) == "torch.strided" else tensor.to_dense()).resolve_conj().resolve_neg()
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise SinkjaxError(f"{what} is a tensor without a dense form in PyTorch: {reason}") from None


def _on_host(tensor: Any) -> Any:
    """Return a dense PyTorch tensor as one that NumPy can read, with the same numbers."""
    tensor = tensor.cpu()
    return tensor.float() if str(tensor.dtype).startswith(("torch.bfloat16", "torch.float8")) else tensor


def as_tokens(what: str, value: Any, masked: bool = False) -> Any:
    """`as_array` of token ids. Errors: text, or a tokenizer's whole output, with what to pass instead.

    masked: whether the caller takes an attention mask.
    """
    if isinstance(value, Mapping):
        has = ", ".join(map(str, value)) or "nothing"
        mask = ', and its ["attention_mask"] as attention_mask' if masked else ", without padding"
        raise SinkjaxError(f'{what} must be token ids, not a {type(value).__name__} with {has}: pass its ["input_ids"]{mask}')
    if isinstance(value, str) or (isinstance(value, list | tuple) and value and all(isinstance(text, str) for text in value)):
        raise SinkjaxError(
            f"{what} must be token ids int [B, T], not text ({short(value)}): sinkjax.encode(model, texts) makes them"
        )
    return as_array(what, value)


def check_batch(
    tokens: Any, lengths: Any, config: Config, tokenizer: Special | None = None, attention_mask: Any = None
) -> tuple[jax.Array, jax.Array, np.ndarray]:
    """Return tokens and lengths as arrays, and the lengths known on the host (T if they are traced).

    tokens: int [B, T], or float [B, T, d] for a config without a vocabulary. lengths: int [B] or None (T for all). tokenizer: its
    special tokens count as padding where they lead a row. attention_mask: instead of lengths (`lengths_of`).
    Errors: wrong rank or kind; a token outside the vocabulary; a length of 0 or beyond T; T beyond the context; padding on the
    left.
    """
    tokens = as_tokens("tokens", tokens, masked=True)
    has, d = f"{tokens.dtype} {tuple(tokens.shape)}", config.width
    if config.vocab_size is None:
        vectors = tokens.ndim == 3 and jnp.issubdtype(tokens.dtype, jnp.floating) and tokens.shape[2] == d
        refuse(not vectors, f"a model without a vocabulary takes float [B, T, {d}], not {has}")
    else:
        refuse(tokens.ndim != 2 or tokens.dtype.kind not in "iu", f"tokens must be int [B, T], not {has}")
    B, T = tokens.shape[:2]
    refuse(B == 0 or T == 0, "the batch is empty: it has no prompt or no position")
    refuse_beyond_context(T, config)
    if attention_mask is not None:
        lengths = lengths_of(attention_mask, (B, T), lengths)
    if lengths is None:
        lengths = np.full(B, T, np.int32)
    known = np.full(B, T) if isinstance(lengths, jax.core.Tracer) else np.asarray(as_array("lengths", lengths))
    refuse(known.shape != (B,) or known.dtype.kind not in "iu", f"lengths must be int [{B}], not {known.dtype} {known.shape}")
    for prompt in np.flatnonzero((known < 1) | (known > T)):
        raise SinkjaxError(f"prompt {prompt} has length {known[prompt]}; it must have 1 to {T} tokens")
    if config.vocab_size is not None and not isinstance(tokens, jax.core.Tracer):
        refuse_outside(np.asarray(tokens), config.vocab_size)
        _refuse_left_padding(np.asarray(tokens), known, tokenizer)
        tokens = tokens.astype(np.int32) if tokens.dtype.itemsize < 4 else tokens
    lengths = lengths.astype(jnp.int32) if isinstance(lengths, jax.Array) else known.astype(np.int32)
    return jax.device_put(tokens), jax.device_put(lengths), known  # jnp.asarray would compile a program for each shape


def lengths_of(attention_mask: Any, shape: tuple[int, int], lengths: Any = None) -> np.ndarray:
    """Return the lengths int [B] of an attention mask [B, T], 1 for tokens and 0 for padding.

    lengths: those given in addition, if any. Errors: a traced mask; another shape; other values; padding on the left or between
    tokens; no token; contradicting lengths.
    """
    if isinstance(attention_mask, jax.core.Tracer) or isinstance(lengths, jax.core.Tracer):
        raise SinkjaxError("attention_mask cannot be checked while it is traced: pass lengths")
    mask = np.asarray(as_array("attention_mask", attention_mask))
    refuse(mask.shape != shape, f"attention_mask must have the shape of the tokens, {list(shape)}, not {list(mask.shape)}")
    refuse(mask.dtype.kind not in "biuf" or not ((mask == 0) | (mask == 1)).all(), "attention_mask must hold only 0 and 1")
    counted = mask.sum(axis=1).astype(np.int32)
    for b in np.flatnonzero((mask != (np.arange(shape[1]) < counted[:, None])).any(axis=1) | (counted == 0)):
        refuse(counted[b] == 0, f"attention_mask has no token in prompt {b}")
        refuse(not mask[b, 0], f"attention_mask pads prompt {b} on the left; {RIGHT}")
        raise SinkjaxError(f"attention_mask leaves out position {int(np.argmin(mask[b]))} of prompt {b}, before its end; {RIGHT}")
    if lengths is not None and not np.array_equal(as_array("lengths", lengths), counted):
        raise SinkjaxError(f"attention_mask has the lengths {short(counted.tolist())}, not {short(lengths)}: pass one of them")
    return counted


RIGHT = 'prompts are padded on the right (tokenizer.padding_side = "right", or sinkjax.encode)'


def _refuse_left_padding(tokens: np.ndarray, lengths: np.ndarray, tokenizer: Special | None) -> None:
    """Raise if a row of int [B, T] looks padded on the left, so that its first `lengths[b]` tokens are not its prompt.

    That is a leading run of one special token, or of any token that is as long as the padding and has a text behind the length.
    A BOS that is also the EOS may be alone at the start.
    """
    T = tokens.shape[1]
    for b in np.flatnonzero((lengths < T) & (tokens != tokens[:, :1]).any(axis=1)):
        row, pads, first = tokens[b], T - int(lengths[b]), int(tokens[b, 0])
        run, last = int(np.argmax(row != first)), int(row[-1])
        if tokenizer is not None and first in tokenizer.special:
            alone = pads == 1 and first != tokenizer.bos and last not in (0, *tokenizer.special)
            padded = run > 1 or alone
        else:
            padded = run > 1 and run >= pads and bool((row[-pads:] != last).any())
        if padded:
            raise SinkjaxError(
                f"prompt {b} begins with {run} x token {first} and has length {lengths[b]} of {T}: it looks padded on the left;"
                f" {RIGHT}; if these tokens are meant, run it alone as tokens[{b}:{b + 1}, :{lengths[b]}] without lengths"
            )


def refuse_beyond_context(T: int, config: Config) -> None:
    """Raise if T positions are more than the context."""
    refuse(T > config.context, f"{T} positions are more than the model's context of {config.context}")


def refuse_outside(ids: np.ndarray, vocab_size: int) -> None:
    """Raise if a token of int [B, T] is not in the vocabulary; the error names the first one."""
    for b, t in np.argwhere((ids < 0) | (ids.astype(np.uint64) >= vocab_size)):
        raise SinkjaxError(f"token {ids[b, t]} (prompt {b}, position {t}) is out of range: the vocabulary has {vocab_size}")
