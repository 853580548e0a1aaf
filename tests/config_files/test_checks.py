"""A field of another type, or of a size that cannot exist, is refused wherever a config is made."""

from __future__ import annotations

import pytest

from sinkjax.config_files.checks import LARGEST, MOST
from sinkjax.data.config import Corpus
from sinkjax.errors import SinkjaxError
from sinkjax.study.registry import find
from sinkjax.tasks.trigger.config import TriggerTraining

Mask = find("kiya/mask").settings


def test_the_bounds_themselves_are_allowed():
    assert Mask(prompts=MOST["prompts"], seed=LARGEST).prompts == MOST["prompts"]
    assert TriggerTraining(seed=LARGEST - 1, seeds=2).seeds == 2
    assert Corpus(limit=10**12).limit == 10**12  # bytes of a text need more than 32 bits
    for fields in ({"prompts": MOST["prompts"] + 1}, {"seed": LARGEST + 1}):
        with pytest.raises(SinkjaxError, match="must be at most"):
            Mask(**fields)
