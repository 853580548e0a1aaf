"""The conditions of a study on an architecture, and what jitted code sees of their edits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sinkjax
from sinkjax.study.lab import Lab, Study
from sinkjax.study.parts import controls
from sinkjax.study.work import Condition
from tests.study.edited import assert_same


def budget(point: Condition) -> str:
    """The label of the condition that a control belongs to."""
    return point.label.partition(" of ")[2].partition(": ")[0]


class Conditions:
    """The conditions of a study on an architecture.

    Args:
        study: The study.
        architecture: Of the model.
        values: Numbers that it measures on a model.
        **settings: Of the study.
    """

    def __init__(self, study: Study, architecture: Any, values: Mapping[str, Any] | None = None, **settings: Any):
        self.config = study.settings(**settings)
        self.lab: Lab = study.trace(self.config, architecture, values=dict(values or {}), prompts=self.config.prompts)

    def of(self, sweep: str) -> dict[str, Condition]:
        """The conditions of a sweep by label."""
        return {point.label: point for point in self.lab.sweeps[sweep].conditions()}

    def random(self, sweep: str, label: str | None = None) -> list[Condition]:
        """The controls of a sweep, or of one of its conditions."""
        return [point for point in controls(self.lab, sweep) if point.draw >= 0 and label in (None, budget(point))]

    def assert_same(self, made: sinkjax.Edit, expected: sinkjax.Edit) -> None:
        """Fail unless two edits are the same arrays on prompts of the study's length."""
        assert_same(made, expected, self.lab.architecture, self.config.length)
