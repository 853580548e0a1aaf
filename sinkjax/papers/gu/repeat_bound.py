"""gu/repeat-bound: why one token repeated has no sink unless positions are added to the embedding (Propositions 1 to 4).

The forward pass is compared with closed forms on the model's own queries and keys.
"""

from sinkjax.papers.gu._repeated import at_most, by_length, repeated_tokens, with_bound
from sinkjax.studies.vocabulary import *

SOURCE, EXACT = "Gu et al. 2025, Propositions 1 to 4", 1e-12  # rounding of the closed form, in float64
FORWARD = F.tolerance
EVERY = ("rotary", "scores", "none", "added")

STUDY = Study(
    name="gu/repeat-bound",
    needs=("softmax", "causal mask", "usual scale"),
    settings={
        "prompts": 16,
        "longest": setting(4096, "tokens of the longest prompt whose attention is computed in closed form"),
        "tolerance": setting(1e-4, "rounding of the float32 forward: of a hidden state over its largest entry, and of a weight"),
    },
    computations={"bound": repeated_tokens(F.longest)},
    claims={
        "hidden": Claim(at_most("bound", {"hidden": FORWARD}, EVERY[:3]), SOURCE),
        "nope": Claim(at_most("bound", {"without_positions": FORWARD}, EVERY), SOURCE),
        "biases": Claim(
            at_most("bound", {"first_excess": EXACT, "forward_first_excess": FORWARD}, ("scores",), falling=True), SOURCE
        ),
        "bound": Claim(at_most("bound", {"excess": EXACT, "forward_excess": FORWARD}, ("rotary", "none")), SOURCE),
        "lengths": Claim(by_length("bound"), SOURCE),
    },
    figures=(with_bound("bound", "tokens"), with_bound("bound", "layer")),
)
