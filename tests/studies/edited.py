"""What jitted code sees of an edit, to compare the edits that words make with those of sinkjax's constructors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

import sinkjax
from sinkjax.studies.declaration import Study
from sinkjax.studies.grids import Point, cells_of, controls
from sinkjax.studies.scope import Scope
from sinkjax.studies.settings import config_type


def arrays(edit: sinkjax.Edit, architecture: Any, length: int) -> tuple[Any, list[np.ndarray]]:
    """The kind of an edit, and its arrays for one prompt."""
    leaves, tree = jax.tree.flatten(edit.resolve(architecture, [length], length))
    return tree, [np.asarray(leaf) for leaf in leaves]


def assert_same(made: sinkjax.Edit, expected: sinkjax.Edit, architecture: Any, length: int = 16) -> None:
    """Fail unless two edits are the same arrays."""
    (tree, leaves), (other, others) = arrays(made, architecture, length), arrays(expected, architecture, length)
    assert tree == other
    for leaf, wanted in zip(leaves, others, strict=True):
        np.testing.assert_array_equal(leaf, wanted)


class Conditions:
    """The conditions of a study on an architecture.

    Args:
        study: The study.
        architecture: Of the model.
        known: Its known numbers.
        **settings: Of the study.
    """

    def __init__(self, study: Study, architecture: Any, known: Mapping[str, Any] | None = None, **settings: Any):
        self.study, self.config = study, config_type(study)(**settings)
        self.scope = Scope(self.config, architecture, known or {})

    def of(self, grid: str) -> dict[str, Point]:
        """The conditions of a grid by label."""
        return {point.label: point for point in self.scope.get(dict(self.study.grids)[grid])}

    def random(self, grid: str, *labels: str) -> list[Point]:
        """The controls of some conditions of a grid; of all, if none are named."""
        points, word = [*self.of(grid).values()], dict(self.study.grids)[grid]
        rows = [row for row, point in enumerate(points) if row and (not labels or point.label in labels)]
        drawn = dict(self.study.controls)[grid]
        return list(controls(drawn, "a stream", points, rows, cells_of(word, self.scope), self.scope))[1:]

    def assert_same(self, made: sinkjax.Edit, expected: sinkjax.Edit) -> None:
        """Fail unless two edits are the same arrays on prompts of the study's length."""
        assert_same(made, expected, self.scope.architecture, self.config.length)
