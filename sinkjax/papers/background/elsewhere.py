"""background/elsewhere: sinks and massive activations on other tokens than the first (Sun et al. 2024, sections 2.2 and 4).

Delimiters, and frequent words for comparison, are measured where the text has them, and where an edit of the embedding puts them:
at one position of every prompt. Controls put random tokens there.
"""

from sinkjax.papers.background._massive import massive, massive_prompts
from sinkjax.papers.background._tokens import (
    at_first_of,
    by_token,
    embeddings_of,
    over_median,
    put_token,
    random_embeddings,
    tokens_in_text,
)
from sinkjax.studies.vocabulary import *

SINK, SIZE = sink_rate(F.place), over_median(F.place)
SHOWN = at("placed", fixed={"token": F.shown})

STUDY = Study(
    name="background/elsewhere",
    settings={
        "stops": setting((".", "\n"), "tokens whose first one in a text the claims are about"),
        "tokens": setting(
            (".", "\n", ",", ";", ":", " the", " of", " and"), "tokens that are measured; each must be one token of the model"
        ),
        "shown": setting(".", "the token whose effect is a further readout of the claims and whose maps are drawn"),
        "place": setting(8, "position where each token is put, in place of the text's own"),
        "placed_prompts": setting(16, "number of prompts for these"),
    },
    known={"rows": embeddings_of(F.tokens), "others": random_embeddings(F.tokens)},
    grids={
        "text": grid(title="text"),
        "placed": grid(put_token(F.token), over={"token": F.tokens}, prompts=F.placed_prompts),
        "identity": grid(edit("embed", "scale", 1.0, queries=F.place)),
    },
    controls={"placed": draws(put_token())},
    measures=(SINK, SIZE, massive_prompts(F.place)),
    claims={
        "activation": Claim(
            at_first_of(F.stops, "activation", "text"),
            "Sun et al. 2024, section 2.2",
            given=massive("text", 0),
            beside=(moved(over_median(0), SIZE, SHOWN),),
        ),
        "sink": Claim(
            at_first_of(F.stops, "sink", "text"), "Sun et al. 2024, section 4", beside=(moved(sink_rate(0), SINK, SHOWN),)
        ),
        "tokens": Claim(tokens_in_text(F.tokens, "text"), "Sun et al. 2024, section 2.2"),
    },
    figures=(by_token(F.tokens, "text"), dots((SINK, SIZE), over="placed"), by_layer((SIZE, SINK), SHOWN), maps(SHOWN)),
)
