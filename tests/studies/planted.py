"""Results that hold planted numbers, so that the rules of a study can be judged without running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import xarray

import sinkjax
from sinkjax.analysis.claims import judge
from sinkjax.analysis.intervals import Interval, interval
from sinkjax.analysis.summary import Rank, Row
from sinkjax.studies.registry import find
from sinkjax.studies.results import Results
from sinkjax.studies.specs import SWEEP
from sinkjax.studies.study import Condition, Measure, Study, Sweep

PROMPTS = 8
SPREAD = np.array([-1, -0.7, -0.4, -0.1, 0.1, 0.4, 0.7, 1])
SPREAD = SPREAD / interval(SPREAD).high  # its own interval is -1 to 1


def around(mean: float | None, half: float = 1.0) -> Interval:
    """The interval of eight samples, which reaches `half` to either side of their mean; None: no finite samples."""
    if mean is None:
        return interval(np.full(PROMPTS, np.nan))
    return interval(mean + half * SPREAD)


def row(condition: str, measure: str, value: float, effect: float = 0.0, percentile: float | None = 100.0) -> Row:
    """A row whose intervals reach one to either side, ranked among twenty controls; percentile None: it has none."""
    rank = None if percentile is None else Rank(round(percentile / 5), 0, 20)
    return Row(condition, "planted", measure, around(value), around(effect), rank)


class Planted(Results):
    """Results with planted rows: (condition, measure) -> row; what is not planted has value and effect 0 and no controls.

    stores: as for `Results`.
    """

    def __init__(
        self,
        study: str | Study,
        config: Any = None,
        architecture: Mapping[str, Any] | None = None,
        rows: Mapping[tuple[str, str], Row] | None = None,
        stores: Mapping[str, xarray.Dataset] | None = None,
    ):
        found = find(study) if isinstance(study, str) else study
        config = found.config() if config is None else config
        shape = {"layers": 6, "heads": 4, "kv_heads": 2, "width": 32, "head_dim": 8, **(architecture or {})}
        attributes = {"sweep": {"config": shape}}
        given = {SWEEP: xarray.Dataset(attrs=attributes)} | dict(stores or {})
        super().__init__(found, config, {name: data.assign_attrs(attributes) for name, data in given.items()})
        self.planted = dict(rows or {})

    def row(self, measure: Measure, label: str) -> Row:
        return self.planted.get((label, measure.name), row(label, measure.name, 0.0, percentile=None))

    @property
    def own(self) -> dict[tuple[str, str], Row]:  # type: ignore[override]
        return self.planted

    def per_prompt(self, measure: Measure, label: str, store: str = SWEEP) -> np.ndarray:
        samples = self.row(measure, label).value.samples
        assert samples is not None
        return samples

    def verdicts(self) -> list[str]:
        """The verdicts on the study's claims, in order."""
        return [judge(claim, self).verdict for claim in self.study.claims(self.config, self.architecture)]


def synthetic(
    values: Mapping[str, Any],
    measure: Measure,
    budgets: Mapping[str, Any] | None = None,
    controls: Mapping[str, Any] | None = None,
) -> Results:
    """The results of a sweep of compositions of nothing, whose statistic `size` has the given values for each condition.

    budgets: of conditions and controls by label. controls: their values by label.
    """
    budget = budgets or {}

    def conditions(labels: Mapping[str, Any]) -> Callable[..., list[Condition]]:
        found = [Condition(sinkjax.compose(label=label), "planted", budget=budget.get(label)) for label in labels]
        return lambda config, architecture: found

    def store(values: Mapping[str, Any]) -> xarray.Dataset:
        array = np.array(list(values.values()), float)
        axes = ("edit", "prompt", "place")[: array.ndim]
        return xarray.Dataset({"size": (axes, array)}, {"edit": list(values)}, {"sweep": {"config": {"layers": 1}}})

    random = (Sweep("controls", conditions(controls)),) if controls else ()
    study = Study(
        name="planted",
        config=SimpleNamespace,
        title="",
        question="",
        conditions=conditions(values),
        measures=lambda config: (measure,),
        controls=random,
    )
    stores = {SWEEP: store(values)} | ({"controls": store(controls)} if controls else {})
    return Results(study, SimpleNamespace(seed=0), stores)
