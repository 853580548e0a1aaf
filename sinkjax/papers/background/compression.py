"""background/compression: the entropy of the hidden states by depth, and the first token's MLP (Queipo-de-Llano et al. 2026).

Where the first token's massive activation emerges, the hidden states collapse to nearly one direction. The contrast is the MLP
output for that token, dropped in this layer; controls drop it for another token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sinkjax import Edit, drop_mlp, edit
from sinkjax.papers.background._spectra import (
    anisotropy,
    bounded_below,
    by_depth,
    changes_with_norm,
    entropy,
    entropy_of,
    mixing,
    sinks_of,
)
from sinkjax.study import *


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Sinks, Mapped):
    position: int = 0
    """position whose MLP output is dropped"""


def study(lab: Lab, s: Settings) -> None:
    """Compression of the hidden states, and the first token's MLP."""
    lab.needs("MLP")
    early, middle, late = (entropy(part, s.position) for part in ("early", "middle", "late"))
    sink = sink_rate(s.position, s.eps)

    emerges = layer(lab.steepest("emerges", "resid_norm", s.position), "the layer in which it emerges")
    places = [emerges, ALL, *each(lab.layers)]

    def drop_other(rng: np.random.Generator, case: Layers) -> Edit:
        return drop_mlp(lab.random_position(rng, but=[s.position]), layers=case.layers)

    edits = {place: drop_mlp(s.position, layers=place.layers) for place in places}
    dropped = lab.sweep("dropped", edits, [middle, sink, mixing(), anisotropy(s.position)], drop_other)
    lab.noop(edit("mlp_out", "scale", 1.0, queries=s.position))

    where, paper = dropped[emerges], "Queipo-de-Llano et al. 2026"
    took = removed(largest_activation(s.position), where)  # the paper drops the MLP to take the massive activation away
    lab.claim("falls", f"{paper}, Fig. 1, section 5", unedited(early, dropped, minus=middle))
    lab.claim("rises", f"{paper}, Fig. 1, section 5", unedited(late, dropped, minus=middle))
    lab.claim("entropy", f"{paper}, section 4", effect(middle, where), took=took)
    sinks = is_sink(attention_to(s.position, lab.half), dropped, strongest_other_attention(s.position, lab.half))
    lab.claim("sink", f"{paper}, section 4", effect(sink, where), sinks, sign=-1, took=took)
    for name, of in (("entropy", entropy_of), ("sinks", sinks_of(s.position, s.eps))):
        lab.describe(f"norm-{name.removesuffix('s')}", f"{paper}, section 3", changes_with_norm(name, of, dropped, s.position))
    lab.identity("theorem", f"{paper}, Theorem 1", bounded_below(dropped))

    lab.draw(by_depth, s.position, s.eps, conditions=[where, dropped[ALL]])
    lab.draw(lines, middle, sink, over=dropped)
    lab.draw(dots, middle, sink, over=dropped)
    lab.maps(where, dropped[ALL])
