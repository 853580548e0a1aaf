"""trigger/heads: several layers and heads with a residual stream; how many heads sink, and which, for each seed."""

from sinkjax.papers.trigger._figures import (
    bos_by_head,
    counted_heads,
    edited_losses,
    head_maps,
    learning,
    losses_by_edit,
    neutral_edit,
)
from sinkjax.papers.trigger._outcomes import *
from sinkjax.papers.trigger._task import LABELS, NORMALISERS, RELU, SOFTMAX, trigger
from sinkjax.studies.vocabulary import *

SIZES = {"2x2": (2, 2), "4x4": (4, 4)}  # layers and heads
PAIRS = {size: (f"{SOFTMAX}-{size}", f"{RELU}-{size}") for size in SIZES}
CHANGES = {
    f"{name}-{size}": {"layers": depth, "heads": heads, "residual": True, **NORMALISERS[name]}
    for size, (depth, heads) in SIZES.items()
    for name in LABELS
}
SHOWN = {f"{name}-{size}": f"{label} {size}" for size in SIZES for name, label in LABELS.items()}


def counts(kind: str) -> Measure:
    """The number of heads that sink, by their mass on BOS."""
    return sinking_heads(kind, F.sinks)


STUDY = Study(
    name="trigger/heads",
    settings={"seeds": 8, "rate": 1e-4, "evaluate_every": 500},
    trainings={name: trigger(label, CHANGES[name], edited=True) for name, label in SHOWN.items()},
    measures=(
        *(stopped(), steps_to_stop(), solves(F.solved), task_loss(), largest_error(), loss_left()),
        *(weight(), weight_share(), weight("later tokens"), whole_rows(), bos_writes()),
        *(weight(rows="trigger"), weight_share(rows="trigger"), strongest_head()),
        *(counts(kind) for kind in ("share", "weight", "part", "written")),
    ),
    claims={
        f"strongest-{size}": Claim(
            versus(strongest_head(solved=F.solved), soft, relu),
            f"Ran-Milo 2026, Theorem 2, {figures}",
            beside=(versus(sinking_heads("part", F.sinks, F.solved), soft, relu), versus(strongest_head(), relu, 0.0)),
        )
        for (size, (soft, relu)), figures in zip(PAIRS.items(), ("Figs. 4, 5", "Figs. 6 to 8"), strict=True)
    }
    | {"edits": Claim(edited_losses(SHOWN), "ours"), "neutral": Claim(neutral_edit(SHOWN))},
    figures=(
        counted_heads(PAIRS),
        bos_by_head(SHOWN),
        *(head_maps(name, label) for name, label in SHOWN.items()),
        learning(SHOWN),
        losses_by_edit(SHOWN),
    ),
)
