"""kiya/self: the query at one position attends only to itself, in some layers (Figs. 5 and 9).

Controls cut as many links at random in the same layers. Whether the query must see itself is asked by one random other key in
its place.
"""

from sinkjax.studies.vocabulary import *

SINK, SINK_0 = later_sink_rate(F.position), later_sink_rate(0)
SEEN, SEEN_0 = later_attention_to(F.position), later_attention_to(0)
SIZE, SIZE_0 = largest_activation(F.position), largest_activation(0)
HALF = layer(half_depth())
LARGE, LARGE_0 = largest_activation(F.position, HALF), largest_activation(0, HALF)
FORMS = upto(F.forms)
ALONE, OTHER, EARLY = at("alone", ALL), at("other"), at("alone", FORMS)
MASSIVE = reaches(LARGE_0, "alone", MASSIVE_SIZE)
SINKS = exceeds(SEEN_0, "alone", strongest_later_attention(0))
OURS = "ours, on Kiya et al. 2026, Fig. 9, conclusion"


def shown(place: Place) -> At:
    """The conditions whose maps are drawn."""
    return at("alone", place, {"position": F.shown})


STUDY = Study(
    name="kiya/self",
    settings={
        "prompts": 16,
        "positions": setting((1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 30, 36, 42, 48), "where the query is"),
        "ends": setting((1, 2, 5, 9, 11, 14), "last layers of the sets of first layers that are edited together"),
        "shown": setting(8, "the position whose maps are drawn"),
    },
    known={"forms": onset(SIZE_0)},
    grids={
        "alone": grid(attend_self(F.position), each | upto(F.ends) | FORMS | ALL, over={"position": F.positions}),
        "other": grid(
            see_only(F.position, random_position(below=F.position)), over={"position": F.positions}, title="one other key"
        ),
        "identity": grid(edit("logits", "add", 0.0, queries=F.shown, relation="others")),
    },
    controls={"alone": draws(cut_links(F.position))},
    measures=(SINK, SIZE, SINK_0, SEEN, SEEN_0),
    claims={
        "sink": Claim(moved(SEEN_0, SEEN, ALONE), "Kiya et al. 2026, Fig. 5", given=SINKS, beside=(effect(SINK, ALONE, SINK_0),)),
        "activation": Claim(moved(LARGE_0, LARGE, ALONE), "Kiya et al. 2026, Fig. 5", given=MASSIVE),
        "leaves": Claim(effect(SEEN_0, ALONE), "Kiya et al. 2026, Fig. 5", sign=-1, given=SINKS, beside=(effect(SINK_0, ALONE),)),
        "early": Claim(moved(SEEN_0, SEEN, EARLY), OURS, given=all_of((SINKS, MASSIVE)), beside=(effect(SINK, EARLY, SINK_0),)),
        "other": Claim(difference(SEEN, ALONE, OTHER), "ours, on Kiya et al. 2026, property 3"),
    },
    figures=(
        by_layer((SINK, SIZE), (at("alone", layer(0)), EARLY, ALONE)),
        maps((shown(FORMS), shown(ALL))),
        heatmap((SINK, SIZE), over="alone", axis="position"),
        scatter(SINK, SIZE, over="alone"),
    ),
)
