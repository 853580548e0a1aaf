"""The rules of verdicts that were read again: what is just enough for each, and what is not."""

from __future__ import annotations

import numpy as np
import pytest
import xarray

from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.li import amplify, dominance, isolate
from sinkjax.experiments.li.config import Amplify, Dominance, Isolate
from sinkjax.experiments.summary import Row, Table


def row(arm: str, measure: str, value: float, before: float = 0.0, percentile: float | None = 100) -> Row:
    """A row whose intervals reach one to either side."""

    def around(mean: float) -> Interval:
        return Interval(mean, mean - 1, mean + 1, 8, 0, 0.95, "test")

    return Row(arm, "test", measure, around(value), around(value - before), percentile, 20)


def table(*rows: Row) -> Table:
    return {(entry.arm, entry.measure): entry for entry in rows}


@pytest.mark.parametrize(("sinks", "verdict"), [(41, "confirmed"), (39, "not confirmed"), (0, "not confirmed")])
def test_an_isolated_token_is_a_sink_at_half_of_what_key_0_has(sinks, verdict):
    names = ("sink", "first", "largest", "largest at 0", "loss")
    unedited = [row(isolate.NONE, name, value) for name, value in zip(names, (0, 80, 5, 900, 3), strict=True)]
    edited = [row(arm, name, sinks) for arm in (isolate.ALL, f"{isolate.EVEN}, {isolate.ALL}") for name in names]
    assert isolate._claims(Isolate(), table(*unedited, *edited), names, 0.0)[0].verdict == verdict


@pytest.mark.parametrize(
    ("rates", "verdicts"),
    [((5, 41), ("confirmed", "confirmed")), ((5, 39), ("not confirmed", "confirmed")), ((41, 5), ("confirmed", "not confirmed"))],
)
def test_pushed_outputs_make_a_sink_at_half_of_what_key_0_has_and_monotone_means_every_step(rates, verdicts):
    config, names = Amplify(factors=(2.0, 10.0), layers=(0,)), ("sink", "first", "largest", "loss")
    doses = {amplify.Dose(way, 0, factor): 0.0 for way in amplify.CENTRES for factor in config.factors}
    doses |= {amplify.Dose(amplify.POSITIONS, 0, factor): rate for factor, rate in zip(config.factors, rates, strict=True)}
    rows = [row(dose.label, "sink", rate) for dose, rate in doses.items()]
    made = table(row(amplify.NONE, "sink", 0), row(amplify.NONE, "first", 80), *rows)
    best = {way: amplify._best(config, made, "sink", way) for way in amplify.CENTRES}
    assert tuple(claim.verdict for claim in amplify._claims(config, made, names, best))[:2] == verdicts


@pytest.mark.parametrize(("aligned", "verdict"), [(0.9, "confirmed"), (0.5, "not confirmed")])
def test_most_heads_that_sink_must_be_aligned(aligned, verdict):
    N, L, H, T, d = 4, 3, 2, 12, 6
    ratio = np.ones((N, L + 1, T))
    received = np.zeros((N, L, H))
    received[:, 1:] = 0.9
    alignment = np.full((N, L, H), 0.95)
    alignment[:, 1:, :] = [0.9, aligned]
    alignment[:, 1] = [aligned, aligned]
    data = xarray.Dataset(
        dict.fromkeys(("before", "after"), (("prompt", "depth", "position"), ratio))
        | {name: (("prompt", "depth"), np.ones((N, L + 1))) for name in ("top", "mean", "held")}
        | {
            "dim": (("prompt", "depth"), np.zeros((N, L + 1), int)),
            "alignment": (("prompt", "layer", "head"), alignment),
            "key_alignment": (("layer", "head", "key"), np.zeros((L, H, T))),
            "positive": (("prompt", "layer", "head", "key"), np.ones((N, L, H, T))),
            "received": (("prompt", "layer", "head"), received),
            "row_cosine": (("layer", "kv_head", "dim"), np.full((L, H, d), 0.5)),
        }
    )
    claim = dominance._claims(dominance.Found(Dominance(), data))[3]
    assert claim.verdict == verdict
    assert f"{4 if aligned > 0.7 else 1} of the 4 heads that sink" in claim.evidence
