"""gu/norms: L2 norms of the first token's hidden state, query, key and value against the other tokens', by layer."""

from sinkjax.papers.gu._norms import first_norm, largest_norm_ratio, norm_ratio, other_norm
from sinkjax.studies.vocabulary import *

KINDS = ("hidden states", "queries", "keys", "values")
TEXT = at("text")


def compares(of: str, sign: int, beside: tuple[Contrast, ...] = (), given: Premise | None = None) -> Claim:
    """The first token's vectors are longer (sign 1) or shorter (-1) than the others'."""
    return Claim(unedited(norm_ratio(of), "text"), "Gu et al. 2025, figure for LLaMA3-8B", sign=sign, given=given, beside=beside)


STUDY = Study(
    name="gu/norms",
    grids={"text": grid()},
    measures=(*(word(of) for of in KINDS for word in (first_norm, other_norm, norm_ratio)), largest_norm_ratio()),
    claims={
        "hidden": compares("hidden states", 1, (unedited(largest_norm_ratio(), "text"),)),
        "keys": compares("keys", -1, given=keys_without_norm()),
        "values": compares("values", -1),
    },
    figures=(
        by_layer(tuple((first_norm(of), other_norm(of)) for of in KINDS), TEXT, unedited=False),
        by_layer(tuple(norm_ratio(of) for of in KINDS), TEXT, unedited=False),
    ),
)
