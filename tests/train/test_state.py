"""The memory of a training, by shapes: what a micro-batch and the recomputation of blocks save, and what they cannot."""

from __future__ import annotations

import dataclasses

from sinkjax.tasks import registry
from sinkjax.tasks.language_model.config import Pretrain
from sinkjax.tasks.trigger.config import TriggerTraining
from sinkjax.train.state import training_bytes

CONFIG = Pretrain(layers=3, width=32, heads=2, mlp_width=64, vocabulary=300, context=32, batch=8)


def parts(**fields) -> list[int]:
    config = dataclasses.replace(CONFIG, **fields)
    return list(training_bytes(registry.task(config), config).values())


def test_a_micro_batch_and_remat_save_what_is_kept_and_nothing_else():
    state, gradient, kept = parts()
    assert 3 * gradient < state < 3.01 * gradient  # weights and two moments, and a count
    for saved in (parts(micro_batch=2), parts(remat=True)):
        assert saved[:2] == [state, gradient]
        assert saved[2] < kept / 2


def test_what_is_kept_grows_with_the_batch_and_holds_the_logits():
    (*_, one), (*_, two) = parts(micro_batch=2), parts(micro_batch=4)
    assert two - one > 2 * CONFIG.context * CONFIG.vocabulary * 4


def test_a_task_that_makes_its_data_is_planned_too():
    config = TriggerTraining(width=8, length=8, batch=4)
    assert min(training_bytes(registry.task(config), config).values()) > 0
