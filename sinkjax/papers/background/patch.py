"""background/patch: which values carry the sink, by activation patching from a run whose sink was moved.

In the donor run no query may attend to the first key, in any layer, so that the sink and a massive activation are at the second
position (Kiya et al. 2026, Fig. 4). The values at this position are put into the unedited run, in one layer or in all. Controls
put the donor run's values of another position there.
"""

from sinkjax.papers.background._donors import SITES, put, values_under
from sinkjax.studies.vocabulary import *

SEEN, SINK, SIZE = attention_to(F.key + 1), sink_rate(F.key + 1), largest_activation(F.key + 1)
FORMS, GROWS, DONOR = layer(F.forms), layer(F.grows), at("donor")
MASSIVE = reaches(largest_activation(F.key), "patched", MASSIVE_SIZE)


def of(site: str, place: Place) -> At:
    """One site in one layer or in all."""
    return at("patched", place, {"site": site})


STUDY = Study(
    name="background/patch",
    needs=("MLP",),
    settings={
        "prompts": 16,
        "key": setting(0, "the key that is masked in the donor run; values are patched at key + 1, where its sink is then"),
        "places": setting((0, 1, 2, 3, 5, 9, 17, 33), "positions that are patched one at a time in all layers"),
    },
    known={
        "forms": onset(largest_activation(F.key)),
        "grows": steepest("resid_max", F.key + 1, mask_key(F.key)),
        "donor": values_under(mask_key(F.key)),
        "own": values_under(no_edit()),
    },
    grids={
        "donor": grid(mask_key(F.key), title="donor run"),
        "patched": grid(put(F.site), FORMS | GROWS | ALL | each, over={"site": SITES}),
        "positions": grid(put(F.site, F.place), over={"site": SITES, "place": F.places}, title="one position"),
        "identity": grid(put(F.site, donor=F.own), over={"site": SITES}),
    },
    controls={"patched": draws(put(F.site, source="random"))},
    measures=(SINK, SIZE, SEEN),
    claims={
        "stream": Claim(
            part(SEEN, of("resid", FORMS), DONOR),
            "ours, on Kiya et al. 2026, Figs. 8, 9, conclusion",
            given=MASSIVE,
            beside=(part(SINK, of("resid", FORMS), DONOR), part(SIZE, of("resid", FORMS), DONOR)),
        ),
        "keys": Claim(
            part(SINK, of("key", ALL), DONOR), "ours, on Gu et al. 2025, Table 4", beside=(part(SIZE, of("key", ALL), DONOR),)
        ),
        "values": Claim(part(SINK, of("value", ALL), DONOR), "ours, on Gu et al. 2025, Table 4", stays=True),
        "mlp": Claim(
            part(SIZE, of("mlp_out", GROWS), DONOR),
            "ours, on Queipo-de-Llano et al. 2026, section 4, and Li et al. 2026",
            given=MASSIVE,
            beside=(part(SIZE, of("attn_out", GROWS), DONOR),),
        ),
    },
    figures=(
        heatmap((SINK, SIZE), over="patched", axis="site"),
        lines(SINK, over="positions", x="place", by="site"),
        maps((DONOR, of("resid", ALL), of("key", ALL), of("value", ALL))),
    ),
)
