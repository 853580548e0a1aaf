"""kiya/rope: is rotary index 0 a cause of the sink (Fig. 3, property 2)?

The paper shows the first block's scores at all pairs of rotary indices. Here an intervention is added: the first token exchanges
its rotary index with a later one. Controls exchange the indices of two other tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from sinkjax import Edit, set_positions
from sinkjax.config_files.checks import refuse
from sinkjax.papers.kiya._first_keys import (
    SCORE_VARIABLES,
    Scored,
    depends_on_distance,
    first_scores,
    score_maps,
    scores_of_bos,
    would_receive,
)
from sinkjax.study import *
from sinkjax.study import unchanged


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Sinks, Scored):
    prompts: int = 16
    tokens: int = 200
    """random ordinary tokens whose keys take the place of the BOS's"""
    positions: tuple[int, ...] = (1, 4, 8, 16, 32)
    """positions whose rotary index the first token gets"""


def study(lab: Lab, s: Settings) -> None:
    """Rotary indices of the first token."""
    lab.needs("rotary positions", "plain embedding", "norm", "norm before attention", "softmax")
    lab.needs("rotation after all norms", "queries without growth")
    lab.needs_bos()
    seen, sink, size = attention_to(0, lab.half), sink_rate(0, s.eps), largest_activation(0)

    def another_pair(rng: np.random.Generator, case: Layers) -> Edit:
        position = case["position"]
        return swap_indices(lab.random_position(rng, but=(0, position), least=1), position, s.length)

    declared = {"first_scores": [s.indices, s.tokens, s.special]}
    scores = lab.calculate("scores", partial(first_scores, s, s.tokens), SCORE_VARIABLES, declared)
    swaps = {ALL.at(position=position): swap_indices(0, position, s.length) for position in s.positions}
    indices = lab.sweep("indices", swaps, (seen, sink, size), another_pair)
    lab.noop(swap_indices(8, 8, s.length))

    swapped, sinks = indices.every, is_sink(seen, indices, strongest_other_attention(0, lab.half))
    ours, beside = "ours, on Kiya et al. 2026, Fig. 3b, conclusion", [effect(sink, swapped)]
    lab.describe("bos", "Kiya et al. 2026, Fig. 3a", lambda read: scores_of_bos(read, scores))
    lab.identity("distance", "Kiya et al. 2026, Fig. 3b", lambda read: depends_on_distance(read, scores))
    lab.claim("sink", ours, effect(seen, swapped), sinks, beside, stays=True, took=WRITTEN)
    lab.identity("activation", "the first token sees itself alone", unchanged(size, swapped, 1e-4))

    lab.draw(score_maps, scores)
    lab.draw(would_receive, scores)
    lab.draw(lines_along, "position", seen, size, over=indices)


def swap_indices(i: int, j: int, length: int) -> Edit:
    """Exchange the rotary indices of two positions of prompts of some length; tokens and mask are unchanged."""
    indices = np.arange(length)
    refuse(max(i, j) >= length, f"position {max(i, j)} is beyond prompts of {length} tokens")
    indices[[i, j]] = indices[[j, i]]
    return set_positions(query=indices, key=indices)
