"""The tape, which applies the edits at each site and then records the probe's statistics.

A tape lives while a block, the embedding before the blocks, or a tile of queries within a block is traced. Its results leave as
plain arrays, so the forward stays a pure function. It has nothing to do with the tapes of automatic differentiation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import jax

from sinkjax.edits import apply
from sinkjax.edits.term import Edits, Resolved
from sinkjax.edits.weights import ResolvedWeight
from sinkjax.model.params import Params
from sinkjax.model.site import Site
from sinkjax.probes.measure import measure
from sinkjax.probes.probe import Probe
from sinkjax.probes.statistics import PairView, View
from sinkjax.transformer.eviction import State
from sinkjax.transformer.spec import ForwardSpec

Cache = tuple[jax.Array, jax.Array]  # a layer's rotated keys and values at all positions


class Input(NamedTuple):
    """The input of a part of a block: x = norm(stream), all [B, T, (H,) d]."""

    x: jax.Array
    stream: jax.Array
    norm: Callable[[jax.Array], jax.Array]


@dataclass(eq=False)
class Tape:
    """Edits and measurements of one layer.

    spec: the static part of the pass. layer: int32 []. first: the position of the first row of the arrays.
    cache: the layer's keys and values at all S positions, [B, S, K, D] each ([B, S, H, D] values if HEAD_VALUE is edited), if the
        pass continues an earlier one.
    state: instead, under a cache policy, the keys and values that it keeps in this layer.
    made: the layer's keys and values, if later passes need them (`ForwardSpec.cuts`).
    kept: bool [B, S], set for a pass: the positions that are not rounded under quantisation; None for none.
    record: statistic -> array of this layer. counts: term number -> (addressed, changed) cells, float [B] each.
    """

    spec: ForwardSpec
    edits: Edits
    lengths: jax.Array
    layer: jax.Array
    first: jax.Array | int = 0
    cache: Cache | None = None
    state: State | None = None
    made: Cache | None = None
    kept: jax.Array | None = None
    record: dict[str, jax.Array] = field(default_factory=dict)
    counts: dict[int, apply.Counts] = field(default_factory=dict)

    @property
    def probe(self) -> Probe:
        """The measurements of the pass."""
        return self.spec.probe

    @property
    def rows(self) -> jax.Array:
        """How many rows of the arrays are within each prompt, int [B]."""
        return self.lengths - self.first

    def measure(self, site: Site, x: jax.Array, view: View | None = None, depth_only: bool = False) -> None:
        """Record the probe's statistics at a site. view: of scores or weights."""
        first, cuts = self.spec.first, self.spec.cuts
        self.record |= measure(self.probe, site, x, view or View(self.rows), depth_only, first, cuts)

    def at(self, site: Site) -> list[tuple[int, Resolved]]:
        """Return the terms that act at a site, left to right, with their indices."""
        return [(number, term) for number, term in enumerate(self.edits) if term.site == site]

    def watches(self, site: Site) -> bool:
        """Return whether anything is edited or measured at a site."""
        measured = [entry.site for entry in self.probe.statistics] + [entry.site for entry in self.probe.captures]
        return bool(self.at(site)) or site in measured

    def __call__(self, site: Site, x: jax.Array, used: jax.Array | bool = True) -> jax.Array:
        """Visit a site of vectors: x [B, T, (H,) D]. used: see `apply.vectors`."""
        for number, term in self.at(site):
            x, self.counts[number] = apply.vectors(term, x, self.layer, self.rows, used)
        self.measure(site, x)
        return x

    def inputs(self, site: Site, inputs: Input) -> Input:
        """Visit a site where the normed stream is read. `inject` adds to the stream before the norm, and stands alone."""
        x, stream, norm = inputs
        for number, term in self.at(site):
            if term.op == "inject":
                stream, self.counts[number] = apply.vectors(term, stream, self.layer, self.rows)
            else:
                x, self.counts[number] = apply.vectors(term, x, self.layer, self.rows)
        if stream is not inputs.stream:
            x = apply.where_changed((stream != inputs.stream).any(axis=-1, keepdims=True), norm(stream), x)
        self.measure(site, x)
        return Input(x, stream, norm)

    def parameters(self, w: Params) -> Params:
        """Return this layer's parameters under the weight edits, which act before everything else in a block."""
        for number, term in enumerate(self.edits):
            if isinstance(term, ResolvedWeight):
                changed, counts = term.applied(w[term.name], self.layer)
                w = w | {term.name: changed}
                self.counts[number] = tuple(jax.numpy.broadcast_to(count, self.lengths.shape) for count in counts)
        return w

    def quantised(self, x: jax.Array, what: str = "activations", groups: int = 1) -> jax.Array:
        """Round x [B, T, ...] to the run's bits for `what`, "activations" or "kv". groups: axes of x with their own scales."""
        how = self.spec.quantisation
        if how is None:
            return x
        T = x.shape[1]
        chosen = self.first + jax.numpy.arange(T) < self.lengths[:, None]
        if self.kept is not None:
            chosen &= ~jax.lax.dynamic_slice_in_dim(self.kept, self.first, T, axis=1)
        return how.vectors(x, getattr(how, what), groups, chosen)

    def positions(self, query: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Visit POSITION: rotary indices, int [B or 1, T] each."""
        for number, term in self.at(Site.POSITION):
            query, key, self.counts[number] = apply.positions(term, query, key, self.layer, self.rows)
        return query, key

    def with_cached(self, k: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Write rotated keys and values into the cache, if any, and return all that the rows may see."""
        if self.cache is None:
            self.made = (k, v) if self.spec.cuts else None
            return k, v
        old_k, old_v = self.cache
        write = partial(jax.lax.dynamic_update_slice_in_dim, start_index=self.first, axis=1)
        self.cache = write(old_k, k), write(old_v, v)
        return self.cache

    def logits(self, scores: jax.Array, view: PairView) -> tuple[jax.Array, jax.Array]:
        """Visit LOGITS: scores [B, H, Q, S]; returns them with the visibility that the edits leave."""
        visible = view.visible
        for number, term in self.at(Site.LOGITS):
            scores, visible, self.counts[number] = apply.scores(term, scores, visible, view.rows, self.layer, self.lengths)
        self.measure(Site.LOGITS, scores, dataclasses.replace(view, visible=visible))
        return scores, visible

    def weights(self, weights: jax.Array, view: PairView) -> jax.Array:
        """Visit WEIGHTS: weights [B, H, Q, S]; without edits, they may still need division by `view.divisor`."""
        for number, term in self.at(Site.WEIGHTS):
            weights, self.counts[number] = apply.weights(term, weights, view.visible, view.rows, self.layer, self.lengths)
        self.measure(Site.WEIGHTS, weights, view)
        return weights
