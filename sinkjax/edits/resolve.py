"""Resolve declared terms to arrays, with every check of selectors and values that is possible on the host.

The composed terms must address at least one causally visible cell and leave each query at least one key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.config_files.checks import LARGEST, refuse
from sinkjax.edits.term import Along, Edits, PerPrompt, Resolved, Selector, Term, as_numbers, selected
from sinkjax.edits.weights import WeightTerm
from sinkjax.errors import SinkjaxError, short
from sinkjax.model.batch import as_array
from sinkjax.model.config import Config
from sinkjax.model.positions import in_prefix, visible_keys
from sinkjax.model.site import PAIRS, SITES, Site, axis_size, lacks


def resolve_all(terms: Sequence[Term | WeightTerm], config: Config, lengths: np.ndarray, T: int) -> Edits:
    """Resolve all terms. Errors: those of `Edit.resolve`, except for cells of attention and rows without a key."""
    resolved: Any = [term.resolve(config) if isinstance(term, WeightTerm) else _term(term, config, lengths, T) for term in terms]
    for injected in (term for term in resolved if term.op == "inject"):
        sources = (injected.site, Site.ATTN_IN) if injected.site in (Site.Q_IN, Site.K_IN, Site.V_IN) else (injected.site,)
        for term in resolved:
            if term.op != "inject" and term.site in sources:
                both = f"inject at {injected.site.name} and {term.op} at {term.site.name}"
                raise SinkjaxError(f"{both} cannot be composed: inject norms the stream again, without the other change")
    return tuple(resolved)


def _term(term: Term, config: Config, lengths: np.ndarray, T: int) -> Resolved:
    """Resolve a term at a site."""
    spec = SITES[term.site]
    if missing := lacks(config, term.site):
        raise SinkjaxError(f"nothing can be edited at {term.site.name}: this model has {missing}")
    layers = selected("layer", term.layers, config.layers)
    if term.site == Site.POSITION:
        layers &= [config.rope_of(layer) is not None for layer in range(config.layers)]
        refuse(not layers.any(), "nothing can be edited at POSITION: these layers have no rotary positions")
    what = "key-value head" if spec.heads == "kv_head" else "head"
    heads = selected(what, term.heads, axis_size(config, spec.heads) if spec.heads else 1)
    query, key = _positions(term, lengths, T)
    dims = selected("dim", term.dims, axis_size(config, spec.dims) if spec.dims else 1)
    if term.site == Site.POSITION:
        value = _indices(term, len(lengths), T)
    elif term.op == "swap":
        value = _swap(term.value, lengths)
    else:
        value = _value(term, config, len(lengths), T, dims)
    distance = None if term.distances is None else selected("distance", term.distances, T)
    static = {name: getattr(term, name) for name in ("site", "op", "relation", "renormalise", "centre")}
    return Resolved(layers[:, None] & heads[None, :], query, key, dims, value, distance=distance, **static)


def _positions(term: Term, lengths: np.ndarray, T: int) -> tuple[np.ndarray, np.ndarray]:
    """Return both position masks, bool [B or 1, T]. At POSITION, naming only one side turns the other off."""
    query, key = _position_mask("query", term.queries, lengths, T), _position_mask("key", term.keys, lengths, T)
    if term.site == Site.POSITION and (term.queries is None) != (term.keys is None):
        query, key = query & (term.queries is not None), key & (term.keys is not None)
    return query, key


def _position_mask(what: str, selector: Selector, lengths: np.ndarray, T: int) -> np.ndarray:
    rows: tuple[Along, ...] = selector.positions if isinstance(selector, PerPrompt) else (selector,)
    if isinstance(selector, PerPrompt) and len(rows) != len(lengths):
        raise SinkjaxError(f"per_prompt has {what} positions for {len(rows)} prompts, but the batch has {len(lengths)}")
    last = np.array([max(row) if isinstance(row, tuple) else 0 for row in rows])
    beyond = np.flatnonzero((last < T) & (last >= lengths))
    if beyond.size:
        b = int(beyond[0])
        position, length = last[b % len(rows)], lengths[b]
        raise SinkjaxError(f"{what} position {position} is beyond prompt {b}, which has {length} tokens (0 to {length - 1})")
    return np.stack([selected(f"{what} position", row, T) for row in rows])


def refuse_far_positions(label: str, terms: Sequence[Resolved], T: int) -> None:
    """Raise if the rotary indices of several terms could add up to more than 32 bits."""
    values = [term.value for term in terms if term.site == Site.POSITION and not isinstance(term.value, jax.core.Tracer)]
    total = T - 1 + sum(int(np.abs(np.asarray(value, np.int64)).max()) for value in values)
    if len(values) > 1 and total > LARGEST:
        raise SinkjaxError(f"{label} moves rotary indices by up to {total} in all, more than {LARGEST}, the largest of 32 bits")


def _indices(term: Term, B: int, T: int) -> Any:
    """Return a POSITION value as int [B or 1, T]; a shift plus its base must fit in 32 bits."""
    xp = jnp if isinstance(term.value, jax.Array) else np
    array = as_array("rotary indices", term.value)
    whole = array.dtype.kind in "iu" or (array.dtype.kind == "O" and all(type(index) is int for index in array.flat))
    if whole and array.size and not isinstance(array, jax.core.Tracer):  # NumPy stores larger integers as objects
        low, high = int(array.min()), int(array.max()) + (T - 1 if term.op == "shift" else 0)
        if not (-LARGEST <= low and high <= LARGEST):
            worst = high if high > LARGEST else low
            raise SinkjaxError(f"rotary indices are 32-bit integers, at most {LARGEST}, but one would be {worst}")
    refuse(array.dtype.kind not in "iu", f"rotary indices are integers, not {array.dtype}")
    if array.shape not in ((), (T,), (B, T)):
        raise SinkjaxError(f"rotary indices must have shape (), ({T},) or ({B}, {T}), not {tuple(array.shape)}")
    return xp.broadcast_to(array, (B if array.ndim == 2 else 1, T)).astype(xp.int32)


def _swap(value: Any, lengths: np.ndarray) -> np.ndarray:
    """Return a swap as int [B or 1, 2]."""
    pairs = np.atleast_2d(as_array("a swap", value))
    refuse(pairs.dtype.kind not in "iu", f"a swap needs integer positions, not {short(value)}")
    fits = pairs.shape in ((1, 2), (len(lengths), 2))
    refuse(not fits, f"a swap needs one pair of positions, or one for each of {len(lengths)} prompts, not shape {pairs.shape}")
    for b, length in enumerate(lengths):
        for position in pairs[b % len(pairs)]:
            there = 0 <= position < length
            refuse(not there, f"swap position {position} is not in prompt {b}, which has {length} tokens (0 to {length - 1})")
    return pairs.astype(np.int32)


def _value(term: Term, config: Config, B: int, T: int, dims: np.ndarray) -> Any:
    """Reshape a value to its canonical rank; traced values stay traced."""
    spec, L = SITES[term.site], config.layers
    xp = jnp if isinstance(term.value, jax.Array) else np
    value = as_numbers(term.value)
    may_mask = term.site == Site.LOGITS
    if not isinstance(value, jax.core.Tracer) and not (np.isfinite(value) | ((value == -np.inf) & may_mask)).all():
        raise SinkjaxError(f"the value of an edit at {term.site.name} must be finite{' or -inf' * may_mask}")
    tail = ["heads"] * (spec.heads is not None) + ["dims"] * (spec.dims is not None)
    rank = 2 + len(tail)
    ranks = sorted({0, 1, 2, 3, rank, rank + 1} if spec.dims else {0, rank, rank + (term.site == Site.WEIGHTS)})
    if value.ndim not in ranks:
        allowed_ranks = f"{', '.join(map(str, ranks[:-1]))} or {ranks[-1]}"
        raise SinkjaxError(f"a value at {term.site.name} has rank {allowed_ranks}, not {value.ndim}")
    if value.ndim > rank:
        tail, rank = ["positions", *tail] if spec.dims else [*tail, "keys"], rank + 1
    if spec.heads and spec.dims and 0 < value.ndim < rank:
        value = value[..., None, :]  # a donor without a head axis serves every selected head
    value = value.reshape((1,) * (rank - value.ndim) + value.shape)
    allowed = {"layers": {1, L}, "prompts": {1, B}, "positions": {1, T}, "keys": {T}}
    allowed["heads"] = {1, axis_size(config, spec.heads) if spec.heads else 1}
    allowed["dims"] = {1, int(dims.sum()), dims.size}
    for name, size in zip(("layers", "prompts", *tail), value.shape, strict=True):
        if size not in allowed[name]:
            sizes = ", ".join(map(str, sorted(allowed[name])))
            raise SinkjaxError(f"a value at {term.site.name} has {size} entries over {name}; allowed: {sizes}")
    chosen = np.array(list(dict.fromkeys(term.dims))) if isinstance(term.dims, tuple) else np.flatnonzero(dims)
    if spec.dims and 1 < value.shape[-1] == len(chosen):
        place = np.full(dims.size, -1)  # each dim's index among the chosen ones, in the order named; -1: the appended 0
        place[chosen] = np.arange(len(chosen))
        value = xp.pad(value, [(0, 0)] * (value.ndim - 1) + [(0, 1)])[..., place]
    return value


def refuse_beyond(label: str, terms: Sequence[Resolved], dtype: str) -> None:
    """Raise if a value would become infinite in the run's dtype; scores and factors are float32 in every dtype."""
    limit = float(jnp.finfo(dtype).max)
    for term in terms:
        scored = term.site in (*PAIRS, Site.POSITION) or term.op not in ("set", "add", "inject")
        leaves = jax.tree.leaves(term.value)
        if scored or any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
            continue
        largest = max(float(np.abs(np.asarray(leaf, np.float64)).max(initial=0.0)) for leaf in leaves)
        value = f"{label}: the value {largest:g} of an edit at {getattr(term.site, 'name', term.site)}"
        refuse(largest > limit, f"{value} overflows {dtype}, whose largest number is {limit:.8g}")


def addresses_something(term: Resolved, config: Config, lengths: np.ndarray) -> bool:
    """Whether a selected cell is within a prompt and, for pairs, causally visible (the relation does not count here)."""
    if term.site == Site.POSITION or term.op == "swap" or not isinstance(term, Resolved):
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


def refuse_empty_rows(label: str, edits: Edits, config: Config, lengths: np.ndarray, T: int) -> None:
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
            empty = np.argwhere(~visible.any(axis=-1) & (rows < lengths[:, None]))
            if len(empty):
                prompt, row = empty[0]
                where = f"query {start + row} (prompt {prompt}, layer {layer}, head {head})"
                raise SinkjaxError(f"{label} masks every key of {where}")


def _masks(term: Resolved) -> bool:
    known = term.site == Site.LOGITS and not isinstance(term.value, jax.core.Tracer)
    return known and bool((np.asarray(term.value) == -np.inf).any())


def _masked_at(term: Resolved, B: int) -> np.ndarray:
    """Return where a LOGITS term is -inf: bool [L, H, B]."""
    masked = np.moveaxis(np.asarray(term.value) == -np.inf, 1, 2)
    return np.broadcast_to(term.layer_head[:, :, None] & masked, (*term.layer_head.shape, B))


def _related(term: Resolved, rows: np.ndarray, T: int) -> np.ndarray:
    """Return the pairs that the relation and the distances keep: bool [rows, T]."""
    back = rows[:, None] - np.arange(T)[None, :]
    related = {"any": np.ones_like(back, bool), "self": back == 0, "others": back != 0}[term.relation]
    return related if term.distance is None else related & (back >= 0) & term.distance[back]
