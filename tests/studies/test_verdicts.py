"""The rules of verdicts that were read again: what is just enough for each, and what is not."""

from __future__ import annotations

import numpy as np
import pytest

from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.background import patch, streaming
from sinkjax.experiments.background.config import Patch, Streaming
from sinkjax.experiments.summary import Row, Table


def row(arm: str, measure: str, value: float, before: float = 0.0, percentile: float | None = 100) -> Row:
    """A row whose intervals reach one to either side."""

    def around(mean: float) -> Interval:
        return Interval(mean, mean - 1, mean + 1, 8, 0, 0.95, "test")

    return Row(arm, "test", measure, around(value), around(value - before), percentile, 20)


def table(*rows: Row) -> Table:
    return {(entry.arm, entry.measure): entry for entry in rows}


@pytest.mark.parametrize(("stream", "verdict"), [(41, "confirmed"), (39, "not confirmed")])
def test_a_patch_is_judged_by_the_donor_run_too(stream, verdict):
    names = ("sink", "largest", "loss")
    labels = [f"{site}, layer 0" for site in patch.SITES.values()] + [f"{site}, {patch.ALL}" for site in patch.SITES.values()]
    sizes = {patch.NONE: 0, patch.DONOR: 80, patch.WHOLE: 50, f"{patch.SITES[patch.Site.RESID]}, layer 0": stream}
    made = table(*(row(label, name, sizes.get(label, 0)) for label in (patch.NONE, patch.DONOR, *labels) for name in names))
    chosen = patch.arms(Patch(), {site: np.zeros((1, 1, 1)) for site in patch.SITES})
    claim = patch._claims(Patch(), chosen, made, names, 1)[0]
    assert claim.verdict == verdict
    assert f"{stream / 80:.0%} of the donor run's, {stream / 50:.0%} of the whole stream's" in claim.evidence


def test_every_size_of_the_cache_is_stated_beside_the_one_that_is_judged():
    config = Streaming(length=12, cache=4, other_caches=(3,), first=(0, 2), controls=3)
    losses = {streaming.NONE: [1.0, 2.0, 3.0], "cache 4: 0 first, 4 last": [5.0, 6.0, 7.0], "cache 3: 0 first, 3 last": [5, 6, 7]}
    losses |= {"cache 4: 2 first, 2 last": [1.0, 2.0, 3.0], "cache 3: 2 first, 1 last": [3.0, 4.0, 5.0]}
    values = {name: np.array(entry) for name, entry in losses.items()}
    made = table(*(row(name, "loss", float(entry.mean()), 2.0) for name, entry in values.items()))
    claim = streaming._claims(config, made, "loss", values)[1]
    assert claim.verdict == "confirmed"
    assert "1.00 of the damage is undone with 4 keys, 0.500 with 3" in claim.evidence
