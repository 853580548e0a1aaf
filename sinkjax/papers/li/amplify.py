"""li/amplify: a token whose head outputs are pushed away from their mean becomes a sink (Li et al. 2026, interventions 2 and 3).

The paper's control scales the outputs about 0, which changes their norm only. Further controls add a change of the same size in a
random direction.
"""

from sinkjax.papers.li._amplified import CENTRES, EVERYWHERE, NORM, PROMPTS, amplified, distances, mean_outputs, random_direction
from sinkjax.papers.li._scores import sink_score
from sinkjax.studies.vocabulary import *

SCORE, SINK, SIZE = sink_score(F.position), sink_rate(F.position), largest_activation(F.position)
SCORE_0, SINK_0 = sink_score(0), sink_rate(0)
MEANS = (PROMPTS, EVERYWHERE, *CENTRES)
PUSHED, SCALED = (at("factors", fixed={"mean": mean, "factor": F.factor}) for mean in (PROMPTS, NORM))
EDIT = amplified(F.mean, F.position, F.factor)


def shown(mean: str) -> At:
    """Return the conditions whose maps are drawn."""
    return at("factors", fixed={"mean": mean, "factor": F.factor, "position": F.token})


STUDY = Study(
    name="li/amplify",
    settings={
        "prompts": 16,
        "positions": setting((4, 10, 16, 24, 36), "tokens whose head outputs are amplified, one at a time"),
        "token": setting(10, "the token whose layers are amplified one at a time, as in the paper, and whose maps are drawn"),
        "factors": setting((2.0, 5.0, 10.0, 20.0, 50.0), "factors s of the dose-response"),
        "factor": setting(10.0, "the factor for comparing layers and means"),
        "last": setting(2, "last of the first layers that are amplified together"),
        "single": setting((0, 1, 2), "layers that are amplified one at a time, at every position"),
        "ends": setting((5, 11), "last layers of further sets of first layers that are amplified together"),
    },
    known={"means": mean_outputs(), "sizes": distances()},
    grids={
        "factors": grid(EDIT, upto(F.last), over={"mean": MEANS, "position": F.positions, "factor": F.factors}),
        "windows": grid(
            EDIT, layer(F.single) | upto(F.ends) | ALL, over={"mean": MEANS, "position": F.positions}, title="windows"
        ),
        "layers": grid(EDIT, each, over={"mean": (PROMPTS, NORM), "position": F.token}, title="one token"),
        "identity": grid(EDIT, upto(F.last), over={"mean": MEANS, "position": F.token, "factor": 1.0}),
    },
    controls={"factors": draws(random_direction(F.position, F.factor))},
    measures=(SINK, SINK_0, SCORE, SIZE),
    claims={
        "sink": Claim(
            difference(SCORE, PUSHED, SCALED),
            "Li et al. 2026, Figs. 5-6",
            given=attention_unnormed(),
            beside=(effect(SCORE, PUSHED), effect(SINK, PUSHED), effect(SIZE, PUSHED), unedited(SINK_0, "factors")),
        ),
        "rises": Claim(slope(SCORE, at("factors", fixed={"mean": PROMPTS}), "factor"), "Li et al. 2026, Figs. 5-6"),
        "norm": Claim(
            effect(SCORE, SCALED, whole=SCORE_0, controls=False),
            "Li et al. 2026, Figs. 5-6",
            stays=True,
            given=attention_unnormed(),
            beside=(effect(SINK, SCALED, controls=False), effect(SIZE, SCALED, controls=False)),
        ),
    },
    figures=(
        lines((SCORE, SINK, SIZE), over="factors", x="factor", by="mean", log_x=True),
        heatmap((SCORE, SINK, SIZE), over="windows", axis="mean"),
        heatmap((SCORE, SINK, SIZE), over="layers", axis="mean"),
        maps((shown(PROMPTS), shown(NORM))),
    ),
)
