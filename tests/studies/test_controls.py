"""More controls for the budget of a study's headline claim, and for no other."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest

from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.studies.registry import find, studies, trains
from sinkjax.studies.specs import SweepSpec, specs
from sinkjax.studies.study import CONTROL
from tests.studies.test_every_study import SMALL, T
from tests.studies.tiny import study

HEADLINED = [name for name in studies() if find(name).headline is not None]
FEW, MORE = 2, 5


@pytest.fixture
def architecture(tiny_config: Config) -> Config:
    return dataclasses.replace(tiny_config, layers=4, mlp_width=256)


def drawn(name: str, architecture: Config, **fields) -> Counter:
    """How many controls a study has for each budget, in the sweep that its own fields declare."""
    config = study(name, Path(), length=T, controls=FEW, control_prompts=2, **SMALL.get(name, {}) | fields).config
    parts = [part for part in specs(find(name), config, architecture) if isinstance(part, SweepSpec) and part.name == "controls"]
    return Counter(condition.budget for part in parts for condition in part.conditions if condition.series == CONTROL)


@pytest.mark.parametrize("name", HEADLINED)
def test_the_budget_of_the_headline_alone_has_more_controls(name, architecture):
    config = study(name, Path(), length=T, **SMALL.get(name, {})).config
    headline = set(find(name).headline(config, architecture))
    few, more = drawn(name, architecture), drawn(name, architecture, headline_controls=MORE)
    assert headline <= set(few) == set(more)
    assert {budget: MORE if budget in headline else count for budget, count in few.items()} == more
    assert drawn(name, architecture, headline_controls=1) == few


@pytest.mark.parametrize(
    "name", [name for name in studies() if not trains(name) and hasattr(find(name).config, "headline_controls")]
)
def test_a_study_without_a_headline_says_which_option_it_has(name, architecture):
    if name not in HEADLINED:
        with pytest.raises(SinkjaxError, match="set `controls` instead to draw more"):
            specs(find(name), find(name).config(headline_controls=MORE), architecture)
