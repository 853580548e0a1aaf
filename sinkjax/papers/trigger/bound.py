"""trigger/bound: what softmax without a sink costs. Layers whose BOS mass is held, in training or after it, and lower bounds.

The bounds and their derivation: `docs/trigger.md` and `_bounds.py`.
"""

from sinkjax.papers.trigger._frontier import above_bounds, held_losses, loss_and_mass
from sinkjax.papers.trigger._task import with_bounds
from sinkjax.studies.vocabulary import *

STUDY = Study(
    name="trigger/bound",
    settings={
        "caps": setting(
            (0.0, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99, 0.997, 0.999, 1.0),
            "masses on BOS that are held in the rows other than BOS's and the trigger's",
        ),
        "cap_seeds": setting(4, "runs of each mass that is held in training"),
        "cap_steps": setting(5000, "training steps of each of these runs"),
        "shifts": setting((-2.0, -4.0, -6.0, -8.0, -10.0, -12.0), "added to BOS's logit in those rows of the trained layers"),
    },
    trainings={
        "free": with_bounds("free to sink", F.caps, F.shifts),
        "capped": with_bounds("mass held in training", F.caps, F.shifts, F.cap_seeds, F.cap_steps),
    },
    claims={
        "bounds": Claim(above_bounds(), "docs/trigger.md, on Ran-Milo 2026, Theorem 1"),
        "losses": Claim(held_losses(), "ours"),
    },
    figures=(loss_and_mass("in training"), loss_and_mass("after training")),
)
