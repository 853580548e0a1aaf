"""kiya/bos-swap: the first token's embedding trades places with a later one's (Figs. 2 and 7).

If the sink belongs to the token, it moves along; if it belongs to the position, it stays. Controls move another token to the same
position.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from sinkjax import Edit, swap_embeddings
from sinkjax.config_files.checks import among, positions
from sinkjax.study import *
from sinkjax.study import CHAT, typical_activation


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Sinks, Mapped):
    positions: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    """where the first token's embedding is moved to"""
    shown: int = 8
    """the position whose maps are drawn"""

    def check(self) -> None:
        positions(self, "positions")
        among(self, "shown", "positions")


def study(lab: Lab, s: Settings) -> None:
    """Swapping the embedding of the first token."""
    first, half = layer(0), layer(lab.half)
    sink, sink_0 = own("position", partial(sink_rate, eps=s.eps)), sink_rate(0, s.eps)
    size, size_0 = own("position", largest_activation), largest_activation(0)
    first_sink = own("position", partial(sink_rate, eps=s.eps, layers=first))
    first_seen, first_seen_0 = own("position", partial(attention_to, layer=0)), attention_to(0, 0)
    first_size, first_size_0 = own("position", partial(largest_activation, layers=first)), largest_activation(0, first)
    seen_0, other, large_0 = attention_to(0, lab.half), strongest_other_attention(0, lab.half), largest_activation(0, half)
    columns = (sink_0, sink, size_0, size, seen_0)

    def another_token(rng: np.random.Generator, case: Layers) -> Edit:
        position = case["position"]
        return swap_embeddings(lab.random_position(rng, but=(0, position)), position)

    swaps = {ALL.at(position=position): swap_embeddings(0, position) for position in s.positions}
    text = lab.sweep("text", swaps, columns, another_token, bos="none", title="without BOS")
    with_bos = lab.sweep("bos", swaps, columns, another_token, bos="own", title="with BOS")
    lab.noop(swap_embeddings(s.shown, s.shown))

    bos, ordinary, meets = with_bos.every, text.every, separates_documents(with_bos)
    first_sinks = is_sink(first_seen_0, with_bos, strongest_other_attention(0, 0))
    sinks = all_of(meets, reaches(first_seen_0, with_bos, 100 * s.eps), first_sinks)
    massive, massive_at_once = (all_of(meets, reaches(one, with_bos, MASSIVE_SIZE)) for one in (large_0, first_size_0))
    strongest, without = all_of(meets, is_sink(seen_0, with_bos, other)), is_sink(seen_0, text, other)
    paper, above = "Kiya et al. 2026", typical_activation(half)
    moves, beside = moved(first_seen_0, first_seen, bos), [effect(first_sink, bos)]
    lab.claim("sink-first", f"{paper}, Fig. 2a", moves, sinks, beside, took=WRITTEN)
    lab.claim("activation-first", f"{paper}, Fig. 2d", effect(first_size, bos, whole=first_size_0), massive_at_once, took=WRITTEN)
    lab.claim("sink", f"{paper}, Figs. 2c, 7", effect(seen_0, bos), strongest, [effect(sink_0, bos)], stays=True, took=WRITTEN)
    lab.claim("activation", f"{paper}, Figs. 2f, 7", effect(large_0, bos, above=above), massive, stays=True, took=WRITTEN)
    beside = [effect(sink_0, ordinary)]
    lab.claim("ordinary", f"ours, on {paper}, conclusion", effect(seen_0, ordinary), without, beside, stays=True, took=WRITTEN)

    shown = ALL.at(position=s.shown)
    lab.maps(with_bos[shown], text[shown])
    for sweep in (with_bos, text):
        lab.draw(lines_along, "position", (sink_0, sink), (size_0, size), over=sweep)
    rows = (
        (partial(sink_rate, 0, s.eps), lambda layers: own("position", partial(sink_rate, eps=s.eps, layers=layers))),
        (partial(largest_activation, 0), lambda layers: own("position", partial(largest_activation, layers=layers))),
    )
    lab.draw(by_layer, *rows, conditions=[with_bos[shown]])


def separates_documents(sweep: Sweep) -> Premise:
    """Return the premise that the BOS of a sweep separated documents in pretraining: a setting names it, or no chat begins so."""

    def test(read: Numbers) -> tuple[bool, str]:
        number, text = read.about(sweep)["first_tokens"][0]
        named = isinstance(read.settings.bos, int)
        return named or text not in CHAT, f"BOS is {text!r} (token {number}), which must have separated documents in pretraining"

    return Premise(test)
