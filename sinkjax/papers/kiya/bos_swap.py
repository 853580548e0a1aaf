"""kiya/bos-swap: the first token's embedding trades places with a later one's (Figs. 2 and 7).

If the sink belongs to the token, it moves along; if it belongs to the position, it stays. Controls move another token to the same
position.
"""

from sinkjax.studies.vocabulary import *

SINK, SINK_0 = sink_rate(F.position), sink_rate(0)
SIZE, SIZE_0 = largest_activation(F.position), largest_activation(0)
FIRST_SINK, FIRST_SEEN, FIRST_SEEN_0 = sink_rate(F.position, layer(0)), attention_to(F.position, 0), attention_to(0, 0)
FIRST_SIZE, FIRST_SIZE_0 = largest_activation(F.position, layer(0)), largest_activation(0, layer(0))
SEEN_0, OTHER = attention_to(0), strongest_other_attention(0)
HALF = layer(half_depth())
LARGE_0 = largest_activation(0, HALF)
BOS, ORDINARY, PLACES = at("bos"), at("text"), {"position": F.positions}
SWAP = swap_embeddings(0, F.position)
OTHERS = draws(swap_embeddings(random_position(but=(0, F.position)), F.position))
MEETS = separates_documents("bos")
SINKS = all_of((MEETS, reaches(FIRST_SEEN_0, "bos", percent(F.eps))))
MASSIVE_AT_ONCE = all_of((MEETS, reaches(FIRST_SIZE_0, "bos", MASSIVE_SIZE)))
MASSIVE = all_of((MEETS, reaches(LARGE_0, "bos", MASSIVE_SIZE)))
LARGEST, OURS = all_of((MEETS, exceeds(SEEN_0, "bos", OTHER))), "ours, on Kiya et al. 2026, conclusion"

STUDY = Study(
    name="kiya/bos-swap",
    settings={
        "positions": setting((1, 2, 4, 8, 16, 32), "where the first token's embedding is moved to"),
        "shown": setting(8, "the position whose maps are drawn"),
    },
    grids={
        "text": grid(SWAP, over=PLACES, bos="none", title="without BOS"),
        "bos": grid(SWAP, over=PLACES, bos="own", title="with BOS"),
        "identity": grid(swap_embeddings(F.shown, F.shown)),
    },
    controls={"text": OTHERS, "bos": OTHERS},
    measures=(SINK_0, SINK, SIZE_0, SIZE, SEEN_0),
    claims={
        "sink-first": Claim(
            moved(FIRST_SEEN_0, FIRST_SEEN, BOS), "Kiya et al. 2026, Fig. 2a", given=SINKS, beside=(effect(FIRST_SINK, BOS),)
        ),
        "activation-first": Claim(
            effect(FIRST_SIZE, BOS, whole=FIRST_SIZE_0), "Kiya et al. 2026, Fig. 2d", given=MASSIVE_AT_ONCE
        ),
        "sink": Claim(
            effect(SEEN_0, BOS), "Kiya et al. 2026, Figs. 2c, 7", stays=True, given=LARGEST, beside=(effect(SINK_0, BOS),)
        ),
        "activation": Claim(
            effect(LARGE_0, BOS, above=typical_activation(HALF)), "Kiya et al. 2026, Figs. 2f, 7", stays=True, given=MASSIVE
        ),
        "ordinary": Claim(
            effect(SEEN_0, ORDINARY), OURS, stays=True, given=exceeds(SEEN_0, "text", OTHER), beside=(effect(SINK_0, ORDINARY),)
        ),
    },
    figures=(
        maps((at("bos", fixed={"position": F.shown}), at("text", fixed={"position": F.shown}))),
        lines(((SINK_0, SINK), (SIZE_0, SIZE)), over="bos", x="position"),
        lines(((SINK_0, SINK), (SIZE_0, SIZE)), over="text", x="position"),
        by_layer(((SINK_0, SINK), (SIZE_0, SIZE)), at("bos", fixed={"position": F.shown})),
    ),
)
