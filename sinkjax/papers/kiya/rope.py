"""kiya/rope: is rotary index 0 a cause of the sink (Fig. 3, property 2)?

The paper shows the first block's scores at all pairs of rotary indices. Here an intervention is added: the first token exchanges
its rotary index with a later one. Controls exchange the indices of two other tokens.
"""

from sinkjax.papers.kiya._first_keys import depends_on_distance, first_scores, score_maps, scores_of_bos, would_receive
from sinkjax.studies.vocabulary import *

SEEN, SINK, SIZE = attention_to(0), sink_rate(0), largest_activation(0)
SWAPPED = at("indices")

STUDY = Study(
    name="kiya/rope",
    needs=("rotary positions", "plain embedding", "norm", "norm before attention", "softmax"),
    settings={
        "prompts": 16,
        "indices": setting(128, "rotary indices of queries and keys in the first block's scores"),
        "tokens": setting(200, "random ordinary tokens whose keys take the place of the BOS's"),
        "special": setting(False, "whether special tokens other than the BOS enter the mean embedding"),
        "positions": setting((1, 4, 8, 16, 32), "positions whose rotary index the first token gets"),
    },
    computations={"scores": first_scores(F.indices, F.tokens, F.special)},
    grids={"indices": grid(swap_indices(0, F.position), over={"position": F.positions}), "identity": grid(swap_indices(8, 8))},
    controls={"indices": draws(swap_indices(random_position(but=(0, F.position), least=1), F.position))},
    measures=(SEEN, SINK, SIZE),
    claims={
        "bos": Claim(scores_of_bos("scores"), "Kiya et al. 2026, Fig. 3a"),
        "distance": Claim(depends_on_distance("scores"), "Kiya et al. 2026, Fig. 3b"),
        "sink": Claim(
            effect(SEEN, SWAPPED),
            "ours, on Kiya et al. 2026, Fig. 3b, conclusion",
            stays=True,
            given=exceeds(SEEN, "indices", strongest_other_attention(0)),
            beside=(effect(SINK, SWAPPED),),
        ),
        "activation": Claim(unchanged(SIZE, SWAPPED, 1e-4), "the first token sees itself alone"),
    },
    figures=(score_maps("scores"), would_receive("scores"), lines((SEEN, SIZE), over="indices", x="position")),
)
