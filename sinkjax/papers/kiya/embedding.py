"""kiya/embedding: does BOS attract queries by the direction of its first key, before any context or position (section 3)?

k = RMSNorm(e) W_K of BOS against q_avg = RMSNorm(e_avg) W_Q of the mean of the others, ranked among the keys of all other tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from sinkjax.papers.kiya._first_keys import (
    NORM_VARIABLES,
    Averaged,
    first_keys,
    key_cosine_by_head,
    key_rows,
    vocabulary,
)
from sinkjax.study import Lab


@dataclass(frozen=True, kw_only=True)
class Settings(Averaged):
    prompts: int = 1


def study(lab: Lab, s: Settings) -> None:
    """The first key of the BOS."""
    lab.needs("norm", "norm before attention", "embedding without positions", "plain embedding", "rotation after all norms")
    lab.needs_bos()
    keys = lab.calculate("keys", partial(first_keys, s), NORM_VARIABLES, declared={"first_keys": s.special})
    lab.describe("direction", "Kiya et al. 2026, section 3", lambda read: key_rows(read, keys, "direction"))
    lab.describe("size", "Kiya et al. 2026, section 3", lambda read: key_rows(read, keys, "size"))
    lab.draw(vocabulary, keys)
    lab.draw(key_cosine_by_head, keys)
