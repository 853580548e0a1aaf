"""li/dominance: one dim rules the first token's hidden state, the norm keeps it, and keys lock in on it (Li et al. 2026)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.base import Calculation, Claim, Job, Section, unedited
from sinkjax.experiments.illustrations import MAPS, maps
from sinkjax.experiments.li import lock_in
from sinkjax.experiments.li.config import Dominance
from sinkjax.experiments.li.dominance_figures import drawings
from sinkjax.experiments.needs import needs
from sinkjax.experiments.summary import LEVEL, NOT_COMPARED, Row
from sinkjax.experiments.words import verdict
from sinkjax.report.table import interval, number
from sinkjax.studies import folder as results

if TYPE_CHECKING:
    import xarray

    from sinkjax.model.config import Config

STORES = ("dominance",)
EXTRAS = (MAPS,)
GROUP = "state that a layer reads"
BEFORE, AFTER = "dominance ratio at position 0, before the norm", "dominance ratio at position 0, after the norm"
ALIGNED, POSITIVE = "cos(u_1, k_0), mean over heads", "queries with a positive score of key 0 (%)"
ROW = "|cos| of k_0 and the dominant dim's row of W_K"
NEARLY_ALL, SAME, HELD = 95, 0.9, 80  # the verdicts' bounds, stated with them
CLAIM = (
    "Li et al. 2026: one dim of the first token's hidden state is hundreds of times the mean, before and after RMSNorm, so that"
    " its key is a row of W_K. Queries point along it, and nearly all have a positive score with key 0."
)


def jobs(config: Dominance, architecture: Config) -> tuple[Job | Calculation, ...]:
    """Hidden states, keys and queries of the unedited model, and its maps."""
    needs("li/dominance", architecture, "norm", "pre-norm", "embedding without positions", "scores without positions")
    needs("li/dominance", architecture, "scores without a kernel", "keys without a norm")
    return Calculation("dominance", lock_in.measure, config.prompts), maps(config, architecture, unedited())


@dataclass(frozen=True)
class Found:
    """What the numbers are made from. others: control positions, drawn from the first half, which many queries see."""

    config: Dominance
    data: xarray.Dataset

    @cached_property
    def others(self) -> list[int]:
        places = np.arange(1, self.data.sizes["position"] // 2 + 1)
        rng = intervals.generator(self.config.seed, "li/dominance controls")
        return sorted(rng.choice(places, min(self.config.controls, len(places)), replace=False).tolist())

    @cached_property
    def dims(self) -> NDArray:
        """The dim that dominates the first token after the norm, in most prompts: int[depth]."""
        return np.array([np.bincount(column).argmax() for column in self.data["dim"].values.T])

    @cached_property
    def row_cosine(self) -> NDArray:
        """|cosine| of k_0 and that dim's row of W_K: float[layer, kv_head]."""
        values = self.data["row_cosine"].values
        return np.take_along_axis(values, self.dims[: len(values), None, None], axis=2)[..., 0]

    def ranked(self, values: NDArray, controls: NDArray) -> list[tuple[Interval, float]]:
        """Means over prompts of float[prompt, n], and their percentiles among the means of controls, float[control, n]."""
        means = intervals.intervals(values, axis=0, level=LEVEL, seed=self.config.seed)
        return list(zip(means, intervals.percentile_among(values.mean(0), controls.T).tolist(), strict=True))

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """One row for each state and measure, layer by layer; the last state has no layer that reads it."""
        data, count = self.data, len(self.others)
        measured = {
            name: self.ranked(data[key].values[..., 0], np.nanmean(data[key].values[..., self.others], axis=0).T)
            for name, key in ((BEFORE, "before"), (AFTER, "after"))
        }
        measured[ALIGNED] = self.ranked(
            data["alignment"].mean("head").values, data["key_alignment"].mean("head").values[:, self.others].T
        )
        positive = 100 * data["positive"].mean("head").values
        measured[POSITIVE] = self.ranked(positive[..., 0], np.nanmean(positive[..., self.others], axis=0).T)
        rows = [
            Row(state(place, data.sizes["layer"]), GROUP, name, mean, NOT_COMPARED, rank, count)
            for name, column in measured.items()
            for place, (mean, rank) in enumerate(column)
        ]
        places = self.row_cosine.mean(axis=1)
        among = self.data["row_cosine"].mean("kv_head").values
        rows += [
            Row(
                state(place, len(places)),
                GROUP,
                ROW,
                Interval(float(value), None, None, 1, 0, LEVEL, "none"),
                NOT_COMPARED,
                float(intervals.percentile_among(value, np.delete(among[place], self.dims[place]))),
                among.shape[1] - 1,
            )
            for place, value in enumerate(places)
        ]
        return tuple(rows)

    def values(self, name: str) -> list[Interval]:
        """The means of "before", "after", "aligned" or "row", in the order of the layers."""
        measure = {"before": BEFORE, "after": AFTER, "aligned": ALIGNED, "row": ROW}[name]
        return [row.value for row in self.column(measure)]

    def column(self, measure: str) -> list[Row]:
        """The rows of a measure, in the order of the layers."""
        return [row for row in self.rows if row.measure == measure]


def state(depth: int, layers: int) -> str:
    """What a depth is called: by the layer that reads it."""
    return f"layer {depth}" if depth < layers else "final norm"


def section(config: Dominance, stores: Mapping[str, xarray.Dataset]) -> Section:
    """The summary over prompts, the figures, and what they say in words."""
    found = Found(config, stores["dominance"].load())
    L = found.data.sizes["layer"]
    peak = _peak(found.column(AFTER))
    featured = dict.fromkeys(state(depth, L) for depth in sorted({0, 1, 2, L // 3, peak, 2 * L // 3, L - 1, L}) if depth <= L)
    return Section(
        experiment="li/dominance",
        title="The dominant dim of the first token, and the lock-in on its key",
        claim=CLAIM,
        findings=_findings(found),
        rows=found.rows,
        featured=tuple(featured),
        drawings=drawings(found),
        notes=_notes(found),
        provenance=results.provenance(found.data),
        claims=_claims(found),
    )


def _peak(rows: list[Row]) -> int:
    """Where a measure is largest."""
    return max(range(len(rows)), key=lambda place: rows[place].value.mean or 0)


def _claims(found: Found) -> tuple[Claim, ...]:
    config, data = found.config, found.data
    shallow = data.sizes["layer"] // 3 + 1
    before, after, aligned = (found.column(name) for name in (BEFORE, AFTER, ALIGNED))
    first, anywhere = _peak(before[:shallow]), _peak(before)
    top, mean = (interval(intervals.interval(data[name].values[:, first], seed=config.seed)) for name in ("top", "mean"))
    width = data.sizes["dim"]
    heads, share = data["alignment"].mean("prompt").values, 100 * data["positive"].isel(key=0).mean("prompt").values
    chosen = heads >= config.aligned
    ruled = data["held"].mean("prompt").values[:-1] >= HELD / 100
    strongest, sinking = _peak(aligned), data["received"].mean("prompt").values > config.eps
    judged = sinking if sinking.any() else np.ones_like(sinking)
    return (
        Claim(
            f"The dominance ratio of the first token's hidden state exceeds {config.ratio:g} in shallow layers.",
            verdict((before[first].value.low or 0) > config.ratio),
            f"The largest in the first third is {interval(before[first].value)}, before layer {first} (of at most {width}, the"
            f" width); anywhere, {interval(before[anywhere].value)}, before the norm at {state(anywhere, data.sizes['layer'])}."
            f" Rule: the first one's interval lies above {config.ratio:g}.",
            "above 200 in shallow layers of Llama-2-7B (width 4096)",
        ),
        Claim(
            "RMSNorm keeps the dominance of the first token.",
            verdict((after[first].value.low or 0) > (before[first].value.mean or 0) / 2 and after[first].percentile == 100),
            f"Where the ratio is largest in the first third, before layer {first}, it is {interval(before[first].value)} before"
            f" the norm and {interval(after[first].value)} after it: dim {found.dims[first]} has {top}, the mean is {mean}. Where"
            f" it is largest of all, {interval(before[anywhere].value)} and {interval(after[anywhere].value)}. Rule: in the first"
            f" third, an interval above half of the ratio before, and above {len(found.others)} other positions (percentile"
            f" {number(after[first].percentile or 0)}).",
            "262.88 after the norm of the second layer of Llama-2-7B: |x| of dim 2533 is 1.2568, the mean 0.0048",
        ),
        _judged(
            bool(ruled.any()),
            "Then the key of the first token is, but for its length and sign, the dominant dim's row of W_K.",
            lambda: float(np.median(found.row_cosine[ruled])) >= SAME,
            lambda: (
                f"Median |cosine| {number(float(np.median(found.row_cosine[ruled])))} over the key heads of the {ruled.sum()}"
                f" layers in which one dim holds at least {HELD} % of the squared norm. Rule: at least {SAME}."
            ),
            f"In no layer does one dim hold {HELD} % of the squared norm.",
        ),
        Claim(
            "The queries' first singular direction points along the first token's key (lock-in).",
            verdict(2 * int((chosen & judged).sum()) > int(judged.sum()) and aligned[strongest].percentile == 100),
            f"{(chosen & sinking).sum()} of the {sinking.sum()} heads that sink on key 0 have a cosine of {config.aligned:g} or"
            f" more, and {chosen.sum()} of all {chosen.size}. cos(u_1, k_0) is largest in layer {strongest}:"
            f" {interval(aligned[strongest].value)} on average over heads, percentile"
            f" {number(aligned[strongest].percentile or 0)} among {len(found.others)} other keys. Rule: more than half of the"
            " heads that sink (of all heads, if none does), and in that layer more than every other key.",
        ),
        _judged(
            bool(chosen.any()),
            "In well-aligned heads, nearly all queries have a positive score with key 0.",
            lambda: float(share[chosen].mean()) >= NEARLY_ALL,
            lambda: (
                f"{number(float(share[chosen].mean()))} % of queries in the {chosen.sum()} heads with a cosine of at least"
                f" {config.aligned:g}, {number(float(share.mean()))} % in all heads. Rule: at least {NEARLY_ALL} %."
            ),
            f"No head has a cosine of {config.aligned:g}.",
            "nearly 100 %",
        ),
    )


def _judged(applies: bool, statement: str, test: Any, words: Any, otherwise: str, paper: str = "") -> Claim:
    """A claim that needs something the model may not have."""
    return Claim(statement, verdict(test()), words(), paper) if applies else Claim(statement, "not applicable", otherwise, paper)


def _findings(found: Found) -> tuple[str, ...]:
    data = found.data
    before, after, aligned, positive = (found.column(name) for name in (BEFORE, AFTER, ALIGNED, POSITIVE))
    first, second, third = _peak(before), _peak(after), _peak(aligned)
    L = data.sizes["layer"]
    other = np.nanmean(data["before"].values[..., found.others], axis=0)
    heads, received = data["alignment"].mean("prompt").values.ravel(), data["received"].mean("prompt").values.ravel()
    sinks = received > found.config.eps
    rank = _ranks(heads, received)
    return (
        f"The dominance ratio of the first token is largest before the norm at {state(first, L)},"
        f" {interval(before[first].value)}, and after it at {state(second, L)}, {interval(after[second].value)} (of at most"
        f" {data.sizes['dim']}, the width); at {len(found.others)} other positions it is {number(float(other.min()))} to"
        f" {number(float(other.max()))}, at any depth.",
        f"The dim that dominates what layers read is {_runs(found.dims[:-1])}.",
        f"cos(u_1, k_0) is largest in layer {third}: {interval(aligned[third].value)} on average over heads; there,"
        f" {interval(positive[third].value)} % of queries have a positive score with key 0.",
        f"{_sinks(heads, sinks)} The rank correlation of cosine and attention to key 0 over all {heads.size} heads is"
        f" {number(rank)} (Spearman).",
        f"The key of the first token and the dominant dim's row of W_K have a median |cosine| of"
        f" {number(float(np.median(found.row_cosine)))} over all layers and key heads, and of at most"
        f" {number(float(found.row_cosine.max()))}.",
    )


def _sinks(cosines: NDArray, sinks: NDArray) -> str:
    """The alignment of heads that sink and of those that do not, in words."""
    if sinks.all() or not sinks.any():
        return f"{'Every' if sinks.all() else 'No'} head sinks on key 0; the mean cosine is {number(float(cosines.mean()))}."
    means = (number(float(cosines[chosen].mean())) for chosen in (sinks, ~sinks))
    return "The mean cosine is {} in heads that sink on key 0, and {} in the others.".format(*means)


def _ranks(x: NDArray, y: NDArray) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(x, y).statistic)


def _runs(dims: NDArray) -> str:
    """Dims by the layers that they rule, in words: "507 in 3 layers, 20 in 1"."""
    values, counts = np.unique(dims, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return ", ".join(f"{values[place]} in {counts[place]} layer{'s' * int(counts[place] > 1)}" for place in order[:4])


def _notes(found: Found) -> tuple[str, ...]:
    return (
        f"Means over {found.data.sizes['prompt']} prompts with bootstrap 95 % intervals over prompts (BCa, 2,000 resamples). The"
        " dominance ratio is max |x_j| over mean |x_j|; after the norm its gain is in.",
        f"Percentiles are among {len(found.others)} other positions of the first half of a prompt, drawn at random: their"
        " dominance, the alignment of their keys and their positive shares. That of a row of W_K is among all other dims."
        " Nothing is edited, so the identity edit is the run itself.",
        "u_1 is the first right singular vector of a head's rotated queries, those of position 0 left out, all prompts stacked"
        " and not centred, with the sign that makes the mean query positive along it. Shares count the queries after the key.",
        "Two statements were made not applicable where what they start from is missing, after a first look at SmolLM2 and random"
        " weights. On reading the rules again, shallow became the first third of layers instead of the first half, the norm is"
        " judged where the ratio before it is largest, and alignment is asked of heads that sink instead of one layer.",
    )
