"""background/massive: massive activations by Sun et al.'s definition, and zeros or means in their place (2024, Table 3).

The edits follow the first layer whose output meets the definition. Controls set as many random dims of the same position.
"""

from sinkjax.papers.background._massive import (
    first_massive,
    massive,
    massive_prompts,
    median_activation,
    set_dims,
    share_of_prompts,
    sizes_by_depth,
    steady,
    stream_at,
)
from sinkjax.studies.vocabulary import *

SIZE, MEDIAN, ELSEWHERE = largest_activation(F.position), median_activation(), largest_elsewhere(F.position)
FORMS, MASSIVE = layer(F.forms), massive("set", F.position)
TO, PAPER = {"to": ("zero", "mean")}, "Sun et al. 2024"
ZERO, MEAN = (at("set", fixed={"to": to}) for to in TO["to"])


def of(number: object) -> Measure:
    """The size of the activation after one layer."""
    return largest_activation(F.position, layer(number))


STUDY = Study(
    name="background/massive",
    settings={
        "position": setting(0, "position whose activations are set"),
        "dims": setting(2, "how many of the largest dims are set"),
        "layer_prompts": setting(16, "number of prompts for setting the activations after each layer in turn"),
    },
    known={"forms": first_massive(), "stream": stream_at(F.position)},
    grids={
        "set": grid(set_dims(F.to, as_after=F.forms), FORMS, over=TO, title="largest dims"),
        "later": grid(
            set_dims("zero", as_after=F.forms), between(F.forms, last_layer()), title="largest dims to zero and kept there"
        ),
        "median": grid(set_dims("zero", "median", F.forms), FORMS, title="dims of median size to zero"),
        "zero-by-layer": grid(set_dims("zero"), each, prompts=F.layer_prompts, title="each layer's largest dims to zero"),
        "mean-by-layer": grid(set_dims("mean"), each, prompts=F.layer_prompts, title="each layer's largest dims to their mean"),
        "identity": grid(edit("resid", "scale", 1.0, queries=F.position)),
    },
    controls={"set": draws(set_dims(F.to, "random", F.forms))},
    measures=(loss(), sink_rate(F.position), ELSEWHERE, massive_prompts(F.position)),
    claims={
        "exists": Claim(
            share_of_prompts(massive_prompts(F.position), "set"),
            f"{PAPER}, section 2, Fig. 1, Table 1",
            beside=(unedited(SIZE, "set", minus=MEDIAN), unedited(SIZE, "set", minus=ELSEWHERE)),
        ),
        "constant": Claim(
            steady(of(last_layer(2)), of(F.forms), MEDIAN, "set"), f"{PAPER}, section 2.1, Fig. 4", stays=True, given=MASSIVE
        ),
        "zero": Claim(effect(loss(), ZERO), f"{PAPER}, Table 3", given=MASSIVE),
        "mean": Claim(effect(loss(), MEAN), f"{PAPER}, Table 3", stays=True, given=all_of((MASSIVE, without_bos("set")))),
        "median": Claim(effect(loss(), at("median")), f"{PAPER}, section 3", stays=True, given=MASSIVE),
    },
    figures=(
        sizes_by_depth("set", F.position),
        lines((loss(), sink_rate(F.position)), over="zero-by-layer"),
        lines((loss(), sink_rate(F.position)), over="mean-by-layer"),
        dots(loss(), over="set"),
        maps((ZERO, MEAN)),
    ),
)
