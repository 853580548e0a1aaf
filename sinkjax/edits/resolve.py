"""From what a user asks to the arrays that jitted code sees, with every check that the host can make.

A resolved edit is a tuple of `Resolved`, one per term. Its pytree structure and shapes are the *kind* of the edit: edits of one
kind stack along a leading axis and compile once, whatever their layers, heads, positions and strengths. Nothing in it has T x T
entries, so thousands of stacked edits cost kilobytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from sinkjax.arrays import as_array
from sinkjax.edits.edit import Along, Edit, PerPrompt, Range, Selector, Term, as_edits, compose
from sinkjax.edits.site import SITES, Site, axis_size, lacks
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.model.masks import in_prefix, visible_keys

PAIRS = (Site.LOGITS, Site.WEIGHTS)


@struct.dataclass
class Resolved:
    """One term as arrays.

    layer_head: bool [L, H], [L, K] or [L, 1] by the site's head axis. query, key: bool [B or 1, T], the selected positions (a
    site with one position axis uses the one of its name). dims: bool [size of the last axis, or 1]. value: int [B or 1, T] at
    POSITION, int [B or 1, 2] for a swap, else float [L or 1, B or 1, (H or 1,) (dims or 1)], with the head and dims axes that
    the site has. distance: bool [T], the selected distances of a query from its key, or None for all.
    """

    layer_head: Any
    query: Any
    key: Any
    dims: Any
    value: Any
    site: Site = struct.field(pytree_node=False)
    op: str = struct.field(pytree_node=False)
    relation: str = struct.field(pytree_node=False)
    renormalise: bool = struct.field(pytree_node=False)
    centre: str | None = struct.field(pytree_node=False)
    distance: Any = None

    def for_prompts(self, prompts: np.ndarray) -> Resolved:
        """The same term for some prompts of the batch, by number."""
        axis = 0 if self.site == Site.POSITION or self.op == "swap" else 1

        def take(array: Any, axis: int) -> Any:
            return array if array.shape[axis] == 1 else array.take(prompts, axis)

        return dataclasses.replace(self, query=take(self.query, 0), key=take(self.key, 0), value=take(self.value, axis))


Edits = tuple[Resolved, ...]


def resolve(edits: Edit | Sequence[Edit], config: Config, lengths: Sequence[int] | np.ndarray, T: int) -> Edits:
    """Check edits (composed left to right) against a model and a batch of prompts of these lengths, padded to T.

    Errors: a layer, head, position or dim out of range; a position beyond a prompt's end; a value whose shape does not fit or
    that is not finite (LOGITS also takes -inf); a term that addresses no causally visible cell; a row of attention left without
    a key.
    """
    edit = compose(*as_edits(edits))
    lengths = np.asarray(lengths)
    try:
        resolved = tuple(_term(term, config, lengths, T) for term in edit.terms)
    except SinkjaxError as error:
        raise SinkjaxError(f"{edit.label}: {error}") from None
    for term, arrays in zip(edit.terms, resolved, strict=True):
        if not _addresses_something(arrays, config, lengths):
            raise SinkjaxError(f"{edit.label} addresses no causally visible cell at {term.site.name}: it would do nothing")
    _refuse_empty_rows(edit.label, resolved, config, lengths, T)
    return resolved


def first_layer(edits: Edits, config: Config) -> int:
    """The first block whose computation the edits can change; blocks before it give the baseline's numbers.

    RESID at layer l changes nothing inside of block l, but the record of depth l + 1: it starts at l all the same.
    """
    starts = [0 if term.site == Site.EMBED else int(np.argmax(np.asarray(term.layer_head).any(axis=1))) for term in edits]
    return min(starts, default=config.layers)


def _term(term: Term, config: Config, lengths: np.ndarray, T: int) -> Resolved:
    spec = SITES[term.site]
    if missing := lacks(config, term.site):
        raise SinkjaxError(f"nothing can be edited at {term.site.name}: this model has {missing}")
    layers = _mask("layer", term.layers, config.layers)
    heads = _mask(
        "head" if spec.heads != "kv_head" else "key-value head", term.heads, axis_size(config, spec.heads) if spec.heads else 1
    )
    query, key = _positions(term, lengths, T)
    dims = _mask("dim", term.dims, axis_size(config, spec.dims) if spec.dims else 1)
    if term.site == Site.POSITION:
        value = _indices(term.value, len(lengths), T)
    elif term.op == "swap":
        value = _swap(term.value, lengths)
    else:
        value = _value(term, config, len(lengths), dims)
    return Resolved(
        layer_head=layers[:, None] & heads[None, :],
        query=query,
        key=key,
        dims=dims,
        value=value,
        site=term.site,
        op=term.op,
        relation=term.relation,
        renormalise=term.renormalise,
        centre=term.centre,
        distance=None if term.distances is None else _mask("distance", term.distances, T),
    )


def _mask(what: str, selector: Along, size: int) -> np.ndarray:
    """A selector along an axis as bool [size]."""
    chosen = np.zeros(size, bool)
    if selector is None:
        chosen[:] = True
    elif isinstance(selector, Range):
        if selector.stop is not None and selector.stop > size:
            raise SinkjaxError(f"{what} slice ends at {selector.stop}, but there are {size}")
        chosen[selector.start : selector.stop : selector.step] = True
        if not chosen.any():
            raise SinkjaxError(f"the {what} slice {selector.start}:{selector.stop} selects nothing of {size}")
    else:
        for entry in selector:
            if entry >= size:
                raise SinkjaxError(f"{what} {entry} is out of range: there are {size}, 0 to {size - 1}")
            chosen[entry] = True
    return chosen


def _positions(term: Term, lengths: np.ndarray, T: int) -> tuple[np.ndarray, np.ndarray]:
    """Both position masks, bool [B or 1, T]. At POSITION, a side that is not named is off if the other one is."""
    query, key = (_position_mask(what, selector, lengths, T) for what, selector in (("query", term.queries), ("key", term.keys)))
    if term.site == Site.POSITION and term.queries is None and term.keys is not None:
        query = np.zeros_like(query)
    if term.site == Site.POSITION and term.keys is None and term.queries is not None:
        key = np.zeros_like(key)
    return query, key


def _position_mask(what: str, selector: Selector, lengths: np.ndarray, T: int) -> np.ndarray:
    rows: tuple[Along, ...] = selector.positions if isinstance(selector, PerPrompt) else (selector,)
    if isinstance(selector, PerPrompt) and len(rows) != len(lengths):
        raise SinkjaxError(f"per_prompt gives {what} positions for {len(rows)} prompts, the batch has {len(lengths)}")
    for b, length in enumerate(lengths):
        row = rows[b % len(rows)]
        last = max(row) if isinstance(row, tuple) else 0
        if T > last >= length:
            raise SinkjaxError(f"{what} position {last} is beyond prompt {b}, which has {length} tokens (0 to {length - 1})")
    return np.stack([_mask(f"{what} position", row, T) for row in rows])


def _indices(value: Any, B: int, T: int) -> Any:
    """A POSITION value as int [B or 1, T]."""
    xp = jnp if isinstance(value, jax.Array) else np
    array = as_array("rotary indices", value)
    if array.dtype.kind not in "iu":
        raise SinkjaxError(f"rotary indices are integers, not {array.dtype}")
    if array.shape not in ((), (T,), (B, T)):
        raise SinkjaxError(f"rotary indices must have shape (), ({T},) or ({B}, {T}), not {tuple(array.shape)}")
    return xp.broadcast_to(array, (B if array.ndim == 2 else 1, T)).astype(xp.int32)


def _swap(value: Any, lengths: np.ndarray) -> np.ndarray:
    """A swap as int [B or 1, 2]."""
    pairs = np.atleast_2d(as_array("a swap", value))
    if pairs.dtype.kind not in "iu":
        raise SinkjaxError(f"a swap needs integer positions, not {value!r}")
    if pairs.shape not in ((1, 2), (len(lengths), 2)):
        raise SinkjaxError(
            f"a swap needs one pair of positions, or one for each of {len(lengths)} prompts, not shape {pairs.shape}"
        )
    for b, length in enumerate(lengths):
        for position in pairs[b % len(pairs)]:
            if not 0 <= position < length:
                raise SinkjaxError(
                    f"swap position {position} is not in prompt {b}, which has {length} tokens (0 to {length - 1})"
                )
    return pairs.astype(np.int32)


def _value(term: Term, config: Config, B: int, dims: np.ndarray) -> Any:
    """A value in its canonical rank; traced values stay traced."""
    spec, L = SITES[term.site], config.layers
    xp = jnp if isinstance(term.value, jax.Array) else np
    value = as_array("the value of an edit", term.value)
    if value.dtype.kind not in "iuf" and not jnp.issubdtype(value.dtype, jnp.floating):
        raise SinkjaxError(f"the value of an edit is a number, not {value.dtype}")
    value = value.astype(jnp.result_type(float))  # float64 where the caller enabled it, else float32
    if not isinstance(value, jax.core.Tracer):
        _refuse_non_finite(term, np.asarray(value))
    tail = ["heads"] * (spec.heads is not None) + ["dims"] * (spec.dims is not None)
    rank = 2 + len(tail)
    if value.ndim and not (spec.dims is not None and value.ndim <= 3) and value.ndim != rank:
        raise SinkjaxError(
            f"a value at {term.site.name} has rank 0{', 1, 2, 3' if spec.dims else ''} or {rank}, not {value.ndim}"
        )
    if spec.heads and spec.dims and 0 < value.ndim < rank:
        value = value[..., None, :]  # a donor without a head axis serves every selected head
    value = value.reshape((1,) * (rank - value.ndim) + value.shape)
    allowed: list[tuple[int, ...]] = [(1, L), (1, B)]
    if spec.heads:
        allowed.append((1, axis_size(config, spec.heads)))
    if spec.dims:
        allowed.append((1, int(dims.sum()), dims.size))
    for axis, (size, sizes) in enumerate(zip(value.shape, allowed, strict=True)):
        if size not in sizes:
            name = ["layers", "prompts", *tail][axis]
            raise SinkjaxError(
                f"a value at {term.site.name} has {size} entries over {name}; allowed: {', '.join(map(str, sorted(set(sizes))))}"
            )
    chosen = np.array(list(dict.fromkeys(term.dims))) if isinstance(term.dims, tuple) else np.flatnonzero(dims)
    if spec.dims and 1 < value.shape[-1] == len(chosen):
        full = xp.zeros((*value.shape[:-1], dims.size), value.dtype)  # one entry per chosen dim, in the order they were named
        value = full.at[..., chosen].set(value) if xp is jnp else _put(full, chosen, value)
    return value


def _put(full: np.ndarray, chosen: np.ndarray, value: np.ndarray) -> np.ndarray:
    full[..., chosen] = value
    return full


def _refuse_non_finite(term: Term, value: np.ndarray) -> None:
    masks = (value == -np.inf) & (term.site == Site.LOGITS)
    if not np.isfinite(value[~masks]).all():
        raise SinkjaxError(
            f"the value of an edit at {term.site.name} must be finite{' or -inf' if term.site == Site.LOGITS else ''}"
        )


def _addresses_something(term: Resolved, config: Config, lengths: np.ndarray) -> bool:
    """Whether a selected cell is within a prompt and, for pairs, causally visible (the relation does not count here)."""
    if term.site == Site.POSITION or term.op == "swap":
        return True
    if term.site not in PAIRS:
        chosen = term.key if SITES[term.site].positions == ("keys",) else term.query
        return bool((chosen & (np.arange(chosen.shape[1]) < lengths[:, None])).any())
    T = term.query.shape[1]
    layers = np.flatnonzero(term.layer_head.any(axis=1))
    rows = np.arange(T)
    for window in {config.windows[layer] if config.windows else None for layer in layers}:
        if term.distance is not None:
            if _any_at_distance(term, lengths, window or T, config.prefix or 0):
                return True
            continue
        upto = np.concatenate([np.zeros((len(term.key), 1), int), np.cumsum(term.key, axis=1)], axis=1)
        seen = upto[:, rows + 1] - upto[:, np.maximum(rows + 1 - (window or T), 0)]  # selected keys that each row sees
        seen = seen + (term.key & in_prefix(T, config.prefix, lengths)).sum(axis=1, keepdims=True)
        if ((seen > 0) & term.query & (rows < lengths[:, None])).any():
            return True
    return False


def _any_at_distance(term: Resolved, lengths: np.ndarray, window: int, prefix: int) -> bool:
    """Whether a selected query of a prompt sees a selected key at a selected distance back."""
    T = term.query.shape[1]
    queries = term.query & (np.arange(T) < lengths[:, None])
    reach = {back: T if back < window else prefix for back in np.flatnonzero(term.distance)}  # the keys seen at this distance
    return any((queries[:, back:][:, :keys] & term.key[:, : T - back][:, :keys]).any() for back, keys in reach.items())


def _refuse_empty_rows(label: str, edits: Edits, config: Config, lengths: np.ndarray, T: int) -> None:
    """Raise if the composed masks leave a query of a prompt without any key, in some layer and head."""
    masks = [term for term in edits if _masks(term)]
    if all(term.relation == "others" or not (term.distance is None or term.distance[0]) for term in masks):  # own keys stay
        return
    hit = np.stack([_masked_at(term, len(lengths)) for term in masks], axis=-1)  # [L, H, B, masks]
    patterns: dict[tuple, tuple[int, int]] = {}
    for layer, head in np.argwhere(hit.any(axis=(2, 3))):
        window = config.windows[layer] if config.windows else None
        patterns.setdefault((window, hit[layer, head].tobytes()), (int(layer), int(head)))
    for (window, _), (layer, head) in patterns.items():
        for start in range(0, T, 256):
            rows = np.arange(start, min(start + 256, T))
            visible = visible_keys(rows, T, window, config.prefix, lengths)
            for term, prompts in zip(masks, hit[layer, head].T, strict=True):
                cells = term.query[:, rows, None] & term.key[:, None, :] & _related(term, rows, T)
                visible = visible & ~(cells & prompts[:, None, None])
            empty = ~visible.any(axis=-1) & (rows < lengths[:, None])
            if empty.any():
                prompt, row = np.argwhere(empty)[0]
                raise SinkjaxError(
                    f"{label} masks every key of query {start + row} (prompt {prompt}, layer {layer}, head {head})"
                )


def _masks(term: Resolved) -> bool:
    traced = isinstance(term.value, jax.core.Tracer)
    return (
        term.site == Site.LOGITS and term.op in ("set", "add") and not traced and bool((np.asarray(term.value) == -np.inf).any())
    )


def _masked_at(term: Resolved, B: int) -> np.ndarray:
    """Where a LOGITS term puts -inf: bool [L, H, B]."""
    masked = np.moveaxis(np.asarray(term.value) == -np.inf, 1, 2)
    return np.broadcast_to(term.layer_head[:, :, None] & masked, (*term.layer_head.shape, B))


def _related(term: Resolved, rows: np.ndarray, T: int) -> np.ndarray:
    """The pairs that the relation and the distances leave: bool [rows, T]."""
    back = rows[:, None] - np.arange(T)[None, :]
    related = {"any": np.ones_like(back, bool), "self": back == 0, "others": back != 0}[term.relation]
    return related if term.distance is None else related & (back >= 0) & term.distance[back]
