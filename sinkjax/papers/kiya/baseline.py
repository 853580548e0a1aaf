"""kiya/baseline: sink and massive activation of the unedited model, without and with a BOS (Figs. 1a, 2 and 6)."""

from sinkjax.studies.vocabulary import *

SEEN, OTHER = attention_to(0), strongest_other_attention(0)
SIZE = largest_activation(0)
SINK, OTHER_SINK = sink_rate(0), strongest_other_sink(0)
HALF = layer(half_depth())
LARGE, EARLY = activation_ratio(HALF), activation_ratio(layer(0))
MASSIVE = reaches(largest_activation(0, HALF), "text", MASSIVE_SIZE)
SINKS = exceeds(SEEN, "text", OTHER)
SINKS_LATER = all_of((SINKS, below(attention_to(0, 0), "text", percent(F.eps))))  # as in Llama-2-7B, not as in Llama-3.2-3B
FIGURES = "Kiya et al. 2026, Figs. 1a, 6"

STUDY = Study(
    name="kiya/baseline",
    grids={"text": grid(), "without-bos": grid(bos="none", title="without BOS"), "with-bos": grid(bos="own", title="with BOS")},
    measures=(SINK, OTHER_SINK, SIZE, largest_elsewhere(0), massive_share(0), sink_lag(0), SEEN, attention_to(0, 0)),
    claims={
        "sink": Claim(unedited(SEEN, "text", minus=OTHER), FIGURES, beside=(unedited(SINK, "text", minus=OTHER_SINK),)),
        "activation": Claim(
            unedited(LARGE, "text"),
            FIGURES,
            beside=(unedited(SIZE, "text", minus=largest_elsewhere(0)), unedited(massive_share(0), "text")),
        ),
        "sink-grows": Claim(unedited(SEEN, "text", minus=attention_to(0, 0)), "Kiya et al. 2026, Fig. 6a-c", given=SINKS_LATER),
        "activation-grows": Claim(
            unedited(LARGE, "text", minus=EARLY),
            "Kiya et al. 2026, Fig. 6d-f",
            given=all_of((MASSIVE, below(largest_activation(0, layer(0)), "text", MASSIVE_SIZE))),
        ),
        "lag": Claim(unedited(sink_lag(0), "text"), "ours, on Kiya et al. 2026, Figs. 2c, e", given=MASSIVE),
    },
    figures=(
        by_layer((SINK, SIZE), (at("without-bos"), at("with-bos")), unedited=False),
        maps((at("without-bos"), at("with-bos"))),
        activations((at("without-bos"), at("with-bos"))),
    ),
)
