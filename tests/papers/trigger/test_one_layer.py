"""trigger/one-layer: the outcomes that the paper states, on one seed; what edits do; resumable and rebuilt from its stores."""

from __future__ import annotations

import numpy as np
import pytest

from sinkjax.papers.trigger._outcomes import IDENTITY, OTHERS, TRIGGER
from sinkjax.study.work import NO_EDIT
from tests.papers.trigger.conftest import judged, seeds

J = 7  # where the trigger of the maps stands
MASKED, VALUE_OFF = "BOS's key masked", "BOS's value removed"
WEIGHT_OFF, RENORMALISED = "BOS's weight removed", "BOS's weight removed, rows renormalised"


def test_softmax_puts_everything_on_bos_but_at_the_trigger_where_it_is_uniform(one_layer):
    data = one_layer.stores["softmax"]
    assert data["outcome"].values.tolist() == ["converged"]
    assert float(data["weight"].sel(rows=OTHERS, target="bos").min()) >= 0.99
    own = data["map_mean"].values[0, 0, 0, J]
    np.testing.assert_allclose(own[1 : J + 1], 1 / J, atol=2e-3)
    assert own[0] < 1e-3
    assert (own[J + 1 :] == 0).all()
    assert float(data["uneven"].max()) < 5e-3
    assert float(data["map_std"].max()) < 0.02


def test_relu_solves_the_task_without_a_sink(one_layer):
    data = one_layer.stores["relu"]
    assert data["outcome"].values.tolist() == ["converged"]
    assert float(data["weight"].sel(rows=OTHERS).sum("target").max()) < 1e-3
    own = data["map_mean"].values[0, 0, 0, J]
    assert own[1 : J + 1].min() > 0.1
    np.testing.assert_allclose(own[1 : J + 1], own[1 : J + 1].mean(), atol=5e-3)


def losses(data, rows):
    return {str(name): float(data["edited_loss"].sel(edit=name, error_rows=rows)[0]) for name in data["edit"].values}


def test_softmax_needs_bos_to_be_seen_and_not_to_be_read(one_layer):
    others, own = (losses(one_layer.stores["softmax"], rows) for rows in (OTHERS, TRIGGER))
    assert others[IDENTITY] == others[NO_EDIT] < 1e-6
    assert others[MASKED] > 0.05
    assert others[RENORMALISED] == pytest.approx(others[MASKED], rel=1e-3)
    assert max(others[WEIGHT_OFF], others[VALUE_OFF]) < 1e-6
    assert others["BOS moved to position 4"] > 0.01  # rows before it see no BOS
    assert max(others[f"key {key} masked"] for key in (3, 12)) < 1e-6
    assert own[MASKED] < 1e-5
    assert own["key 3 masked"] > 1e-3


def test_eight_seeds_like_the_papers_replicate_it(one_layer):
    stores = {name: seeds(one_layer.stores[name]) for name in ("softmax", "relu")}
    words = judged("one-layer", one_layer.chosen.config, stores)
    assert words == {"softmax": "replicates", "edits": "described", "neutral": "holds"}
