"""li/variance: the first token's head outputs vary most, for they are no average (Li et al. 2026, variance discrepancy).

On sequences of random tokens, position i of the first block averages i + 1 values, so that the variance of its output falls as
1 / (i + 1) if attention is even. The control has exactly even attention: every score set to 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.edits.site import Site
from sinkjax.experiments import identity
from sinkjax.experiments.base import Arm, Batch, Calculation, Claim, Inputs, Job, Section, unedited
from sinkjax.experiments.illustrations import MAPS, maps
from sinkjax.experiments.li.config import Variance
from sinkjax.experiments.li.variance_figures import drawings
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import LEVEL, NOT_COMPARED, Row
from sinkjax.experiments.words import verdict
from sinkjax.probes.probe import Capture, Probe
from sinkjax.report.table import interval, number
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model
    from sinkjax.model.config import Config

STORES = ("variance",)
EXTRAS = (MAPS, identity.STORE)
MODEL, EVEN = "the model's attention", "even attention"
GROUP = "attention of the first block"
BLOCK = 32  # prompts of one forward
EXPONENT, TAU = "exponent of the decay with i + 1", "Kendall tau of a dim's deviation and its row of W_O"
LAW, MONOTONE = (-1.2, -0.8), -0.8  # the verdicts' bounds, stated with them
PAPER_TAU = "0.32 (Llama-2-7B, mean over heads; which statistic of W_O is not known)"
CLAIM = (
    "Li et al. 2026: on random tokens, the head outputs of the first block vary most at position 0, whose query sees one value"
    " only; position i averages i + 1 values, and its variance decays like 1 / (i + 1). W_O keeps the discrepancy."
)


def jobs(config: Variance, architecture: Config) -> tuple[Job | Calculation, ...]:
    """The first block on random tokens. Errors: a model without a vocabulary."""
    needs("li/variance", architecture, "softmax", "causal mask", "concatenated heads")
    even = Arm(sinkjax.edit("logits", "set", 0.0, layers=0, label=f"{EVEN} in layer 0"), EVEN)
    inputs = Inputs(kind="random")
    same = sinkjax.edit("logits", "add", 0.0, layers=0)
    probe = Probe(capture=(Capture(Site.HEAD_OUT, layers=(0,)), Capture(Site.ATTN_OUT, layers=(0,))), extra=(SQUARES,))
    return (
        Calculation("variance", compute, config.prompts, inputs),
        maps(config, architecture, (*unedited(), even), inputs=inputs),
        identity.job(config, probe, {"0 added to every logit of layer 0": same}, inputs=inputs),
    )


def compute(model: Model, batch: Batch) -> xarray.Dataset:
    """Deviations from the mean over prompts, under the model's attention and under even attention.

    deviation [attention, prompt, head, position]: squared, averaged over a head's dims, times N / (N - 1), so that its mean over
    prompts is the variance. after: the same of the attention output, behind W_O. squared_weights [attention, head, position]:
    mean sum of squared weights of a query. std [attention, head, head_dim]: standard deviation of each dim, positions pooled.
    row_norm [head, head_dim]: L2 norm of the row of W_O that reads the dim.
    """
    import xarray

    even = sinkjax.edit("logits", "set", 0.0, label=EVEN)
    parts = [_measure(model, batch, edits) for edits in ((), (even,))]
    stacked = {name: (("attention", *parts[0][name][0]), np.stack([part[name][1] for part in parts])) for name in parts[0]}
    rows = np.linalg.norm(np.asarray(model.params["layers"]["o"][0], np.float32), axis=-1)
    return xarray.Dataset(stacked | {"row_norm": (("head", "head_dim"), rows)}, {"attention": [MODEL, EVEN]})


def _measure(model: Model, batch: Batch, edits: tuple) -> dict[str, tuple[tuple[str, ...], NDArray]]:
    params, config = first_block(model)
    probe = Probe(capture=(Capture(Site.HEAD_OUT), Capture(Site.ATTN_OUT)), extra=(SQUARES,))
    run = partial(sinkjax.forward, params, config=config, edits=edits, probe=probe, logits=False)
    blocks = [slice(start, start + BLOCK) for start in range(0, len(batch.lengths), BLOCK)]
    records = [run(batch.tokens[block], lengths=batch.lengths[block]).record for block in blocks]
    heads, out, weights = (
        np.concatenate([np.asarray(record[name], np.float32)[:, 0] for record in records])
        for name in ("head_out", "attn_out", "squared_weights")
    )
    heads, out = _squared_deviations(heads), _squared_deviations(out)
    return {
        "deviation": (("prompt", "head", "position"), heads.mean(-1).swapaxes(1, 2)),
        "after": (("prompt", "position"), out.mean(-1)),
        "squared_weights": (("head", "position"), weights.mean(0)),
        "std": (("head", "head_dim"), np.sqrt(heads.mean(axis=(0, 1)))),
    }


def first_block(model: Model) -> tuple[dict[str, Any], Config]:
    """The parameters and the architecture of a model cut after its first block."""
    windows = model.config.windows
    config = dataclasses.replace(model.config, layers=1, windows=windows and windows[:1])
    return {**model.params, "layers": jax.tree.map(lambda leaf: leaf[:1], model.params["layers"])}, config


def _squares(weights: jax.Array, view: Any) -> jax.Array:
    return (weights * weights).sum(axis=-1)


SQUARES = sinkjax.Statistic("squared_weights", Site.WEIGHTS, _squares, ("prompt", "layer", "head", "query"))


def _squared_deviations(values: NDArray) -> NDArray:
    """(x - mean over prompts)^2 N / (N - 1), of float[prompt, ...]."""
    return np.square(values - values.mean(0)) * (len(values) / (len(values) - 1))


def section(config: Variance, stores: Mapping[str, xarray.Dataset]) -> Section:
    """The summary over prompts, the figures, and what they say in words."""
    data = stores["variance"].load()
    rows = summary(config, data)
    table = {(row.arm, row.measure): row for row in rows}
    claims = _claims(config, data, table)
    return Section(
        experiment="li/variance",
        title="The variance of the first block's head outputs by position",
        claim=CLAIM,
        findings=_findings(data, table),
        rows=rows,
        featured=(MODEL, EVEN),
        drawings=drawings(config, data),
        notes=_notes(config, data),
        provenance=results.provenance(data),
        claims=claims,
    )


def relative(data: xarray.Dataset, name: str) -> NDArray:
    """Deviations over the variance at position 0, which is the same under both attentions: float[attention, prompt, position]."""
    values = data[name].mean("head").values if name == "deviation" else data[name].values
    return values / values[0, :, 0].mean()


def exponents(values: NDArray, seed: int) -> Interval:
    """The slope of log variance over log (i + 1), of deviations float[prompt, position], with its interval over prompts."""
    places = np.log(np.arange(1, values.shape[1] + 1))
    places -= places.mean()

    def slope(means: NDArray) -> NDArray:
        return np.log(means) @ places / np.square(places).sum()

    return intervals.interval(intervals.pseudo_values(values, slope), level=LEVEL, seed=seed)


def taus(data: xarray.Dataset) -> NDArray:
    """Kendall's tau-b of a dim's standard deviation and the norm of its row of W_O: float[attention, head]."""
    return np.array(
        [
            [intervals.kendall_tau(std, row) for std, row in zip(arm, data["row_norm"].values, strict=True)]
            for arm in data["std"].values
        ]
    )


def shuffled_taus(config: Variance, data: xarray.Dataset) -> NDArray:
    """Mean over heads of the same with the dims paired at random: float[attention, permutation]."""
    rng = intervals.generator(config.seed, "li/variance permutations")
    rows = [rng.permuted(data["row_norm"].values, axis=1) for _ in range(config.permutations)]
    return np.array(
        [
            [np.mean([intervals.kendall_tau(*pair) for pair in zip(arm, row, strict=True)]) for row in rows]
            for arm in data["std"].values
        ]
    )


def summary(config: Variance, data: xarray.Dataset) -> tuple[Row, ...]:
    """One row for each attention and measure."""
    heads, after = relative(data, "deviation"), relative(data, "after")
    last = heads.shape[-1] - 1
    tau, shuffled = taus(data), shuffled_taus(config, data)
    rows = []
    for place, arm in enumerate((MODEL, EVEN)):
        for position in dict.fromkeys((0, 1, 7, last)):
            mean = intervals.interval(heads[place, :, position], level=LEVEL, seed=config.seed)
            rows.append(Row(arm, GROUP, share_at(position), mean))
        behind = intervals.interval(after[place, :, last], level=LEVEL, seed=config.seed)
        rows.append(Row(arm, GROUP, f"after W_O: {share_at(last)}", behind))
        rows.append(Row(arm, GROUP, EXPONENT, exponents(heads[place], config.seed)))
        rank = float(intervals.percentile_among(tau[place].mean(), shuffled[place]))
        mean = intervals.interval(tau[place], level=LEVEL, seed=config.seed)
        rows.append(Row(arm, GROUP, TAU, mean, NOT_COMPARED, rank, config.permutations))
    return tuple(rows)


def share_at(position: int) -> str:
    """The name of a measure."""
    return f"variance at position {position} (share of position 0's)"


def _claims(config: Variance, data: xarray.Dataset, table: Mapping[tuple[str, str], Row]) -> tuple[Claim, ...]:
    first, after = (
        intervals.intervals(relative(data, name)[0], axis=0, level=LEVEL, seed=config.seed).tolist()
        for name in ("deviation", "after")
    )
    order = intervals.kendall_tau(np.arange(len(first)), [value.mean for value in first])
    exponent, tau = table[MODEL, EXPONENT].value, table[MODEL, TAU]
    return (
        Claim(
            "On random tokens, the variance of the first block's head outputs is largest at position 0 (variance discrepancy).",
            verdict(_apart(first)),
            f"{_beside(first)}. Rule: the interval of position 0 lies above those of all others.",
        ),
        Claim(
            "That variance decays monotonically with the position.",
            verdict(order <= MONOTONE),
            f"Kendall's tau of position and variance: {number(order)}. Rule: at most {MONOTONE}.",
        ),
        Claim(
            "Position i averages i + 1 values, so its variance is 1 / (i + 1) of that of position 0.",
            verdict(_inside(exponent, LAW)),
            f"The variance falls with (i + 1) to the power {interval(exponent)}; with even attention, to the power"
            f" {interval(table[EVEN, EXPONENT].value)}. Rule: the interval lies within {LAW[0]} and {LAW[1]}.",
        ),
        Claim(
            "W_O keeps the discrepancy: the attention output varies most at position 0.",
            verdict(_apart(after)),
            f"Behind W_O: {_beside(after)}. Rule: the interval of position 0 lies above those of all others.",
        ),
        Claim(
            "The dims of a head that vary most meet the larger rows of W_O (mean Kendall tau).",
            verdict(tau.percentile is not None and tau.percentile >= 97.5 and (tau.value.low or 0) > 0),
            f"Mean tau over {data.sizes['head']} heads {interval(tau.value)}, percentile {number(tau.percentile or 0)} among"
            f" {tau.controls} random pairings. Rule: an interval above 0 and a percentile of at least 97.5.",
            PAPER_TAU,
        ),
    )


def _apart(values: Sequence[Interval]) -> bool:
    """Whether the first interval lies above all others."""
    return (values[0].low or 0) > max(value.high or 0 for value in values[1:])


def _inside(value: Interval, bounds: tuple[float, float]) -> bool:
    return value.low is not None and value.high is not None and bounds[0] <= value.low and value.high <= bounds[1]


def _beside(values: Sequence[Interval]) -> str:
    """The first of some variances in words, beside the largest of the others."""
    place = 1 + max(range(len(values) - 1), key=lambda number: values[1 + number].mean or 0)
    return f"position 0 {interval(values[0])}, the next largest is position {place} with {interval(values[place])} of it"


def _findings(data: xarray.Dataset, table: Mapping[tuple[str, str], Row]) -> tuple[str, ...]:
    last = data.sizes["position"] - 1

    def say(arm: str, measure: str) -> str:
        return interval(table[arm, measure].value)

    effective = 1 / data["squared_weights"].sel(attention=MODEL).values[:, last]
    tau = table[MODEL, TAU]
    return (
        f"The variance at position 1 is {say(MODEL, share_at(1))} of that at position 0, and at position {last}"
        f" {say(MODEL, share_at(last))}; with even attention {say(EVEN, share_at(last))}, where the averaging law says"
        f" {number(1 / (last + 1))}.",
        f"It falls with (i + 1) to the power {say(MODEL, EXPONENT)}; with even attention to the power {say(EVEN, EXPONENT)}.",
        f"The weights of the query at position {last} average over as many values as {number(effective.mean())} even ones do"
        f" (mean over heads, {number(effective.min())} to {number(effective.max())}), of {last + 1} that it sees.",
        f"Behind W_O, the variance at position {last} is {say(MODEL, f'after W_O: {share_at(last)}')} of that at position 0.",
        f"Kendall's tau of a dim's standard deviation and the norm of its row of W_O is {interval(tau.value)} on average over"
        f" heads, percentile {number(tau.percentile or 0)} among {tau.controls} random pairings.",
    )


def _notes(config: Variance, data: xarray.Dataset) -> tuple[str, ...]:
    return (
        f"{data.sizes['prompt']} sequences of random tokens; the variance of each dim over them, averaged over the dims of a head"
        " and over heads, in units of its value at position 0. Intervals: bootstrap 95 % over prompts (BCa, 2,000 resamples);"
        " that of the exponent is over jackknife pseudo-values, and that of tau over heads.",
        "Even attention is the control: all scores of the first block set to 0, so that position i weighs i + 1 values alike.",
        "Kendall's tau-b in each head, of two numbers for each of its dims: the standard deviation over prompts and positions,"
        f" and the L2 norm of the row of W_O that reads the dim. Controls: {config.permutations} random pairings of the same"
        " numbers. Which statistic of W_O the paper took is not known.",
    )
