"""A language model trained by sinkjax, by its own trainer with everything it does: batches, evaluations, log and checkpoints."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import sinkjax
from bench_peers.trigger_sinkjax import milliseconds, products
from bench_peers.worker import CORES, serve, versions
from sinkjax.model import params
from sinkjax.tasks import registry, train
from sinkjax.tasks.language_model.config import Pretrain
from sinkjax.train.state import optimiser_of


def config(shape: dict[str, Any], **fields: Any) -> Pretrain:
    """The settings of a size: its shape, and the optimisation of configs/pretrain/baseline.yaml."""
    return Pretrain(**shape, weight_decay=0.5, **fields)


def run(shape: dict[str, Any], steps: int, evaluations: int, seeds: int = 1) -> dict[str, Any]:
    """Milliseconds of a step of one run, compilation aside, in trainings of `steps` steps with so many evaluations."""
    with tempfile.TemporaryDirectory() as folder:
        trained = train(config(shape, steps=steps, eval_every=steps // evaluations, seeds=seeds), folder, progress=False)
    return {"milliseconds": trained.milliseconds}


def example(shape: dict[str, Any], folder: str) -> dict[str, Any]:
    """A new model, exported to `folder`; a batch, its loss and the norm of the gradient, for another library to compute again."""
    task, values, batch = begun(shape)
    (loss, _), gradient = jax.jit(jax.value_and_grad(task.loss, has_aux=True))(values, batch, 0)
    sinkjax.export(sinkjax.Model(task.model("softmax"), values, None, {"name": "a benchmark"}), Path(folder))
    return {"tokens": batch["tokens"], "loss": loss, "gradient": optax.tree.norm(gradient)}


def about(shape: dict[str, Any]) -> dict[str, Any]:
    """Parameters, and FLOPs of a token: 6 for each parameter but the embedding, and causal attention, forward and backward."""
    chosen = config(shape)
    architecture = registry.task(chosen).model("softmax")  # type: ignore[attr-defined]
    count = params.count(architecture)
    attention = 6 * architecture.layers * architecture.heads * architecture.head_dim * chosen.context
    return {"parameters": count, "flops": 6 * (count - architecture.vocab_size * architecture.width) + attention}


def parts(shape: dict[str, Any]) -> dict[str, Any]:
    """Milliseconds of the parts of a step, each compiled by itself, and GFLOP/s of a large product (mean of before and after)."""
    task, values, batch = begun(shape)
    optimiser = optimiser_of(task.config, 4e-3)
    loss = jax.jit(lambda values, batch: task.loss(values, batch, 0)[0])
    gradient = jax.jit(jax.grad(lambda values, batch: task.loss(values, batch, 0)[0]))
    slope, state = gradient(values, batch), optimiser.init(values)

    @jax.jit
    def move(slope: Any, state: Any, values: Any) -> Any:
        changes, state = optimiser.update(slope, state, values)
        return optax.apply_updates(values, changes), state

    before = products()["gflops"]
    taken = {
        "loss": milliseconds(lambda: loss(values, batch)),
        "gradient": milliseconds(lambda: gradient(values, batch)),
        "optimiser": milliseconds(lambda: move(slope, state, values)),
    }
    return {**taken, "gflops": (before + products()["gflops"]) / 2}


def begun(shape: dict[str, Any]) -> tuple[Any, Any, Any]:
    """A task, its parameters before the first step, and a batch of random tokens."""
    chosen = config(shape)
    task = registry.task(chosen)
    tokens = np.random.default_rng(0).integers(0, chosen.model_vocabulary, (chosen.batch, chosen.context + 1), np.int32)
    return task, task.init(0), jax.device_put({"tokens": tokens, "loss_mask": np.ones_like(tokens, bool)})


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", CORES)  # as the command line does for trainings
    found = {"sinkjax": sinkjax.__version__} | versions("jax", "jaxlib")
    jobs = {"run": run, "example": example, "about": about, "parts": parts, "products": products}
    serve({**jobs, "versions": lambda: {"versions": found, "device": jax.devices()[0].device_kind}})
