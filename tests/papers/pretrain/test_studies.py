"""Every study that ships: each row is a training at every size that it is for, and its loss has a gradient."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sinkjax.config_files import documents
from sinkjax.papers.pretrain._task import SIZES, training
from sinkjax.study.registry import choose, documented, find
from sinkjax.study.trained import specs
from sinkjax.tasks import registry
from sinkjax.train.state import optimiser_of

STUDIES = sorted(name for name in documented() if name.startswith("pretrain/"))
LARGE = "pretrain/smollm2"  # its operations are those of pretrain/released, on 135 million parameters
TINY = {"layers": 2, "width": 32, "head_dim": 64, "mlp_width": 8, "context": 24, "batch": 2, "eval_batch": 2, "eval_every": 2}


def config(name: str, **fields: Any) -> Any:
    found: Any = choose(name).config
    return dataclasses.replace(found, **fields)


def tiny(name: str) -> list[tuple[str, Any]]:
    """The trainings of a study of models that have nothing to learn, on a text that is there; a row's own changes come last."""
    task = registry.config_type(SIZES[config(name).size].task)
    fields = {field.name for field in dataclasses.fields(task)}
    small = {key: value for key, value in TINY.items() if key in fields}
    small |= {"vocabulary": 260} if SIZES[config(name).size].task == "pretrain" else {}
    rows = {row: node["row"] for row, node in documents.parse(documented()[name], name)["trainings"].items()}
    return [
        (row, training(config(name, steps=2), row, {**small, **given.get("changes", {})}, given.get("times", {})))
        for row, given in rows.items()
    ]


def sizes(name: str) -> list[str]:
    """The sizes of the task that a study is for."""
    task = SIZES[config(name).size].task
    return [size for size, entry in SIZES.items() if entry.task == task]


@pytest.mark.parametrize("name", STUDIES)
def test_every_row_is_a_training_at_every_size_that_it_is_for(name):
    assert find(name).name == name
    for size in sizes(name):
        stated = config(name, size=size)
        every = [spec.training for spec in specs(find(name).trace(stated, None), stated)]
        assert size != config(name).size or len({*every}) == len(every)  # no two rows are the same
    titles = [one.label for one in find(name).trace(config(name), None).trainings.values()]
    assert len({*titles}) == len(titles)


@pytest.mark.rows
@pytest.mark.parametrize("name", sorted({*STUDIES} - {LARGE}))
def test_every_row_makes_a_step_and_is_measured(name):
    """Without compiling its program, which would take ten times as long: its operations are those of other rows."""
    for row, stated in tiny(name):
        task = registry.task(stated)
        batch, held_out = data(task)
        with jax.disable_jit():
            params = task.init(0)
            optimiser = optimiser_of(stated, jnp.float32(stated.learning_rates[0]))
            loss, gradient = loss_and_gradient(task, params, batch)
            changes, _ = optimiser.update(gradient, optimiser.init(params), params)
            moved = optax.apply_updates(params, changes)
            measured = task.evaluate(moved, held_out, jnp.int32(0))
        assert np.isfinite(float(loss)), row
        assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(moved)), row
        assert any(bool((a != b).any()) for a, b in zip(*map(jax.tree.leaves, (params, moved)), strict=True)), row
        summary = task.summarise({key: np.asarray(value) for key, value in measured.items()})
        assert np.isfinite(summary["loss"]), row
        assert 0 <= min(summary["sink_share"]) <= max(summary["sink_share"]) <= 1, row


def data(task: Any) -> tuple[Any, Any]:
    """The first batch of a task, and what it is evaluated on."""
    if task.on_host:
        source = task.open(lambda line: None)
        return source.batch(0, 0), source.held_out()
    return task.batch(jax.random.key(0)), task.held_out(jax.random.key(99))


def loss_and_gradient(task: Any, params: Any, batch: Any) -> tuple[Any, Any]:
    (loss, _), gradient = jax.value_and_grad(lambda p: task.loss(p, batch, jnp.int32(0)), has_aux=True)(params)
    return loss, gradient
