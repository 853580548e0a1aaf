"""kiya/mask: mask the logits of all later queries towards the first key, in some layers or heads (Figs. 4 and 8).

Controls mask another, random key in the same layers, or the key in as many random heads.
"""

from sinkjax.studies.vocabulary import *

SINK, NEXT = sink_rate(F.key), sink_rate(F.key + 1)
SEEN, SEEN_NEXT = attention_to(F.key), attention_to(F.key + 1)
SIZE, SIZE_NEXT = largest_activation(F.key), largest_activation(F.key + 1)
HALF = layer(half_depth())
LARGE, LARGE_NEXT = largest_activation(F.key, HALF), largest_activation(F.key + 1, HALF)
EARLIEST, SECOND_LAYER, THIRD_LAYER = (attention_to(F.key, layers) for layers in (0, 1, 2))
SECOND = moved(SEEN, SEEN_NEXT, at("masks", layer(1)))
EPS = percent(F.eps)
SINKS_AT_ONCE = reaches(EARLIEST, "masks", EPS)
SINKS_THIRD = all_of((below(EARLIEST, "masks", EPS), below(SECOND_LAYER, "masks", EPS), reaches(THIRD_LAYER, "masks", EPS)))
MASSIVE = reaches(LARGE, "masks", MASSIVE_SIZE)
SINKS = exceeds(SEEN, "masks", strongest_other_attention(F.key))
FORMS = upto(F.forms)


def moves(where: At, source: str, *given: Premise) -> Claim:
    """The next token gains the masked one's attention, in the paper's mean map; the share of heads is an additional readout."""
    return Claim(moved(SEEN, SEEN_NEXT, where), source, given=all_of((SINKS, *given)), beside=(effect(NEXT, where),))


STUDY = Study(
    name="kiya/mask",
    settings={
        "key": setting(0, "the key that is masked; its sink is expected at key + 1 afterwards"),
        "head_shares": setting((0.1, 0.5), "shares of all heads that are masked as a set"),
    },
    known={"forms": onset(SIZE), "attention": attention_by_head(F.key)},
    grids={
        "masks": grid(mask_key(F.key), each | prefixes | ALL | FORMS),
        "heads": grid(mask_key(F.key), heads=top(F.attention, F.head_shares) | first_heads(F.head_shares)),
        "identity": grid(add_logit(F.key, 0.0)),
    },
    controls={"masks": draws(mask_key(random_position(but=(F.key, F.key + 1)))), "heads": draws(mask_key(F.key), heads="random")},
    measures=(SINK, NEXT, SIZE, SIZE_NEXT, SEEN, SEEN_NEXT),
    claims={
        "all": moves(at("masks", ALL), "Kiya et al. 2026, Figs. 4a, 8a"),
        "first": moves(at("masks", layer(0)), "Kiya et al. 2026, Fig. 4b", SINKS_AT_ONCE),
        "second-stays": Claim(SECOND, "Kiya et al. 2026, Fig. 4c", stays=True, given=all_of((SINKS, SINKS_AT_ONCE))),
        "second-moves": Claim(SECOND, "Kiya et al. 2026, Fig. 8c", given=all_of((SINKS, SINKS_THIRD))),
        "forms": moves(at("masks", FORMS), "ours, on Kiya et al. 2026, Fig. 8, conclusion", MASSIVE),
        "activation": Claim(moved(LARGE, LARGE_NEXT, at("masks", ALL)), "Kiya et al. 2026, Figs. 4, 8", given=MASSIVE),
        "kept": Claim(unchanged(SIZE, at("masks", ALL), 1e-4), "Kiya et al. 2026, Figs. 4, 8"),
    },
    figures=(
        lines(((SINK, NEXT), (SIZE, SIZE_NEXT)), over="masks"),
        maps((at("masks", FORMS), at("masks", ALL))),
        received((F.key, F.key + 1), over="masks"),
        activations((at("masks", layer(0)), at("masks", FORMS), at("masks", ALL))),
        dots((SINK, NEXT), over="heads"),
    ),
)
