"""kiya/bos-swap: the embedding of the first token changes places with that of a later one (Figs. 2 and 7).

If sink and massive activation belong to the token, they move with it; if they belong to the position, they stay. Controls move
another token to the same position.
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
from sinkjax.studies.papers.kiya._masks import SOME

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
    """No edit, and a swap of position 0 with each of the others, read where the first token then is; a budget is that place."""
    yield st.no_edit(at=(0,))
    for place in config.positions:
        edit = sinkjax.swap_embeddings(0, place).named(moved_to(place))
        yield st.Condition(edit, "swap", place, budget=place, at=(place,))


def moved_to(place: int) -> str:
    return f"first token to {place}"


def random_swaps(config: BosSwap) -> list[tuple[int, int]]:
    """For each control and each of the positions, another token than the first that changes places with the one there."""
    rng = intervals.generator(config.seed, "kiya/bos-swap controls")
    tokens = np.arange(1, config.length - MIN_QUERIES + 1)
    drawn = [rng.permutation(tokens[tokens != place])[: config.controls].tolist() for place in config.positions]
    return [pair for control in zip(*drawn, strict=True) for pair in zip(control, config.positions, strict=True)]


def other_tokens(config: BosSwap, architecture: Any) -> Iterator[st.Condition]:
    """The swaps of the controls, read where the conditions are: each control has one for every position."""
    for number, (token, place) in enumerate(random_swaps(config)):
        edit = sinkjax.swap_embeddings(token, place)
        named = edit.named(f"control {number // len(config.positions)}: token {token} to {place}")
        yield st.Condition(named, st.CONTROL, place, budget=place, at=(place,))


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


def swaps(config: BosSwap) -> list[tuple[int, int]]:
    """The pairs of positions that the conditions swap."""
    return [(0, place) for place in config.positions]


def edited(data: Any) -> Any:
    """The conditions of a store but the unedited one."""
    return data.isel(edit=slice(1, None))


def unedited(data: Any, count: int) -> Any:
    """The unedited condition, as often as it is compared."""
    return data.isel(edit=np.zeros(count, int))


@dataclass(frozen=True)
class Look:
    """What is read of a swap in some layers: of = (data, positions that are swapped, which of the two) -> float[swap, prompt]."""

    name: str
    unit: str
    of: Callable[[Any, list[tuple[int, int]], int], NDArray]


def rate(config: BosSwap, layers: slice, name: str) -> Look:
    """Heads of some layers, in per cent, that sink on one of the two positions."""

    def of(data: Any, pairs: list[tuple[int, int]], which: int) -> NDArray:
        found = metrics.sink_rate(data, np.array(pairs)[:, which, None], config.eps, per="layer")
        return (100 * found[..., layers]).mean(axis=-1)

    return Look(f"the share of heads {name} that sink on", "%", of)


def size(layers: slice, name: str) -> Look:
    """Largest |h| after some layers at one of the two positions, over that of a typical unswapped position."""

    def of(data: Any, pairs: list[tuple[int, int]], which: int) -> NDArray:
        positions, swapped = np.arange(data.sizes["position"]), np.array(pairs)
        others = (positions != swapped[:, :1]) & (positions != swapped[:, 1:])
        return _bos.prominence(data, swapped[:, which], others)[..., 1:][..., layers].max(axis=-1)

    return Look(f"{name} at", TIMES, of)


@dataclass(frozen=True)
class Run:
    """The quantities of one run, means over the swaps. token: what is moved."""

    config: BosSwap
    name: str
    token: str

    def at(self, look: Look, moved: bool) -> st.Quantity:
        """Read after the swap, at position 0 or where the token then is."""
        place = f"the moved {self.token}" if moved else "position 0"
        return self._of(f"{look.name} {place}", lambda data: look.of(edited(data), swaps(self.config), int(moved)), look.unit)

    def before(self, look: Look) -> st.Quantity:
        """Read at position 0 without an edit."""
        name = f"{look.name} position 0 without an edit"
        return self._of(name, lambda data: look.of(unedited(data, len(swaps(self.config))), swaps(self.config), 0), look.unit)

    def gained(self, look: Look) -> st.Quantity:
        """The rise where the token comes to be, ranked among those where random other tokens do, all means over places."""

        def effects(data: Any, base: Any, pairs: list[tuple[int, int]]) -> NDArray:
            return look.of(data, pairs, 1) - look.of(unedited(base, len(pairs)), pairs, 1)

        def of(results: st.Results) -> st.Estimate:
            data, random = results[STORES[self.name]], results[f"{STORES[self.name]}-controls"]
            found = effects(edited(data), data, swaps(self.config)).mean(axis=0)
            count = random.sizes["prompt"]
            others = effects(random, data.isel(prompt=slice(count)), random_swaps(self.config)).mean(axis=1)
            controls = others.reshape(-1, len(self.config.positions)).mean(axis=1)
            rank = st.Rank.among(found[:count].mean(), controls)
            return st.Estimate(f"{name} ({self.name})", results.interval(found), unit, True, rank)

        name = f"the rise of {look.name} the moved {self.token}"
        unit = POINTS if look.unit == "%" else look.unit
        return st.Quantity(name, of)

    def _of(self, name: str, values: Callable[[Any], NDArray], unit: str) -> st.Quantity:
        return _bos.number(self.name, name, lambda data: values(data).mean(axis=0), unit)


def claims(config: BosSwap, architecture: Any) -> Iterator[st.Claim]:
    """The paper's statements on BOS, and the last of them on an ordinary first token."""
    first, everywhere = slice(1), slice(None)
    deep = min(DEEP, architecture.layers - 1)
    deeper = rate(config, slice(deep, None), f"from layer {deep} on")
    sink, massive = rate(config, first, "in layer 0"), size(first, "|h| after layer 0")
    any_sink, any_massive = rate(config, everywhere, "of all layers"), size(everywhere, "the largest |h|")
    bos, ordinary = Run(config, WITH, "BOS"), Run(config, WITHOUT, "token")

    def keeps(run: Run) -> st.Rule:
        """Position 0 keeps sink and massive activation in deeper layers."""
        before = run.before(deeper)
        half = before.times(0.5, f"half of that without an edit ({run.name})")
        return st.all_of(st.above(run.at(deeper, False), half), st.above(run.at(any_massive, False), config.massive))

    def there(run: Run, *more: st.Rule) -> st.Rule:
        """Position 0 has both without an edit."""
        return st.all_of(st.above(run.before(deeper), SOME), st.above(run.before(any_massive), config.massive), *more)

    def beside(run: Run) -> tuple[st.Quantity, ...]:
        return run.before(deeper), run.at(deeper, True), run.at(any_massive, True)

    separator, both = _bos.separates(), f"more than half of the sink and |h| above {config.massive:g} times a typical one"
    yield st.Claim(
        f"When BOS changes places with another token, sink and |h| of the first layer move with it: less than {FEW:g} % of heads"
        f" sink on the new first token, whose |h| is less than {config.massive:g} times a typical one.",
        st.all_of(
            st.above(bos.at(sink, True), bos.at(sink, False)),
            st.above(bos.at(massive, True), bos.at(massive, False)),
            st.below(bos.at(sink, False), FEW),
            st.below(bos.at(massive, False), config.massive),
            st.above_controls(bos.gained(sink)),
            st.above_controls(bos.gained(massive)),
        ),
        given=st.all_of(separator, st.above(bos.before(sink), SOME), st.above(bos.before(massive), config.massive)),
        source="Kiya et al. 2026, Fig. 2a, d",
    )
    yield st.Claim(
        f"When BOS changes places with another token, neither of the two has a sink in the first layer (less than {FEW:g} % of"
        f" heads), and the new first token has {both} in deeper ones.",
        st.all_of(st.below(bos.at(sink, False), FEW), st.below(bos.at(sink, True), FEW), keeps(bos)),
        given=there(bos, separator),
        source="Kiya et al. 2026, Fig. 7",
        paper="so in Llama-2-7B",
    )
    yield st.Claim(
        f"When BOS changes places with another token, the new first token has {both} in deeper layers.",
        keeps(bos),
        given=there(bos, separator),
        source="Kiya et al. 2026, Fig. 2c, f; Fig. 7",
        also=beside(bos),
    )
    yield st.Claim(
        "When BOS changes places with another token, the sink over all layers follows BOS instead of staying at position 0.",
        st.all_of(st.above(bos.at(any_sink, True), bos.at(any_sink, False)), st.above_controls(bos.gained(any_sink))),
        given=st.all_of(separator, st.above(bos.before(any_sink), SOME)),
        also=(bos.before(any_sink),),
    )
    yield st.Claim(
        f"When an ordinary first token changes places with another one, the new first token has {both} in deeper layers.",
        keeps(ordinary),
        given=there(ordinary),
        also=beside(ordinary),
    )


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
        *_bos.about(results),
        """Only the input embeddings are swapped; positions, masks and the targets of the loss stay, which by itself raises the
        loss. At the moved token, an effect is the difference from the same position without an edit. A control moves another
        token to the same position. A mean over the positions is ranked among controls that are means over the same positions, one
        swap at each.""",
    ),
)
