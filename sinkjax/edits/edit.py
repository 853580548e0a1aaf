"""Edits as data: one primitive, `edit`, and `compose`.

An `Edit` specifies the change in the user's terms. `edit.resolve(config, lengths, T)` checks it against a model and a batch, and
converts it to the fixed-shape arrays of `sinkjax.edits.term`, the only form that jitted code sees.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from flax import struct

from sinkjax.config_files.checks import refuse
from sinkjax.edits.resolve import addresses_something, refuse_beyond, refuse_empty_rows, refuse_far_positions, resolve_all
from sinkjax.edits.term import Edits, PerPrompt, Select, Term, as_along, as_positions
from sinkjax.edits.weights import WeightTerm
from sinkjax.errors import SinkjaxError, one_of, refuse_control, short
from sinkjax.model.config import Config
from sinkjax.model.site import BEFORE_BLOCKS, PAIRS, SITES, Site, as_site
from sinkjax.runtime import display

MOST_TERMS = 128  # most parts of one edit


@struct.dataclass
class Edit:
    """A sequence of terms, as returned by `edit` and every named constructor.

    `label` names it in results. `coordinates` are (name, value) pairs that locate it among the edits of a sweep.
    """

    terms: tuple[Term | WeightTerm, ...]
    label: str = struct.field(pytree_node=False, default="edit")
    coordinates: tuple[tuple[str, bool | float | str], ...] = struct.field(pytree_node=False, default=())

    def _repr_html_(self) -> str:
        rows = []
        for term in self.terms:
            where = {name: value for name, value in display.chosen(term).items() if name not in ("value", "site", "op")}
            shown = ", ".join(f"{name} {value}" for name, value in where.items())
            rows.append((getattr(term.site, "name", term.site), term.op, display.in_words(term.value), shown))
        return display.table(self.label, ("site", "operation", "value", "where"), rows)

    def resolve(self, config: Config, lengths: Sequence[int] | np.ndarray, T: int, dtype: str | None = None) -> Edits:
        """Check the edit against a model and a batch, and return its arrays.

        Args:
            config: The architecture of the model.
            lengths: Number of tokens of each prompt, int [B].
            T: The padded length of the prompts.
            dtype: Dtype of the run, whose range bounds values; None if unknown.

        Returns:
            One `Resolved` per term.

        Raises:
            SinkjaxError: A layer, head, position or dim is out of range; a position lies beyond a prompt's end; a value has a
                shape that does not fit, is not finite (LOGITS also accepts -inf) or is beyond the dtype's range; a term
                addresses no causally visible cell; a row of attention is left without a key.
        """
        lengths = np.asarray(lengths)
        try:
            resolved = resolve_all(self.terms, config, lengths, T)
        except SinkjaxError as error:
            raise SinkjaxError(f"{self.label}: {error}") from None
        refuse_far_positions(self.label, resolved, T)
        if dtype is not None:
            refuse_beyond(self.label, resolved, dtype)
        for arrays in resolved:
            if not addresses_something(arrays, config, lengths):
                raise SinkjaxError(f"{self.label} addresses no causally visible cell at {arrays.site.name}: it would do nothing")
        refuse_empty_rows(self.label, resolved, config, lengths, T)
        return resolved

    def named(self, label: str, **coordinates: bool | float | str) -> Edit:
        """Return the same edit under another label, with its own coordinates.

        Args:
            label: Name in results, a string without control characters.
            **coordinates: Coordinates among the edits of a sweep, such as `layer=3, strength=-2.0`. They become the coordinates
                `edit_layer` and `edit_strength` of the result, and columns of `to_frame`, and have no other effect.

        Returns:
            The new edit; this one is unchanged.

        Raises:
            SinkjaxError: The label is not a string; a coordinate is neither a number nor a string, or its name is not an
                identifier; one of the strings contains control characters.
        """
        for name, value in coordinates.items():
            refuse(not name.isidentifier(), f"the name of a coordinate must be an identifier, not {short(name)}")
            if isinstance(value, str):
                as_label(value)
            elif not isinstance(value, bool | int | float | np.number | np.bool_):
                raise SinkjaxError(f"the coordinate {name} of an edit must be a number or a string, not {short(value)}")
        return dataclasses.replace(self, label=as_label(label), coordinates=tuple(coordinates.items()))


def edit(
    site: Site | str,
    op: str,
    value: Any,
    *,
    layers: Select = None,
    heads: Select = None,
    kv_heads: Select = None,
    queries: Select = None,
    keys: Select = None,
    dims: Select = None,
    distances: Select = None,
    relation: str = "any",
    renormalise: bool | str = False,
    centre: str | None = None,
    label: str | None = None,
) -> Edit:
    """Change the selected cells of one site: the primitive behind every named edit.

    Args:
        site: The site, a row of `sinkjax.model.site.SITES`.
        op: One of the site's operations. `set` x = v, `add` x = x + v, `scale` x = x v, `remove`
            x = x - v (x . v) / (v . v), what x has along a direction v of the chosen dims (several orthogonal ones, composed,
            remove a subspace), `shift` adds to rotary indices, `swap` exchanges two embedding rows (value: positions (i, j)),
            `inject` adds to the residual stream before its norm, for this reader only, and composes only with other injections
            into the same reader's input.
        value: A scalar, or an array. At vector sites: [dims] over the chosen dims; a donor from another run, [B, dims] or [L, B,
            dims] ([L, B, H, dims] if the site has heads); or a donor with all positions, [L, B, T, dims] ([L, B, T, H, dims]
            with heads). The L, B, T and H axes may be 1. At LOGITS and WEIGHTS: [L, B, H]; at WEIGHTS also [L, B, H, T], a row
            of weights over the keys, set for each selected query. At POSITION: int, [T] or [B, T]. -inf is allowed only at
            LOGITS, where it masks: it clears the key's visibility, so its weight is exactly 0.
        layers: Layers, from 0: an int, a sequence, a slice or None (all).
        heads: Query heads, selected like `layers`.
        kv_heads: Key-value heads, before expansion: at KEY and VALUE, use these in place of `heads`. At HEAD_VALUE, the values
            are those of query heads.
        queries: Query positions; also accepts `per_prompt`. At sites with a single position axis, selects along it (at KEY and
            VALUE, use `keys`). At POSITION, selects the indices of queries.
        keys: Key positions, selected like `queries`; also for KEY and VALUE. At POSITION, selects the indices of keys; with
            neither `queries` nor `keys`, both are selected.
        dims: Like `layers`, for the last axis of vectors.
        distances: At LOGITS and WEIGHTS, keep only selected pairs whose query is this many positions after its key. For example,
            `distances=slice(16, None)` selects the pairs that a window of 16 keys leaves out.
        relation: At LOGITS and WEIGHTS, keep only selected pairs with key == query ("self") or key != query ("others").
        renormalise: At WEIGHTS, True rescales each edited row to its previous sum; "self" adds the difference to the query's own
            key.
        centre: At HEAD_OUT with `scale`, x = x + (v - 1)(x - mu), with mu over the head's dims ("dims") or over positions <= i
            ("positions").
        label: The edit's name in results; by default a description.

    Returns:
        The edit, not yet checked against a model.

    Raises:
        SinkjaxError: The site, operation or relation is unknown; an argument does not act at the site; a selector is negative or
            empty.
    """
    site = as_site(site)
    spec = SITES[site]
    one_of(f"operation at {site.name}", op, spec.ops)
    one_of("relation", relation, ("any", "self", "others"))
    one_of("centre", centre, ("dims", "positions", None))
    one_of("renormalise", renormalise, (False, True, "self"))
    taken = {"head": "heads", "kv_head": "kv_heads"}.get(spec.heads or "")
    pairs = site in PAIRS
    for name, given, acts in (
        ("heads", heads, taken == "heads"),
        ("kv_heads", kv_heads, taken == "kv_heads"),
        ("queries", queries, "queries" in spec.positions and op != "swap"),
        ("keys", keys, "keys" in spec.positions),
        ("dims", dims, spec.dims is not None and op != "swap"),
        ("layers", layers, site not in BEFORE_BLOCKS),
        ("distances", distances, pairs),
        ("relation", None if relation == "any" else relation, pairs),
        ("renormalise", renormalise or None, site == Site.WEIGHTS),
        ("centre", centre, site == Site.HEAD_OUT and op == "scale"),
    ):
        if given is not None and not acts:
            instead = f"; use {taken}" if name in ("heads", "kv_heads") and taken else ""
            instead += ", or the site HEAD_VALUE" * (site == Site.VALUE and name == "heads")
            instead = f"; use {spec.positions[0]}" if name in ("queries", "keys") and op != "swap" else instead
            raise SinkjaxError(f"{name} does not act at {site.name} with operation {op!r}{instead}")
    along = {"layers": as_along("layer", layers), "dims": as_along("dim", dims), "distances": as_along("distance", distances)}
    along["heads"] = as_along("head", heads if kv_heads is None else kv_heads)
    where: dict[str, Any] = {**along, "queries": as_positions("query", queries), "keys": as_positions("key", keys)}
    term = Term(value, site, op, **where, relation=relation, renormalise=renormalise, centre=centre)
    chosen = {"layers": layers, "heads": heads, "kv_heads": kv_heads, "queries": queries, "keys": keys, "dims": dims}
    return Edit((term,), as_label(label) if label else describe(f"{op} {site}", value=value, **chosen, distances=distances))


def compose(*edits: Edit, label: str | None = None) -> Edit:
    """Combine edits into one. Within a site they apply left to right, and a key masked by -inf stays masked.

    Args:
        edits: The edits, in order.
        label: Name in results; by default the joined labels.

    Returns:
        The composed edit.

    Raises:
        SinkjaxError: An argument is not an edit; the composed edit has too many parts.
    """
    terms = tuple(term for entry in as_edits(edits) for term in entry.terms)
    much = f"a composed edit has {len(terms)} parts, and an edit at most {MOST_TERMS}: choose several layers or heads in one part"
    refuse(len(terms) > MOST_TERMS, much)
    return Edit(terms, as_label(label) if label else " + ".join(entry.label for entry in edits) or "no edit")


def coordinates_of(edits: Sequence[Edit]) -> dict[str, np.ndarray]:
    """Collect the coordinates of several edits.

    Args:
        edits: The edits; each may have its own coordinates.

    Returns:
        A dict from "edit_" plus the coordinate's name to an array [edit] of numbers or strings; NaN or "" for edits without it.

    Raises:
        SinkjaxError: A coordinate is a number in one edit and a string in another.
    """
    given = [dict(entry.coordinates) for entry in edits]
    columns = {}
    for name in dict.fromkeys(name for entry in given for name in entry):
        kinds = {isinstance(entry[name], str) for entry in given if name in entry}
        refuse(len(kinds) > 1, f"the coordinate {name} is a number in one edit and a string in another")
        missing = "" if True in kinds else np.nan
        columns[f"edit_{name}"] = np.array([entry.get(name, missing) for entry in given])
    return columns


def as_label(label: Any) -> str:
    """Validate a label; tables, figures and terminals show it, so control characters are an error."""
    refuse(not isinstance(label, str), f"a label must be a string, not {short(label)}")
    refuse_control(f"the label {label!r}", label)
    return str(label)


def as_edits(edits: Edit | Sequence[Edit]) -> tuple[Edit, ...]:
    """Return a single edit or a sequence of edits as a tuple."""
    entries: tuple[Any, ...] = tuple(edits) if isinstance(edits, Sequence) else (edits,)
    for entry in entries:
        if not isinstance(entry, Edit):
            raise SinkjaxError(
                f"not an edit: {short(entry)}; make one with sinkjax.edit or a named constructor such as sinkjax.mask_key"
            )
    return entries


def resolve(
    edits: Edit | Sequence[Edit], config: Config, lengths: Sequence[int] | np.ndarray, T: int, dtype: str | None = None
) -> Edits:
    """Edits, composed left to right, as arrays; see `Edit.resolve`."""
    return compose(*as_edits(edits)).resolve(config, lengths, T, dtype)


def describe(name: str, **arguments: Any) -> str:
    """`name(a=1, b=2)` with the arguments that are not None, for labels."""
    shown = (f"{key}={_show(value)}" for key, value in arguments.items() if value is not None)
    return f"{name}({', '.join(shown)})"


def _show(value: Any) -> str:
    if isinstance(value, slice):
        step = () if value.step is None else (value.step,)
        return ":".join("" if end is None else str(end) for end in (value.start, value.stop, *step))
    if isinstance(value, PerPrompt):
        return "per prompt"
    if isinstance(value, (bool, int, float, str, np.number)):
        return f"{value:g}" if isinstance(value, (float, np.floating)) else str(value)
    if isinstance(value, (Sequence, range)) or getattr(value, "ndim", 0) > 0:
        return f"[{','.join(map(str, value))}]" if isinstance(value, (Sequence, range)) and len(value) <= 8 else "[...]"
    return "?"
