"""li/mediation: the share of an isolated token's sink and activation that each link of Li et al.'s chain carries.

Head outputs that are not an average, super neurons, one large dim, keys that lock in on it: each link gets the values that it has
in the isolated run, alone; each is taken out of the isolated run, with what follows free, or with all others held. Controls put
the isolated run's values of another token there.
"""

from sinkjax.papers.background._windows import largest_dim
from sinkjax.papers.li._mediation import (
    KINDS,
    LINKS,
    WINDOWS,
    foretold,
    ignitions,
    isolated,
    links_under,
    lost,
    put_chain,
    put_link,
)
from sinkjax.papers.li._scores import later_sink_score
from sinkjax.papers.li._super_neurons import largest_neurons
from sinkjax.studies.vocabulary import *

SCORE, SIZE = later_sink_score(F.position), largest_activation(F.position)
FORMED, ROUNDING = largest_activation(F.position, layer(F.forms)), 1e-3
CHAIN, SUPER = "ours, on Li et al. 2026, the whole chain", "ours, on Li et al. 2026, super neurons"
ISOLATED = at("isolated", fixed={"kind": "self", "window": "all"})
MASSIVE = reaches(largest_activation(0), "isolated", MASSIVE_SIZE)


def alone(link: str) -> At:
    """One link as in the isolated run, all else as in the unedited one."""
    return at("alone", fixed={"link": link})


def without(link: str, grid: str = "without") -> At:
    """The isolated run with one link as in the unedited one."""
    return at(grid, fixed={"link": link})


def brings(measure: Measure, link: str, beside: Measure) -> Claim:
    """A link has the effect of isolation; additional readouts: the other measure, and the loss without the link."""
    taken = tuple(lost(one, without(link, grid), ISOLATED) for grid in ("without", "held") for one in (measure, beside))
    return Claim(part(measure, alone(link), ISOLATED), CHAIN, given=MASSIVE, beside=(part(beside, alone(link), ISOLATED), *taken))


STUDY = Study(
    name="li/mediation",
    needs=("softmax", "causal mask", "MLP", "gated MLP", "MLP without experts"),
    settings={
        "prompts": 16,
        "position": setting(10, "the token that is isolated, as in the paper"),
        "seen": setting(5, "the key that it sees where it is isolated by one other key"),
        "early": setting(3, "last of the early layers"),
        "neurons": setting(4, "how many of the largest neurons are the super neurons, in layers until the activation forms"),
        "places": setting((6, 10, 16, 36), "tokens whose activation is predicted, one at a time"),
        "keys": setting((0, 2, 5), "keys; such a token sees one of them at a time"),
    },
    known={
        "forms": onset(largest_activation(0)),
        "largest": largest_neurons(F.neurons, F.forms),
        "dim": largest_dim(),
        "apart": links_under(isolated()),
        "plain": links_under(no_edit()),
    },
    grids={
        "isolated": grid(isolated(F.kind, F.window), over={"kind": KINDS, "window": WINDOWS}, title="isolated"),
        "silent": grid(
            compose((isolated(F.kind, F.window), put_link("neurons", F.plain))),
            over={"kind": KINDS, "window": WINDOWS},
            title="super neurons as unedited",
        ),
        "alone": grid(put_link(F.link), over={"link": LINKS}, title="one link put in"),
        "without": grid(compose((isolated(), put_link(F.link, F.plain))), over={"link": LINKS}, title="one link taken out"),
        "held": grid(compose((isolated(), put_chain(F.link))), over={"link": LINKS}, title="one link taken out, the others held"),
        "identity": grid(put_chain("keys", F.plain, F.plain)),
    },
    controls={"alone": draws(put_link(F.link, random=True))},
    computations={"ignitions": ignitions()},
    measures=(SCORE, SIZE),
    claims={
        "variance": Claim(same(FORMED, alone("variance"), ISOLATED, ROUNDING), CHAIN),
        "neurons": brings(SIZE, "neurons", SCORE),
        "disparity": brings(SCORE, "disparity", SIZE),
        "keys": brings(SCORE, "keys", SIZE),
        "needed": Claim(
            lost(SIZE, without("neurons"), ISOLATED),
            CHAIN,
            given=MASSIVE,
            beside=tuple(
                lost(SIZE, at("silent", fixed=chosen), at("isolated", fixed=chosen))
                for chosen in ({"kind": kind, "window": "all"} for kind in KINDS[1:])
            ),
        ),
        "ignites": Claim(foretold("ignitions"), SUPER, given=MASSIVE, beside=(foretold("ignitions", "plain_alignment"),)),
    },
    figures=(
        dots((SCORE, SIZE), over="alone"),
        dots((SCORE, SIZE), over="without"),
        lines((SCORE, SIZE), over="isolated", x="window", by="kind"),
        lines((SCORE, SIZE), over="silent", x="window", by="kind"),
        by_layer(SIZE, (ISOLATED, alone("neurons"), without("neurons"))),
        maps((ISOLATED, alone("keys"))),
    ),
)
