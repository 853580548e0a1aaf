"""li/dominance: one dim dominates the first token's state, the norm keeps it, and keys lock in on it (Li et al. 2026, Table 1).

Nothing is edited. The first token is compared with ordinary tokens.
"""

from sinkjax.papers.li._dominance import (
    dominance_and_lock_in,
    dominates,
    key_is_row,
    largest_state,
    lock_in_by_head,
    lock_in_by_layer,
    locks_in,
    norm_keeps,
    of_layers,
    scores_are_positive,
)
from sinkjax.studies.vocabulary import *

SOURCE, LOCK_IN = "Li et al. 2026, dimension disparity", "Li et al. 2026, lock-in"

STUDY = Study(
    name="li/dominance",
    needs=(
        *("keys without a LayerNorm", "norm", "RMSNorm", "pre-norm"),
        *("embedding without positions", "scores without positions", "scores without a kernel"),
    ),
    computations={"dominance": dominance_and_lock_in()},
    claims={
        "ratio": Claim(dominates("dominance"), SOURCE),
        "norm": Claim(norm_keeps("dominance"), "Li et al. 2026, Table 1"),
        "table": Claim(largest_state("dominance"), "Li et al. 2026, Table 1"),
        "row": Claim(key_is_row("dominance"), LOCK_IN),
        "lock-in": Claim(locks_in("dominance"), LOCK_IN),
        "positive": Claim(scores_are_positive("dominance"), LOCK_IN),
        "layers": Claim(of_layers("dominance"), SOURCE),
    },
    figures=(lock_in_by_layer("dominance"), lock_in_by_head("dominance")),
)
