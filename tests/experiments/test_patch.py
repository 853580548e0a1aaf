"""background/patch: what is put there is what the donor run has there, and on SmolLM2 keys carry the sink."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import sinkjax
from sinkjax import Capture, Probe
from sinkjax.analysis import metrics
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.background import patch, patch_donor, patch_positions
from sinkjax.experiments.background.config import Patch
from sinkjax.experiments.identity import GROUP
from sinkjax.studies import run
from sinkjax.sweeps.schedule import kind_of
from tests.experiments.tiny import LAYERS, study, write_both

CONFIG = Patch(length=10, prompts=2, control_prompts=2, controls=3)


@pytest.fixture(scope="module")
def model(tiny_config, tiny_params):
    return SimpleNamespace(config=tiny_config, params=tiny_params)


@pytest.fixture(scope="module")
def batch():
    return SimpleNamespace(tokens=np.random.default_rng(0).integers(0, 61, (2, 10)), lengths=np.array([10, 7]))


def test_each_site_gets_the_donor_runs_values_at_the_position_after_the_key(model, batch):
    probe = Probe(capture=tuple(Capture(site, name=f"seen_{site}") for site in patch.SITES))

    def forward(edit: sinkjax.Edit) -> dict:
        return sinkjax.forward(model.params, batch.tokens, model.config, edit, probe, batch.lengths).record

    donor, plain = forward(sinkjax.mask_key(0)), forward(sinkjax.compose())
    edits = {arm.edit.label: arm.edit for arm in patch.prepared(CONFIG, model, batch)}
    for site, name in patch.SITES.items():
        seen = forward(edits[f"{name}, layer 1"])[f"seen_{site}"]
        np.testing.assert_array_equal(seen[:, 1, 1], donor[f"seen_{site}"][:, 1, 1])
        np.testing.assert_array_equal(seen[:, 0], plain[f"seen_{site}"][:, 0])
        everywhere = forward(edits[f"{name}, all layers"])[f"seen_{site}"]
        np.testing.assert_array_equal(everywhere[:, :, 1], donor[f"seen_{site}"][:, :, 1])


def test_each_position_gets_what_the_donor_run_has_there(model, batch):
    config, probe = Patch(length=10), Probe(capture=tuple(Capture(site, name=f"seen_{site}") for site in patch.SITES))
    short = SimpleNamespace(tokens=batch.tokens, lengths=np.array([10, 10]))

    def forward(edit: sinkjax.Edit) -> dict:
        return sinkjax.forward(model.params, short.tokens, model.config, edit, probe, short.lengths).record

    donor, plain = forward(sinkjax.mask_key(0)), forward(sinkjax.compose())
    job = patch_positions.job(config, model.config, probe)
    made = job.prepare(model, short)
    assert [arm.edit.label for arm in made] == [arm.edit.label for arm in job.arms]
    for arm in made[1:]:
        site, place = arm.edit.terms[0].site, arm.place
        seen = forward(arm.edit)[f"seen_{site}"]
        np.testing.assert_array_equal(seen[:, :, place], donor[f"seen_{site}"][:, :, place])
        np.testing.assert_array_equal(seen[:, :, :place], plain[f"seen_{site}"][:, :, :place])


def test_controls_take_a_later_position_within_each_prompt(model, batch):
    values = patch_donor.values_of(sinkjax.mask_key(CONFIG.key), model, batch, None)
    for arm in patch.prepared_controls(CONFIG, model, batch):
        term = arm.edit.terms[0]
        source = values[term.site]
        for prompt, length in enumerate(batch.lengths):
            at = [place for place in range(10) if np.array_equal(source[:, prompt, place], np.asarray(term.value)[:, prompt])]
            assert len(at) == 1
            assert 2 <= at[0] < length


def test_stand_ins_have_the_labels_and_kinds_of_the_arms(model, batch):
    made = (patch.prepared(CONFIG, model, batch), patch.prepared_controls(CONFIG, model, batch))
    for job, arms in zip(patch.jobs(CONFIG, model.config)[:2], made, strict=True):
        assert [arm.edit.label for arm in job.arms] == [arm.edit.label for arm in arms]
        assert [arm.budget for arm in job.arms] == [arm.budget for arm in arms]
        kinds = [[kind_of(arm.edit.resolve(model.config, [10, 10], 10)) for arm in each] for each in (job.arms, arms)]
        assert kinds[0] == kinds[1]


def test_a_run_on_the_tiny_model_is_complete(tmp_path: Path):
    write_both(tmp_path)
    chosen = study("background/patch", tmp_path, controls=3, control_prompts=2)
    section = run.carry_out(chosen, tmp_path / "out")
    places = patch_positions.places(chosen.config)
    assert places == [0, 1, 2, 3, 5]
    assert len(section.rows) == 3 * (2 + 5 * LAYERS + 5) + 2 * 5 * len(places) + 1  # and the identity edit
    others = (patch.NONE, patch.DONOR, GROUP)
    assert {row.controls for row in section.rows if row.group not in others and "one position" not in row.group} == {3}
    assert {claim.verdict for claim in section.claims} == {"not applicable"}


def test_a_key_without_a_later_position_for_the_controls_is_refused():
    with pytest.raises(SinkjaxError, match="key 7 of 9 positions leaves none to patch"):
        Patch(key=7, length=9)


def test_on_smollm2_keys_carry_the_sink_and_values_do_not(smollm2):
    """Measured on these texts: 81 % of heads sink on key 1 in the donor run, 66 % with its keys, none with its values."""
    texts = (
        "The river had risen in the night, and by morning the lower fields were under water as far as the mill and the road.",
        "She wrote to her brother every week, long letters about the garden and the price of coal, which he never answered.",
    )
    tokens, lengths = sinkjax.encode(smollm2, texts, bos="none", length=24)
    edits = {
        arm.edit.label: arm.edit
        for arm in patch.prepared(Patch(length=24), smollm2, SimpleNamespace(tokens=tokens, lengths=lengths))
    }

    def sinks(label: str) -> float:
        probe = Probe(attention_received=True)
        record = sinkjax.forward(smollm2.params, tokens, smollm2.config, edits[label], probe, lengths, logits=False).record
        return float(metrics.sink_rate(record, 1).mean())

    donor, keys, values = (sinks(label) for label in (patch.DONOR, "keys, all layers", "values, all layers"))
    assert donor > 0.6
    assert values < 0.05 < 0.4 < keys
