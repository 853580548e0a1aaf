"""emergence/causal: edits of a sink and of what feeds it, on a model's checkpoints: when does the sink start to matter?"""

from sinkjax.papers.emergence._onsets import checkpoints, kept_models, onsets, order, over_steps, timeline
from sinkjax.studies.vocabulary import *

STUDY = Study(
    name="emergence/causal",
    settings={"seed": 3, "steps": 3000},
    trainings={"softmax": kept_models()},
    claims={"order": Claim(order(), "ours"), "onsets": Claim(onsets(), "ours"), "steps": Claim(over_steps(), "ours")},
    figures=(timeline(), checkpoints()),
)
