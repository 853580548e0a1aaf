"""gu/angles: is the first key's score high because of its angle, not its norm, and do first keys share few directions?"""

from sinkjax.papers.gu._angles import first_cosine, key_directions, keys_across_prompts, other_cosine, score_gap, shared_energy
from sinkjax.studies.vocabulary import *

SOURCE = "Gu et al. 2025, section on the sink token's keys"
FIRST, OTHERS = first_cosine(), other_cosine()
ANGLE, NORMS = score_gap("angle"), score_gap("norms")

STUDY = Study(
    name="gu/angles",
    needs=("usual scale", "scores without positions", "scores without a kernel", "scores without a soft cap"),
    settings={"rank": setting(1, "directions of the other half of the prompts into which keys are projected")},
    grids={"text": grid()},
    computations={
        "text-keys": keys_across_prompts(F.rank, first_half()),
        "random-keys": keys_across_prompts(F.rank, first_half(), "random"),
    },
    measures=(FIRST, OTHERS, ANGLE, NORMS),
    claims={
        "cosine": Claim(unedited(FIRST, "text", minus=OTHERS), SOURCE),
        "angle": Claim(unedited(ANGLE, "text", minus=NORMS), SOURCE, given=keys_without_norm()),
        "low-rank": Claim(shared_energy("text-keys"), SOURCE, given=without_bos("text"), beside=(shared_energy("random-keys"),)),
    },
    figures=(
        by_layer(((FIRST, OTHERS),), at("text"), unedited=False),
        by_layer(((ANGLE, NORMS),), at("text"), unedited=False),
        key_directions(("text-keys", "random-keys")),
    ),
)
