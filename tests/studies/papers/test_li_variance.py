"""li/variance: the variance, its decay and its rank correlation are what they are called, and the rules at their bounds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray
from scipy.stats import binom

import sinkjax
from sinkjax.analysis.claims import judge
from sinkjax.analysis.summary import Rank
from sinkjax.errors import SinkjaxError
from sinkjax.studies.papers.li import _first_block, variance
from sinkjax.studies.papers.li.variance import EVEN, EXPONENT, MODEL, STORE, STUDY, TAU, Variance
from sinkjax.studies.results import Results
from sinkjax.studies.study import Batch
from tests.studies.tiny import write_both

T = 16
CONFIG = Variance(length=T, permutations=20)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory):
    return sinkjax.load(str(write_both(tmp_path_factory.mktemp("tiny")) / "model"))


def random_tokens(model, prompts: int) -> Batch:
    tokens = np.random.default_rng(0).integers(1, model.config.vocab_size, (prompts, T)).astype(np.int32)
    return Batch(tokens, np.full(prompts, T, np.int32), {})


def decaying(power: float, turned: bool = False, late: float = 0.0, prompts: int = 20, **other: np.ndarray) -> Results:
    """Results whose deviations fall with (i + 1) to a power, and are `late` more at the last position; a dim's deviation rises
    with its row of W_O, or falls where `turned`. other: arrays instead of these."""
    rng = np.random.default_rng(1)
    deviation = rng.exponential(size=(prompts, 4, 1)) * np.arange(1.0, T + 1) ** power
    deviation[..., -1] += late
    row_norm = rng.random((4, 12))
    arrays = {
        "deviation": (("prompt", "head", "position"), deviation),
        "after": (("prompt", "position"), deviation.mean(1)),
        "squared_weights": (("head", "position"), np.full((4, T), 0.5)),
        "std": (("head", "head_dim"), (1 - row_norm if turned else row_norm) ** 3),
    }
    both: dict[str, Any] = {
        name: (("attention", *axes), np.stack([other.get(name, values)] * 2)) for name, (axes, values) in arrays.items()
    }
    data = xarray.Dataset(
        both | {"row_norm": (("head", "head_dim"), row_norm)},
        {"attention": [MODEL, EVEN]},
        {"sweep": {"config": {"layers": 3, "kv_heads": 2}}},
    )
    return Results(STUDY, CONFIG, {STORE: data})


def verdicts(results: Results) -> list[str]:
    return [judge(claim, results).verdict for claim in STUDY.claims(CONFIG, results.architecture)]


def test_even_attention_follows_the_averaging_law_and_position_0_is_no_average(model):
    data = _first_block.compute(model, random_tokens(model, 400), variance.MODEL, variance.EVEN)
    heads = variance.relative(data, "deviation")
    np.testing.assert_allclose(heads[:, :, 0].mean(1), 1)
    np.testing.assert_allclose(heads[1].mean(0) * np.arange(1, T + 1), 1, atol=0.35)
    np.testing.assert_allclose(data["squared_weights"].values[1], np.tile(1 / np.arange(1, T + 1), (4, 1)), rtol=1e-5)
    assert variance.exponents(heads[1]).mean() == pytest.approx(-1, abs=0.1)


def test_deviations_are_those_of_the_whole_model(model):
    batch = random_tokens(model, 40)  # more than one block
    probe = sinkjax.Probe(capture=(sinkjax.Capture("head_out", layers=(0,)), sinkjax.Capture("attn_out", layers=(0,))))
    record = sinkjax.forward(model.params, batch.tokens, model.config, probe=probe).record
    data = _first_block.compute(model, batch, variance.MODEL, variance.EVEN)
    expected = np.var(record["head_out"][:, 0], axis=0, ddof=1).mean(-1).T
    np.testing.assert_allclose(data["deviation"][0].mean("prompt"), expected, rtol=1e-4)
    np.testing.assert_allclose(
        data["after"][0].mean("prompt"), np.var(record["attn_out"][:, 0], axis=0, ddof=1).mean(-1), rtol=1e-4
    )
    np.testing.assert_allclose(data["row_norm"], np.linalg.norm(model.params["layers"]["o"][0], axis=-1), rtol=1e-6)


@pytest.mark.parametrize(("power", "verdict"), [(-1.0, "supported"), (-0.5, "contradicted"), (-1.5, "contradicted")])
def test_the_exponent_decides_about_the_averaging_law(power, verdict):
    results = decaying(power)
    exponents = [row.value.mean for row in results.own.values() if row.measure == EXPONENT]
    assert exponents == pytest.approx([power, power])
    found = verdicts(results)
    assert found[2] == verdict
    assert found[1] == found[4] == "supported"


def test_numbers_that_follow_the_law_support_every_claim():
    assert verdicts(decaying(-1.0)) == ["supported"] * 5
    assert [claim.source for claim in STUDY.claims(CONFIG, None)].index("") == 2  # the law is no claim of the paper


def test_each_part_of_the_other_rules_counts():
    noise = np.random.default_rng(2).exponential(size=(20, T))
    assert verdicts(decaying(-1.0, late=2.0, prompts=200))[:2] == ["contradicted", "contradicted"]  # largest at the last position
    assert verdicts(decaying(1.0))[1] == "contradicted"  # it grows
    assert verdicts(decaying(-1.0, deviation=np.repeat(noise[:, None], 4, axis=1)))[:2] == ["inconclusive", "inconclusive"]
    assert verdicts(decaying(-1.0, after=noise))[3] == "inconclusive"
    assert verdicts(decaying(-1.0, turned=True))[4] == "contradicted"
    assert verdicts(decaying(-1.0, std=np.random.default_rng(3).random((4, 12))))[4] == "inconclusive"


def test_doublings_cover_every_position_once():
    found = [quantity.name for quantity in variance.octaves(Variance(length=11))]
    assert found == [f"variance at positions {span}" for span in ("0 to 0", "1 to 1", "2 to 3", "4 to 7", "8 to 10")]


def test_tau_is_1_where_ranks_agree_and_no_random_pairing_comes_near():
    results = decaying(-1.0)
    data = results[STORE]
    np.testing.assert_allclose(variance.taus(data, data["row_norm"].values), 1)
    assert np.abs(variance.shuffled_taus(CONFIG, data, 2)).max() < 0.6
    rows = [row for row in results.own.values() if row.measure == TAU]
    assert {(row.rank.percentile, row.rank.controls) for row in rows} == {(100, 20)}
    assert {row.value.samples for row in rows} == {None}  # heads are no samples


def quick_tau(x: np.ndarray, y: np.ndarray) -> float:
    """Kendall's tau without ties, twenty times as fast."""
    return float((np.sign(x[:, None] - x) * np.sign(y[:, None] - y)).sum()) / (len(x) * (len(x) - 1))


def test_heads_that_share_a_key_value_head_are_permuted_together(monkeypatch):
    seen = []
    monkeypatch.setattr(variance, "taus", lambda data, row_norm: seen.append(row_norm) or np.zeros((2, 4)))
    dims = np.arange(12.0)
    data = xarray.Dataset({"row_norm": (("head", "head_dim"), np.array([dims, 100 + dims, dims, 100 + dims]))})
    variance.shuffled_taus(CONFIG, data, 2)
    for row_norm in seen:
        np.testing.assert_array_equal(row_norm[1::2], 100 + row_norm[::2])
        np.testing.assert_array_equal(np.sort(row_norm[::2]), [dims] * 2)
    assert len(seen) == 20
    assert any((row_norm[0] != row_norm[2]).any() for row_norm in seen)  # each group by itself


def test_the_controls_of_tau_keep_their_level_where_heads_share_value_dims(monkeypatch):
    """Nothing relates a dim to its row of W_O, but four heads in each of two groups have alike dims and alike rows."""
    draws, heads, groups, dims = 200, 8, 2, 12
    monkeypatch.setattr(variance.significance, "kendall_tau", quick_tau)
    rng = np.random.default_rng(0)

    def alike() -> np.ndarray:
        return np.repeat(rng.normal(size=(groups, dims)), heads // groups, axis=0) + 0.3 * rng.normal(size=(heads, dims))

    def rejections(permuted: int) -> int:
        """In how many draws the tau lies above those of 19 controls, p = 0.05. permuted: groups that take a pairing."""
        count = 0
        for draw in range(draws):
            config = SimpleNamespace(seed=draw, permutations=19)
            arrays = {"std": (("attention", "head", "head_dim"), alike()[None]), "row_norm": (("head", "head_dim"), alike())}
            data = xarray.Dataset(arrays)
            own = variance.taus(data, data["row_norm"].values).mean()
            count += Rank.among(own, variance.shuffled_taus(config, data, permuted)[0]).p_above <= 0.05
        return count

    most = binom.ppf(0.999, draws, 0.05)
    assert rejections(groups) <= most < rejections(heads)  # then each head by itself, as if they were independent


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [({"bos": "model"}, "nothing varies at position 0"), ({"permutations": 19}, "at least 20"), ({"prompts": 2}, "at least 3")],
)
def test_configs_that_say_nothing_are_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        Variance(**fields)
