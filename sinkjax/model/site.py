"""Sites of the forward pass where an edit can act.

They are in order of execution, except that POSITION comes before the queries and keys that it rotates.

`sinkjax/transformer/embed.py` visits EMBED and POSITION_VECTOR, and `block.py` and `attention.py` there every other site, once
per layer. This table specifies each site's array, the allowed operations and the selectors of its cells. `edits/apply.py`
implements the operations for each kind of array.

A new site is a member of `Site`, a row of `SITES`, and a `tape(Site.X, x)` call at its place in the forward pass. If its array is
neither vectors [B, T, (H,) D] nor scores [B, H, Q, S], it also needs a function in `apply.py` and a visit in `tape.py`. Tests
that loop over `Site` cover the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sinkjax.errors import unknown

if TYPE_CHECKING:
    from sinkjax.model.config import Config


class Site(StrEnum):
    """The sites where edits and measurements can act, in order of execution except for POSITION."""

    EMBED = "embed"
    POSITION_VECTOR = "position_vector"
    ATTN_IN = "attn_in"
    Q_IN = "q_in"
    K_IN = "k_in"
    V_IN = "v_in"
    POSITION = "position"
    QUERY = "query"
    KEY = "key"
    VALUE = "value"
    HEAD_VALUE = "head_value"
    LOGITS = "logits"
    WEIGHTS = "weights"
    HEAD_OUT = "head_out"
    ATTN_OUT = "attn_out"
    RESID_MID = "resid_mid"
    MLP_IN = "mlp_in"
    ROUTER = "router"
    NEURON = "neuron"
    MLP_OUT = "mlp_out"
    RESID = "resid"


BEFORE_BLOCKS = (Site.EMBED, Site.POSITION_VECTOR)  # visited once, before the first block
PAIRS = (Site.LOGITS, Site.WEIGHTS)  # one number per query and key


@dataclass(frozen=True)
class Spec:
    """One row of the table: the axes of the site's array, the allowed operations, and what the array contains.

    Among the axes, "query" and "key" are positions.
    """

    axes: tuple[str, ...]
    ops: tuple[str, ...]
    what: str

    @property
    def heads(self) -> str | None:
        """The head axis, "head" (query heads) or "kv_head" (before expansion), or None."""
        return next((axis for axis in self.axes if axis in ("head", "kv_head")), None)

    @property
    def dims(self) -> str | None:
        """The last axis, if `dims` selects along it."""
        return self.axes[-1] if self.axes[-1] in ("width", "head_dim", "mlp_width", "expert") else None

    @property
    def positions(self) -> tuple[str, ...]:
        """The selectors that choose positions: `queries`, `keys` or both."""
        chosen = {"query": ("queries", "keys"), "key_position": ("keys",), "position": ("queries",)}
        return next(chosen[axis] for axis in self.axes if axis in chosen)


CHANGES = ("set", "add", "scale", "remove")  # the operations on vectors
ROWS, READ = ("swap", *CHANGES), (*CHANGES, "inject")  # on vectors before the blocks, and on parts of the stream as they are read
STREAM, SCORES = ("prompt", "position", "width"), ("prompt", "head", "query", "key")
HEADS, KV_HEADS = ("prompt", "position", "head", "head_dim"), ("prompt", "key_position", "kv_head", "head_dim")
KV_INPUTS = ("prompt", "key_position", "kv_head", "width")

SITES: dict[Site, Spec] = {
    Site.EMBED: Spec(STREAM, ROWS, "embedding rows, after the factor and the projection, before position vectors and the norm"),
    Site.POSITION_VECTOR: Spec(STREAM, ROWS, "position vectors, before they are added to the embedding"),
    Site.ATTN_IN: Spec(STREAM, READ, "residual stream after the norm, as attention reads it"),
    Site.Q_IN: Spec(("prompt", "position", "head", "width"), READ, "input of each head's query: a copy of ATTN_IN for each head"),
    Site.K_IN: Spec(KV_INPUTS, READ, "input of each head's key, like Q_IN"),
    Site.V_IN: Spec(KV_INPUTS, READ, "input of each head's value, like Q_IN; gates read ATTN_IN"),
    Site.POSITION: Spec(("prompt", "query", "key"), ("set", "shift"), "rotary indices of queries and of keys, separately"),
    Site.QUERY: Spec(HEADS, CHANGES, "queries, after biases, clipping and norm, before the rotation"),
    Site.KEY: Spec(KV_HEADS, CHANGES, "keys, after biases, clipping and norm, before the rotation"),
    Site.VALUE: Spec(KV_HEADS, CHANGES, "values, after biases, clipping and gate"),
    Site.HEAD_VALUE: Spec(
        ("prompt", "key_position", "head", "head_dim"),
        CHANGES,
        "values as each query head mixes them: a copy of VALUE for each head of a group",
    ),
    Site.LOGITS: Spec(SCORES, ("set", "add"), "final scores, after scale, cap and position bias, before the normaliser"),
    Site.WEIGHTS: Spec(SCORES, ("set", "scale"), "attention weights, after the normaliser"),
    Site.HEAD_OUT: Spec(HEADS, CHANGES, "sum_j a_ij v_j of each head, before a norm, a gate and W_O"),
    Site.ATTN_OUT: Spec(STREAM, CHANGES, "attention output, after W_O, a norm and a factor, as it is added"),
    Site.RESID_MID: Spec(
        STREAM, CHANGES, "residual stream between attention and the MLP; the MLP of a parallel block does not read it"
    ),
    Site.MLP_IN: Spec(STREAM, READ, "residual stream after the norm, as the MLP and its router read it"),
    Site.ROUTER: Spec(("prompt", "position", "expert"), CHANGES, "logits that choose each token's experts"),
    Site.NEURON: Spec(
        ("prompt", "position", "mlp_width"), CHANGES, "MLP hidden units, after the gate; of experts: expert * F + unit"
    ),
    Site.MLP_OUT: Spec(STREAM, CHANGES, "MLP output, as it is added"),
    Site.RESID: Spec(STREAM, CHANGES, "residual stream after the block"),
}


def as_site(name: Site | str) -> Site:
    """Return a site by its case-insensitive name, or raise for an unknown name."""
    try:
        return Site(str(name).lower())
    except ValueError:
        raise unknown("site", str(name).upper(), [entry.name for entry in Site]) from None


def lacks(config: Config, site: Site) -> str | None:
    """Name the part that the model lacks for this site, such as "no MLP", or return None."""
    from sinkjax.model.positions import AddedPosition  # deferred because it imports JAX, which declaring edits does not need

    needed = {
        "no MLP": config.mlp_width is None and site in (Site.RESID_MID, Site.MLP_IN, Site.NEURON, Site.MLP_OUT),
        "no experts": config.experts is None and site == Site.ROUTER,
        "no rotary positions": not config.ropes and site == Site.POSITION,
        "no position vectors": not isinstance(config.position, AddedPosition) and site == Site.POSITION_VECTOR,
    }
    return next((missing for missing, here in needed.items() if here), None)


def axis_size(config: Config, axis: str) -> int:
    """Return the size of an axis that the config fixes, or 0 if the model lacks it."""
    return {
        "layer": config.layers,
        "head": config.heads,
        "kv_head": config.kv_heads,
        "head_dim": config.head_dim,
        "width": config.width,
        "mlp_width": config.neurons if config.mlp_width is not None else 0,
        "expert": 0 if config.experts is None else config.experts.count,
    }[axis]
