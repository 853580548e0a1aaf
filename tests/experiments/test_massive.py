"""background/massive: the edits set the dims that are massive in the model, and on SmolLM2 zeros destroy what means do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sinkjax
from sinkjax.analysis import metrics
from sinkjax.experiments.background import massive
from sinkjax.experiments.background.config import Massive
from sinkjax.experiments.background.massive_arms import RANKS, Levels, arms, controls, layer_arms, levels_probe, share_massive
from sinkjax.studies import run
from sinkjax.sweeps.schedule import kind_of
from tests.experiments.tiny import LAYERS, study, write_both

SMALL = {"controls": 4, "control_prompts": 2, "layer_prompts": 2}


def record(largest: float, layers: int = 4, width: int = 20) -> dict[str, np.ndarray]:
    """Two prompts in which dim 7 of the position is massive after layers 1 and 2."""
    stream = np.tile(np.arange(width, dtype=float) / width, (2, layers, 1, 1))
    stream[:, 1:3, 0, 7] = -largest
    top = np.sort(np.abs(stream[:, :, 0]))[..., ::-1][..., :RANKS]
    return {
        "stream": stream,
        "state_largest": np.concatenate([top[:, :1], top], axis=1),
        "state_median": np.full((2, layers + 1), 0.5),
    }


def test_the_layer_is_the_first_one_after_which_the_rule_holds():
    levels = Levels.of(record(600.0), 2)
    assert (levels.layer, levels.holds) == (1, True)
    assert levels.order[1, 0] == 7
    assert levels.mean[1, 7] == -600
    np.testing.assert_array_equal(share_massive(record(600.0)), [0, 1, 1, 0])
    assert not Levels.of(record(400.0), 2).holds  # 800 times the median
    assert not Levels.of({**record(90.0), "state_median": np.full((2, 5), 0.01)}, 2).holds  # 9,000 times, but below 100


def test_arms_set_the_massive_dims_and_controls_spare_the_ten_largest():
    levels, config = Levels.of(record(600.0), 2), Massive(dims=2)
    zero, mean, later, median = (arm.edit.terms[0] for arm in arms(config, levels)[1:])
    assert zero.dims == mean.dims == later.dims == (7, 19)
    assert not zero.value.any()
    np.testing.assert_allclose(mean.value, [-600, 19 / 20])
    assert (zero.layers, later.layers) == ((1,), (1, 2, 3))
    assert not set(median.dims) & {7, 19, 0}
    forbidden = set(levels.order[1, :RANKS].tolist())
    drawn = controls(config, levels)
    assert len(drawn) == 2 * config.controls
    assert all(len(set(arm.edit.terms[0].dims)) == 2 and not set(arm.edit.terms[0].dims) & forbidden for arm in drawn)


def test_stand_ins_have_the_labels_and_kinds_of_the_arms(tiny_config):
    config, levels = Massive(length=10), Levels.of(record(600.0, layers=3, width=32), 2)
    for job, make in zip(massive.jobs(config, tiny_config)[1:4], (arms, layer_arms, controls), strict=True):
        made = make(config, levels)
        assert [arm.edit.label for arm in job.arms] == [arm.edit.label for arm in made]
        kinds = [[kind_of(arm.edit.resolve(tiny_config, [10, 10], 10)) for arm in each] for each in (job.arms, made)]
        assert kinds[0] == kinds[1]


def test_statistics_of_the_hidden_state_leave_pads_out(tiny_config, tiny_params):
    tokens = np.random.default_rng(0).integers(0, 61, (2, 10))
    whole = sinkjax.forward(tiny_params, tokens, tiny_config, probe=levels_probe(0), lengths=[10, 7]).record
    alone = sinkjax.forward(tiny_params, tokens[1:, :7], tiny_config, probe=levels_probe(0)).record
    for name in ("state_largest", "state_median"):
        np.testing.assert_allclose(whole[name][1], alone[name][0], rtol=1e-5)


def test_a_model_without_massive_activations_runs_and_is_told_so(tmp_path: Path):
    write_both(tmp_path)
    section = run.carry_out(study("background/massive", tmp_path, **SMALL), tmp_path / "out")
    assert {claim.verdict for claim in section.claims} == {"not confirmed", "not applicable"}
    assert len(section.rows) == 3 * (5 + 2 * LAYERS) + 1  # and the identity edit
    assert any("after no layer" in sentence for sentence in section.findings)


def test_too_many_dims_are_refused(tiny_config):
    with pytest.raises(sinkjax.SinkjaxError, match="dims 30 and 10 more for the controls are more than the model's 32"):
        massive.jobs(Massive(dims=30, length=10), tiny_config)


def test_on_smollm2_zeros_destroy_the_model_and_means_do_not(smollm2):
    """Measured on these texts: the rule first holds after layer 11; loss + 11 nats with zeros, + 0.01 with means."""
    texts = (
        "The river had risen in the night, and by morning the lower fields were under water as far as the mill and the road.",
        "She wrote to her brother every week, long letters about the garden and the price of coal, which he never answered.",
    )
    tokens, lengths = sinkjax.encode(smollm2, texts, bos="none", length=24)

    def forward(probe: sinkjax.Probe, edits=()) -> dict:
        return sinkjax.forward(smollm2.params, tokens, smollm2.config, edits, probe, lengths, logits=False).record

    levels = Levels.of(forward(levels_probe(0)), 2)
    assert levels.holds
    assert 8 < levels.layer < 14
    none, zero, mean = (
        metrics.mean_nll(forward(sinkjax.Probe(nll=True), arm.edit)).mean() for arm in arms(Massive(), levels)[:3]
    )
    assert zero - none > 5
    assert abs(mean - none) < 0.1
