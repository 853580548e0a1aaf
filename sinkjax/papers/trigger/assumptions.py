"""trigger/assumptions: one assumption of the theorem removed at a time; which models still sink, and which solve the task."""

from sinkjax.papers.trigger._config import Changes
from sinkjax.papers.trigger._figures import by_model, map_gallery
from sinkjax.papers.trigger._outcomes import *
from sinkjax.papers.trigger._task import trigger
from sinkjax.studies.vocabulary import *

NO_BOS: Changes = {"bos": "none"}
ESCAPES: dict[str, tuple[str, Changes]] = {  # somewhere else to put weight
    "gate": ("gated heads", {"gate": True}),
    "sink-logit": ("learned sink logit", {"normalisers": ("sink-logit",)}),
    "off-by-one": ("softmax off by one", {"normalisers": ("off-by-one",)}),
}
NORMALISERS = {
    "clipped": "clipped softmax",
    "softpick": "softpick",
    "sigmoid": "sigmoid",
    "elu": "elu + 1",
    "relu-none": "ReLU",
    "relu-index": "ReLU / max(i, 1)",
    "relu-count": "ReLU / (i + 1)",
}
GROUPS: dict[str, dict[str, tuple[str, Changes]]] = {  # changed part -> name -> label, and the change
    "data": {
        "paper": ("softmax, as in the paper", {}),
        "no-bos": ("no BOS", NO_BOS),
        "noisy-bos": ("BOS with noise", {"bos": "noisy"}),
        "second-anchor": ("a second anchor", {"second_anchor": True}),
        "zero-token": ("a token of zeros", {"zero_token": True}),
        "zero-token-no-bos": ("a token of zeros, no BOS", {"zero_token": True, **NO_BOS}),
    },
    "somewhere else to put weight": {
        f"{name}{ending}": (f"{label}{without}", {**changes, **bos})
        for name, (label, changes) in ESCAPES.items()
        for ending, without, bos in (("", "", {}), ("-no-bos", ", no BOS", NO_BOS))
    },
    "normaliser": {name: (label, {"normalisers": (name,)}) for name, label in NORMALISERS.items()},
}
LABELS = {name: label for group in GROUPS.values() for name, (label, _) in group.items()}
GROUPED = {group: {name: label for name, (label, _) in models.items()} for group, models in GROUPS.items()}
OURS = "ours, on Ran-Milo 2026, footnote 1"

STUDY = Study(
    name="trigger/assumptions",
    settings={"steps": 10_000, "evaluate_every": 100},
    trainings={name: trigger(label, changes) for group in GROUPS.values() for name, (label, changes) in group.items()},
    measures=(
        *(solves(F.solved), sinking_heads("weight", F.sinks), sinking_heads("part", F.sinks), sinking_heads("written", F.sinks)),
        *(stopped(), steps_to_stop(), loss_left(), largest_error()),
        *(weight(), weight_share(), weight("later tokens"), whole_rows(), bos_writes()),
        *(weight(rows="trigger"), weight("later tokens", "trigger")),
    ),
    claims={
        "softmax": Claim(versus(whole_rows(solved=F.solved), "paper", "relu-index"), "ours, on Ran-Milo 2026, Theorems 1 and 3"),
        "needs-bos": Claim(versus(loss_left(), "no-bos", "paper"), "ours, on Ran-Milo 2026, Theorem 1"),
        **{f"{name}-solves": Claim(versus(loss_left(), "no-bos", f"{name}-no-bos", whole="paper"), OURS) for name in ESCAPES},
        **{f"{name}-sinks": Claim(versus(whole_rows(), "paper", name), OURS) for name in ESCAPES},
        "divisor": Claim(versus(loss_left(), "relu-none", "relu-index"), "ours, on Ran-Milo 2026, its code for ReLU"),
    },
    figures=(
        by_model(
            "attention",
            (weight(), weight_share(), weight("later tokens")),
            GROUPED,
            "mean over rows and sequences",
            "Attention of the rows of all tokens but BOS and the trigger, by model; without BOS the first token is shown instead."
            " Shares of rows that are nearly 0 mean little.",
        ),
        by_model(
            "loss",
            (loss_left(),),
            GROUPED,
            "held-out loss, % of that of a model that writes nothing (log scale)",
            "Loss left after training, by model.",
            least=1e-5,
        ),
        map_gallery(LABELS),
    ),
)
