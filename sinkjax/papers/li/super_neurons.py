"""li/super-neurons: a few MLP neurons with large vectors make the massive activation (Li et al. 2026, super neurons).

The largest neurons are described by their weights and some prompts, then set to 0, one by one and together. Controls are as many
other neurons of the same layers.
"""

from sinkjax.papers.li._super_neurons import (
    doublings,
    feeds_massive_dim,
    gate_cosine,
    largest_neurons,
    neuron_norms,
    neuron_numbers,
    neurons_at_work,
    ranks,
    without_neurons,
    without_others,
)
from sinkjax.studies.vocabulary import *

SINK, SIZE = sink_rate(0), largest_activation(0)
SOURCE = "Li et al. 2026, super neurons"
WITHOUT = at("together", fixed={"count": F.neurons})
FIRST_ONLY = at("part", fixed={"where": "position 0"})

STUDY = Study(
    name="li/super-neurons",
    needs=("MLP", "gated MLP", "MLP without experts"),
    settings={"neurons": setting(8, "how many of the largest are studied, and set to 0 one by one and together")},
    known={"largest": largest_neurons(F.neurons)},
    computations={"neurons": neurons_at_work(F.neurons)},
    grids={
        "single": grid(without_neurons(F.largest, F.rank, F.rank), over={"rank": ranks(F.neurons)}, title="one neuron"),
        "together": grid(without_neurons(F.largest, 1, F.count), over={"count": doublings(F.neurons)}, title="the largest"),
        "part": grid(
            without_neurons(F.largest, where=F.where), over={"where": ("position 0", "later positions")}, title="all of them"
        ),
        "identity": grid(without_neurons(F.largest, 1, 0)),
    },
    controls={"together": draws(without_others(F.largest, F.count))},
    measures=(SINK, SIZE),
    claims={
        "extreme": Claim(neuron_numbers("neurons", ("size",)), SOURCE),
        "gates": Claim(
            gate_cosine("neurons"), SOURCE, beside=(gate_cosine("neurons", "first"), gate_cosine("neurons", "others"))
        ),
        "sparse": Claim(neuron_numbers("neurons", ("concentration", "fed")), SOURCE),
        "feeds": Claim(feeds_massive_dim("neurons"), SOURCE),
        "activation": Claim(
            effect(SIZE, WITHOUT, above=typical_activation()),
            "ours, on Li et al. 2026, super neurons",
            sign=-1,
            given=reaches(SIZE, "together", MASSIVE_SIZE),
            beside=(effect(SINK, WITHOUT),),
        ),
    },
    figures=(
        neuron_norms("neurons"),
        lines((SINK, SIZE), over="single", x="rank"),
        by_layer(SIZE, (WITHOUT, FIRST_ONLY)),
        maps((WITHOUT, FIRST_ONLY)),
    ),
)
