"""trigger/one-layer: softmax sinks on BOS and ReLU does not, over many seeds, and the effects of edits of BOS."""

from sinkjax.papers.trigger._figures import edited_losses, learning, losses_by_edit, map_statistics, neutral_edit
from sinkjax.papers.trigger._outcomes import *
from sinkjax.papers.trigger._task import LABELS, NORMALISERS, RELU, SOFTMAX, trigger
from sinkjax.studies.vocabulary import *

STUDY = Study(
    name="trigger/one-layer",
    settings={"seeds": 64},
    trainings={name: trigger(label, NORMALISERS[name], edited=True) for name, label in LABELS.items()},
    measures=(
        *(stopped(), steps_to_stop(), solves(F.solved), task_loss(), largest_error(), loss_left()),
        *(weight(), weight_share(), weight("later tokens"), whole_rows(), whole_rows("later tokens"), bos_writes()),
        *(weight(rows="trigger"), weight_share(rows="trigger"), weight("later tokens", "trigger"), unevenness()),
        *(trigger_row(F.trigger_position), trigger_row(F.trigger_position, "each token after it"), spread_of_weights()),
    ),
    claims={
        "softmax": Claim(
            versus(whole_rows(solved=F.solved), SOFTMAX, RELU),
            "Ran-Milo 2026, Theorems 1 and 3, Fig. 3",
            beside=(versus(whole_rows(), SOFTMAX, 0.0), versus(whole_rows(), RELU, 0.0)),
        ),
        "edits": Claim(edited_losses(LABELS), "ours"),
        "neutral": Claim(neutral_edit(LABELS)),
    },
    figures=(map_statistics(LABELS), learning(LABELS), losses_by_edit(LABELS)),
)
