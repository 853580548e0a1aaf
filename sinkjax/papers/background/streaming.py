"""background/streaming: a window of the last keys, with and without the first tokens (Xiao et al. 2024, Figs. 3 and Tables 1, 2).

The window is compared with one that is recomputed for each token, which has lost the same context and harms nothing else.
Controls keep as many random early tokens in place of the first ones.
"""

from sinkjax.papers.background._recomputed import above_recomputed, loss_by_position, recomputed_window, undone
from sinkjax.studies.vocabulary import *

LOSS = loss(F.cache)


def keeping(first: object) -> At:
    """The claims' window with this many first tokens."""
    return at("windows", fixed={"size": F.cache, "first": first})


STUDY = Study(
    name="background/streaming",
    settings={
        "length": 128,
        "cache": setting(32, "keys that a query sees in the claims, first and last ones together"),
        "keep": setting(4, "first tokens that are kept in the claims"),
        "caches": setting((8, 16, 32), "all sizes of the cache; none is larger than `cache`"),
        "keeps": setting((0, 1, 2, 4), "how many first tokens are kept; the last ones fill the rest of the cache"),
    },
    computations={"recomputed": recomputed_window(F.cache)},
    grids={
        "windows": grid(window(F.size, F.first), over={"size": F.caches, "first": F.keeps}),
        "identity": grid(add_logit(0, 0.0)),
    },
    controls={"windows": draws(window(F.size, random_positions(F.first, least=F.first, below=F.size)))},
    measures=(LOSS,),
    claims={
        "window": Claim(above_recomputed(LOSS, keeping(0), "recomputed"), "Xiao et al. 2024, Fig. 3, Table 1"),
        "first": Claim(
            undone(LOSS, keeping(0), keeping(F.keep), "recomputed"),
            "Xiao et al. 2024, Fig. 3, Table 1",
            beside=(above_recomputed(LOSS, keeping(F.keep), "recomputed"),),
        ),
        "more": Claim(undone(LOSS, keeping(1), keeping(F.keep), "recomputed", matched=False), "Xiao et al. 2024, Table 2"),
    },
    figures=(
        loss_by_position(at("windows", fixed={"size": F.cache}), "recomputed"),
        lines(LOSS, over="windows", x="first", by="size", effect=True),
        maps((keeping(0), keeping(F.keep))),
    ),
)
