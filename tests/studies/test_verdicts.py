"""The rules of verdicts that were read again: what is just enough for each, and what is not."""

from __future__ import annotations

import numpy as np
import pytest
import xarray

from sinkjax.analysis.intervals import Interval
from sinkjax.experiments.background import patch, streaming
from sinkjax.experiments.background.config import Patch, Streaming
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
