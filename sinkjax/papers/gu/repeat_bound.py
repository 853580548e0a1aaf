"""gu/repeat-bound: why one token repeated has no sink unless positions are added to the embedding (Propositions 1 to 4).

The forward pass is compared with closed forms on the model's own queries and keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from sinkjax.papers.gu._repeated import BOUND_VARIABLES, at_most, by_length, repeated_tokens, with_bound
from sinkjax.study import Inputs, Lab, Sinks

EXACT = 1e-12  # rounding of the closed form, in float64


@dataclass(frozen=True, kw_only=True)
class Settings(Sinks):
    prompts: int = 16
    longest: int = 4096
    """tokens of the longest prompt whose attention is computed in closed form"""
    tolerance: float = 1e-4
    """rounding of the float32 forward: of a hidden state over its largest entry, and of a weight"""


def study(lab: Lab, s: Settings) -> None:
    """The bounds on the attention of repeated tokens."""
    lab.needs("softmax", "causal mask", "usual scale", "rotation after all norms", "queries without growth")
    compute, declared = partial(repeated_tokens, s, s.longest), {"repeated_tokens": s.longest}
    bound = lab.calculate("bound", compute, BOUND_VARIABLES, declared, s.prompts, Inputs("repeat", bos="none"))

    source, forward = "Gu et al. 2025, Propositions 1 to 4", s.tolerance
    same_states = ("rotary", "scores", "none")
    lab.identity("hidden", source, at_most(bound, {"hidden": forward}, same_states))
    lab.identity("nope", source, at_most(bound, {"without_positions": forward}, (*same_states, "added")))
    biases = {"first_excess": EXACT, "forward_first_excess": forward}
    lab.identity("biases", source, at_most(bound, biases, ("scores",), falling=True))
    lab.identity("bound", source, at_most(bound, {"excess": EXACT, "forward_excess": forward}, ("rotary", "none")))
    lab.describe("lengths", source, lambda read: by_length(read, bound, s.eps))

    lab.draw(with_bound, bound, "tokens")
    lab.draw(with_bound, bound, "layer")
