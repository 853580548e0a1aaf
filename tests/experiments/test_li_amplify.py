"""li/amplify: each arm does what it says to one token's head outputs, and the controls are of the same size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sinkjax
from sinkjax.edits.site import Site
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.base import Batch
from sinkjax.experiments.li import amplify
from sinkjax.experiments.li.amplify import Dose
from sinkjax.experiments.li.config import Amplify
from sinkjax.studies import run
from tests.studies.tiny import LAYERS, study, write_both

K, T = 4, 9
CONFIG = Amplify(position=K, length=T, layers=(0, 2), factors=(2.0, 5.0), factor=5.0, controls=3)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_both(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def model(files: Path):
    return sinkjax.load(str(files / "model"))


@pytest.fixture(scope="module")
def batch(model) -> Batch:
    tokens = np.random.default_rng(0).integers(1, model.config.vocab_size, (2, T)).astype(np.int32)
    return Batch(tokens, np.full(2, T, np.int32), {})


def outputs(model, batch: Batch, edit: sinkjax.Edit) -> np.ndarray:
    """Head outputs [prompt, layer, position, head, dim]."""
    probe = sinkjax.Probe(capture=(sinkjax.Capture(Site.HEAD_OUT),))
    return np.asarray(sinkjax.forward(model.params, batch.tokens, model.config, edits=edit, probe=probe).record["head_out"])


def test_the_arms_are_every_factor_in_some_layers_and_one_factor_in_all():
    arms = {arm.edit.label: arm for arm in amplify.arms(CONFIG, LAYERS)}
    assert len(arms) == 1 + 3 + 3 * (2 * 2 + 1)
    assert Dose(amplify.NORM, 1, 5.0).label in arms
    assert Dose(amplify.NORM, 1, 2.0).label not in arms
    assert {label: arm.budget for label, arm in arms.items() if arm.budget is not None} == {
        Dose(amplify.POSITIONS, layer, 5.0).label: layer for layer in (0, 2)
    }


@pytest.mark.parametrize("way", list(amplify.CENTRES))
def test_an_arm_moves_the_outputs_of_one_token_away_from_its_centre(model, batch, way):
    arms = {arm.edit.label: arm.edit for arm in amplify.arms(CONFIG, LAYERS)}
    before, after = (outputs(model, batch, arms[label])[:, 0] for label in (amplify.NONE, Dose(way, 0, 5.0).label))
    o = before[:, K]
    mu = {amplify.POSITIONS: before[:, : K + 1].mean(1), amplify.DIMS: o.mean(-1, keepdims=True), amplify.NORM: 0}[way]
    np.testing.assert_allclose(after[:, K], mu + 5 * (o - mu), rtol=1e-4, atol=1e-6)
    others = np.delete(np.arange(T), K)
    np.testing.assert_array_equal(after[:, others], before[:, others])


def test_controls_add_a_change_of_the_same_size_to_each_head(model, batch):
    before = outputs(model, batch, sinkjax.compose())
    drawn = amplify.controls(CONFIG, amplify.away(CONFIG, model, batch))
    assert [arm.budget for arm in drawn] == [0] * 3 + [2] * 3
    changes = []
    for arm in drawn:
        layer = arm.budget
        after = outputs(model, batch, arm.edit)
        changes.append(after[:, layer, K] - before[:, layer, K])
        wanted = 4 * (before[:, layer, K] - before[:, layer, : K + 1].mean(1))
        np.testing.assert_allclose(np.linalg.norm(changes[-1], axis=-1), np.linalg.norm(wanted, axis=-1), rtol=1e-3)
    assert not np.allclose(changes[0], changes[1], rtol=0.1)


def test_a_run_judges_and_draws_and_its_stand_ins_fit_the_prepared_controls(files, tmp_path):
    fields = {"position": K, "layers": [0, 2], "factors": [2.0, 5.0], "factor": 5.0, "controls": 3, "control_prompts": 2}
    section = run.carry_out(study("li/amplify", files, **fields), tmp_path / "out")
    assert len(section.claims) == 3
    identity = [row for row in section.rows if row.group == "identity"]
    assert len(identity) == 3 * 4
    assert max(abs(row.effect.mean) for row in identity) < 1e-5
    ranked = {row.arm for row in section.rows if row.controls == 3}
    assert ranked == {Dose(amplify.POSITIONS, layer, 5.0).label for layer in (0, 2)}
    assert {path.stem for path in (tmp_path / "out" / "figures").iterdir()} == {"dose-response", "sink-by-amplified-layer"}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"factor": 3.0}, "factors must be above 1 and hold factor"),
        ({"factors": (0.5, 10.0)}, "factors must be above 1"),
        ({"layers": ()}, "layers must name at least one, and each of them once"),
        ({"layers": (-1,)}, "negative layer -1"),
    ],
)
def test_doses_that_do_not_fit_are_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        Amplify(**fields)


def test_a_layer_that_the_model_does_not_have_is_refused(tiny_config):
    with pytest.raises(SinkjaxError, match="layers has layer 9, but the model has 3, 0 to 2"):
        amplify.jobs(Amplify(layers=(9,)), tiny_config)


TEXTS = (
    "The river had risen in the night, and by morning the lower fields were under water as far as the mill and the road.",
    "She wrote to her brother every week, long letters about the garden and the price of coal, which he never answered.",
    "In the winter of that year the company bought two ships, and sent them north with orders to return before the frost.",
    "A good carpenter looks at the grain before he looks at the drawing, because the wood decides what can be made of it.",
)


def test_on_smollm2_moving_away_from_the_mean_over_positions_does_what_scaling_does_not(smollm2):
    """Measured on these texts: |h| at position 10 from 650 to 2,500 away from the mean, and to 420 scaled by the same factor."""
    config = Amplify(length=24)
    tokens, lengths = sinkjax.encode(smollm2, TEXTS, bos="none", length=config.length)
    arms = {arm.edit.label: arm.edit for arm in amplify.arms(config, smollm2.config.layers)}

    def largest(label: str) -> float:
        probe = sinkjax.Probe(resid_max=True)
        out = sinkjax.forward(
            smollm2.params, tokens, smollm2.config, edits=arms[label], probe=probe, lengths=lengths, logits=False
        )
        return float(np.asarray(out.record["resid_max"])[..., config.position].max(axis=1).mean())

    none, away, scaled = (
        largest(label) for label in (amplify.NONE, *(Dose(way, 0, 20.0).label for way in (amplify.POSITIONS, amplify.NORM)))
    )
    assert away > 1_500
    assert max(none, scaled) < 1_000
