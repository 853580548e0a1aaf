"""gu/norms: L2 norms of hidden states, queries, keys and values by layer, the first token against the others.

Nothing is edited. The ratio of position 0 to the mean of the others is ranked among the same ratio of other, random positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.studies.papers.gu._first_token import OTHERS, FirstToken, beside, note, positions

HIDDEN, QUERIES, KEYS, VALUES = "hidden state", "queries", "keys", "values"
STATISTICS = {HIDDEN: "resid_norm", QUERIES: "query_norm", KEYS: "key_norm", VALUES: "value_norm"}
FIRST, REST, RATIO = "L2 norm at position 0", "L2 norm at the other positions, mean", "ratio of the two"
LARGE, SMALL = 3.0, 0.75  # ratios from which on a norm counts as far larger, and below which as smaller


@dataclass(frozen=True, kw_only=True)
class Norms(FirstToken):
    """L2 norms of hidden states, queries, keys and values, the first token against the others."""


@dataclass(frozen=True)
class Compared:
    """Norms of one kind of vector, means over heads; layers are depths for hidden states.

    first, others: float[layer, prompt], at position 0 and as a mean over the other positions. ratios: float[layer, prompt,
    position], of each chosen position to the mean of all others but position 0, position 0 first.
    """

    first: NDArray
    others: NDArray
    ratios: NDArray


def compared(norms: Any, chosen: tuple[int, ...]) -> Compared:
    """The norms of the first token and of the others, from [prompt, layer, (head,) position], NaN beyond a prompt."""
    values = np.asarray(norms, np.float64)
    values = np.moveaxis(values.mean(axis=2) if values.ndim == 4 else values, 0, 1)  # layer, prompt, position
    later = values[..., 1:]
    total, count = np.nansum(later, axis=-1), np.isfinite(later).sum(-1)
    here = values[..., chosen]
    own = np.array([position > 0 for position in chosen])  # a position is no part of what it is compared with
    others = (total[..., None] - np.where(own, here, 0)) / np.maximum(count[..., None] - own, 1)
    return Compared(here[..., 0], others[..., 0], here / others)


def found(results: st.Results, name: str) -> Compared:
    return compared(results["norms"][STATISTICS[name]].isel(edit=0), positions(results.config))


def everywhere(name: str) -> str:
    """The label of the mean over layers."""
    return f"{name}, all layers"


def rows(results: st.Results) -> Iterator[st.Row]:
    for name in STATISTICS:
        yield from rows_of(name, found(results, name), results.config.seed)


def rows_of(name: str, norms: Compared, seed: int) -> Iterator[st.Row]:
    """The mean over layers, without the embedding, then each layer."""
    what, first = ("depth", 1) if name == HIDDEN else ("layer", 0)
    labels = (everywhere(name), *(f"{name}, {what} {number}" for number in range(len(norms.first))))

    def with_mean(values: NDArray) -> NDArray:
        return np.concatenate([values[first:].mean(axis=0, keepdims=True), values])

    ratios = with_mean(norms.ratios)
    yield from st.own_rows(labels, name, FIRST, with_mean(norms.first), seed)
    yield from st.own_rows(labels, name, REST, with_mean(norms.others), seed)
    yield from st.own_rows(labels, name, RATIO, ratios[..., 0], seed, elsewhere=ratios[..., 1:])


def ratio(name: str) -> st.Quantity:
    return st.as_point(st.listed(everywhere(name), RATIO, f"the norm of the first token's {name} over the others'"))


def claims(config: Norms, architecture: Any) -> Iterator[st.Claim]:
    yield st.Claim(
        "The first token's hidden state is far larger than the others' (Gu et al. 2025, figure for LLaMA3-8B).",
        st.all_of(st.above(ratio(HIDDEN), LARGE), st.above_controls(ratio(HIDDEN))),
        paper="LLaMA3-8B, read off a figure: about 370 in blocks 2 to 31, the others below 60",
    )
    papers = {KEYS: "3 to 5, the others about 20", VALUES: "below 1, the others 2 to 6"}
    for name, paper in papers.items():
        yield st.Claim(
            f"The first token's {name} are smaller than the others' (Gu et al. 2025, figure for LLaMA3-8B).",
            st.all_of(st.below(ratio(name), SMALL), st.below_controls(ratio(name))),
            paper=f"LLaMA3-8B, read off a figure: {paper}",
        )


def findings(config: Norms, architecture: Any) -> Iterator[st.Quantity]:
    def by_depth(results: st.Results) -> NDArray:
        return found(results, HIDDEN).ratios[..., 0].mean(axis=1)

    ratio = "ratio of the norm of the first token's hidden state to the others'"
    yield st.quantity(f"largest {ratio}, at any depth", lambda results: by_depth(results).max())
    yield st.quantity(f"depth of the largest {ratio}", lambda results: by_depth(results).argmax())
    yield st.quantity(f"depths with a {ratio} above {LARGE:g}", lambda results: (by_depth(results) > LARGE).sum())


def figures(config: Norms, architecture: Any) -> Iterator[st.Figure]:
    def norms(results: st.Results, name: str) -> Any:
        values = found(results, name)
        return results.panel(name, "L2 norm", {"position 0": values.first.T, "other positions": values.others.T}, log=True)

    def ratios(results: st.Results, name: str) -> Any:
        values = found(results, name).ratios
        others = np.nanmean(values[..., 1:], axis=1)
        return beside(results, name, "ratio to the mean of\nthe other positions", values[..., 0].T, others, log=True)

    def grid(*names: str) -> Any:
        return lambda results: [[panel(results, name) for name in names] for panel in (norms, ratios)]

    yield st.curves(
        *("hidden-state-norms", "depth (0: embedding, l + 1: after layer l)", grid(HIDDEN)),
        f"L2 norms of hidden states (top) and their ratio to the mean of the other positions (bottom). {OTHERS}",
        store="norms",
        legend_above=True,
    )
    yield st.curves(
        *("query-key-value-norms", "layer (0-based)", grid(QUERIES, KEYS, VALUES)),
        f"""L2 norms of queries, keys and values, mean over heads (top), and their ratio to the mean of the other positions
        (bottom), before the rotation, which keeps norms. {OTHERS}""",
        store="norms",
        legend_above=True,
    )


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
    featured=lambda results: [everywhere(name) for name in STATISTICS],
    figures=figures,
    shown=lambda config, architecture: st.Shown((st.NO_EDIT,), sweeps=("norms",), texts=False),
    notes=lambda config, results: (
        """Norms of queries, keys and values are those of single heads, averaged over heads; the mean over layers of hidden states
        leaves out the embedding.""",
        """The ratio is that of the norm at a position to the mean norm of the prompt's other positions, position 0 never among
        them, taken in each prompt and layer before anything is averaged.""",
        note(config),
    ),
)
