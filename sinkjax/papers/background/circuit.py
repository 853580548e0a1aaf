"""background/circuit: does a circuit of the first two blocks make the first token a sink (Peng et al. 2026, arXiv 2603.06591)?

The study patches paths from the first two blocks, and from the layer where the activation forms, at the first token. The paper
does not intervene, so the claims are ours. Controls replace the outputs of the same components in two later layers, or change a
reader's input by as much in a random direction.
"""

from sinkjax.papers.background._circuit import BOTH, DONORS, PATHS, SENDERS, circuit, patch_path, replace_output, written
from sinkjax.studies.vocabulary import *

SINK, SIZE = sink_rate(0), largest_activation(0)
SOURCE, MASSIVE = "ours, on Peng et al. 2026", reaches(SIZE, "nodes", MASSIVE_SIZE)


def node(sender: str, donor: str = "mean") -> At:
    """Replace a sender's output for all its readers."""
    return at("nodes", fixed={"sender": sender, "donor": donor})


def path(name: str) -> At:
    """Replace a sender's output for one reader."""
    return at("paths", fixed={"path": name, "donor": "mean"})


def others(measure: Measure) -> tuple[Contrast, ...]:
    """The effects of another donor, and of only the late MLP."""
    return effect(measure, node(BOTH, "other")), effect(measure, node("late MLP"), controls=False)


STUDY = Study(
    name="background/circuit",
    needs=("MLP", "pre-norm"),
    settings={"prompts": 16},
    known={"forms": onset(largest_activation(0)), "written": written()},
    grids={
        "nodes": grid(replace_output(F.sender, F.donor), over={"sender": SENDERS, "donor": DONORS}, title="for all readers"),
        "paths": grid(patch_path(F.path, F.donor), over={"path": PATHS, "donor": DONORS}, title="for one reader"),
        "identity": grid(edit("resid", "add", 0.0, queries=0)),
    },
    controls={
        "nodes": draws(replace_output(F.sender, F.donor, random=True)),
        "paths": draws(patch_path(F.path, F.donor, random=True)),
    },
    measures=(SINK, SIZE),
    claims={
        "early": Claim(
            unedited(attention_to(0, 1), "nodes", minus=strongest_other_attention(0, 1)), "Peng et al. 2026, within two blocks"
        ),
        "sink": Claim(effect(SINK, node(BOTH)), SOURCE, sign=-1, beside=others(SINK)),
        "activation": Claim(
            effect(SIZE, node(BOTH), above=typical_activation()), SOURCE, sign=-1, given=MASSIVE, beside=others(SIZE)
        ),
        "direct": Claim(
            part(SIZE, path(f"{BOTH} to late MLP"), node(BOTH), falls=True),
            SOURCE,
            given=MASSIVE,
            beside=tuple(part(SINK, path(f"{BOTH} to {one}"), node(BOTH), falls=True) for one in ("late MLP", "the rest")),
        ),
    },
    figures=(
        circuit((SINK, SIZE), over="paths"),
        dots((SINK, SIZE), over="nodes"),
        maps((node(BOTH), path(f"{BOTH} to late MLP"))),
    ),
)
