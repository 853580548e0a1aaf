"""Whether resolved terms address anything that attention shows, and leave every query a key: checked on the host."""

from __future__ import annotations

import jax
import numpy as np

from sinkjax.edits.site import SITES, Site
from sinkjax.edits.term import Edits, Resolved
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.model.positions import in_prefix, visible_keys

PAIRS = (Site.LOGITS, Site.WEIGHTS)


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
