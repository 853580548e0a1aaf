"""kiya/bos-swap: the embedding of the first token changes places with that of a later one (Figs. 2 and 7).

If the sink and the massive activation belong to the token, they go with it; if they belong to the position, the new first token
has them. The swap is made once with a BOS in front and once without, and read in every layer. Controls swap two other tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import intervals, metrics
from sinkjax.config_files.checks import MIN_QUERIES, above, at_least, positions_seen
from sinkjax.studies.papers.kiya import _bos
from sinkjax.studies.papers.kiya._bos import STORES, WITH, WITHOUT

DEEP = 2  # the first layer that counts as deeper: the paper's layer 3
FEW = 5.0  # per cent of a layer's heads, below which there is no sink
POINTS, TIMES = "percentage points", "times that of a typical position"


@dataclass(frozen=True, kw_only=True)
class BosSwap(st.ControlledSinks, st.Mapped):
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

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, length=16)
        above(self, massive=1)
        positions_seen(self, self.length - MIN_QUERIES, "queries")


def conditions(config: BosSwap, architecture: Any) -> Iterator[st.Condition]:
    """No edit, and a swap of position 0 with each of the others, read where the first token then is."""
    yield dataclasses.replace(st.no_edit(), at=(0,))
    for place in config.positions:
        edit = sinkjax.swap_embeddings(0, place).named(moved_to(place))
        yield st.Condition(edit, "swap", place, budget=1, at=(place,))


def moved_to(place: int) -> str:
    return f"first token to {place}"


def other_tokens(config: BosSwap, architecture: Any) -> Iterator[st.Condition]:
    """Swaps of two random positions, neither of them 0, read at the second."""
    rng = intervals.generator(config.seed, "kiya/bos-swap controls")
    for draw in range(config.controls):
        i, j = (int(position) for position in rng.choice(np.arange(1, config.length - MIN_QUERIES + 1), 2, replace=False))
        edit = sinkjax.swap_embeddings(i, j).named(f"control {draw}: token {i} to {j}")
        yield st.Condition(edit, st.CONTROL, budget=1, at=(j,))


def measures(config: BosSwap) -> tuple[st.Measure, ...]:
    """Sink and largest |h| at position 0 and where the moved token is, and the loss."""

    def sinks(data: Any) -> NDArray:
        return 100 * np.stack([metrics.sink_rate(data, key, config.eps) for key in range(data.sizes["key"])], axis=-1)

    return (
        st.sink_rate(0, config.eps),
        st.Measure("heads that sink on the moved token's key (%)", sinks, placed=True),
        st.largest_activation(0),
        st.Measure("largest |h| at the moved token", st.largest, placed=True),
        st.loss(),
    )


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


def over_swaps(run: str, name: str, values: Callable[[Any], NDArray], unit: str, signed: bool = False) -> st.Quantity:
    """The mean over swaps of float[swap, prompt] in one run."""
    return _bos.number(run, name, lambda data: values(data).mean(axis=0), unit, signed)


def claims(config: BosSwap, architecture: Any) -> Iterator[st.Claim]:
    """The paper's statements on BOS, and what the same swap does to an ordinary first token."""
    of, sinks, sizes = partial(over_swaps, WITH), partial(rates, config), partial(prominences, config)
    first = of("the share of heads in layer 0 that sink on position 0", lambda data: sinks(data)[0][..., 0], "%")
    moved = of("the share of heads in layer 0 that sink on the moved BOS", lambda data: sinks(data)[1][..., 0], "%")
    at_first = of("|h| after layer 0 at position 0", lambda data: sizes(data)[0][..., 1], TIMES)
    at_moved = of("|h| after layer 0 at the moved BOS", lambda data: sizes(data)[1][..., 1], TIMES)
    more = of(f"{moved.name} minus that on position 0", lambda data: -np.subtract(*sinks(data))[..., 0], POINTS, True)
    larger = of(f"{at_moved.name} minus that at position 0", lambda data: -np.subtract(*sizes(data))[..., 1], TIMES, True)
    keeps, numbers = deeper(config, architecture, of)
    yield st.Claim(
        "In the first layer, sink and massive activation follow BOS, and the new first token has none (Fig. 2a, d).",
        st.all_of(st.above(more), st.above(larger)),
        also=(moved, first, at_moved, at_first),
    )
    yield st.Claim(
        "In the first layer neither the new first token nor the moved BOS has a sink; deeper, the new first token has it (Fig. 7,"
        " Llama-2-7B).",
        st.all_of(st.below(first, FEW), st.below(moved, FEW), keeps),
    )
    yield st.Claim(
        "In deeper layers the new first token has both sink and massive activation (Fig. 2c, f; Fig. 7).", keeps, also=numbers
    )
    keeps, numbers = deeper(config, architecture, partial(over_swaps, WITHOUT))
    yield st.Claim(
        "The same holds of an ordinary first token: in deeper layers position 0 has both, whatever token is there.",
        keeps,
        also=numbers,
    )


def deeper(config: BosSwap, architecture: Any, of: Callable[..., st.Quantity]) -> tuple[st.Rule, tuple[st.Quantity, ...]]:
    """That position 0 keeps sink and massive activation in deeper layers, and what to report beside. of: a run's `over_swaps`."""
    deep = min(DEEP, architecture.layers - 1)

    def sinks(data: Any, where: int) -> NDArray:
        return rates(config, data)[where][..., deep:].mean(axis=-1)

    def before(data: Any) -> NDArray:
        return 100 * metrics.sink_rate(data, 0, config.eps, per="layer")[:1, :, deep:].mean(axis=-1)

    def size(data: Any, where: int) -> NDArray:
        return prominences(config, data)[where][..., 1:].max(axis=-1)

    share = f"the share of heads from layer {deep} on that sink on"
    half = f"{share} position 0 minus half of that without an edit"
    kept = of(half, lambda data: sinks(data, 0) - before(data) / 2, POINTS, True)
    massive = of("the largest |h| at position 0", lambda data: size(data, 0), TIMES)
    return st.all_of(st.above(kept), st.above(massive, config.massive)), (
        of(f"{share} position 0", lambda data: sinks(data, 0), "%"),
        of(f"{share} position 0 without an edit", before, "%"),
        of(f"{share} the moved token", lambda data: sinks(data, 1), "%"),
        of("the largest |h| at the moved token", lambda data: size(data, 1), TIMES),
    )


def findings(config: BosSwap, architecture: Any) -> Iterator[st.Quantity]:
    """Both places in both runs: with the one swap that is shown, and from the least to the most of all swaps."""
    first, moved, at_first, at_moved, _ = measures(config)
    for run in STORES:
        none, shown = f"{run}: {st.NO_EDIT}", f"{run}: {moved_to(config.shown)}"
        yield from (st.value(first, none), st.value(first, shown), st.value(moved, shown), st.value(at_first, none))
        for measure in (first, moved, at_first, at_moved):
            swaps = [st.value(measure, f"{run}: {moved_to(place)}") for place in config.positions]
            yield from (st.smallest_of(swaps, "smallest of all swaps"), st.largest_of(swaps, "largest of all swaps"))


def figures(config: BosSwap, architecture: Any) -> Iterator[st.Figure]:
    swap, place = 1 + config.positions.index(config.shown), config.shown
    first, moved, *_ = measures(config)
    places = {
        "position 0, no edit": (0, 0),
        "position 0, swapped (new first token)": (swap, 0),
        f"position {place}, swapped (old first token)": (swap, place),
    }

    def by_layer(results: st.Results) -> list[list[Any]]:
        def sinks(data: Any, edit: int, key: int) -> NDArray:
            return 100 * metrics.sink_rate(data.isel(edit=edit), key, config.eps, per="layer")

        def largest(data: Any, edit: int, position: int) -> NDArray:
            return np.asarray(data["resid_max"].isel(edit=edit, position=position).values[:, 1:])

        def row(ylabel: str, of: Callable[..., NDArray], **options: Any) -> list[Any]:
            runs = _bos.runs(results).items()
            return [results.panel(run, ylabel, {n: of(data, *at) for n, at in places.items()}, **options) for run, data in runs]

        return [row("heads that sink on the key (%)", sinks), row("largest |h| after the layer", largest, log=True)]

    def by_place(run: str) -> st.Panel:
        swaps = [f"{run}: {moved_to(position)}" for position in config.positions]
        curves = {"position 0": (first, swaps), "the moved token": (moved, swaps)}
        return st.Panel("heads that sink on it (%)", curves, run, baseline=f"{run}: {st.NO_EDIT}")

    yield st.curves(
        *("by-layer", "layer (0-based)", by_layer),
        f"""The first token's embedding at position {place} and that one's at position 0: share of a layer's heads that sink on
        each of the two (top), and the largest |h| there (bottom).""",
        store=_bos.SWEEPS,
        legend_above=True,
    )
    yield st.lines(
        *("by-place", "position to which the first token's embedding went", [[by_place(run) for run in STORES]]),
        """Share of all heads that sink on position 0, where another token now is, and on the first token at its new place.
        Dashed: position 0 without an edit.""",
        store=_bos.SWEEPS,
    )
    yield from _bos.figures(
        *(config.drawn_layers(architecture.layers), (st.NO_EDIT, moved_to(place)), place),
        f"Tokens as they stand in the text; the two embeddings that change places are those of positions 0 and {place}.",
    )


SWEEP = st.Sweep("sweep", conditions, measures, controls=(st.Sweep("controls", other_tokens, prompts=st.control_prompts),))
STUDY = st.Study(
    name="kiya/bos-swap",
    config=BosSwap,
    title="The first token's embedding elsewhere",
    question="""Kiya et al. 2026: when the embedding of BOS changes places with that of another token, the first layer's sink and
        massive activation follow BOS, so its embedding is a cause; from the third layer on (Llama-3.2-3B), or as soon as there
        are any (Llama-2-7B), the new first token has both.""",
    probe=lambda config: sinkjax.Probe.of("attention_received", "resid_max", "nll"),
    inputs=lambda config: _bos.PLAIN,
    more=lambda config, architecture: _bos.both(SWEEP),
    claims=claims,
    findings=findings,
    featured=lambda results: [row.condition for row in results.table.values()],
    figures=figures,
    noop=lambda config, architecture: {
        f"token {config.shown} swapped with itself": sinkjax.swap_embeddings(config.shown, config.shown)
    },
    shown=lambda config, architecture: st.Shown(
        *((st.NO_EDIT, moved_to(config.shown)), config.drawn_layers(architecture.layers), config.shown + 2), sweeps=_bos.SWEEPS
    ),
    notes=lambda config, results: (
        """Only the input embeddings change places: positions, masks and the targets of the loss stay, so the loss rises for that
        reason too. At the moved token, an effect is the difference from what the same position has without an edit; a control is
        read where the first of its two tokens went.""",
    ),
)
