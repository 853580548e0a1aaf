"""Named edits: one-line wrappers of `sinkjax.edit`, each with its meaning and its source.

Like `sinkjax.edit`, they raise `SinkjaxError` for a negative or empty selector, or a value that is not a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sinkjax.config_files.checks import refuse
from sinkjax.edits.edit import Edit, as_label, compose, describe, edit
from sinkjax.edits.term import Select, as_along
from sinkjax.edits.weights import OPS, WeightTerm
from sinkjax.errors import SinkjaxError, one_of, short
from sinkjax.model.site import Site

# The package, the reference and YAML know the edits by this list: a new named edit is one function here, and its name.
__all__ = (
    "add_logit", "attend_self", "drop_mlp", "edit_weights", "mask_key", "scale_head_output", "set_positions", "set_residual",
    "set_weights", "shift_positions", "swap_embeddings",
)  # fmt: skip


def mask_key(key: Select, layers: Select = None, heads: Select = None) -> Edit:
    """Hide a key (LOGITS: -inf) from every query except its own, so that no row becomes empty (Kiya et al. 2026, Fig. 4).

    Args:
        key: The position, or several: an int, a sequence, a slice or `per_prompt`; from 0.
        layers: The layers where it acts: an int, a sequence, a slice, or None for all; from 0.
        heads: The query heads, selected like `layers`.

    Returns:
        The edit.
    """
    name = describe("mask_key", key=key, layers=layers, heads=heads)
    return edit(Site.LOGITS, "set", -np.inf, keys=key, layers=layers, heads=heads, relation="others", label=name)


def attend_self(position: Select, layers: Select = None, heads: Select = None) -> Edit:
    """Let a query see only itself (LOGITS: -inf on all its other keys; Kiya et al. 2026, Fig. 5; Li et al. 2026).

    Args:
        position: The query, or several: an int, a sequence, a slice or `per_prompt`; from 0.
        layers: The layers where it acts: an int, a sequence, a slice, or None for all; from 0.
        heads: The query heads, selected like `layers`.

    Returns:
        The edit.
    """
    name = describe("attend_self", position=position, layers=layers, heads=heads)
    return edit(Site.LOGITS, "set", -np.inf, queries=position, layers=layers, heads=heads, relation="others", label=name)


def add_logit(key: Select, value: Any, layers: Select = None, heads: Select = None) -> Edit:
    """Add a value to every query's score for a key (LOGITS), including the key's own query. Neutral at 0.

    Args:
        key: The position, or several: an int, a sequence, a slice or `per_prompt`; from 0.
        value: The number to add, on the scale of the scores: a float, or float [L, B, H]; -inf masks the key.
        layers: The layers where it acts: an int, a sequence, a slice, or None for all; from 0.
        heads: The query heads, selected like `layers`.

    Returns:
        The edit.
    """
    name = describe("add_logit", key=key, value=value, layers=layers, heads=heads)
    return edit(Site.LOGITS, "add", value, keys=key, layers=layers, heads=heads, label=name)


def swap_embeddings(i: Any, j: Any) -> Edit:
    """Swap two rows of the input embedding (EMBED); the loss keeps its targets (Kiya et al. 2026, Fig. 2).

    Args:
        i: The first position: int, or int [B] if it differs per prompt.
        j: The second position, like `i`. Neutral at i == j.

    Returns:
        The edit.

    Raises:
        SinkjaxError: A position is not an int, or `i` and `j` are for different numbers of prompts.
    """
    for position in (i, j):
        if np.asarray(position).dtype.kind not in "iu" or np.asarray(position).ndim > 1:
            raise SinkjaxError(f"swap_embeddings takes int positions or one per prompt, not {short(position)}")
    if np.ndim(i) and np.ndim(j) and len(i) != len(j):
        raise SinkjaxError(f"swap_embeddings takes one position per prompt on both sides, not {len(i)} and {len(j)}")
    value = np.stack(np.broadcast_arrays(i, j), axis=-1)
    return edit(Site.EMBED, "swap", value, label=describe("swap_embeddings", i=i, j=j))


def set_positions(query: Any = None, key: Any = None, layers: Select = None) -> Edit:
    """Set the rotary indices of queries and of keys (POSITION); the causal mask still follows the array index.

    Args:
        query: The indices of queries: int, int [T] or int [B, T]; None leaves them unchanged.
        key: The indices of keys, like `query`.
        layers: The layers where it acts: an int, a sequence, a slice, or None for all; from 0.

    Returns:
        The edit.

    Raises:
        SinkjaxError: Both `query` and `key` are None.
    """
    return _positions("set", query, key, layers)


def shift_positions(query: Any = None, key: Any = None, layers: Select = None) -> Edit:
    """Shift the rotary indices of queries and of keys (POSITION; Kiya et al. 2026, section 3). Neutral at 0.

    Args:
        query: The shift of the queries' indices: int, int [T] or int [B, T]; None leaves them unchanged.
        key: The shift of the keys' indices, like `query`.
        layers: The layers where it acts: an int, a sequence, a slice, or None for all; from 0.

    Returns:
        The edit.

    Raises:
        SinkjaxError: Both `query` and `key` are None.
    """
    return _positions("shift", query, key, layers)


def _positions(op: str, query: Any, key: Any, layers: Select) -> Edit:
    everywhere = slice(None)
    parts = []
    if query is not None:
        parts.append(edit(Site.POSITION, op, query, queries=everywhere, layers=layers))
    if key is not None:
        parts.append(edit(Site.POSITION, op, key, keys=everywhere, layers=layers))
    refuse(not parts, f"{op}_positions needs query=, key= or both")
    return compose(*parts, label=describe(f"{op}_positions", query=query, key=key, layers=layers))


def scale_head_output(
    position: Select, factor: Any, centre: str | None = None, layers: Select = None, heads: Select = None
) -> Edit:
    """Scale the outputs of heads (HEAD_OUT), about 0 or about their mean (variance amplification, Li et al. 2026, section D.2).

    Args:
        position: The position, or several: an int, a sequence, a slice or `per_prompt`; from 0.
        factor: o becomes factor o, or mu + factor (o - mu) if centred: a float, or an array in any shape that `sinkjax.edit`
            accepts. Neutral at 1.
        centre: None (the control, which scales the norm), "dims" (mu over the head's dims) or "positions" (mu over positions
            <= i).
        layers: The layers where it acts: an int, a sequence, a slice, or None for all; from 0.
        heads: The query heads, selected like `layers`.

    Returns:
        The edit.

    Raises:
        SinkjaxError: `centre` has another value.
    """
    name = describe("scale_head_output", position=position, factor=factor, centre=centre, layers=layers, heads=heads)
    return edit(Site.HEAD_OUT, "scale", factor, queries=position, layers=layers, heads=heads, centre=centre, label=name)


def set_residual(position: Select, value: Any, dims: Select = None, layers: Select = None) -> Edit:
    """Set dims of the residual stream after block l (RESID), such as massive activations (Sun et al. 2024, Table 3).

    Args:
        position: The position, or several: an int, a sequence, a slice or `per_prompt`; from 0.
        value: The new value: a float, float [dims], or a donor from another run, float [B, dims] or [L, B, dims].
        dims: The dims: an int, a sequence, a slice, or None for all; from 0.
        layers: The blocks after which it acts, selected like `dims`.

    Returns:
        The edit.
    """
    name = describe("set_residual", position=position, value=value, dims=dims, layers=layers)
    return edit(Site.RESID, "set", value, queries=position, dims=dims, layers=layers, label=name)


def drop_mlp(position: Select, layers: Select = None) -> Edit:
    """Let a token skip the MLP (MLP_OUT: scaled by 0; Queipo-de-Llano et al. 2026: BOS, at the onset layer).

    Args:
        position: The position, or several: an int, a sequence, a slice or `per_prompt`; from 0.
        layers: The layers where it acts: an int, a sequence, a slice, or None for all; from 0.

    Returns:
        The edit.
    """
    name = describe("drop_mlp", position=position, layers=layers)
    return edit(Site.MLP_OUT, "scale", 0.0, queries=position, layers=layers, label=name)


def set_weights(query: Any, distribution: Any, layers: Select = None, heads: Select = None) -> Edit:
    """Replace a query's row of attention weights (WEIGHTS), regardless of its scores.

    Args:
        query: The position, from 0.
        distribution: The weights of keys 0 to `query`, float [query + 1]; or {key: weight}, with 0 for all other keys. They must
            be at least 0 and sum to 1. Keys of equal weight share one term, so uniform attention needs few.
        layers: The layers where it acts: an int, a sequence, a slice, or None for all; from 0.
        heads: The query heads, selected like `layers`.

    Returns:
        The edit.

    Raises:
        SinkjaxError: The query is not an int of at least 0; the weights have the wrong length, are negative, or do not sum to 1;
            a key comes after the query.
    """
    if isinstance(query, bool) or not isinstance(query, int | np.integer) or query < 0:
        raise SinkjaxError(f"set_weights takes one query, an int of at least 0, not {short(query)}")
    by_key = distribution if isinstance(distribution, Mapping) else dict(enumerate(np.ravel(distribution).tolist()))
    try:
        weights = np.array([*by_key.values()], float)
    except (TypeError, ValueError):
        weights = np.array([np.nan])
    whole = isinstance(distribution, Mapping) or len(by_key) == query + 1
    fits = whole and bool((weights >= 0).all()) and abs(weights.sum() - 1) < 1e-6
    refuse(not fits, f"a distribution over keys 0 to {query} needs weights >= 0 that sum to 1, not {short(distribution)}")

    def row(weight: float, keys: Select) -> Edit:
        return edit(Site.WEIGHTS, "set", weight, queries=int(query), keys=keys, layers=layers, heads=heads)

    of_weight: dict[float, list[int]] = {}
    for key, weight in by_key.items():
        if isinstance(key, bool) or not isinstance(key, int | np.integer) or not 0 <= key <= query:
            raise SinkjaxError(f"query {query} sees keys 0 to {query}, not {short(key)}")
        of_weight.setdefault(float(weight), []).append(int(key))
    parts = [row(weight, keys) for weight, keys in of_weight.items() if weight]
    shown = " ".join(f"{key}: {weight:g}" for key, weight in by_key.items() if weight)
    name = describe("set_weights", query=query, distribution=shown if len(shown) <= 40 else "...", layers=layers, heads=heads)
    return compose(row(0.0, None), *parts, label=name)


def edit_weights(
    name: str, op: str, value: Any, *, layers: Select = None, rows: Select = None, cols: Select = None, label: str | None = None
) -> Edit:
    """Change entries of a parameter of the blocks, such as a super weight (Yu et al. 2024, arXiv 2411.07191).

    Args:
        name: A matrix ("q", "k", "v", "o", "gate", "up", "down"), a norm's gain or a bias ("attn_norm", "q_bias", ...), by its
            name in `model.params["layers"]`.
        op: "set" (w = v), "add" (w = w + v) or "scale" (w = w v).
        value: A float; an array over the chosen rows and columns, [rows, cols] or [L, rows, cols] (for a vector, [cols] or [L,
            cols]; axes may be 1); or, with `add`, the two factors of a low-rank change, [rows, k] and [k, cols].
        layers: An int, a sequence, a slice or None (all), from 0.
        rows: Inputs of the matrix, selected in the same way: dims of the residual stream; neurons for "down"; head * head_dim +
            dim for "o".
        cols: Outputs of the matrix, selected in the same way: neurons; dims of the residual stream for "down" and "o"; head *
            head_dim + dim for "q", "k" and "v". In a vector, its entries.
        label: Name of the edit in results; by default a description.

    Returns:
        The edit, not yet checked against a model; one with a sink token is refused. Results agree only up to rounding with those
        of a model whose weights were changed, because the change is added to the product.

    Raises:
        SinkjaxError: The operation is unknown; a selector is negative or empty; two factors are given and the operation is not
            `add`.
    """
    one_of("operation on weights", op, OPS)
    refuse(isinstance(value, tuple) and (len(value) != 2 or op != "add"), "a low-rank change (two factors) requires op='add'")
    chosen = {"layers": layers, "rows": rows, "cols": cols}
    along = {which: as_along(which, selector) for which, selector in chosen.items()}
    term: Any = WeightTerm(value, str(name), op, **along)  # a WeightTerm has the methods of a Term
    described = describe(f"{op} {name} weights", value="low rank" if isinstance(value, tuple) else value, **chosen)
    return Edit((term,), as_label(label) if label else described)
