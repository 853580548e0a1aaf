"""kiya/after-softmax: the edits of kiya/mask and kiya/self on the weights instead of the logits (footnote 8).

Weights set to 0 leave rows that sum to less than 1; renormalised, they are the weights of the edited logits.
"""

from sinkjax.papers.kiya._weights import attention_left
from sinkjax.studies.vocabulary import *

MASKED, ALONE = hide(F.way, keys=F.key), hide(F.way, queries=F.position)
WHERE, WAYS = upto(F.ends) | ALL, {"way": ("logits", "renormalised", "weights")}
NEXT, THERE = later_sink_rate(F.key + 1, shares=True), later_sink_rate(F.position, shares=True)
ZERO = {name: at(name, ALL, {"way": "weights"}) for name in ("masked", "alone")}
LOGITS, RESCALED = (at("masked", ALL, {"way": way}) for way in ("logits", "renormalised"))

STUDY = Study(
    name="kiya/after-softmax",
    needs=("softmax",),
    settings={
        "key": setting(0, "the key that is hidden"),
        "position": setting(8, "the position whose query sees only itself"),
        "ends": setting((0, 2, 11, 19), "last layers of the sets of first layers that are edited together"),
    },
    grids={
        "masked": grid(MASKED, WHERE, over=WAYS, title="key hidden"),
        "alone": grid(ALONE, WHERE, over=WAYS, title="query alone"),
        "identity": grid(hide("renormalised", keys=F.length - 1)),
    },
    controls={
        "masked": draws(hide(F.way, keys=random_position(but=F.key))),
        "alone": draws(hide(F.way, queries=random_position(but=F.position, least=1))),
    },
    measures=(loss(), NEXT, THERE, largest_activation(F.key + 1), attention_left()),
    claims={
        "collapse": Claim(
            effect(loss(), ZERO["masked"]), "Kiya et al. 2026, footnote 8", beside=(effect(loss(), ZERO["alone"]),)
        ),
        "algebra": Claim(same(loss(), LOGITS, RESCALED, 0.001), "algebra"),
    },
    figures=(
        lines((loss(), NEXT, largest_activation(F.key + 1)), over="masked", x="way"),
        maps((LOGITS, ZERO["masked"])),
        activations((LOGITS, *ZERO.values())),
    ),
)
