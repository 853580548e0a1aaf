"""kiya/bos-swap: the embedding of the first token changes places with that of a later one (Figs. 2 and 7).

If the sink and the massive activation belong to the token, they go with it; if they belong to the position, the new first token
has them. The swap is made once with a BOS in front and once without, and read in every layer. Controls swap two other tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import metrics
from sinkjax.config_files.checks import MIN_QUERIES, above, at_least, drawn_layers, positions_seen
from sinkjax.studies.papers.kiya import _bos
from sinkjax.studies.papers.kiya._bos import STORES, WITH, WITHOUT

DEEP = 2  # the first layer that counts as deeper: the paper's layer 3
FEW = 5.0  # per cent of a layer's heads, below which there is no sink
POINTS, TIMES = "percentage points", "times that of a typical position"
ON_IT = "heads that sink on it (%)"


@dataclass(frozen=True, kw_only=True)
class BosSwap(st.ControlledSinks):
    """The embedding of the first token changes places with that of a later one, with and without a BOS (Figs. 2 and 7).

    The BOS is `bos` if that is a token id, else the one that the model's files name; a model without one runs without.
    """

    positions: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    """where the first token's embedding goes, one condition each"""
    shown: int = 8
    """the one of them of which maps and layers are drawn"""
    massive: float = 10.0
    """how many times larger |h| must be at a position than at a typical (the median) one that is not swapped to be massive"""
    controls: int = 20
    """random swaps of two other positions"""
    map_layers: tuple[int, ...] | None = None
    """layers whose attention maps are drawn; by default an early, a middle and a late one"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, length=16)
        above(self, massive=1)
        positions_seen(self, self.length - MIN_QUERIES, "queries")


def conditions(config: BosSwap, architecture: Any) -> Iterator[st.Condition]:
    """No edit, and a swap of position 0 with each of the others."""
    yield st.no_edit()
    for place in config.positions:
        yield st.Condition(sinkjax.swap_embeddings(0, place).named(moved_to(place)), "swap", place, budget=1)


def moved_to(place: int) -> str:
    return f"first token to {place}"


def other_tokens(rng: np.random.Generator, config: BosSwap, architecture: Any, budget: int) -> sinkjax.Edit:
    """A swap of two random positions, neither of them 0."""
    i, j = (int(position) for position in rng.choice(np.arange(1, config.length - MIN_QUERIES + 1), 2, replace=False))
    return sinkjax.swap_embeddings(i, j).named(f"token {i} to {j}")


CONTROLS = st.random_edits("kiya/bos-swap controls", other_tokens, lambda config, architecture: [1])


def measures(config: BosSwap) -> tuple[st.Measure, ...]:
    """Sink and largest |h| at position 0 and at the moved token's place, compared with the same place without an edit; the loss."""
    entries = (*conditions(config, None), *CONTROLS.conditions(config, None))
    places = {entry.label: entry.edit.terms[0].value[-1:].tolist() if entry.edit.terms else [0] for entry in entries}

    def sinks(data: Any) -> NDArray:
        return 100 * np.stack([metrics.sink_rate(data, key, config.eps) for key in range(data.sizes["key"])], axis=-1)

    return (
        st.sink_rate(0, config.eps),
        st.at_places("heads that sink on the moved token's key (%)", places, sinks),
        st.largest_activation(0),
        st.at_places("largest |h| at the moved token", places, lambda data: data["resid_max"].values.max(axis=-2)),
        st.loss(),
    )


def label(run: str, condition: str) -> str:
    """That of a row."""
    return f"{run}: {condition}"


def rates(config: BosSwap, data: Any) -> tuple[NDArray, NDArray]:
    """Share of heads, in per cent, that sink on position 0 and on the moved token's place: float[swap, prompt, layer] each."""
    swapped = data.isel(edit=slice(1, None))
    place = np.repeat(np.array(config.positions)[:, None], data.sizes["prompt"], axis=1)
    first, moved = (metrics.sink_rate(swapped, key, config.eps, per="layer") for key in (0 * place, place))
    return 100 * first, 100 * moved


def prominences(config: BosSwap, data: Any) -> tuple[NDArray, NDArray]:
    """|h| at position 0 and at the moved token, over that of a typical unswapped position: float[swap, prompt, depth] each."""
    swapped = data.isel(edit=slice(1, None))
    place, positions = np.array(config.positions), np.arange(data.sizes["position"])
    others = (positions != 0) & (positions != place[:, None])
    return _bos.prominence(swapped, 0 * place, others), _bos.prominence(swapped, place, others)


def claims(config: BosSwap, architecture: Any) -> Iterator[st.Claim]:
    """The paper's statements on BOS, and what the same swap does to an ordinary first token; means are over all swaps."""

    def number(run: str, name: str, values: Callable[[Any], NDArray], unit: str = "", signed: bool = False) -> st.Quantity:
        return _bos.number(run, name, lambda data: values(data).mean(axis=0), unit, signed)

    of = partial(number, WITH)
    on_first = of("heads of layer 0 that sink on position 0 (%)", lambda data: rates(config, data)[0][..., 0])
    on_moved = of("heads of layer 0 that sink on the moved BOS (%)", lambda data: rates(config, data)[1][..., 0])
    at_first, at_moved = (
        of(f"|h| after layer 0 at {where}", lambda data, number=number: prominences(config, data)[number][..., 1], TIMES)
        for number, where in enumerate(("position 0", "the moved BOS"))
    )
