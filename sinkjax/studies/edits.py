"""Edits as words: sinkjax's constructors under their own names, more that studies share, and the layers where they act."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

import sinkjax
from sinkjax.edits.site import BEFORE_BLOCKS
from sinkjax.errors import SinkjaxError
from sinkjax.studies.scope import Cell, EditWord, Scope
from sinkjax.studies.words import as_tuple

if TYPE_CHECKING:
    from sinkjax.edits.term import Range, Term
    from sinkjax.edits.weights import WeightTerm
    from sinkjax.model.config import Config


def _lowered(constructor: str, scope: Scope, **arguments: object) -> sinkjax.Edit:
    """Make one of sinkjax's own edits from evaluated arguments; None means the constructor's default."""
    found = {name: scope.get(value) for name, value in arguments.items()}
    given = {name: list(value) if isinstance(value, tuple) else value for name, value in found.items() if value is not None}
    return getattr(sinkjax, constructor)(**given)


def _own(name: str, needed: str, optional: str = "") -> Callable[..., EditWord]:
    """Make a word of a sinkjax constructor; its arguments are listed here because importing it would import JAX."""
    keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(argument, keyword) for argument in needed.split()]
    parameters += [inspect.Parameter(argument, keyword, default=None) for argument in optional.split()]
    return EditWord.define(name, inspect.Signature(parameters))(partial(_lowered, name))


PLACES = "layers heads"
OF_EDIT = "layers heads kv_heads queries keys dims distances relation renormalise centre label"
add_logit = _own("add_logit", "key value", PLACES)
attend_self = _own("attend_self", "position", PLACES)
drop_mlp = _own("drop_mlp", "position", "layers")
edit = _own("edit", "site op value", OF_EDIT)
mask_key = _own("mask_key", "key", PLACES)
scale_head_output = _own("scale_head_output", "position factor", f"centre {PLACES}")
set_positions = _own("set_positions", "", "query key layers")
set_residual = _own("set_residual", "position value", "dims layers")
set_weights = _own("set_weights", "query distribution", PLACES)
shift_positions = _own("shift_positions", "", "query key layers")
swap_embeddings = _own("swap_embeddings", "i j")


@EditWord.define()
def compose(scope: Scope, edits: EditWord) -> sinkjax.Edit:
    """Combine several edits into one, in order."""
    return sinkjax.compose(*map(scope.get, as_tuple(edits)))


@EditWord.define()
def see_only(scope: Scope, position: object, key: object) -> sinkjax.Edit:
    """Let a query see only one earlier key; compare `attend_self`, where it sees only itself."""
    place, seen = scope.get(position), scope.get(key)
    hidden = [number for number in range(place + 1) if number != seen]
    return sinkjax.edit("logits", "set", -np.inf, queries=place, keys=hidden, label=f"query {place} sees key {seen} alone")


@EditWord.define()
def cut_links(scope: Scope, count: object, site: str = "logits", renormalise: object = False) -> sinkjax.Edit:
    """Hide one random key from `count` random later queries; the key is not at position `count`."""
    rng, number, length = scope.random, scope.get(count), scope.config.length
    keys = [key for key in range(length - number) if key != number]
    if not keys:
        raise SinkjaxError(f"no key of {length} positions has {number} later queries")
    key = int(rng.choice(keys))
    queries = tuple(sorted(rng.choice(np.arange(key + 1, length), number, replace=False).tolist()))
    value = -np.inf if site == "logits" else 0.0
    label = f"{number} links to key {key} cut"
    return sinkjax.edit(
        site, "set", value, queries=queries, keys=key, relation="others", renormalise=scope.get(renormalise), label=label
    )


@EditWord.define()
def window(scope: Scope, size: object, keep: object = ()) -> sinkjax.Edit:
    """Hide all keys except each query's most recent ones and some that every query keeps (Xiao et al. 2024).

    Args:
        scope: The study's scope.
        size: Number of keys that each query sees, both kept and recent.
        keep: Positions that stay visible, or the number of first positions that stay visible.

    Raises:
        SinkjaxError: The kept keys leave no room for a recent one, or the window is never full.
    """
    kept, number, length = scope.get(keep), scope.get(size), scope.config.length
    count = kept if isinstance(kept, int) else len(kept)
    if count >= number:
        raise SinkjaxError(f"a cache of {number} keys cannot keep {count} of them and a last one")
    if number + 2 > length:
        raise SinkjaxError(f"a cache of {number} keys is never full in {length} tokens")
    hidden = slice(kept, None) if isinstance(kept, int) else [key for key in range(length) if key not in kept]
    return sinkjax.edit("logits", "set", -np.inf, keys=hidden, distances=slice(number - count, None))


@EditWord.define()
def swap_indices(scope: Scope, i: object, j: object) -> sinkjax.Edit:
    """Exchange the rotary indices of two positions; tokens and mask are unchanged."""
    indices, one, other = np.arange(scope.config.length), scope.get(i), scope.get(j)
    if max(one, other) >= indices.size:
        raise SinkjaxError(f"position {max(one, other)} is beyond prompts of {indices.size} tokens")
    indices[[one, other]] = indices[[other, one]]
    return sinkjax.set_positions(query=indices, key=indices)


@EditWord.define()
def hide(scope: Scope, way: object, keys: object = None, queries: object = None) -> sinkjax.Edit:
    """Hide keys from all other queries, or all other keys from queries, before or after the softmax (Kiya et al., footnote 8).

    Args:
        scope: The study's scope.
        way: "logits" (minus infinity), "weights" (0 after the softmax), or "renormalised" (0, and the row rescaled to sum to 1).
        keys: Keys to hide, except from their own queries; None for all.
        queries: Queries that see only themselves; None for all.
    """
    chosen = {name: scope.get(value) for name, value in (("keys", keys), ("queries", queries)) if value is not None}
    site, value = ("logits", -np.inf) if scope.get(way) == "logits" else ("weights", 0.0)
    return sinkjax.edit(site, "set", value, relation="others", renormalise=scope.get(way) == "renormalised", **chosen)


def placed(edit: sinkjax.Edit, cells: Sequence[Cell], architecture: Config) -> sinkjax.Edit:
    """Restrict an edit to some layers or heads.

    Args:
        edit: The edit in every layer.
        cells: Layers, each with a head or None for all heads.
        architecture: The model's architecture.

    Returns:
        The edit. A term before the blocks has no layers and is unchanged.

    Raises:
        SinkjaxError: A term has layers of its own; heads are named, but a term is not a mask of logits.
    """
    from sinkjax.edits.term import as_along

    layers = sorted({layer for layer, _ in cells})
    if cells[0][1] is None and len(layers) == architecture.layers:
        return edit
    along = as_along("layer", layers)
    return dataclasses.replace(edit, terms=tuple(_placed(term, cells, along, architecture) for term in edit.terms))


def _placed(
    term: Term | WeightTerm, cells: Sequence[Cell], layers: tuple[int, ...] | Range | None, architecture: Config
) -> Term | WeightTerm:
    from sinkjax.edits.weights import WeightTerm

    if term.site in BEFORE_BLOCKS:
        return term
    if isinstance(term, WeightTerm):
        raise SinkjaxError("controls in other layers or heads are only available for edits at sites, not for weight edits")
    if term.layers is not None:
        raise SinkjaxError(f"the edit at {term.site.name} has layers of its own, so it cannot also act in the places of a grid")
    if cells[0][1] is None:
        return dataclasses.replace(term, layers=layers)
    if term.site != sinkjax.Site.LOGITS or term.value != -np.inf:
        raise SinkjaxError(f"only masks of logits act in chosen heads, not an edit at {term.site.name}")
    value = np.zeros((architecture.layers, 1, architecture.heads), np.float32)  # adding 0 to a logit changes nothing
    for layer, head in cells:
        value[layer, 0, head] = -np.inf
    return dataclasses.replace(term, op="add", value=value, layers=layers)


@EditWord.define()
def no_edit(scope: Scope) -> sinkjax.Edit:
    """Change nothing."""
    return sinkjax.compose(label="no edit")
