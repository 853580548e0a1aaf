"""li/isolate: a token that attends only to itself becomes a sink (Li et al. 2026, intervention 1).

Two further edits cut the token off from its context: it sees only one other key, or attends to all keys evenly, which averages
most.
Controls cut as many links at random in the same layers.
"""

from sinkjax.papers.li._scores import later_sink_score
from sinkjax.studies.vocabulary import *

SCORE, SCORE_0 = later_sink_score(F.position), later_sink_score(0)
SINK, SINK_0 = sink_rate(F.position), sink_rate(0)
SIZE, SIZE_0 = largest_activation(F.position), largest_activation(0)
FORMS, LATER = upto(F.forms), after(F.forms)
SETS = upto(F.ends) | FORMS | LATER | ALL
ALONE, EVEN = at("alone", ALL), at("even", ALL)


def everywhere(grid: str) -> tuple[Contrast, ...]:
    """The share of key 0's attention that the token gets if the edit acts early, or later."""
    return tuple(moved(SCORE_0, SCORE, at(grid, place)) for place in (FORMS, LATER))


STUDY = Study(
    name="li/isolate",
    needs=("softmax", "causal mask"),
    settings={
        "prompts": 16,
        "position": setting(10, "the token whose attention is edited, as in the paper"),
        "keys": setting((0, 5, 9), "earlier keys; the token sees one of them at a time"),
        "ends": setting((1, 2, 3, 5, 7, 11, 15, 23), "last layers of the sets of first layers that are edited together"),
    },
    known={"forms": onset(SIZE_0)},
    grids={
        "alone": grid(attend_self(F.position), each | SETS),
        "other": grid(see_only(F.position, F.seen), FORMS | LATER | ALL, over={"seen": F.keys}, title="only one other key"),
        "even": grid(edit("logits", "set", 0.0, queries=F.position), SETS, title="even attention"),
        "identity": grid(edit("logits", "add", 0.0, queries=F.position)),
    },
    controls={"alone": draws(cut_links(F.position))},
    measures=(SINK, SINK_0, SIZE, SIZE_0, SCORE, SCORE_0),
    claims={
        "sink": Claim(
            moved(SCORE_0, SCORE, ALONE),
            "Li et al. 2026, intervention 1",
            beside=(effect(SINK, ALONE, SINK_0), effect(SIZE, ALONE), *everywhere("alone")),
        ),
        "average": Claim(
            difference(SCORE, ALONE, EVEN),
            "ours, on Li et al. 2026, intervention 1",
            beside=(effect(SCORE, EVEN), effect(SCORE, at("other", ALL)), *everywhere("even"), *everywhere("other")),
        ),
    },
    figures=(
        lines((SCORE, SINK, SIZE), over="alone"),
        lines((SCORE, SINK, SIZE), over="even"),
        lines((SCORE, SINK, SIZE), over="other", x="seen"),
        maps((ALONE, EVEN)),
        activations((at("alone", FORMS), ALONE, EVEN)),
    ),
)
