"""From the evaluations of runs to the rows of a table: means over seeds beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax.studies as st
from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import in_digits
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.summary import LEVEL, NOT_COMPARED
from sinkjax.studies.papers._pretrain.config import MEASURES, SINK, Ablation, RowSpec
from sinkjax.train.config import ALL_STEPS

ROWS, RUNS = "rows", "runs"  # groups of the summary
SEEDS, NOT_RUN, PAPER = "seeds", "not run", "paper"
COMPARED = ("sink", "loss")  # measures whose difference from the first row is reported


def by_shares(data: Any) -> bool:
    """Whether the sinks of a training are computed from shares of each row's weight, as in Gu et al. 2025, not from weights."""
    from sinkjax.model.normalisers import NAMED  # imports JAX

    return not NAMED[data.attrs["training"]["config"]["normaliser"]].rows_sum_to_1


def sinks(data: Any) -> NDArray:
    """Sink_k of the first positions in per cent, by weights or by shares: float[run, point, key]."""
    return np.asarray(100 * data["sink_share" if by_shares(data) else "sink"].values)


def end(data: Any, values: NDArray) -> NDArray:
    """The last entry of each run, of [run, point, ...]; NaN for a run that did not make all its steps: float[run, ...]."""
    last = np.isfinite(data["step"].values).sum(axis=1) - 1
    found = np.array(values[np.arange(len(last)), last], float)
    found[data["outcome"].values != ALL_STEPS] = np.nan
    return found


def _key(place: int) -> Callable[[Any], NDArray]:
    return lambda data: end(data, sinks(data))[:, place] if data.sizes["key"] > place else np.full(data.sizes["run"], np.nan)


def _last(name: str, reduce: Callable[..., NDArray] = np.mean, shares: str = "") -> Callable[[Any], NDArray]:
    """A variable at each run's end, reduced over all other axes. shares: the variable to take where sinks are by shares."""

    def of(data: Any) -> NDArray:
        chosen = shares if shares and by_shares(data) else name
        if chosen not in data:  # its log was written before this was measured
            return np.full(data.sizes["run"], np.nan)
        values = end(data, data[chosen].values)
        return reduce(values, axis=tuple(range(1, values.ndim)))

    return of


# measure -> float[run] of a training; NaN for a run that diverged or is not finished
OF: dict[str, Callable[[Any], NDArray]] = {
    "sink": _key(0),
    **{f"sink_{place + 1}": _key(place) for place in range(1, 5)},
    "sink_bias": lambda data: 100 * _last("sink_bias", shares="sink_bias_share")(data),
    "perplexity": lambda data: np.exp(OF["loss"](data)),
    "strongest": _last("received", np.max, "share"),
    "first_share": _last("received", np.mean, "share"),
    "column_sum": _last("received"),
    "norm_ratio": _last("norm_ratio", np.max),
    "value_ratio": _last("value_ratio", np.min),
    **{
        name: _last(name) for name in ("loss", "train_loss", "gradient_norm", "largest", "effective_rank", "disparity", "written")
    },
}


def values(results: st.Results, name: str, measure: str) -> NDArray:
    """A measure of each run of a row: float[run]."""
    data, first = results[name], results.config.row_specs[0].name
    if measure != "steps_to":
        return np.asarray(OF[measure](data), float)
    return steps_to(data, results[first]) if first in results else np.full(data.sizes["run"], np.nan)


def steps_to(data: Any, base: Any) -> NDArray:
    """Steps after which each run reaches the final held-out loss of the run of the same seed in `base`: float[run].

    The loss is interpolated linearly between evaluations. inf: never that low; NaN: one of the two runs is not finished.
    """
    goals = dict(zip(base["run"].values, OF["loss"](base), strict=True))
    found = []
    for seed, steps, losses, ended in zip(
        data["run"].values, data["step"].values, data["loss"].values, OF["loss"](data), strict=True
    ):
        goal = goals.get(seed, np.nan)
        both = np.isfinite(goal) and np.isfinite(ended)
        found.append(_reached(goal, steps, losses) if both else np.nan)
    return np.array(found)


def _reached(goal: float, steps: NDArray, losses: NDArray) -> float:
    known = np.isfinite(losses)
    steps, losses = steps[known], losses[known]
    below = np.flatnonzero(losses <= goal)
    if not len(below):
        return np.inf
    around = slice(max(below[0] - 1, 0), below[0] + 1)
    return float(np.interp(-goal, -losses[around], steps[around]))


def mean(results: st.Results, spec: RowSpec, measure: str) -> Interval:
    """A measure of a row, mean over its finished runs."""
    return results.interval(values(results, spec.name, measure))


def steps_in_words(results: st.Results, spec: RowSpec) -> Interval:
    """The mean of "steps_to" or, if not every run reached the loss, how many did and their mean."""
    each = values(results, spec.name, "steps_to")
    known, reached = each[~np.isnan(each)], each[np.isfinite(each)]
    if len(reached) == len(known):
        return results.interval(each)
    return alone(f"{in_digits(reached.mean())} in {len(reached)} of {len(known)}, else never" if len(reached) else "never")


def difference(results: st.Results, more: str | float, less: str | float, measure: str, part: float = 1.0) -> Interval:
    """How much larger a measure is in one row than in another (or than a number), over the seeds that finished in both.

    part: of the first row's measure that is taken.
    """
    columns = {
        side: dict(zip(results[side]["run"].values, values(results, side, measure), strict=True))
        for side in (more, less)
        if isinstance(side, str)
    }
    first, *others = columns.values()
    seeds = [seed for seed in first if all(seed in other for other in others)]
    one, two = (
        np.array([columns[side][seed] if isinstance(side, str) else side for seed in seeds], float) for side in (more, less)
    )
    return intervals.paired_differences(part * one[None], two, seed=results.config.seed)[0]


def alone(value: float | str | None) -> Interval:
    """A number without an interval, or words in its place."""
    if isinstance(value, str):
        return Interval(None, None, None, 0, 0, LEVEL, "none", value)
    return intervals.interval(np.array([np.nan if value is None else value]))


def finished(results: st.Results, spec: RowSpec) -> tuple[int, int]:
    """How many runs of a row made all their steps, and how many are planned; 0 of 0 if the row was not run."""
    if spec.name not in results:
        return 0, 0
    outcome = results[spec.name]["outcome"].values
    return int((outcome == ALL_STEPS).sum()), max(len(outcome), results.config.seeds)


def rows(results: st.Results) -> list[st.Row]:
    """For each row: its number of seeds, and its measures beside the paper's; then every finished run by its seed."""
    config, table, runs = results.config, [], []
    first = config.row_specs[0]
    for spec in config.row_specs:
        done, of = finished(results, spec)
        seeds = f"{done} of {of}" if of else NOT_RUN if spec in config.here else f"not at size {config.size}"
        table.append(st.Row(spec.title, ROWS, SEEDS, alone(seeds)))
        for measure in config.shown:
            shown, effect = alone("-"), NOT_COMPARED
            if done:
                shown = steps_in_words(results, spec) if measure == "steps_to" else mean(results, spec, measure)
                if measure in COMPARED and spec != first and first.name in results:
                    effect = difference(results, spec.name, first.name, measure)
            table.append(st.Row(spec.title, ROWS, MEASURES[measure], shown, effect))
            if any(measure in other.paper for other in config.row_specs):
                said = alone(str(spec.paper.get(measure, "-")))
                table.append(st.Row(spec.title, ROWS, f"{MEASURES[measure]}, {PAPER}", said))
        if spec.name in results:
            for measure in MEASURES:
                each = zip(results[spec.name]["run"].values, values(results, spec.name, measure), strict=True)
                runs += [
                    st.Row(f"{spec.title}, seed {seed}", RUNS, MEASURES[measure], alone("never" if np.isinf(value) else value))
                    for seed, value in each
                    if not np.isnan(value)
                ]
    return table + runs


def claims(config: Ablation) -> Iterator[st.Claim]:
    """What the paper says of two rows, by their difference over seeds."""
    titles = {spec.name: spec.title for spec in config.row_specs}

    def gap(more: str | float, less: str | float, measure: str, part: float = 1.0) -> st.Quantity:
        one, two = (f'"{titles[side]}"' if isinstance(side, str) else f"{side:g}" for side in (more, less))
        taken = "" if part == 1 else f"{part:g} times "
        return _gap(more, less, measure, f"{MEASURES[measure]}, {taken}{one} less {two}", part)

    for said in config.statements:
        found = gap(said.more, said.less, said.measure)
        rule = st.above(found) if said.within is None else st.within(found, -said.within, said.within)
        if said.half:
            rule = st.all_of(rule, st.above(gap(said.half, said.less, said.measure, 0.5)))
        given = st.above(gap(said.sinks, SINK, "sink")) if said.sinks else None
        source = ", ".join(filter(None, (config.source, said.source)))
        yield st.Claim(said.statement, rule, given=given, source=source, paper=said.paper)


def _gap(more: str | float, less: str | float, measure: str, name: str, part: float) -> st.Quantity:
    """How much larger a measure is in one row than in another, or than a number, seed by seed. part: as for `difference`."""

    def of(results: st.Results) -> Interval:
        titles = {spec.name: spec.title for spec in results.config.row_specs}
        for row in (more, less):
            if isinstance(row, str) and row not in results:
                raise st.Absent(f"there are no trained runs of {titles[row]}")
        found = difference(results, more, less, measure, part)
        if not found.n:
            raise st.Absent("no seed is finished for which this was measured")
        return found

    return st.quantity(name, of, signed=True)


def unfinished(results: st.Results) -> Iterator[str]:
    """A sentence for each row with runs that are not finished: where they are, or at which step they diverged."""
    for spec in results.config.here:
        if spec.name not in results:
            continue
        data = results[spec.name]
        where: dict[str, list[str]] = {}
        for seed, outcome, steps in zip(data["run"].values, data["outcome"].values, data["steps"].values, strict=True):
            if outcome != ALL_STEPS:
                where.setdefault(f"{outcome} at step {int(steps):,}", []).append(str(seed))
        if where:
            others = "; ".join(f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)} {state}" for state, seeds in where.items())
            yield f"{spec.title}: {others}. Its means leave {'them' if len(data['run']) > 1 else 'it'} out."


def rank_correlation(config: Ablation, measure: str) -> st.Quantity:
    """How similar the order of the rows is here and in the paper; undefined for fewer than four rows."""

    def of(results: st.Results) -> float:
        from scipy.stats import spearmanr

        both = [(mean(results, spec, measure).mean, spec.paper.get(measure)) for spec in config.here if spec.name in results]
        pairs = [(here, float(paper)) for here, paper in both if here is not None and isinstance(paper, int | float)]
        if len(pairs) < 4 or any(len({pair[side] for pair in pairs}) < 2 for side in (0, 1)):
            return float("nan")
        return float(spearmanr(*zip(*pairs, strict=True)).statistic)

    return st.quantity(f"rank correlation of the rows' {MEASURES[measure]} with the paper's", of)
