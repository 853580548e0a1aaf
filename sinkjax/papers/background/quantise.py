"""background/quantise: the error that a massive activation causes in 8-bit activations (Bondarenko et al. 2023, Sun et al. 2024).

One scale for all tokens of a prompt is set by its largest value, so that a massive activation leaves few of the 255 steps to the
others. The error is measured only: the model runs in full precision. Controls make the same edit at another position.
"""

from sinkjax.papers.background._rounding import neuron_error, tensor_error, token_error
from sinkjax.studies.vocabulary import *

TENSOR, TOKEN, NEURONS = tensor_error(F.position), token_error(F.position), neuron_error(F.position)
REMOVED = at("removed")
OTHER = random_position(but=F.position)

STUDY = Study(
    name="background/quantise",
    needs=("MLP",),
    settings={"position": setting(0, "position of the massive activation")},
    known={"grows": steepest("resid_max", F.position)},
    grids={
        "removed": grid(drop_mlp(F.position), layer(F.grows), title="MLP dropped"),
        "masked": grid(mask_key(F.position), title="key masked"),
        "identity": grid(edit("mlp_out", "scale", 1.0, queries=F.position)),
    },
    controls={"removed": draws(drop_mlp(OTHER)), "masked": draws(mask_key(OTHER))},
    measures=(TENSOR, TOKEN, NEURONS, largest_activation(F.position)),
    claims={
        "removed": Claim(
            effect(TENSOR, REMOVED),
            "ours, on Bondarenko et al. 2023 and Sun et al. 2024",
            sign=-1,
            given=reaches(largest_activation(F.position), "removed", MASSIVE_SIZE),
            beside=(unedited(TENSOR, "removed", minus=TOKEN), effect(TENSOR, at("masked"))),
        )
    },
    figures=(
        by_layer((TENSOR, TOKEN, NEURONS), (REMOVED, at("masked"))),
        dots((TENSOR, TOKEN), over="removed"),
        maps((REMOVED, at("masked"))),
    ),
)
