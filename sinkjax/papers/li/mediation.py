"""li/mediation: the share of an isolated token's sink and activation that each link of Li et al.'s chain carries.

Head outputs that are not an average, super neurons, one large dim, keys that lock in on it: each link gets the values that it has
in the isolated run, alone; each is taken out of the isolated run, with what follows free, or with all others held. Controls put
the isolated run's values of another token there. The first token stays a sink of equal strength in all of these, so two links are
also put in with key 0 hidden from later queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from sinkjax import Edit, compose
from sinkjax.config_files.checks import positions
from sinkjax.papers._edits import hide_behind
from sinkjax.papers.background._massive import largest_dim
from sinkjax.papers.li._ignition import VARIABLES, foretold, ignitions
from sinkjax.papers.li._links import KINDS, LINKS, WINDOWS, Chain, Values
from sinkjax.papers.li._neurons import largest_neurons
from sinkjax.papers.li._scores import later_sink_score
from sinkjax.study import *
from sinkjax.study import facts_of, later_attention_to, same, strongest_later_attention

ROUNDING = 1e-3
SPLIT = ("disparity", "keys")  # links that bring attention, which the first token shares


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Mapped):
    prompts: int = 16
    position: int = 10
    """the token that is isolated, as in the paper"""
    seen: int = 5
    """the key that it sees where it is isolated by one other key"""
    early: int = 3
    """last of the early layers"""
    neurons: int = 4
    """how many of the largest neurons are the super neurons, in layers until the activation forms"""
    places: tuple[int, ...] = (6, 10, 16, 36)
    """tokens whose activation is predicted, one at a time"""
    keys: tuple[int, ...] = (0, 2, 5)
    """keys; such a token sees one of them at a time"""


def study(lab: Lab, s: Settings) -> None:
    """The links of the chain from isolation to the sink."""
    lab.needs("softmax", "causal mask", "MLP", "gated MLP", "MLP without experts")
    positions(s, "position", "seen", queries=1)
    score, size = later_sink_score(s.position), largest_activation(s.position)
    forms = lab.onset("forms", lambda layers: largest_activation(0, layers))
    neurons = largest_neurons(lab, s.neurons, forms)
    dim = lab.donor("dim", largest_dim, 0, of_edited=True)
    chain = Chain(s.position, s.seen, s.early, forms, lab.layers, neurons, dim)
    blank = chain.blank(lab.architecture, lab.prompts, s.length)
    apart = lab.donor("apart", lambda run: chain.under(run, chain.isolated()), blank, of_edited=True)
    plain = lab.donor("plain", lambda run: chain.under(run, compose()), blank, of_edited=True)

    def hold(link: str, run: Values, others: Values) -> Edit:
        """Put one link from one run, and the others from another."""
        return compose(*(edit for one in LINKS for edit in chain.put(one, run if one == link else others)))

    def other_token(rng: np.random.Generator, case: Layers) -> Edit:
        """Put a link's values of a random other position but the first, drawn for each prompt."""
        link, prompts = case["link"], apart["keys"].shape[1]
        source = rng.choice(np.delete(np.arange(1, s.length), s.position - 1), prompts)
        return compose(*chain.put(link, apart, source), label=f"{link} of positions {', '.join(map(str, source))}")

    columns, ways = (score, size), {ALL.at(kind=kind, window=window): (kind, window) for kind in KINDS for window in WINDOWS}
    alone_in = {case: chain.isolated(*way) for case, way in ways.items()}
    isolated = lab.sweep("isolated", alone_in, columns, title="isolated")
    dead = {case: compose(edit, *chain.put("neurons", plain)) for case, edit in alone_in.items()}
    silent = lab.sweep("silent", dead, columns, title="super neurons as unedited")
    away = hide_behind(0, s.position)
    put = {"nothing": (), "isolation": (chain.isolated(),), **{link: (*chain.put(link, apart),) for link in SPLIT}}
    in_place = {ALL.at(put=name): compose(*edits, away) for name, edits in put.items()}
    without_0 = lab.sweep("without-0", in_place, columns, title="key 0 hidden behind it")
    put_in = {ALL.at(link=link): compose(*chain.put(link, apart), label=link) for link in LINKS}
    alone = lab.sweep("alone", put_in, columns, other_token, title="one link put in")
    taken_out = {ALL.at(link=link): compose(chain.isolated(), *chain.put(link, plain)) for link in LINKS}
    without = lab.sweep("without", taken_out, columns, title="one link taken out")
    others_held = {ALL.at(link=link): compose(chain.isolated(), hold(link, plain, apart)) for link in LINKS}
    held = lab.sweep("held", others_held, columns, title="one link taken out, the others held")
    lab.noop(hold("keys", plain, plain).named("all links"))
    compute = partial(ignitions, s.neurons, s.places, s.keys, s.control_prompts)
    declared = {"ignitions": [s.neurons, *s.places, *s.keys]}
    ignited = lab.calculate("ignitions", compute, VARIABLES, declared, s.prompts)

    whole, massive = isolated.at(kind="self", window="all"), reaches(largest_activation(0), isolated, MASSIVE_SIZE)
    formed = largest_activation(s.position, layer(forms, "the layer in which it forms"))
    source, on_super = "ours, on Li et al. 2026, the whole chain", "ours, on Li et al. 2026, super neurons"

    seen = (later_attention_to(0, lab.half), strongest_later_attention(0, lab.half))
    both = all_of(is_sink(seen[0], without_0, seen[1]), massive)

    def brings(measure: Measure, link: str, also: Measure, premise: Premise) -> None:
        """A link has the effect of isolation; beside it the other measure, and the loss without the link."""
        taken = [lost(one, sweep.at(link=link), whole) for sweep in (without, held) for one in (measure, also)]
        put = alone.at(link=link)
        lab.claim(link, source, part(measure, put, whole), premise, [part(also, put, whole), *taken], took=WRITTEN)

    lab.identity("variance", source, same(formed, alone.at(link="variance"), whole, ROUNDING))
    brings(size, "neurons", score, massive)
    brings(score, "disparity", size, both)
    brings(score, "keys", size, both)
    for link in SPLIT:
        put_in_alone, all_links, nothing = (without_0.at(put=name) for name in (link, "isolation", "nothing"))
        lab.claim(f"{link}-alone", source, part(score, put_in_alone, all_links, above=nothing), both, took=WRITTEN)
    kinds = [{"kind": kind, "window": "all"} for kind in KINDS[1:]]
    beside = [lost(size, silent.at(**kind), isolated.at(**kind)) for kind in kinds]
    lab.claim("needed", source, lost(size, without.at(link="neurons"), whole), massive, beside, took=WRITTEN)
    lab.claim("ignites", on_super, foretold(ignited), massive, [foretold(ignited, "plain_alignment")])

    for sweep in (alone, without):
        lab.draw(dots, score, size, over=sweep)
    for sweep in (isolated, silent):
        lab.draw(lines_along, "window", score, size, over=sweep, by="kind")
    conditions = [whole, *(sweep.at(link="neurons") for sweep in (alone, without))]
    lab.draw(by_layer, partial(largest_activation, s.position), conditions=conditions)
    lab.maps(whole, alone.at(link="keys"))


@from_results
def lost(read: Numbers, measure: Measure, where: Selection, whole: Selection) -> Parts:
    """The part of an isolation's effect on a measure that other conditions remove; the whole is the entire effect.

    Args:
        read: The results.
        measure: The compared measure.
        where: The conditions that take something out of the isolated run.
        whole: The isolated run.
    """
    apart, plain = read.edited(measure, whole), read.unedited(measure, whole)
    (span, unit), why = facts_of(measure), "the isolated run is the comparison"
    label = f"part of the effect of isolation on {measure.name} that is lost"
    return Parts((apart - read.edited(measure, where)), None, apart - plain, span, unit, label, uncontrolled=why)
