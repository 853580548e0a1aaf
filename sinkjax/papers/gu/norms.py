"""gu/norms: L2 norms of the first token's hidden state, query, key and value against the other tokens', by layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from sinkjax.papers.gu._norms import Vectors, first_norm, largest_norm_ratio, norm_ratio, other_norm
from sinkjax.study import *
from sinkjax.study import keys_without_norm

KINDS: tuple[Vectors, ...] = ("hidden states", "queries", "keys", "values")


@dataclass(frozen=True, kw_only=True)
class Settings(Judged):
    """The shared settings."""


def study(lab: Lab, s: Settings) -> None:
    """Norms of the first token's vectors."""
    columns = [make(of) for of in KINDS for make in (first_norm, other_norm, norm_ratio)]
    text = lab.sweep("text", measures=[*columns, largest_norm_ratio()])

    source = "Gu et al. 2025, figure for LLaMA3-8B"
    hidden, keys, values = (unedited(norm_ratio(of), text) for of in ("hidden states", "keys", "values"))
    lab.claim("hidden", source, hidden, beside=[unedited(largest_norm_ratio(), text)])
    lab.claim("keys", source, keys, keys_without_norm(), sign=-1)
    lab.claim("values", source, values, sign=-1)

    pairs = [(partial(first_norm, of), partial(other_norm, of)) for of in KINDS]
    lab.draw(by_layer, *pairs, conditions=[text.every], unedited=False)
    lab.draw(by_layer, *(partial(norm_ratio, of) for of in KINDS), conditions=[text.every], unedited=False)
