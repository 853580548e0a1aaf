"""gu/angles: is the first key's score high because of its angle, not its norm, and do first keys share few directions?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from sinkjax.config_files.checks import refuse
from sinkjax.papers.gu._angles import (
    KEY_VARIABLES,
    first_cosine,
    key_directions,
    keys_across_prompts,
    other_cosine,
    score_gap,
    shared_energy,
)
from sinkjax.study import *
from sinkjax.study import Calculation, Inputs, keys_without_norm, without_bos


@dataclass(frozen=True, kw_only=True)
class Settings(Judged):
    rank: int = 1
    """directions of the other half of the prompts into which keys are projected"""


def study(lab: Lab, s: Settings) -> None:
    """Angles and directions of the first key."""
    lab.needs("usual scale", "scores without positions", "scores without a kernel", "scores without a soft cap")
    refuse(not 0 < s.rank <= s.prompts // 2, f"rank {s.rank} must be at least 1 and at most half of the {s.prompts} prompts")
    first, others, angle, norms = first_cosine(), other_cosine(), score_gap("angle"), score_gap("norms")
    text = lab.sweep("text", measures=(first, others, angle, norms))
    positions = tuple(range(s.length // 2 + 1))

    def keys(kind: Literal["text", "random"]) -> Calculation:
        declared = {"keys_across_prompts": [s.rank, kind]}
        compute = partial(keys_across_prompts, s.rank, positions)
        return lab.calculate(f"{kind}-keys", compute, KEY_VARIABLES, declared, s.prompts, Inputs(kind))

    both, source = (keys("text"), keys("random")), "Gu et al. 2025, section on the sink token's keys"
    lab.claim("cosine", source, unedited(first, text, others))
    lab.claim("angle", source, unedited(angle, text, norms), keys_without_norm())
    lab.claim("low-rank", source, shared_energy(both[0]), without_bos(text), [shared_energy(both[1])])

    pairs = (first_cosine, other_cosine), (partial(score_gap, "angle"), partial(score_gap, "norms"))
    for pair in pairs:
        lab.draw(by_layer, pair, conditions=[text.every], unedited=False)
    lab.draw(key_directions, *both)
