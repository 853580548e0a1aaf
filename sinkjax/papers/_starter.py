"""A study to begin from: how far must the logits towards the first token be lowered until its sink is gone?"""

from dataclasses import dataclass

from sinkjax import add_logit
from sinkjax.study import *

LOWERED = "it lowers exactly these logits"  # so the edit is its own check


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Sinks):
    strengths: tuple[float, ...] = (-1.0, -2.0, -4.0, -8.0)
    """numbers added to the logits"""


def study(lab: Lab, s: Settings) -> None:
    """The logits towards the first token, lowered."""
    first, second = attention_to(0, lab.half), attention_to(1, lab.half)  # in the layer at half depth, mean over heads
    edits = {ALL.at(strength=x): add_logit(0, x) for x in s.strengths}  # in all layers
    lowered = lab.sweep(
        "lowered",
        edits,
        measures=[sink_rate(0, s.eps), sink_rate(1, s.eps), loss()],
        control=lambda rng, case: add_logit(lab.random_position(rng, but=[0]), case["strength"]),  # another key
    )
    most = lowered.at(strength=min(s.strengths))
    sinks = is_sink(first, lowered, strongest_other_attention(0, lab.half))
    lab.claim("key 0 loses its attention", "ours", effect(first, most), sinks, sign=-1, took=LOWERED)
    lab.claim("the second token receives it", "ours", moved(first, second, most), sinks, took=LOWERED)
    lab.draw(lines_along, "strength", (sink_rate(0, s.eps), sink_rate(1, s.eps)), over=lowered)
