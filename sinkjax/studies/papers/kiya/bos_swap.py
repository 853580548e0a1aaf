"""kiya/bos-swap: the embedding of the first token changes places with that of a later one (Figs. 2 and 7).

If sink and massive activation belong to the token, they move with it; if they belong to the position, they stay.
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
from sinkjax.analysis import intervals, metrics
from sinkjax.config_files.checks import MIN_QUERIES, above, at_least, positions_seen
from sinkjax.studies.papers.kiya import _bos
from sinkjax.studies.papers.kiya._bos import STORES, WITH, WITHOUT

DEEP = 2  # the first layer that counts as deeper: the paper's layer 3
FEW = 5.0  # per cent of a layer's heads, below which there is no sink
POINTS, TIMES = "percentage points", "times that of a typical position"


@dataclass(frozen=True, kw_only=True)
class BosSwap(st.ControlledSinks, st.Mapped):
    """Swap the first token's embedding with a later one's, without and with a BOS: `bos` if a token id, else the model's own."""

    positions: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    """where the first token's embedding is moved to, one condition each"""
    shown: int = 8
    """the one of these positions whose maps and layers are drawn"""
    massive: float = 10.0
    """how many times larger |h| must be at a position than at a typical (the median) unswapped one to be massive"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, length=16)
        above(self, massive=1)
        positions_seen(self, self.length - MIN_QUERIES, "queries")


def conditions(config: BosSwap, architecture: Any) -> Iterator[st.Condition]:
    """No edit, and a swap of position 0 with each of the others, read where the first token then is."""
    yield st.no_edit(at=(0,))
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
    sinks = partial(_bos.sink_rates, eps=config.eps)
    return (
        st.sink_rate(0, config.eps),
        st.Measure("heads that sink on the moved token's key (%)", lambda data: np.moveaxis(sinks(data), 0, -1), placed=True),
        st.largest_activation(0),
        st.Measure("largest |h| at the moved token", st.largest, placed=True),
        st.loss(),
    )


def rates(config: BosSwap, layers: slice, data: Any, moved: bool = False) -> NDArray:
    """Heads of some layers, in per cent, that sink on position 0 or on the moved token: float[swap, prompt]."""
    key = np.array(config.positions)[:, None] if moved else 0
    found = metrics.sink_rate(data.isel(edit=slice(1, None)), key, config.eps, per="layer")
    return (100 * found[..., layers]).mean(axis=-1)


def sizes(config: BosSwap, layers: slice, data: Any, moved: bool = False) -> NDArray:
    """Largest |h| after some layers at either place, over that of a typical unswapped position: float[swap, prompt]."""
    place, positions = np.array(config.positions), np.arange(data.sizes["position"])
    others = (positions != 0) & (positions != place[:, None])
    found = _bos.prominence(data.isel(edit=slice(1, None)), place if moved else 0, others)
    return found[..., 1:][..., layers].max(axis=-1)


def claims(config: BosSwap, architecture: Any) -> Iterator[st.Claim]:
    """The paper's statements on BOS, and the last of them on an ordinary first token."""

    def of(run: str, name: str, values: Callable[[Any], NDArray], unit: str, signed: bool = False) -> st.Quantity:
        return _bos.number(run, name, lambda data: values(data).mean(axis=0), unit, signed)  # over swaps

    def at_both(run: str, name: str, token: str, values: Callable[..., NDArray], unit: str) -> list[st.Quantity]:
        places = {"position 0": False, f"the moved {token}": True}
        return [of(run, f"{name} {place}", partial(values, moved=moved), unit) for place, moved in places.items()]

    def deeper(run: str) -> tuple[st.Rule, tuple[st.Quantity, ...]]:
        """That position 0 keeps sink and massive activation in deeper layers, and what is reported beside."""
        first = min(DEEP, architecture.layers - 1)
        rate, share = partial(rates, config, slice(first, None)), f"the share of heads from layer {first} on that sink on"

        def before(data: Any) -> NDArray:
            return 100 * metrics.sink_rate(data, 0, config.eps, per="layer")[:1, :, first:].mean(axis=-1)

        on_first, on_moved = at_both(run, share, "token", rate, "%")
        massive, massive_moved = at_both(run, "the largest |h| at", "token", partial(sizes, config, slice(None)), TIMES)
        half = f"{on_first.name} minus half of that without an edit"
        kept = of(run, half, lambda data: rate(data) - before(data) / 2, POINTS, True)
        unedited = of(run, f"{on_first.name} without an edit", before, "%")
        return st.all_of(st.above(kept), st.above(massive, config.massive)), (on_first, unedited, on_moved, massive_moved)

    rate, size = partial(rates, config, slice(1)), partial(sizes, config, slice(1))
    first, moved = at_both(WITH, "the share of heads in layer 0 that sink on", "BOS", rate, "%")
    at_first, at_moved = at_both(WITH, "|h| after layer 0 at", "BOS", size, TIMES)
    more, larger = f"{moved.name} minus that on position 0", f"{at_moved.name} minus that at position 0"
    yield st.Claim(
        "In the first layer, sink and massive activation follow BOS, and the new first token has none (Fig. 2a, d).",
        st.all_of(
            st.above(of(WITH, more, lambda data: rate(data, moved=True) - rate(data), POINTS, True)),
            st.above(of(WITH, larger, lambda data: size(data, moved=True) - size(data), TIMES, True)),
        ),
        also=(moved, first, at_moved, at_first),
    )
    keeps, numbers = deeper(WITH)
    yield st.Claim(
        "In the first layer neither the new first token nor the moved BOS has a sink; deeper, the new first token has it (Fig. 7,"
        " Llama-2-7B).",
        st.all_of(st.below(first, FEW), st.below(moved, FEW), keeps),
    )
    statement = "In deeper layers the new first token has both sink and massive activation (Fig. 2c, f; Fig. 7)."
    yield st.Claim(statement, keeps, also=numbers)
    keeps, numbers = deeper(WITHOUT)
    statement = "The same holds of an ordinary first token: in deeper layers position 0 has both, whatever token is there."
    yield st.Claim(statement, keeps, also=numbers)


def figures(config: BosSwap, architecture: Any) -> Iterator[st.Figure]:
    swap, place = 1 + config.positions.index(config.shown), config.shown
    first, moved, *_ = measures(config)
    places = {
        "position 0, no edit": (0, 0),
        "position 0, swapped (new first token)": (swap, 0),
        f"position {place}, swapped (old first token)": (swap, place),
    }
    caption = f"""Positions 0 and {place} with their embeddings swapped: share of a layer's heads that sink on each of the two
        (top), and the largest |h| there (bottom)."""
    yield _bos.by_layer(config.eps, places, caption)

    def by_place(run: str) -> st.Panel:
        swaps = [f"{run}: {moved_to(position)}" for position in config.positions]
        curves = {"position 0": (first, swaps), "the moved token": (moved, swaps)}
        return st.Panel("heads that sink on it (%)", curves, run, baseline=f"{run}: {st.NO_EDIT}", x=config.positions)

    caption = """Share of all heads that sink on position 0, where another token now is, and on the first token where it now is.
        Dashed: position 0 without an edit."""
    xlabel = "position to which the first token's embedding is moved"
    yield st.lines("by-place", xlabel, [[by_place(run) for run in STORES]], caption, _bos.SWEEPS)
    about = f"Tokens are labelled as in the text; the embeddings of positions 0 and {place} are swapped."
    yield from _bos.maps(config.drawn_layers(architecture.layers), (st.NO_EDIT, moved_to(place)), place, about)


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
    featured=lambda results: [row.condition for row in results.table.values()],
    figures=figures,
    noop=lambda config, architecture: {
        f"token {config.shown} swapped with itself": sinkjax.swap_embeddings(config.shown, config.shown)
    },
    shown=lambda config, architecture: st.Shown(
        (st.NO_EDIT, moved_to(config.shown)), config.drawn_layers(architecture.layers), config.shown + 2, sweeps=_bos.SWEEPS
    ),
    notes=lambda config, results: (
        """Only the input embeddings are swapped; positions, masks and the targets of the loss stay, which by itself raises the
        loss. At the moved token, an effect is the difference from the same position without an edit; a control is read at the new
        position of the first of its two tokens.""",
    ),
)
