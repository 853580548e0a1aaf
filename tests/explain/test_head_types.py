"""Types of heads against full maps, planted heads that are found, and checkpoints that are measured as single models are."""

from __future__ import annotations

import numpy as np
import pytest

import sinkjax
from sinkjax import Probe
from sinkjax.checkpoints.model import Model
from sinkjax.explain.head_types import repeated_tokens, scores, statistics
from sinkjax.model import params
from tests.model.variants import bare

PERIOD, T = 5, 10
CONFIG = bare(vocab_size=13)


def model(seed: int) -> Model:
    return Model(CONFIG, params.init(CONFIG, seed), None, {"kind": "arrays", "name": f"seed {seed}"})


@pytest.fixture(scope="module")
def tokens() -> np.ndarray:
    return repeated_tokens(model(0), 3, PERIOD, "none", 0)


def test_scores_are_means_of_the_map_over_the_second_copy(tokens: np.ndarray) -> None:
    """Random targets by an average over very many: every visible key of a query is as likely."""
    probe = Probe(extra=statistics(PERIOD, 4000, 0), attention=True)
    record = sinkjax.forward(model(0), tokens, probe=probe, logits=False).record
    maps = np.asarray(record["attention"], np.float64).mean(axis=0)  # layer, head, query, key
    second = np.arange(PERIOD, T)
    found = scores(record)
    for name, keys in {"first": 0 * second, "previous": second - 1, "induction": second - PERIOD + 1}.items():
        np.testing.assert_allclose(found["score"].sel(type=name), maps[..., second, keys].mean(axis=-1), rtol=1e-5)
    uniform = np.mean([maps[..., row, : row + 1].mean(axis=-1) for row in second], axis=0)
    np.testing.assert_allclose(found["null"], uniform, rtol=0.02)


def test_planted_heads_are_found_and_no_other_is(tokens: np.ndarray) -> None:
    """Each row of a head's second copy is put on its target; heads that are left attend evenly."""
    planted = {"previous": (0, 1), "induction": (1, 0)}
    edits = [sinkjax.set_weights(row, np.full(row + 1, 1 / (row + 1))) for row in range(T)]
    for name, (layer, head) in planted.items():
        for row in range(PERIOD, T):
            target = row - 1 if name == "previous" else row - PERIOD + 1
            edits.append(sinkjax.set_weights(row, {target: 1.0}, layers=layer, heads=head))
    probe = Probe(extra=statistics(PERIOD, 500, 0))
    found = scores(sinkjax.forward(model(0), tokens, edits=edits, probe=probe, logits=False).record)
    for name, place in planted.items():
        alone = found.sel(type=name)
        assert alone["score"].values[place] == pytest.approx(1)
        assert alone["p"].values[place] == pytest.approx(1 / 501, abs=0.01)  # a random set may be the target by chance
        others = np.delete(alone["p"].values.ravel(), np.ravel_multi_index(place, (2, 2)))
        assert (others > 0.05).all()


def test_checkpoints_are_measured_as_single_models_are(tmp_path) -> None:
    for step, seed in ((0, 1), (10, 2)):
        sinkjax.save(model(seed), tmp_path / "run-000" / f"step-{step}")
    series = sinkjax.head_types(tmp_path, bos="none", period=PERIOD, prompts=3, draws=20)
    assert series["score"].dims == ("checkpoint", "type", "layer", "head")
    for row, seed in enumerate((1, 2)):
        alone = sinkjax.head_types(model(seed), bos="none", period=PERIOD, prompts=3, draws=20)
        for name in ("score", "null", "p"):
            np.testing.assert_allclose(series[name][row], alone[name], rtol=1e-6)
