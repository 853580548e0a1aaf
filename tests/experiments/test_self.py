"""kiya/self: the grid is what the study says, its controls take away as many keys, and on SmolLM2 a sink can be placed."""

from __future__ import annotations

import numpy as np
import pytest

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.kiya import self_only, self_other
from sinkjax.experiments.kiya.config import SelfOnly
from sinkjax.probes.statistics import sinking_heads
from sinkjax.studies import run
from tests.experiments.test_mask import TEXTS, masked_layers
from tests.studies.tiny import LAYERS, study, write_both

L = 5
CONFIG = SelfOnly(positions=(1, 3), shown=3, first_layers=(3, 2, 5, 9), length=20)


@pytest.fixture(scope="module")
def section(tmp_path_factory: pytest.TempPathFactory):
    folder = write_both(tmp_path_factory.mktemp("tiny"))
    fields = {
        "positions": (1, 2, 3),
        "shown": 2,
        "first_layers": (2, 7),
        "controls": 4,
        "control_prompts": 2,
        "map_layers": (0, 2),
    }
    return run.carry_out(study("kiya/self", folder, **fields), folder / "out")


def test_arms_are_every_position_in_each_layer_in_first_layers_and_in_all():
    none, *alone = self_only.arms(CONFIG, L)
    sets = [[layer] for layer in range(L)] + [[0, 1], [0, 1, 2], list(range(L))]
    assert none.edit.terms == ()
    assert [masked_layers(arm.edit) for arm in alone] == [entry for entry in sets for _ in CONFIG.positions]
    assert [arm.edit.terms[0].queries for arm in alone] == [(1,), (3,)] * len(sets)
    assert [arm.budget for arm in alone] == [1] * 2 * L + [None] * 4 + [L] * 2


def test_controls_take_as_many_links_from_a_random_key():
    _, *drawn = self_only.controls(CONFIG, L)
    assert [arm.budget for arm in drawn] == [1] * 20 + [L] * 20
    for arm in drawn:
        (term,) = arm.edit.terms
        (key,) = term.keys
        assert len(term.queries) == len(set(term.queries)) == arm.place
        assert key < min(term.queries)
        assert max(term.queries) < CONFIG.length
        assert len(masked_layers(arm.edit)) == arm.budget
    assert {arm.place for arm in drawn} == set(CONFIG.positions)


def test_another_key_is_seen_in_place_of_itself(tiny_config, tiny_params):
    """The head output of the edited query is the value of the one key that it sees."""
    arm = next(arm for arm in self_other.arms(CONFIG) if arm.place == 3)
    (seen,) = set(range(4)) - set(arm.edit.terms[0].keys)
    probe = sinkjax.Probe(capture=(sinkjax.Capture("value"), sinkjax.Capture("head_out")))
    record = sinkjax.forward(tiny_params, np.arange(20)[None], tiny_config, edits=arm.edit, probe=probe).record
    group = tiny_config.heads // tiny_config.kv_heads
    np.testing.assert_allclose(record["head_out"][:, :, 3], np.repeat(record["values"][:, :, seen], group, axis=2), rtol=1e-5)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"positions": (0, 2)}, "positions has 0, but must lie in 1 to 55"),
        ({"positions": (56,)}, "positions has 56, but must lie in 1 to 55"),
        ({"positions": (2, 2)}, "positions must name at least one, and each of them once"),
        ({"shown": 7}, "shown must be one of positions"),
        ({"first_layers": (1,)}, "first_layers has 1"),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        SelfOnly(**fields)


def test_a_run_has_a_row_for_each_arm_and_measure_compared_at_its_own_position(section):
    sets = LAYERS + 1 + 1  # layers 0 to 1, and all; 7 layers are more than there are
    other_keys = 2 * 4
    assert len(section.rows) == 3 * (1 + 3 * sets) + other_keys + 1  # and the identity edit
    assert {claim.verdict for claim in section.claims} <= {"confirmed", "not confirmed"}
    values = {(row.arm, row.measure): row for row in section.rows}
    effect = values["position 2 in layer 0", self_only.ACTIVATION].effect.mean
    assert effect != values["position 2 in layer 0", self_only.ACTIVATION].value.mean
    assert {row.controls for row in section.rows if " in layer 1" in row.arm} == {4}
    assert {drawing.name for drawing in section.drawings} == {
        "attention-maps",
        "sink-by-position-and-layers",
        "by-depth",
        "sink-against-activation",
    }


def test_on_smollm2_a_query_alone_in_all_layers_gets_a_sink_and_a_massive_activation(smollm2):
    """Measured on these texts (see the asserts): without an edit no head sinks on position 4, and |h| there is below 1,000."""
    tokens, lengths = sinkjax.encode(smollm2, TEXTS, bos="none", length=24)
    probe = sinkjax.Probe(resid_max=True, extra=(sinking_heads(0.3),))

    def measured(*edits: sinkjax.Edit) -> tuple[float, float]:
        record = sinkjax.forward(
            smollm2.params, tokens, smollm2.config, edits=edits, probe=probe, lengths=lengths, logits=False
        ).record
        return float(100 * record["sinking_heads"][..., 4].mean()), float(record["resid_max"][..., 4].max(axis=1).mean())

    (sink, activation), (placed, massive) = measured(), measured(sinkjax.attend_self(4))
    assert sink < 5 < 25 < placed
    assert activation < 2_000 < 10_000 < massive
    late, _ = measured(sinkjax.attend_self(4, layers=range(15, 30)))
    assert late < 5
