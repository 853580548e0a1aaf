"""trigger/sizes: one property of the single-head model made smaller or larger at a time, for softmax and for ReLU."""

from sinkjax.papers.trigger._config import Changes
from sinkjax.papers.trigger._figures import by_model
from sinkjax.papers.trigger._outcomes import *
from sinkjax.papers.trigger._task import LABELS, NORMALISERS, trigger
from sinkjax.studies.vocabulary import *

DEEP = {"residual": True, "learning_rates": (F.deep_rate,)}
VARIANTS: dict[str, tuple[str, Changes]] = {  # name -> label, and what differs from the base
    "base": ("1 layer, 1 head", {}),
    "1-layers": ("1 layer, residual", {"layers": 1, **DEEP}),
    "2-layers": ("2 layers, residual", {"layers": 2, **DEEP}),
    "4-layers": ("4 layers, residual", {"layers": 4, **DEEP}),
    "2-heads": ("2 heads", {"heads": 2}),
    "4-heads": ("4 heads", {"heads": 4}),
    "width-8": ("n = 8", {"width": 8}),
    "width-32": ("n = 32", {"width": 32}),
    "length-8": ("L = 8", {"length": 8}),
    "length-32": ("L = 32", {"length": 32}),
    "no-bos": ("no BOS", {"bos": "none"}),
    "scaled": ("scores / sqrt(n)", {"scaled": True}),
}

STUDY = Study(
    name="trigger/sizes",
    settings={
        "seeds": 8,
        "steps": 20_000,
        "evaluate_every": 100,
        "deep_rate": setting(1e-4, "learning rate of Adam for models with a residual stream, as in the paper"),
    },
    trainings={
        f"{name}-{variant}": trigger(f"{label}: {what}", {**NORMALISERS[name], **changes})
        for name, label in LABELS.items()
        for variant, (what, changes) in VARIANTS.items()
    },
    measures=(
        *(stopped(), steps_to_stop(), solves(F.solved), largest_error(), loss_left()),
        *(weight(), weight_share(), weight("later tokens"), whole_rows(), bos_writes(), weight(rows="trigger")),
    ),
    figures=(
        by_model(
            "sizes",
            (weight(), weight_share()),
            {label: {f"{name}-{variant}": what for variant, (what, _) in VARIANTS.items()} for name, label in LABELS.items()},
            "mean over layers, heads, rows and sequences",
            "Attention to BOS in the rows of all tokens but BOS and the trigger, with one property changed at a time. Shares"
            " of rows that are nearly 0 mean little (ReLU).",
        ),
    ),
)
