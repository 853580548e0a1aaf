"""gu/sink-rate: how many heads sink on the first key of natural text, of random tokens and of one token repeated (Table 1)."""

from sinkjax.papers.gu._norms import largest_norm_ratio
from sinkjax.studies.vocabulary import *

SOURCE = "Gu et al. 2025, Table 1"
SINK, OTHER = sink_rate(0), strongest_other_sink(0)
KINDS = at("text"), at("random"), at("repeat")


def sinks(grid: str, given: Premise | None = None) -> Claim:
    """More heads sink on the first key than on the other key with the most sinks."""
    return Claim(unedited(SINK, grid, minus=OTHER), SOURCE, given=given)


STUDY = Study(
    name="gu/sink-rate",
    settings={"prompts": 84},
    grids={
        "text": grid(title="natural text"),
        "random": grid(inputs="random", title="random tokens"),
        "repeat": grid(inputs="repeat", title="one token repeated"),
    },
    measures=(SINK, sink_rate(0, eps=0.2), sink_rate(0, eps=0.8), OTHER, largest_norm_ratio()),
    claims={
        "text": sinks("text"),
        "random": sinks("random", without_bos("random")),
        "repeat-keeps": sinks("repeat", all_of((positions_are(("added",)), without_bos("repeat")))),
        "repeat-loses": Claim(
            difference(SINK, at("text"), minus=at("repeat")),
            SOURCE + ", Propositions 1 to 4",
            given=all_of((positions_are(("rotary", "scores", "none")), without_bos("repeat"))),
            beside=(unedited(SINK, "repeat"), unedited(OTHER, "repeat")),
        ),
    },
    figures=(
        maps(KINDS),
        by_layer(SINK, KINDS, unedited=False),
        along(SINK, "key", first_half(), KINDS),
        along(SINK, "eps", (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9), KINDS),
    ),
)
