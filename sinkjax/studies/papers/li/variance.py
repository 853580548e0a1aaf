"""li/variance: the first token's head outputs vary most, because they are no average (Li et al. 2026, variance discrepancy).

On random tokens. The control is exactly even attention: every score of the first block set to 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.analysis import intervals, significance
from sinkjax.config_files.checks import at_least, refuse
from sinkjax.report.figures import layers, scatter

if TYPE_CHECKING:
    import xarray

STORE, SOURCE = "variance", "Li et al. 2026, variance discrepancy"
MODEL, EVEN = "the model's attention", "even attention"  # names of the two in the store
EXPONENT, TAU = "exponent of the decay with i + 1", "Kendall tau of a dim's deviation and its row of W_O"
LAW = (-1.2, -0.8)  # bounds of the exponent
RANDOM = st.Inputs(kind="random")


@dataclass(frozen=True, kw_only=True)
class Variance(st.StudyConfig):
    """The variance of the first block's head outputs by position, on random tokens."""

    prompts: int = 256
    """sequences of random tokens, which no document limits"""
    permutations: int = 200
    """random pairings of the dims with the rows of W_O, the controls of the rank correlation"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, prompts=3, permutations=20, length=8)
        why = "with a BOS before every sequence nothing varies at position 0, with which all is compared"
        refuse(self.bos != "none", f'bos must be "none": {why}')


def deviations(model: Any, batch: st.Batch) -> xarray.Dataset:
    from sinkjax.studies.papers.li import _first_block

    return _first_block.compute(model, batch, MODEL, EVEN)


def probe(config: Variance) -> sinkjax.Probe:
    from sinkjax.studies.papers.li import _first_block

    return _first_block.PROBE


def relative(data: xarray.Dataset, name: str) -> NDArray:
    """Deviations over the variance at position 0, which is the same under both attentions: float[attention, prompt, position]."""
    values = data[name].mean("head").values if name == "deviation" else data[name].values
    return values / values[0, :, 0].mean()


def exponents(values: NDArray) -> NDArray:
    """The slope of log variance over log (i + 1), of deviations float[prompt, position]: its pseudo-values, float[prompt]."""
    places = np.log(np.arange(1, values.shape[1] + 1))
    places -= places.mean()
    return intervals.pseudo_values(values, lambda means: np.log(means) @ places / np.square(places).sum())


def taus(data: xarray.Dataset, row_norm: NDArray) -> NDArray:
    """Kendall's tau-b of a dim's standard deviation and the norm of its row of W_O: float[attention, head]."""
    return np.array([[significance.kendall_tau(*pair) for pair in zip(std, row_norm, strict=True)] for std in data["std"].values])


def shuffled_taus(config: Variance, data: xarray.Dataset, groups: int) -> NDArray:
    """Mean over heads of the same with the dims paired at random: float[attention, permutation].

    groups: of heads that share a key-value head. Their outputs are made of the same value dims, and rows of W_O that read one dim
    are alike, so their taus are not independent: all heads of a group take one permutation.
    """
    rng = intervals.generator(config.seed, "li/variance permutations")
    row_norm = data["row_norm"].values
    by_group = row_norm.reshape(groups, -1, row_norm.shape[1])
    dims = np.broadcast_to(np.arange(row_norm.shape[1]), (groups, row_norm.shape[1]))
    orders = [rng.permuted(dims, axis=1)[:, None] for _ in range(config.permutations)]
    drawn = [np.take_along_axis(by_group, order, axis=2).reshape(row_norm.shape) for order in orders]
    return np.stack([taus(data, shuffled).mean(axis=1) for shuffled in drawn], axis=1)


def rows(results: st.Results) -> Iterator[st.Row]:
    """One row for each attention and number."""
    data, config, series = results[STORE], results.config, "attention of the first block"
    heads, after = relative(data, "deviation"), relative(data, "after")
    last = heads.shape[-1] - 1
    tau, shuffled = taus(data, data["row_norm"].values), shuffled_taus(config, data, results.architecture.kv_heads)
    for place, attention in enumerate((MODEL, EVEN)):
        found = {share_at(position): heads[place, :, position] for position in (0, 1, 7, last)}
        found |= {f"after W_O: {share_at(last)}": after[place, :, last], EXPONENT: exponents(heads[place])}
        yield from (st.Row(attention, series, name, results.interval(values)) for name, values in found.items())
        mean = float(tau[place].mean())
        yield st.Row(attention, series, TAU, st.constant(mean), rank=st.Rank.among(mean, shuffled[place]))


def share_at(position: int) -> str:
    return f"variance at position {position} (share of position 0's)"


def of(name: str, start: int, stop: int, said: str) -> st.Quantity:
    """Deviations of some positions under the model's attention. name: of the array."""
    return st.quantity(said, lambda results: relative(results[STORE], name)[0, :, start:stop].mean(axis=1))


def largest_first(config: Variance, name: str, what: str) -> st.Rule:
    """The variance at position 0 lies above that at every other position, under the model's attention. name: of the array."""
    first, *others = (of(name, place, place + 1, f"{what} at position {place}") for place in range(config.length))
    rules = [st.above(first, other) for other in others]
    return st.every(rules, "other positions", f"the interval of {what} at position 0 less that at the position lies above 0")


def octaves(config: Variance) -> list[st.Quantity]:
    """The variance at position 0, at 1, at 2 and 3, at 4 to 7, ..."""
    starts = [0, *(2**power for power in range((config.length - 1).bit_length()))]
    ends = [*starts[1:], config.length]
    return [
        of("deviation", start, end, f"variance at positions {start} to {end - 1}")
        for start, end in zip(starts, ends, strict=True)
    ]


def order(results: st.Results) -> float:
    means = relative(results[STORE], "deviation")[0].mean(axis=0)
    return significance.kendall_tau(np.arange(len(means)), means)


def claims(config: Variance, architecture: Any) -> Iterator[st.Claim]:
    what = "On random tokens, the variance of the first block's head outputs"
    steps = [st.below(after, before) for before, after in itertools.pairwise(octaves(config))]
    yield st.Claim(
        f"{what} is largest at position 0 (variance discrepancy).",
        largest_first(config, "deviation", "variance"),
        source=SOURCE,
    )
    yield st.Claim(
        f"{what} is lower after each doubling of the position.",
        st.every(steps, "doublings of the position", "the variance is lower after it, by the interval of the paired difference"),
        source=SOURCE,
        also=(st.number("Kendall's tau of position and variance", order),),
    )
    yield st.Claim(
        f"{what} falls as 1 / (i + 1), as for an average (exponent between {LAW[0]:g} and {LAW[1]:g}).",
        st.within(st.listed(MODEL, EXPONENT), *LAW),
        also=(st.listed(EVEN, EXPONENT),),
    )
    yield st.Claim(
        "On random tokens, the first block's attention output, behind W_O, varies most at position 0.",
        largest_first(config, "after", "variance behind W_O"),
        source=SOURCE,
    )
    yield st.Claim(
        "In heads of the first block, dims that vary more are read by larger rows of W_O (mean Kendall tau).",
        st.above_controls(st.listed(MODEL, TAU, "Kendall's tau, mean over heads")),
        source=SOURCE,
        paper="0.32 (Llama-2-7B, mean over heads; which statistic of W_O is not known)",
    )


def findings(config: Variance, architecture: Any) -> Iterator[st.Quantity]:
    """How many equal weights have the last query's sum of squared weights."""

    def evenly(results: st.Results) -> NDArray:
        return 1 / results[STORE]["squared_weights"].values[0, :, -1]

    name = f"values over which even attention would average as much as position {config.length - 1} does"
    yield st.quantity(f"{name} (mean over heads)", lambda results: evenly(results).mean())
    yield st.quantity(f"{name} (fewest of any head)", lambda results: evenly(results).min())
    yield st.quantity(f"{name} (most of any head)", lambda results: evenly(results).max())


def figures(config: Variance, architecture: Any) -> Iterator[st.Figure]:
    yield st.curves(
        "variance-by-position",
        "tokens that the query sees, i + 1",
        by_position,
        """Variance over prompts of the first block's head outputs (left) and of its attention output (right), mean over dims, in
        units of its value at position 0, whose query sees one value only. Even attention follows the averaging law; uneven
        attention averages less, as the sum of each query's squared weights shows, and its curve lies above the law.""",
        STORE,
        legend_above=True,
        log_x=True,
    )
    yield st.drawn(
        "variance-and-output-matrix",
        structure,
        """Standard deviation of each dim of each head of the first block against the L2 norm of the row of W_O that reads it;
        both axes are logarithmic.""",
        STORE,
        bands=False,
    )


def by_position(results: st.Results) -> list[list[layers.Panel]]:
    """Variance against position before and after W_O, with the averaging law."""
    data = results[STORE]
    own = data["deviation"].mean("prompt").values[0, :, :1]
    places = np.arange(1, data.sizes["position"] + 1)
    law = {"averaging law 1 / (i + 1)": 1 / places[None]}
    squares = {"sum of squared weights": (data["squared_weights"].values[0] * own).sum(0, keepdims=True) / own.sum()}

    def panel(title: str, name: str, expected: dict[str, NDArray]) -> layers.Panel:
        both = dict(zip((MODEL, EVEN), relative(data, name), strict=True))
        return results.panel(title, "variance (share of position 0's)", both | expected, places.tolist(), log=True)

    return [[panel("head outputs", "deviation", law | squares), panel("attention output, after W_O", "after", law)]]


def structure(results: st.Results) -> Any:
    data = results[STORE]
    clouds = {
        attention: [scatter.Cloud("a dim of a head", std.ravel(), data["row_norm"].values.ravel())]
        for attention, std in zip((MODEL, EVEN), data["std"].values, strict=True)
    }
    return scatter.scatter(clouds, "standard deviation of the dim", "L2 norm of its row of W_O", log=True)


def shown(config: Any, architecture: Any) -> tuple[st.Condition, ...]:
    return st.no_edit(), st.Condition(sinkjax.edit("logits", "set", 0.0, layers=0, label=f"{EVEN} in layer 0"), EVEN)


VARIABLES = ("after", "deviation", "row_norm", "squared_weights", "std")
STUDY = st.Study(
    name="li/variance",
    config=Variance,
    title="The variance of the first block's head outputs by position",
    question="""Li et al. 2026: on random tokens, the head outputs of the first block vary most at position 0, whose query sees
        one value only; position i averages i + 1 values, and the variance decays monotonically. W_O keeps the discrepancy.""",
    needs=("softmax", "causal mask", "concatenated heads"),
    probe=probe,
    inputs=lambda config: RANDOM,
    more=lambda config, architecture: (st.Calculation(STORE, deviations, VARIABLES, config.prompts, RANDOM),),
    rows=rows,
    claims=claims,
    findings=findings,
    featured=lambda results: (MODEL, EVEN),
    figures=figures,
    noop=lambda config, architecture: {"0 added to every logit of layer 0": sinkjax.edit("logits", "add", 0.0, layers=0)},
    shown=lambda config, architecture: st.Shown(
        (st.NO_EDIT, f"{EVEN} in layer 0"), sweeps=(st.Sweep("shown", shown),), texts=False
    ),
    notes=lambda config, results: (
        f"""{config.prompts} sequences of random tokens; the variance of each dim over them, averaged over the dims of a head and
        over heads, in units of its value at position 0. Intervals are 95 % intervals over prompts, for the exponent over
        jackknife pseudo-values.""",
        """Even attention is the control: all scores of the first block are 0, so position i weights i + 1 values equally. That
        the variance is then 1 / (i + 1) of that of position 0 is stated here, and not by the paper.""",
        f"""Kendall's tau-b is taken in each head, between two numbers for each dim: the standard deviation over prompts and
        positions, and the L2 norm of the row of W_O that reads the dim. Its controls are {config.permutations} random pairings of
        the same numbers; heads that share a key-value head share the pairing, as their outputs are made of the same value dims.
        Which statistic of W_O the paper took is not known.""",
    ),
)
