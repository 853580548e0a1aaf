"""li/variance: the variance, its decay and its rank correlation are what they are called, on numbers whose answer is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.base import Batch
from sinkjax.experiments.identity import GROUP
from sinkjax.experiments.li import variance
from sinkjax.experiments.li.config import Variance
from sinkjax.studies import run
from tests.studies.tiny import study, write_both

T = 16


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_both(tmp_path_factory.mktemp("tiny"))


def random_tokens(model, prompts: int) -> Batch:
    tokens = np.random.default_rng(0).integers(1, model.config.vocab_size, (prompts, T)).astype(np.int32)
    return Batch(tokens, np.full(prompts, T, np.int32), {})


def stored(**arrays: np.ndarray) -> xarray.Dataset:
    """A store by its arrays, for both attentions alike."""
    axes = {
        "deviation": ("prompt", "head", "position"),
        "after": ("prompt", "position"),
        "squared_weights": ("head", "position"),
        "std": ("head", "head_dim"),
    }
    both = {name: (("attention", *axes[name]), np.stack([arrays[name]] * 2)) for name in axes}
    norms = {"row_norm": (("head", "head_dim"), arrays["row_norm"])}
    return xarray.Dataset(both | norms, {"attention": [variance.MODEL, variance.EVEN]})


def decaying(power: float, prompts: int = 20, heads: int = 4, dims: int = 12) -> xarray.Dataset:
    """Deviations that fall with (i + 1) to a power; a dim's deviation rises with its row of W_O."""
    rng = np.random.default_rng(1)
    deviation = rng.exponential(size=(prompts, heads, 1)) * np.arange(1.0, T + 1) ** power
    row_norm = rng.random((heads, dims))
    return stored(
        deviation=deviation, after=deviation.mean(1), squared_weights=np.full((heads, T), 0.5), std=row_norm**3, row_norm=row_norm
    )


def test_even_attention_follows_the_averaging_law_and_position_0_is_no_average(files):
    model = sinkjax.load(str(files / "model"))
    data = variance.compute(model, random_tokens(model, 400))
    heads = variance.relative(data, "deviation")
    np.testing.assert_allclose(heads[:, :, 0].mean(1), 1)
    np.testing.assert_allclose(heads[1].mean(0) * np.arange(1, T + 1), 1, atol=0.35)
    np.testing.assert_allclose(data["squared_weights"].values[1], np.tile(1 / np.arange(1, T + 1), (4, 1)), rtol=1e-5)
    exponent = variance.exponents(heads[1], seed=0)
    assert -1.1 < exponent.low <= exponent.mean <= exponent.high < -0.9


def test_deviations_are_those_of_the_whole_model(files):
    model = sinkjax.load(str(files / "model"))
    batch = random_tokens(model, 40)  # more than one block
    probe = sinkjax.Probe(capture=(sinkjax.Capture("head_out", layers=(0,)), sinkjax.Capture("attn_out", layers=(0,))))
    record = sinkjax.forward(model.params, batch.tokens, model.config, probe=probe).record
    data = variance.compute(model, batch)
    expected = np.var(record["head_out"][:, 0], axis=0, ddof=1).mean(-1).T
    np.testing.assert_allclose(data["deviation"][0].mean("prompt"), expected, rtol=1e-4)
    np.testing.assert_allclose(
        data["after"][0].mean("prompt"), np.var(record["attn_out"][:, 0], axis=0, ddof=1).mean(-1), rtol=1e-4
    )
    np.testing.assert_allclose(data["row_norm"], np.linalg.norm(model.params["layers"]["o"][0], axis=-1), rtol=1e-6)


@pytest.mark.parametrize(("power", "verdict"), [(-1.0, "confirmed"), (-0.5, "not confirmed")])
def test_the_exponent_decides_about_the_averaging_law(power, verdict):
    data = decaying(power).assign_attrs(sweep={"model": {"name": "m"}, "dtype": "float32"}, study={"bos": "none", "text": "t"})
    config = Variance(permutations=20)
    table = {(row.arm, row.measure): row for row in variance.summary(config, data)}
    assert table[variance.MODEL, variance.EXPONENT].value.mean == pytest.approx(power)
    claims = variance._claims(config, data, table)
    assert claims[2].verdict == verdict
    assert claims[1].verdict == claims[4].verdict == "confirmed"


def test_tau_is_1_where_ranks_agree_and_no_random_pairing_comes_near():
    data, config = decaying(-1.0), Variance(permutations=20)
    np.testing.assert_allclose(variance.taus(data), 1)
    assert np.abs(variance.shuffled_taus(config, data)).max() < 0.6
    rows = [row for row in variance.summary(config, data) if row.measure == variance.TAU]
    assert {(row.percentile, row.controls) for row in rows} == {(100, 20)}


def test_a_run_judges_every_claim_and_draws_every_figure(files, tmp_path):
    section = run.carry_out(study("li/variance", files, prompts=12, permutations=20), tmp_path / "out")
    assert len(section.claims) == 5
    assert {path.stem for path in (tmp_path / "out" / "figures").iterdir()} == {
        "variance-by-position",
        "variance-and-output-matrix",
    }
    assert {row.arm for row in section.rows if row.group != GROUP} == set(section.featured) == {variance.MODEL, variance.EVEN}


def test_a_model_without_a_vocabulary_is_refused(tiny_config):
    import dataclasses

    blind = dataclasses.replace(tiny_config, vocab_size=None)
    with pytest.raises(SinkjaxError, match="has no vocabulary"):
        variance.jobs(Variance(), blind)
