"""A task that costs nothing: linear regression on data from keys. It goes through the registry like any other."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from sinkjax.tasks import registry
from sinkjax.tasks.trigger.config import TriggerTraining
from sinkjax.tasks.trigger.task import model
from sinkjax.train.config import Training
from sinkjax.train.task import Task

WIDTH = 4


@dataclass(frozen=True, kw_only=True)
class Linear(Training):
    """y = x w, with w = 1, 2, ... and noise."""

    stop_below: float = 0.05
    """the largest error of a batch at which a run stops"""
    noise: float = 0.0
    """standard deviation of what is added to y"""

    @property
    def summary(self) -> str:
        return "linear regression"


@dataclass(frozen=True)
class Regression(Task):
    """Variant "square" has the squared error as its loss, "absolute" the absolute one."""

    config: Linear
    name: str = "linear"
    variants: tuple[str, ...] = ("square", "absolute")

    def model(self, variant):
        return model(TriggerTraining())  # any: no test saves a regression

    def init(self, seed):
        return {"w": jax.random.normal(jax.random.key(seed), (WIDTH,)), "b": jnp.zeros(())}

    def batch(self, key):
        first, second = jax.random.split(key)
        x = jax.random.normal(first, (self.config.batch, WIDTH))
        noise = self.config.noise * jax.random.normal(second, (self.config.batch,))
        return x, x @ jnp.arange(1.0, WIDTH + 1) + noise

    held_out = batch

    def errors(self, params, batch):
        return batch[0] @ params["w"] + params["b"] - batch[1]

    def loss(self, params, batch, variant, step=None):
        errors = self.errors(params, batch)
        loss = jax.lax.switch(variant, (lambda: jnp.square(errors).mean(), lambda: jnp.abs(errors).mean()))
        return loss, jnp.abs(errors).max() < self.config.stop_below

    def evaluate(self, params, batch, variant):
        errors = self.errors(params, batch)
        return {"loss": jnp.square(errors).mean(), "errors": jnp.stack([jnp.abs(errors).max(), jnp.abs(errors).min()])}


def task(config: Linear) -> Regression:
    return Regression(config)


def register() -> None:
    """Make the task known under the name "linear"."""
    registry.TASKS["linear"] = (__name__, "Linear", __name__)
