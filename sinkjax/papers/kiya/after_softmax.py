"""kiya/after-softmax: the edits of kiya/mask and kiya/self on the weights instead of the logits (footnote 8).

Weights set to 0 leave rows that sum to less than 1; renormalised, they are the weights of the edited logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax import Edit, Probe, Site, Statistic, edit
from sinkjax.config_files.checks import positions
from sinkjax.probes.statistics import PairView
from sinkjax.study import *
from sinkjax.study import later_sink_rate, same

Way = Literal["logits", "renormalised", "weights"]


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Sinks, Mapped):
    key: int = 0
    """the key that is hidden"""
    position: int = 8
    """the position whose query sees only itself"""
    ends: tuple[int, ...] = (0, 2, 11, 19)
    """last layers of the sets of first layers that are edited together"""

    def check(self) -> None:
        positions(self, "key", plus=1)
        positions(self, "position")


def study(lab: Lab, s: Settings) -> None:
    """Masking after the softmax."""
    lab.needs("softmax")
    cost, size = loss(), largest_activation(s.key + 1)
    at_next, there = (later_sink_rate(key, s.eps, shares=True) for key in (s.key + 1, s.position))
    columns = (cost, at_next, there, size, attention_left())
    cases = [place.at(way=way) for place in (*prefixes(lab.layers, s.ends), ALL) for way in get_args(Way)]

    def sweep(name: Literal["masked", "alone"], what: str, chosen: int, title: str, least: int) -> Sweep:
        def hidden(position: int, case: Layers) -> Edit:
            return hide(way=case["way"], layers=case.layers, **{what: position})

        def control(rng: np.random.Generator, case: Layers) -> Edit:
            return hidden(lab.random_position(rng, but=(chosen,), least=least), case)

        return lab.sweep(name, {case: hidden(chosen, case) for case in cases}, columns, control, title=title)

    masked = sweep("masked", "keys", s.key, "key hidden", 0)
    alone = sweep("alone", "queries", s.position, "query alone", 1)
    lab.noop(hide("renormalised", keys=s.length - 1))

    zero = [one[ALL.at(way="weights")] for one in (masked, alone)]
    logits, rescaled = (masked[ALL.at(way=way)] for way in ("logits", "renormalised"))
    lab.claim("collapse", "Kiya et al. 2026, footnote 8", effect(cost, zero[0]), beside=[effect(cost, zero[1])], took=WRITTEN)
    lab.identity("algebra", "algebra", same(cost, logits, rescaled, 0.001))

    lab.draw(lines_along, "way", cost, at_next, size, over=masked)
    lab.maps(logits, zero[0])
    lab.draw(activations, logits, *zero)


def hide(way: Way, keys: int | None = None, queries: int | None = None, layers: Sequence[int] | None = None) -> Edit:
    """Hide keys from all other queries, or all other keys from queries, before or after the softmax (Kiya et al., footnote 8).

    Args:
        way: "logits" (minus infinity), "weights" (0 after the softmax), or "renormalised" (0, and the row rescaled to sum to 1).
        keys: Keys to hide, except from their own queries; None for all.
        queries: Queries that see only themselves; None for all.
        layers: The layers; None for all.
    """
    site, value = ("logits", -np.inf) if way == "logits" else ("weights", 0.0)
    put = partial(edit, site, "set", value, relation="others", renormalise=way == "renormalised")
    return put(keys=keys, queries=queries, layers=layers)


# The attention left in a row when weights are removed after the softmax.


def row_sums(weights: jax.Array, view: PairView) -> jax.Array:
    """Sum over queries of a row's weights, mean over heads: [B]."""
    return jnp.where(view.real_rows[..., 0], weights.sum(axis=-1), 0).sum(axis=2).mean(axis=1)


def per_query(sums: jax.Array, lengths: jax.Array) -> jax.Array:
    """Sums over the queries of a prompt, divided by their number: [B]."""
    return sums / lengths


ROW_SUM = Probe(extra=(Statistic("row_sum", Site.WEIGHTS, row_sums, ("prompt", "layer"), per_query),))


def attention_left() -> Measure:
    """Sum of a row's attention weights, in per cent: mean over queries, heads and layers."""
    return percentage("attention left (% of a row)", lambda data: np.asarray(100 * data["row_sum"].mean("layer").values), ROW_SUM)
