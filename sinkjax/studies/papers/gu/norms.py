"""gu/norms: L2 norms of hidden states, queries, keys and values by layer, the first token against the others."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.studies.papers.gu._first_token import FirstToken, beside, curves, note, positions

HIDDEN, QUERIES, KEYS, VALUES = "hidden state", "queries", "keys", "values"
STATISTICS = {HIDDEN: "resid_norm", QUERIES: "query_norm", KEYS: "key_norm", VALUES: "value_norm"}
FIRST, REST, RATIO = "L2 norm at position 0", "L2 norm at the other positions, mean", "ratio of the two"
LARGE, SMALL = 3.0, 0.75  # ratios above which a norm counts as far larger, and below which as smaller


@dataclass(frozen=True, kw_only=True)
class Norms(FirstToken):
    """L2 norms of hidden states, queries, keys and values, the first token against the others."""


def compared(norms: Any, chosen: tuple[int, ...]) -> tuple[NDArray, NDArray, NDArray]:
    """Norms at position 0, mean norms of the others, and ratios of chosen positions, 0 first, to all others but position 0.

    norms: float[prompt, layer, (head,) position], of which means over heads are taken. Returns float[layer, prompt] twice, and
    float[layer, prompt, chosen position].
    """
    values = np.asarray(norms, np.float64)
    values = np.moveaxis(values.mean(axis=2) if values.ndim == 4 else values, 0, 1)  # layer, prompt, position
    later = values[..., 1:]  # NaN beyond a prompt
    total, count = np.nansum(later, axis=-1, keepdims=True), np.isfinite(later).sum(axis=-1, keepdims=True)
    here, own = values[..., chosen], np.array(chosen) > 0  # a position is no part of what it is compared with
    others = (total - np.where(own, here, 0)) / np.maximum(count - own, 1)
    return here[..., 0], others[..., 0], here / others


def found(results: st.Results, name: str) -> tuple[NDArray, NDArray, NDArray]:
    return compared(results["norms"][STATISTICS[name]].isel(edit=0), positions(results.config))


def rows(results: st.Results) -> Iterator[st.Row]:
    """For each kind of vector the mean over layers, without the embedding, then each layer."""
    for name in STATISTICS:
        axis, start = ("depth", 1) if name == HIDDEN else ("layer", 0)
        first, others, ratios = (np.concatenate([one[start:].mean(axis=0, keepdims=True), one]) for one in found(results, name))
        labels = (f"{name}, all layers", *(f"{name}, {axis} {number}" for number in range(len(first) - 1)))
        for measure, values, elsewhere in ((FIRST, first, None), (REST, others, None), (RATIO, ratios[..., 0], ratios[..., 1:])):
            clusters = results.clusters(values.shape[1])
            yield from st.own_rows(labels, name, measure, values, results.config.seed, elsewhere, clusters=clusters)


def claims(config: Norms, architecture: Any) -> Iterator[st.Claim]:
    far_larger, smaller = (st.above, LARGE, st.above_controls), (st.below, SMALL, st.below_controls)
    for name, statement, (beyond, bound, beyond_controls), paper in (
        (
            HIDDEN,
            f"The hidden state of the first token is more than {LARGE:g} times as large as",
            far_larger,
            "about 370 in blocks 2 to 31, the others below 60",
        ),
        (KEYS, f"The keys of the first token are less than {SMALL:g} times as large as", smaller, "3 to 5, the others about 20"),
        (
            VALUES,
            f"The values of the first token are less than {SMALL:g} times as large as",
            smaller,
            "below 1, the others 2 to 6",
        ),
    ):
        ratio = st.listed(f"{name}, all layers", RATIO, f"the norm of the first token's {name} over the others'")
        yield st.Claim(
            f"{statement} those of other tokens, by the L2 norm.",
            st.all_of(beyond(ratio, bound), beyond_controls(ratio)),
            source="Gu et al. 2025, figure for LLaMA3-8B",
            paper=f"LLaMA3-8B, read off a figure: {paper}",
        )


def findings(config: Norms, architecture: Any) -> Iterator[st.Quantity]:
    def by_depth(results: st.Results) -> NDArray:
        return found(results, HIDDEN)[-1][..., 0].mean(axis=1)

    ratio = "ratio of the norm of the first token's hidden state to the others'"
    yield st.quantity(f"largest {ratio}, at any depth", lambda results: by_depth(results).max())
    yield st.quantity(f"depth of the largest {ratio}", lambda results: by_depth(results).argmax())
    yield st.quantity(f"depths with a {ratio} above {LARGE:g}", lambda results: (by_depth(results) > LARGE).sum())


def grid(names: tuple[str, ...], results: st.Results) -> list[Any]:
    """A column for each kind of vector: norms, and below them ratios."""
    columns = []
    for name in names:
        first, others, ratios = found(results, name)
        above = results.panel(name, "L2 norm", {"position 0": first.T, "other positions": others.T}, log=True)
        below = beside(results, name, "ratio to the mean of\nthe other positions", ratios.swapaxes(0, 1), log=True)
        columns.append((above, below))
    return list(zip(*columns, strict=True))


def figures(config: Norms, architecture: Any) -> Iterator[st.Figure]:
    preserved = "queries, keys and values, mean over heads, before the rotation, which preserves norms"
    for names, figure, xlabel, vectors in (
        ((HIDDEN,), "hidden-state-norms", "depth (0: embedding, l + 1: after layer l)", "hidden states"),
        ((QUERIES, KEYS, VALUES), "query-key-value-norms", "layer (0-based)", preserved),
    ):
        caption = f"Top: L2 norms of {vectors}. Bottom: their ratio to the mean of the other positions."
        yield curves(figure, xlabel, functools.partial(grid, names), caption, "norms")


STUDY = st.Study(
    name="gu/norms",
    config=Norms,
    title="Norms of the first token and of the others",
    question="""Gu et al. 2025: from an early block on, the first token's hidden state is far larger than the others', while its
        keys and, above all, its values are smaller.""",
    probe=lambda config: sinkjax.Probe.of(*STATISTICS.values()),
    more=lambda config, architecture: [st.unedited("norms")],
    rows=rows,
    claims=claims,
    findings=findings,
    featured=lambda results: [f"{name}, all layers" for name in STATISTICS],
    figures=figures,
    shown=lambda config, architecture: st.Shown((st.NO_EDIT,), sweeps=("norms",), texts=False),
    notes=lambda config, results: (
        """Norms of queries, keys and values are those of single heads, averaged over heads. The mean over layers of hidden states
        leaves out the embedding.""",
        """The ratio is that of the norm at a position to the mean norm of the prompt's other positions, position 0 excluded,
        computed in each prompt and layer before averaging.""",
        note(config),
    ),
)
