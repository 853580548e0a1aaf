"""li/isolate: the token sees what each arm says, the controls lose as many keys, and on SmolLM2 it becomes a sink."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.li import isolate
from sinkjax.experiments.li.config import Isolate
from sinkjax.experiments.measures import largest_activation, sink_rate
from sinkjax.probes.record import Record
from sinkjax.studies import run
from tests.studies.tiny import LAYERS, study, write_both

K, T = 5, 12
CONFIG = Isolate(position=K, length=T, controls=20)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_both(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def rows(files: Path):
    """edit -> attention of the query at K, [layer, head, key], on one prompt."""
    model = sinkjax.load(str(files / "model"))
    tokens = np.random.default_rng(0).integers(1, model.config.vocab_size, (1, T)).astype(np.int32)
    probe = sinkjax.Probe(attention=tuple(range(LAYERS)))

    def attention(edit: sinkjax.Edit) -> np.ndarray:
        maps = sinkjax.forward(model.params, tokens, model.config, edits=edit, probe=probe).record["attention"]
        return np.asarray(maps)[0, :, :, K, : K + 1]

    return attention


def chosen() -> dict[str, sinkjax.Edit]:
    return {arm.edit.label: arm.edit for arm in isolate.arms(CONFIG, LAYERS)}


def test_the_arms_are_each_layer_the_first_ones_all_and_their_opposites():
    arms = isolate.arms(CONFIG, 10)
    groups = [arm.group for arm in arms]
    assert groups[:2] == [isolate.NONE, isolate.IDENTITY]
    assert groups.count(isolate.SINGLE) == 10
    assert [arm.place for arm in arms if arm.group == isolate.FIRST] == [1, 2, 3, 5, 7]
    assert [arm.place for arm in arms if arm.group == isolate.OTHER] == [0, K // 2, K - 1]
    assert len({arm.edit.label for arm in arms}) == len(arms)


def test_an_isolated_token_sees_itself_alone_in_its_layers(rows):
    seen = rows(chosen()["layer 1"])
    alone = np.eye(K + 1)[K]
    np.testing.assert_array_equal(seen[1], np.tile(alone, (len(seen[1]), 1)))
    assert (seen[0] > 0).all()
    np.testing.assert_array_equal(rows(chosen()[isolate.ALL]), np.broadcast_to(alone, seen.shape))


def test_the_opposites_see_one_other_key_or_all_alike(rows):
    other = rows(chosen()[f"key 2 alone, {isolate.ALL}"])
    np.testing.assert_array_equal(other, np.broadcast_to(np.eye(K + 1)[2], other.shape))
    np.testing.assert_allclose(rows(chosen()[f"{isolate.EVEN}, {isolate.ALL}"]), 1 / (K + 1), rtol=1e-6)
    np.testing.assert_array_equal(rows(chosen()[isolate.IDENTITY]), rows(chosen()[isolate.NONE]))


def test_every_control_sees_one_other_key_in_its_layers(rows):
    drawn = isolate.controls(CONFIG, LAYERS)
    assert [arm.budget for arm in drawn] == [1] * 20 + [LAYERS] * 20
    for arm in (*drawn[:3], *drawn[20:23]):
        seen = rows(arm.edit)
        edited = (seen == 1).any(axis=(1, 2))
        assert edited.sum() == arm.budget
        assert (seen[edited].max(axis=-1) == 1).all()
        assert (seen[edited][..., K] == 0).all()


def test_a_run_judges_and_draws(files, tmp_path):
    section = run.carry_out(study("li/isolate", files, position=K, controls=3, control_prompts=2), tmp_path / "out")
    assert len(section.claims) == 3
    identity = [row for row in section.rows if row.arm == isolate.IDENTITY]
    assert max(abs(row.effect.mean) for row in identity) < 1e-5
    assert {path.stem for path in (tmp_path / "out" / "figures").iterdir()} == {
        "sink-by-isolated-layer",
        "activation-of-the-isolated-token",
    }


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [({"position": 0}, "at least 1"), ({"position": 63}, "the last of 64"), ({"position": 64}, "below length")],
)
def test_a_position_without_earlier_or_later_tokens_is_refused(fields, sentence):
    with pytest.raises(SinkjaxError, match=sentence):
        Isolate(**fields)


TEXTS = (
    "The river had risen in the night, and by morning the lower fields were under water as far as the mill and the road.",
    "She wrote to her brother every week, long letters about the garden and the price of coal, which he never answered.",
    "In the winter of that year the company bought two ships, and sent them north with orders to return before the frost.",
    "A good carpenter looks at the grain before he looks at the drawing, because the wood decides what can be made of it.",
)


def test_on_smollm2_a_token_becomes_a_sink_isolated_with_one_other_key_or_with_even_attention(smollm2):
    """Measured on these texts: 51 % of heads on key 10, and |h| from 650 to 24,000, where it sees itself alone; 27 % and 19,200
    with key 5 alone; 25 % and 18,200 with all keys alike."""
    config = Isolate(length=24)
    tokens, lengths = sinkjax.encode(smollm2, TEXTS, bos="none", length=config.length)
    arms = {arm.edit.label: arm.edit for arm in isolate.arms(config, smollm2.config.layers)}
    probe = sinkjax.Probe(attention_received=True, resid_max=True)

    def measured(label: str) -> tuple[float, float]:
        out = sinkjax.forward(
            smollm2.params, tokens, smollm2.config, edits=arms[label], probe=probe, lengths=lengths, logits=False
        )
        record = Record({name: np.asarray(out.record[name])[None] for name in ("attention_received", "resid_max")}, probe.dims())
        return tuple(float(measure.of(record).mean()) for measure in (sink_rate(10, 0.3), largest_activation(10)))

    labels = (isolate.NONE, isolate.ALL, f"key 5 alone, {isolate.ALL}", f"{isolate.EVEN}, {isolate.ALL}")
    none, alone, other, even = (measured(label) for label in labels)
    assert none[0] == 0
    assert none[1] < 2_000
    assert alone[0] > 35
    assert alone[0] > other[0] > 15
    assert even[0] > 12
    assert min(alone[1], other[1], even[1]) > 10_000
