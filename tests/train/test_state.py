"""The memory of a training, by shapes: what a micro-batch and the recomputation of blocks save, and what they cannot."""

from __future__ import annotations

import dataclasses

import pytest

from sinkjax.model import params
from sinkjax.tasks import registry
from sinkjax.tasks.language_model.config import Pretrain
from sinkjax.tasks.trigger.config import TriggerTraining
from sinkjax.train.state import least_bytes, training_bytes

CONFIG = Pretrain(layers=3, width=32, heads=2, mlp_width=64, vocabulary=300, context=32, batch=8)


def parts(**fields) -> list[int]:
    config = dataclasses.replace(CONFIG, **fields)
    return list(training_bytes(registry.task(config)).values())


def test_a_micro_batch_and_remat_save_what_is_kept_and_nothing_else():
    state, gradient, kept = parts()
    assert 3 * gradient < state < 3.01 * gradient  # weights and two moments, and a count
    for saved in (parts(micro_batch=2), parts(remat=True)):
        assert saved[:2] == [state, gradient]
        assert saved[2] < kept / 2


@pytest.mark.parametrize(("optimiser", "copies"), [("adamw", 3), ("orthoadam", 3), ("sgd", 2), ("muon", (2, 3))])
def test_the_least_memory_counts_the_copies_of_the_optimiser(optimiser, copies):
    config = dataclasses.replace(CONFIG, optimiser=optimiser, eval_every=1, batch=1, width=64)
    size = 4 * params.count(registry.task(config).architecture)
    low, high = copies if isinstance(copies, tuple) else (copies, 1.01 * copies)  # Muon has one mean for matrices
    assert low * size < least_bytes(registry.task(config)) < high * size


def test_a_task_that_makes_its_data_is_planned_too():
    config = TriggerTraining(width=8, length=8, batch=4)
    assert min(training_bytes(registry.task(config)).values()) > 0
