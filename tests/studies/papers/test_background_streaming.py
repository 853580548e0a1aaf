"""background/streaming: what each query sees, and each claim needs every part of its rule."""

from __future__ import annotations

import numpy as np
import pytest

from sinkjax.analysis.intervals import interval
from sinkjax.analysis.summary import Rank, Row
from sinkjax.studies.papers.background import streaming
from sinkjax.studies.papers.background.streaming import ALL_KEYS, STUDY, Streaming, label
from tests.studies.planted import SPREAD, Planted, around, row

CONFIG = Streaming()
(LOSS,) = (measure.name for measure in streaming.measures(CONFIG))


def test_controls_keep_as_many_other_early_tokens():
    shape = Planted(STUDY).architecture
    drawn = list(STUDY.controls[0].conditions(CONFIG, shape))
    assert [entry.budget for entry in drawn] == [1] * 20 + [2] * 20 + [4] * 20
    kept = [frozenset(range(CONFIG.length)) - set(entry.edit.terms[0].keys) for entry in drawn]
    assert all(len(places) == entry.budget and places <= set(range(4, 32)) for places, entry in zip(kept, drawn, strict=True))
    assert len(set(kept)) == 60


@pytest.mark.parametrize(
    ("change", "percentile", "verdicts"),
    [
        ({}, 0, "sssss"),
        ({0: 0.6}, 0, "iiiii"),  # perhaps no damage
        ({0: 0.1}, 0, "cnnnn"),
        ({4: 0.04}, 0, "sisss"),  # perhaps more than the margin, or less than minus it
        ({4: -0.04}, 0, "sisss"),
        ({4: 0.1}, 0, "scsss"),  # most of the damage undone, but not as with all keys
        ({4: -0.1}, 0, "scsss"),
        ({4: 0.3}, 0, "scisi"),  # about 90 % of the damage undone, as with one
        ({4: 0.8}, 0, "sccsc"),
        ({}, 5, "sssis"),
        ({}, 100, "ssscs"),
    ],
)
def test_each_claim_needs_every_part_of_its_rule(change, percentile, verdicts):
    effects = {0: 3.0, 1: 0.3, 4: 0.01} | change
    rows = {(ALL_KEYS, LOSS): row(ALL_KEYS, LOSS, 4.0)}
    for first, effect in effects.items():
        own = 0.05 * np.roll(SPREAD, first)  # between two conditions there is some spread
        value = interval(4.0 + SPREAD + effect + own)
        rows |= {
            (label(cache, first), LOSS): Row(
                label(cache, first), "", LOSS, value, around(effect, 0.02 if first == 4 else 0.3), Rank(percentile // 5, 0, 20)
            )
            for cache in CONFIG.caches
        }
    assert [verdict[0] for verdict in Planted(STUDY, rows=rows).verdicts()] == list(verdicts)
