"""background/kinds: heads whose sink is a no-op and heads that broadcast its value (Fesser et al. 2026, there in vision).

The value or the weight of the sink is taken from all heads of a kind. Controls take a random later key's from the same heads.
"""

from sinkjax.papers.background._kinds import KINDS, WAYS, has_heads, more_heads, shares, sinks_at, state_change, take
from sinkjax.studies.vocabulary import *

CHANGE, LOSS = state_change(), loss()
SOURCE, BOTH = "ours, on Fesser et al. 2026", has_heads("shares", ("no-op", "broadcast"))


def of(kind: str, way: str) -> At:
    """One way for all heads of a kind."""
    return at("edited", fixed={"kind": kind, "way": way})


def without(kind: str) -> tuple[Contrast, ...]:
    """The other ways for a kind, and how far the final states move."""
    return (effect(CHANGE, of(kind, "zero")), *(effect(LOSS, of(kind, way), controls=False) for way in WAYS[1:]))


STUDY = Study(
    name="background/kinds",
    needs=("causal mask", "softmax"),
    settings={"prompts": 16, "control_prompts": 8, "key": setting(0, "the key whose sinks are classified and edited")},
    known={"sinks": sinks_at(F.key)},
    grids={
        "edited": grid(take(F.way, F.kind), over={"kind": KINDS, "way": WAYS}),
        "identity": grid(edit("head_value", "scale", 1.0, keys=F.key)),
    },
    controls={"edited": draws(take(F.way, F.kind, random=True))},
    computations={"shares": shares(F.key)},
    measures=(CHANGE, LOSS),
    claims={
        "more": Claim(more_heads("shares", "no-op", "broadcast"), SOURCE),
        "no-op": Claim(
            effect(LOSS, of("no-op", "zero")), SOURCE, stays=True, given=has_heads("shares", ("no-op",)), beside=without("no-op")
        ),
        "broadcast": Claim(
            effect(LOSS, of("broadcast", "zero")), SOURCE, given=has_heads("shares", ("broadcast",)), beside=without("broadcast")
        ),
        "states": Claim(difference(CHANGE, of("broadcast", "zero"), minus=of("no-op", "zero")), SOURCE, given=BOTH),
        "weight": Claim(
            difference(LOSS, of("no-op", "diagonal"), minus=of("no-op", "zero")), SOURCE, given=has_heads("shares", ("no-op",))
        ),
    },
    figures=(dots((CHANGE, LOSS), over="edited"),),
)
