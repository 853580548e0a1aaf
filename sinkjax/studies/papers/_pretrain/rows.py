"""From the evaluations of runs to the rows of a table: means over seeds beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.rules import Claim, Estimate, Quantity, Rule, above, all_of, in_digits, quantity
from sinkjax.analysis.summary import LEVEL, NOT_COMPARED, Row
from sinkjax.studies.papers._pretrain.config import MEASURES, Ablation, RowSpec, Statement
from sinkjax.train.config import ALL_STEPS

ROWS, RUNS = "rows", "runs"  # groups of the summary
SEEDS, NOT_RUN, PAPER = "seeds", "not run", "paper"
COMPARED = ("sink", "loss")  # measures whose difference from the first row is told

Stores = Mapping[str, Any]


def by_shares(data: Any) -> bool:
    """Whether the sinks of a training are told by shares of each row's weight, as in Gu et al. 2025, and not by the weights."""
    from sinkjax.model.normalisers import NAMED  # imports JAX

    return not NAMED[data.attrs["training"]["config"]["normaliser"]].rows_sum_to_1


def sinks(data: Any) -> NDArray:
    """Sink_k of the first positions in per cent, by weights or by shares: float[run, point, key]."""
    return 100 * data["sink_share" if by_shares(data) else "sink"].values


def end(data: Any, values: NDArray) -> NDArray:
    """Of [run, point, ...] what each run ended with, NaN for one that did not make all its steps: float[run, ...]."""
    last = np.isfinite(data["step"].values).sum(axis=1) - 1
    found = np.array(values[np.arange(len(last)), last], float)
    found[data["outcome"].values != ALL_STEPS] = np.nan
    return found


def _key(place: int) -> Callable[[Any], NDArray]:
    return lambda data: end(data, sinks(data))[:, place] if data.sizes["key"] > place else np.full(data.sizes["run"], np.nan)


def _over(name: str, reduce: Callable[..., NDArray]) -> Callable[[Any], NDArray]:
    def of(data: Any) -> NDArray:
        if name not in data:  # its log was written before this was measured
            return np.full(data.sizes["run"], np.nan)
        values = end(data, data[name].values)
        return reduce(values, axis=tuple(range(1, values.ndim)))

    return of


# measure -> float[run] of a training; NaN for a run that diverged or goes on
OF: dict[str, Callable[[Any], NDArray]] = {
    "sink": _key(0),
    "sink_2": _key(1),
    "sink_3": _key(2),
    "sink_4": _key(3),
    "sink_5": _key(4),
    "sink_bias": lambda data: 100 * _over("sink_bias_share" if by_shares(data) else "sink_bias", np.mean)(data),
    "loss": lambda data: end(data, data["loss"].values),
    "train_loss": lambda data: end(data, data["train_loss"].values),
    "gradient_norm": lambda data: end(data, data["gradient_norm"].values),
    "perplexity": lambda data: np.exp(end(data, data["loss"].values)),
    "strongest": lambda data: end(data, data["share" if by_shares(data) else "received"].values).max(axis=(1, 2)),
    "first_share": lambda data: _over("share" if by_shares(data) else "received", np.mean)(data),
    "column_sum": _over("received", np.mean),
    "norm_ratio": _over("norm_ratio", np.max),
    "value_ratio": _over("value_ratio", np.min),
    "largest": _over("largest", np.mean),
    "effective_rank": _over("effective_rank", np.mean),
    "disparity": _over("disparity", np.mean),
}


def values(stores: Stores, name: str, measure: str, first: str) -> NDArray:
    """A measure of each run of a row: float[run]. first: the row that steps_to compares with."""
    data = stores[name]
    return steps_to(data, stores[first]) if measure == "steps_to" and first in stores else _values(data, measure)


def _values(data: Any, measure: str) -> NDArray:
    return np.full(data.sizes["run"], np.nan) if measure == "steps_to" else np.asarray(OF[measure](data), float)


def steps_to(data: Any, base: Any) -> NDArray:
    """Steps after which each run's held-out loss is that with which the run of the same seed in `base` ended: float[run].

    Between two evaluations the loss is a straight line. inf: never so low; NaN: the one or the other is not finished.
    """
    goals = dict(zip(base["run"].values, OF["loss"](base), strict=True))
    found = []
    for seed, steps, losses, ended in zip(
        data["run"].values, data["step"].values, data["loss"].values, OF["loss"](data), strict=True
    ):
        goal = goals.get(seed, np.nan)
        if not (np.isfinite(goal) and np.isfinite(ended)):
            found.append(np.nan)
            continue
        known = np.isfinite(losses)
        steps, losses = steps[known], losses[known]
        below = np.flatnonzero(losses <= goal)
        if not len(below):
            found.append(np.inf)
            continue
        at = below[0]
        found.append(float(steps[0]) if at == 0 else float(np.interp(-goal, -losses[at - 1 : at + 1], steps[at - 1 : at + 1])))
    return np.array(found)


def mean(stores: Stores, config: Ablation, spec: RowSpec, measure: str) -> Interval:
    """A measure of a row, mean over its finished runs."""
    found = values(stores, spec.name, measure, config.row_specs[0].name)
    return intervals.interval(found, level=LEVEL, seed=config.seed)


def steps_in_words(stores: Stores, config: Ablation, spec: RowSpec) -> Interval:
    """The mean of "steps_to", or, if not every run came so low, how many did and their mean."""
    each = values(stores, spec.name, "steps_to", config.row_specs[0].name)
    known, reached = each[~np.isnan(each)], each[np.isfinite(each)]
    if len(reached) == len(known):
        return mean(stores, config, spec, "steps_to")
    return alone(f"{in_digits(reached.mean())} in {len(reached)} of {len(known)}, else never" if len(reached) else "never")


def difference(stores: Stores, config: Ablation, more: str, less: str, measure: str) -> Interval:
    """How much larger a measure is in one row than in another, over the seeds that finished in both."""
    first = config.row_specs[0].name
    pairs = [dict(zip(stores[name]["run"].values, values(stores, name, measure, first), strict=True)) for name in (more, less)]
    seeds = [seed for seed in pairs[0] if seed in pairs[1]]
    ours, others = (np.array([pair[seed] for seed in seeds], float) for pair in pairs)
    return intervals.paired_differences(ours[None], others, level=LEVEL, seed=config.seed)[0]


def alone(value: float | str | None) -> Interval:
    """A number that stands for itself, or words in its place."""
    if isinstance(value, str):
        return Interval(None, None, None, 0, 0, LEVEL, "none", value)
    return intervals.interval(np.array([np.nan if value is None else value]))


def finished(stores: Stores, spec: RowSpec) -> tuple[int, int]:
    """Runs of a row that made all their steps, and all of them; 0 of 0 of a row that is not run."""
    if spec.name not in stores:
        return 0, 0
    outcome = stores[spec.name]["outcome"].values
    return int((outcome == ALL_STEPS).sum()), len(outcome)


def rows(config: Ablation, stores: Stores) -> list[Row]:
    """For each row: how many seeds it rests on, and its measures beside the paper's; then every finished run by its seed."""
    table, runs = [], []
    first = config.row_specs[0]
    for spec in config.row_specs:
        done, of = finished(stores, spec)
        seeds = f"{done} of {of}" if of else NOT_RUN if spec in config.here else f"not at size {config.size}"
        table.append(Row(spec.title, ROWS, SEEDS, alone(seeds)))
        for measure in config.shown:
            if done:
                effect = NOT_COMPARED
                if measure in COMPARED and spec != first and first.name in stores:
                    effect = difference(stores, config, spec.name, first.name, measure)
                shown = steps_in_words(stores, config, spec) if measure == "steps_to" else mean(stores, config, spec, measure)
                table.append(Row(spec.title, ROWS, MEASURES[measure], shown, effect))
            else:
                table.append(Row(spec.title, ROWS, MEASURES[measure], alone("-")))
            if any(measure in other.paper for other in config.row_specs):
                said = spec.paper.get(measure, "-")
                table.append(Row(spec.title, ROWS, f"{MEASURES[measure]}, {PAPER}", alone(str(said))))
        if spec.name in stores:
            for measure in MEASURES:
                each = values(stores, spec.name, measure, first.name)
                seeds_of = stores[spec.name]["run"].values
                runs += [
                    Row(f"{spec.title}, seed {seed}", RUNS, MEASURES[measure], alone("never" if np.isinf(value) else value))
                    for seed, value in zip(seeds_of, each, strict=True)
                    if not np.isnan(value)
                ]
    return table + runs


def claims(config: Ablation) -> Iterator[Claim]:
    """What the paper says of two rows: that a measure is larger in one of them, by the interval of the difference over seeds."""
    for said in config.statements:
        sides = [side for side in (said.more, said.less) if isinstance(side, str)]
        premise = all_of(trained(config, sides), two_seeds(config, said))
        yield Claim(said.statement, above(gap(config, said)), given=premise, paper=said.paper)


def gap(config: Ablation, said: Statement) -> Quantity:
    """How much larger a measure is in one row than in another, or than a number."""
    titles = {spec.name: spec.title for spec in config.row_specs}
    more, less = (f'"{titles[side]}"' if isinstance(side, str) else f"{side:g}" for side in (said.more, said.less))

    def of(results: Any) -> Interval:
        stores = results.trained
        if any(isinstance(side, str) and side not in stores for side in (said.more, said.less)):
            return alone(NOT_RUN)
        if isinstance(said.more, str) and isinstance(said.less, str):
            return difference(stores, config, said.more, said.less, said.measure)
        name = said.more if isinstance(said.more, str) else str(said.less)
        each = values(stores, name, said.measure, config.row_specs[0].name)
        return intervals.interval(each - said.less if name == said.more else said.more - each, level=LEVEL, seed=config.seed)

    return quantity(f"{MEASURES[said.measure]}, {more} less {less}", of, signed=True)


def trained(config: Ablation, names: Sequence[str]) -> Rule:
    """The rows that a claim compares are trained."""
    titles = {spec.name: spec.title for spec in config.row_specs}

    def test(results: Any) -> tuple[bool, tuple[Estimate, ...]]:
        return all(name in results for name in names), ()

    return Rule(f"there are trained runs of {' and '.join(titles[name] for name in names)}", test)


def two_seeds(config: Ablation, said: Statement) -> Rule:
    """A difference over seeds takes two finished seeds at least."""

    def test(results: Any) -> tuple[bool, tuple[Estimate, ...]]:
        found = gap(config, said)(results).value
        return found.n >= 2 and found.mean is not None, ()

    return Rule("at least two seeds are finished", test)


def unfinished(config: Ablation, stores: Stores) -> tuple[str, ...]:
    """A sentence for each row of which not all runs made all steps: where they are, or at which step they diverged."""
    said = []
    for spec in config.here:
        if spec.name not in stores:
            continue
        data = stores[spec.name]
        where: dict[str, list[str]] = {}
        for seed, outcome, steps in zip(data["run"].values, data["outcome"].values, data["steps"].values, strict=True):
            if outcome != ALL_STEPS:
                where.setdefault(f"{outcome} at step {int(steps):,}", []).append(str(seed))
        if where:
            others = "; ".join(f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)} {state}" for state, seeds in where.items())
            said.append(f"{spec.title}: {others}. Its means leave {'them' if len(data['run']) > 1 else 'it'} out.")
    return tuple(said)


def rank_correlation(config: Ablation, measure: str) -> Quantity:
    """How alike the order of the rows is here and in the paper; undefined for fewer than four rows."""

    def of(results: Any) -> float:
        from scipy.stats import spearmanr

        pairs = []
        for spec in config.here:
            paper = spec.paper.get(measure)
            if spec.name in results and isinstance(paper, int | float):
                here = mean(results.trained, config, spec, measure).mean
                if here is not None:
                    pairs.append((here, float(paper)))
        if len(pairs) < 4 or any(len({pair[side] for pair in pairs}) < 2 for side in (0, 1)):
            return float("nan")
        return float(spearmanr(*zip(*pairs, strict=True)).statistic)

    return quantity(f"rank correlation of the rows' {MEASURES[measure]} with the paper's", of)
