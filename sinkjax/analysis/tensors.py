"""Records of attention maps and hidden states that another program computed, such as a training loop in PyTorch or Flax.

Shape suffixes: L layers, B prompts, H heads, T positions, d residual width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkjax.analysis.records import AXES
from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError, short

if TYPE_CHECKING:
    from sinkjax.probes.record import Record

Tensors = Any  # an array of NumPy, JAX or PyTorch, or a sequence with one for each layer
AHEAD = 1e-6  # the largest weight on a later key that may be rounding


def from_tensors(
    attention: Tensors = None, hidden: Tensors = None, lengths: ArrayLike | None = None, last_is_normed: bool = True
) -> Record:
    """Reduce attention maps and hidden states to the record that all functions of `sinkjax.metrics` accept.

    Arrays may come from NumPy, JAX or PyTorch, in any floating-point dtype, on any device, and may need a gradient: each layer
    is detached, copied to the host if it is not there, and reduced in float32 (float64 stays).

    Args:
        attention: Weights after the softmax, [B, H, T, T] (one layer; queries, then keys), [L, B, H, T, T], or a sequence of
            [B, H, T, T] with one entry per layer, like `outputs.attentions` of transformers.
        hidden: Residual streams, [D, B, T, d] with one entry per depth, or a sequence of [B, T, d], like `outputs.hidden_states`.
            The first one counts as depth 0, which is the embedding there.
        lengths: int [B], number of tokens of each prompt, padded on the right; None: all T.
        last_is_normed: Whether the last entry of `hidden` has passed the model's final norm, as in transformers. This cannot be
            undone, so its depth is then NaN. False if all entries are residual streams.

    Returns:
        From `attention`: `attention_received` and `attention_share` [B, L, H, T]. From `hidden`: `resid_max`, `resid_norm`,
        `resid_median`, `resid_first_cosine` [B, D, T], and `state_median` [B, D]. Entries beyond a prompt's length are NaN.

    Raises:
        SinkjaxError: Neither array is given; an array has another shape, or is not of floats; layers differ in shape; a query
            gives weight to a later key; lengths do not fit.
    """
    from sinkjax.probes.record import Record

    refuse(attention is None and hidden is None, "from_tensors needs attention, hidden or both")
    values: dict[str, NDArray[Any]] = {}
    sizes = {}
    for what, given, axes, reduced in (("attention", attention, "BHTT", _received), ("hidden", hidden, "BTd", _sizes)):
        if given is None:
            continue
        layers = _layers(what, given, axes)
        sizes[what] = B, T = _shape(layers[0])[0], _shape(layers[0])[axes.index("T")]
        known = _known(lengths, B, T)
        by_layer = [reduced(_on_host(what, layer), known) for layer in layers]
        if what == "hidden" and last_is_normed:
            refuse(len(layers) == 1, "hidden has one entry, which counts as normed: pass last_is_normed=False if it is not")
            by_layer[-1] = {name: np.full_like(value, np.nan) for name, value in by_layer[-1].items()}
        values |= {name: np.stack([layer[name] for layer in by_layer], axis=1) for name in by_layer[0]}
    if len({*sizes.values()}) > 1:
        (B, T), hidden_size = sizes.values()
        raise SinkjaxError(f"attention has {B} prompts of {T} positions, but hidden has {hidden_size}")
    return Record(values, {name: AXES[name] for name in values})


def _layers(what: str, given: Tensors, axes: str) -> list[Any]:
    """Split an argument into layers with these axes; only attention may be a single layer. Errors: other shapes."""
    from sinkjax.model.batch import dense, is_torch  # deferred because it imports JAX

    given, square = dense(what, given) if is_torch(given) else given, axes == "BHTT"
    if isinstance(given, list | tuple):
        layers = [dense(what, layer) if is_torch(layer) else layer for layer in given]
    elif len(_shape(given)) == len(axes) and square:
        layers = [given]
    else:
        layers = [given[layer] for layer in range(*_shape(given)[:1])]
    shapes, each = list(dict.fromkeys(map(_shape, layers))), ", ".join(axes)
    if len(shapes) != 1 or len(shapes[0]) != len(axes) or 0 in shapes[0] or (square and shapes[0][-2] != shapes[0][-1]):
        has = " and ".join(str(list(shape)) for shape in shapes) if isinstance(given, list | tuple) else list(_shape(given))
        wanted = f"{f'[{each}], ' * square}[L, {each}] or a sequence of [{each}]"
        raise SinkjaxError(f"{what} must be {wanted}, not of shape {has or 'none'}")
    return layers


def _shape(array: Any) -> tuple[int, ...]:
    return tuple(map(int, getattr(array, "shape", ())))


def _on_host(what: str, layer: Any) -> NDArray[Any]:
    """Return a layer's array, at least float32. Errors: it is not of floats."""
    from sinkjax.model.batch import as_array  # deferred because it imports JAX

    array = np.asarray(as_array(what, layer))
    refuse(array.dtype.kind != "f" and array.dtype.name != "bfloat16", f"{what} must be floats, not {array.dtype}")
    return array.astype(np.result_type(array.dtype, np.float32), copy=False)


def _known(lengths: ArrayLike | None, B: int, T: int) -> NDArray[np.int_]:
    """Return the lengths, int [B]. Errors: others than 1 to T for each prompt."""
    from sinkjax.model.batch import as_array  # deferred because it imports JAX

    found = np.full(B, T) if lengths is None else np.asarray(as_array("lengths", lengths))
    if found.shape != (B,) or found.dtype.kind not in "iu" or found.min() < 1 or found.max() > T:
        raise SinkjaxError(f"lengths must be {B} ints from 1 to {T}, not {short(lengths)}")
    return found


def _received(weights: NDArray[Any], lengths: NDArray[np.int_]) -> dict[str, NDArray[Any]]:
    """Average the weights [B, H, T, T] over the queries that see each key: [B, H, T]. Errors: a weight on a later key."""
    T = weights.shape[-1]
    real = np.arange(T) < lengths[:, None]
    if not real.all():  # rows of padding may be NaN
        weights = np.where((real[:, :, None] & real[:, None, :])[:, None], weights, 0)
    if (np.abs(weights) > AHEAD).any(where=np.triu(np.ones((T, T), bool), 1)):
        raise SinkjaxError("attention has weight on later keys, but these metrics are for causal attention, [..., query, key]")
    seen_by = np.where(real, lengths[:, None] - np.arange(T), np.nan)[:, None].astype(weights.dtype)
    rows, size = real[:, None, :].astype(weights.dtype), np.abs(weights)
    received = np.einsum("bhq,bhqk->bhk", np.broadcast_to(rows, weights.shape[:-1]), weights)
    share = np.einsum("bhq,bhqk->bhk", rows / (size.sum(axis=-1) + 1e-8), size)
    return {"attention_received": received / seen_by, "attention_share": share / seen_by}


def _sizes(h: NDArray[Any], lengths: NDArray[np.int_]) -> dict[str, NDArray[Any]]:
    """Reduce hidden states [B, T, d] to the statistics of each position [B, T], and their medians [B]."""
    real = np.arange(h.shape[1]) < lengths[:, None]
    size = np.abs(h)
    norms = np.linalg.norm(h, axis=-1)
    cosine = np.einsum("btd,bd->bt", h, h[:, 0]) / np.maximum(norms * norms[:, :1], np.finfo(h.dtype).tiny)
    found = {
        "resid_max": size.max(axis=-1),
        "resid_norm": norms,
        "resid_median": np.median(size, axis=-1),
        "resid_first_cosine": cosine,
    }
    of_prompts = np.array([np.median(each[:length]) for each, length in zip(size, lengths, strict=True)], h.dtype)
    return {name: np.where(real, value, np.nan).astype(h.dtype) for name, value in found.items()} | {"state_median": of_prompts}
