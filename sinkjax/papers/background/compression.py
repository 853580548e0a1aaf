"""background/compression: the entropy of the hidden states by depth, and the first token's MLP (Queipo-de-Llano et al. 2026).

Where the first token's massive activation emerges, the hidden states collapse to nearly one direction. The contrast is the MLP
output for that token, dropped in this layer; controls drop it for another token.
"""

from sinkjax.papers.background._spectra import anisotropy, bounded_below, by_depth, changes_with_norm, entropy, mixing
from sinkjax.studies.vocabulary import *

ENTROPY, SINK = entropy(), sink_rate(F.position)
EMERGES = at("dropped", layer(F.emerges))
PAPER = "Queipo-de-Llano et al. 2026"

STUDY = Study(
    name="background/compression",
    needs=("MLP",),
    settings={"position": setting(0, "position whose MLP output is dropped")},
    known={"emerges": steepest("resid_norm", F.position)},
    grids={
        "dropped": grid(drop_mlp(F.position), layer(F.emerges) | ALL | each),
        "identity": grid(edit("mlp_out", "scale", 1.0, queries=F.position)),
    },
    controls={"dropped": draws(drop_mlp(random_position(but=F.position)))},
    measures=(ENTROPY, SINK, mixing(), anisotropy()),
    claims={
        "falls": Claim(unedited(entropy("early"), "dropped", minus=ENTROPY), f"{PAPER}, Fig. 1, section 5"),
        "rises": Claim(unedited(entropy("late"), "dropped", minus=ENTROPY), f"{PAPER}, Fig. 1, section 5"),
        "entropy": Claim(effect(ENTROPY, EMERGES), f"{PAPER}, section 4"),
        "sink": Claim(effect(SINK, EMERGES), f"{PAPER}, section 4", sign=-1),
        "norm-entropy": Claim(changes_with_norm("entropy", "dropped"), f"{PAPER}, section 3"),
        "norm-sink": Claim(changes_with_norm("sinks", "dropped"), f"{PAPER}, section 3"),
        "theorem": Claim(bounded_below("dropped"), f"{PAPER}, Theorem 1"),
    },
    figures=(
        by_depth((EMERGES, at("dropped", ALL))),
        lines((ENTROPY, SINK), over="dropped"),
        dots((ENTROPY, SINK), over="dropped"),
        maps((EMERGES, at("dropped", ALL))),
    ),
)
