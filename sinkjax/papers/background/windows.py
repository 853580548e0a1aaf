"""background/windows: where queries look in layers with a sliding window once the first token has left it.

The question is Xiao et al.'s (2024), asked of a model that was trained with windows. The edit sets the dim that holds the massive
activation to its value at an ordinary token; controls set random dims likewise.
"""

from sinkjax.papers.background._windows import (
    activation_of_strongest,
    first_before,
    first_beyond,
    largest_dim,
    made_ordinary,
    strongest_beyond,
    typical_stream,
    windowed,
)
from sinkjax.studies.vocabulary import *

LAYERS = windowed()
BEFORE, AFTER, STRONGEST = (measure(F.beyond, LAYERS) for measure in (first_before, first_beyond, strongest_beyond))
SIZE, LOSS = activation_of_strongest(F.beyond, LAYERS), loss(F.beyond)
MASSIVE = reaches(largest_activation(0), "edited", MASSIVE_SIZE)


def of(tokens: object) -> At:
    """The edit at the first token, at all later ones, or at both."""
    return at("edited", fixed={"tokens": tokens})


STUDY = Study(
    name="background/windows",
    needs=("sliding windows",),
    settings={
        "length": 768,
        "prompts": 12,
        "bos": "model",
        "control_prompts": 8,
        "beyond": setting(512, "first position whose queries no longer see key 0 in layers with a window"),
    },
    known={"dim": largest_dim(), "typical": typical_stream()},
    grids={
        "edited": grid(made_ordinary(F.tokens), over={"tokens": ("first", "later", "all")}, inputs="joined"),
        "without": grid(inputs="joined", bos="none", title="without BOS"),
        "identity": grid(edit("resid", "scale", 1.0, queries=0), inputs="joined"),
    },
    controls={"edited": draws(made_ordinary(F.tokens, random=True))},
    measures=(STRONGEST, BEFORE, AFTER, SIZE, LOSS),
    claims={
        "as-much": Claim(unedited(BEFORE, "edited", minus=STRONGEST), "ours, on Xiao et al. 2024, section 3.1", stays=True),
        "large": Claim(unedited(SIZE, "edited", minus=typical_activation()), "ours, on Sun et al. 2024, section 4"),
        "needs": Claim(effect(STRONGEST, of("later")), "ours, on Sun et al. 2024, section 4", sign=-1, given=MASSIVE),
        "loss": Claim(effect(LOSS, of("later")), "ours, on Sun et al. 2024, Table 3", given=MASSIVE),
        "first": Claim(
            effect(STRONGEST, of("first"), controls=False),
            "ours, on Xiao et al. 2024, section 3.1",
            stays=True,
            given=MASSIVE,
            beside=(effect(LOSS, of("first"), controls=False), effect(LOSS, of("all"), controls=False)),
        ),
    },
    figures=(
        by_layer(((first_before(F.beyond), first_beyond(F.beyond), strongest_beyond(F.beyond)),), of("later")),
        dots((STRONGEST, LOSS), over="edited"),
    ),
)
