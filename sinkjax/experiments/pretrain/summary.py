"""From the evaluations of runs to the rows of a table: means over seeds beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.base import Claim
from sinkjax.experiments.pretrain.config import MEASURES, Ablation, Form, Statement
from sinkjax.experiments.summary import LEVEL, NOT_COMPARED, Row
from sinkjax.experiments.words import verdict
from sinkjax.model.normalisers import NAMED
from sinkjax.report.table import interval as words
from sinkjax.report.table import number
from sinkjax.train.config import ALL_STEPS

ROWS, RUNS = "rows", "runs"  # groups of the summary
SEEDS, NOT_RUN, PAPER = "seeds", "not run", "paper"
COMPARED = ("sink", "loss")  # measures whose difference from the first row is told

Stores = Mapping[str, Any]


def by_shares(data: Any) -> bool:
    """Whether the sinks of a training are told by shares of each row's weight, as in Gu et al. 2025, and not by the weights."""
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


def mean(stores: Stores, config: Ablation, form: Form, measure: str) -> Interval:
    """A measure of a row, mean over its finished runs."""
    found = values(stores, form.name, measure, config.forms[0].name)
    return intervals.interval(found, level=LEVEL, seed=config.seed)


def steps_in_words(stores: Stores, config: Ablation, form: Form) -> Interval:
    """The mean of "steps_to", or, if not every run came so low, how many did and their mean."""
    each = values(stores, form.name, "steps_to", config.forms[0].name)
    known, reached = each[~np.isnan(each)], each[np.isfinite(each)]
    if len(reached) == len(known):
        return mean(stores, config, form, "steps_to")
    return alone(f"{number(reached.mean())} in {len(reached)} of {len(known)}, else never" if len(reached) else "never")


def difference(stores: Stores, config: Ablation, more: str, less: str, measure: str) -> Interval:
    """How much larger a measure is in one row than in another, over the seeds that finished in both."""
    first = config.forms[0].name
    pairs = [dict(zip(stores[name]["run"].values, values(stores, name, measure, first), strict=True)) for name in (more, less)]
    seeds = [seed for seed in pairs[0] if seed in pairs[1]]
    ours, others = (np.array([pair[seed] for seed in seeds], float) for pair in pairs)
    return intervals.paired_differences(ours[None], others, level=LEVEL, seed=config.seed)[0]


def alone(value: float | str | None) -> Interval:
    """A number that stands for itself, or words in its place."""
    if isinstance(value, str):
        return Interval(None, None, None, 0, 0, LEVEL, "none", value)
    return intervals.interval(np.array([np.nan if value is None else value]))


def finished(stores: Stores, form: Form) -> tuple[int, int]:
    """Runs of a row that made all their steps, and all of them; 0 of 0 of a row that is not run."""
    if form.name not in stores:
        return 0, 0
    outcome = stores[form.name]["outcome"].values
    return int((outcome == ALL_STEPS).sum()), len(outcome)


def rows(config: Ablation, stores: Stores) -> list[Row]:
    """For each row: how many seeds it rests on, and its measures beside the paper's; then every finished run by its seed."""
    table, runs = [], []
    first = config.forms[0]
    for form in config.forms:
        done, of = finished(stores, form)
        seeds = f"{done} of {of}" if of else NOT_RUN if form in config.here else f"not at size {config.size}"
        table.append(Row(form.title, ROWS, SEEDS, alone(seeds)))
        for measure in config.shown:
            if done:
                effect = NOT_COMPARED
                if measure in COMPARED and form != first and first.name in stores:
                    effect = difference(stores, config, form.name, first.name, measure)
                shown = steps_in_words(stores, config, form) if measure == "steps_to" else mean(stores, config, form, measure)
                table.append(Row(form.title, ROWS, MEASURES[measure], shown, effect))
            else:
                table.append(Row(form.title, ROWS, MEASURES[measure], alone("-")))
            if any(measure in other.paper for other in config.forms):
                said = form.paper.get(measure, "-")
                table.append(Row(form.title, ROWS, f"{MEASURES[measure]}, {PAPER}", alone(str(said))))
        if form.name in stores:
            for measure in MEASURES:
                each = values(stores, form.name, measure, first.name)
                seeds_of = stores[form.name]["run"].values
                runs += [
                    Row(f"{form.title}, seed {seed}", RUNS, MEASURES[measure], alone("never" if np.isinf(value) else value))
                    for seed, value in zip(seeds_of, each, strict=True)
                    if not np.isnan(value)
                ]
    return table + runs


def claims(config: Ablation, stores: Stores) -> tuple[Claim, ...]:
    """What the paper says of two rows, with its verdict here."""
    return tuple(claim(config, stores, statement) for statement in config.statements)


def claim(config: Ablation, stores: Stores, said: Statement) -> Claim:
    """Confirmed where the interval of the difference lies above 0, which takes two seeds at least."""
    titles = {form.name: form.title for form in config.forms}
    sides = [f'"{titles[side]}"' if isinstance(side, str) else f"{side:g}" for side in (said.more, said.less)]
    missing = [titles[side] for side in (said.more, said.less) if isinstance(side, str) and side not in stores]
    if missing:
        return Claim(said.statement, "not applicable", f"not run: {'; '.join(missing)}", said.paper)
    if isinstance(said.more, str) and isinstance(said.less, str):
        found = difference(stores, config, said.more, said.less, said.measure)
    else:
        name = said.more if isinstance(said.more, str) else str(said.less)
        each = values(stores, name, said.measure, config.forms[0].name)
        found = intervals.interval(each - said.less if name == said.more else said.more - each, level=LEVEL, seed=config.seed)
    if found.n < 2 or found.mean is None:
        return Claim(said.statement, "not applicable", f"{found.n} finished seeds; two at least are needed", said.paper)
    low = found.mean if found.low is None else found.low
    evidence = (
        f"{MEASURES[said.measure]}, {sides[0]} less {sides[1]}: {words(found, signed=True)}, {found.n} seeds. Rule: the interval"
        " lies above 0."
    )
    return Claim(said.statement, verdict(low > 0), evidence, said.paper)


def unfinished(config: Ablation, stores: Stores) -> tuple[str, ...]:
    """A sentence for each row of which not all runs made all steps: where they are, or at which step they diverged."""
    said = []
    for form in config.here:
        if form.name not in stores:
            continue
        data = stores[form.name]
        where: dict[str, list[str]] = {}
        for seed, outcome, steps in zip(data["run"].values, data["outcome"].values, data["steps"].values, strict=True):
            if outcome != ALL_STEPS:
                where.setdefault(f"{outcome} at step {int(steps):,}", []).append(str(seed))
        if where:
            others = "; ".join(f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)} {state}" for state, seeds in where.items())
            said.append(f"{form.title}: {others}. Its means leave {'them' if len(data['run']) > 1 else 'it'} out.")
    return tuple(said)


def rank_correlation(config: Ablation, stores: Stores, measure: str) -> str:
    """How alike the order of the rows is here and in the paper, in words; "" for fewer than four rows."""
    from scipy.stats import spearmanr

    pairs = []
    for form in config.here:
        paper = form.paper.get(measure)
        if form.name in stores and isinstance(paper, int | float):
            here = mean(stores, config, form, measure).mean
            if here is not None:
                pairs.append((here, float(paper)))
    if len(pairs) < 4 or any(len({pair[side] for pair in pairs}) < 2 for side in (0, 1)):
        return ""
    rho = spearmanr(*zip(*pairs, strict=True)).statistic
    return (
        f"The order of the rows in {MEASURES[measure]}: rank correlation {number(rho)} with the paper's, over {len(pairs)} rows."
    )
