"""The trigger task in sinkjax, by its own trainer with everything it does: evaluations, log and checkpoints."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import sinkjax
from bench_peers.worker import CORES, serve, versions
from sinkjax.tasks import registry, train
from sinkjax.tasks.trigger.config import TriggerTraining
from sinkjax.train import step

SEED = 0
MATMUL = {"size": 2048, "repeats": 8}
RAISED = 0.3  # standard deviation of parameters that are compared: at 0.02 attention is flat and tells little


def config(layers: int, heads: int, normaliser: str, **fields: Any) -> TriggerTraining:
    """The paper's settings of a size."""
    rate = 1e-4 if layers > 1 else 1e-3
    return TriggerTraining(layers=layers, heads=heads, normalisers=(normaliser,), learning_rates=(rate,), **fields)


def run(layers: int, heads: int, normaliser: str, seeds: int, steps: int, shared_data: bool = False) -> dict[str, Any]:
    """Milliseconds of a step of one run, compilation aside, while `seeds` runs train together for `steps` steps."""
    chosen = config(layers, heads, normaliser, seeds=seeds, steps=steps, shared_data=shared_data)
    with tempfile.TemporaryDirectory() as folder:
        trained = train(chosen, folder, progress=False)
    if any(ended.outcome != "all steps" for ended in trained.runs):
        raise SystemExit(f"a run ended before {steps} steps; time fewer of them")
    return {"milliseconds": trained.milliseconds}


def example(layers: int, heads: int, normaliser: str) -> dict[str, Any]:
    """Parameters, a batch, its loss and the norm of the gradient, for another library to compute again."""
    task: Any = registry.task(config(layers, heads, normaliser, init_std=RAISED if layers == 1 else 0.1))
    params, batch = task.init(SEED), task.batch(step.key(SEED, "example", "threefry"))
    (loss, _), gradient = jax.value_and_grad(task.loss, has_aux=True)(params, batch, jnp.int32(0))
    arrays = {name: params["layers"][name] for name in ("q", "k", "v", "o")}
    return {**arrays, "x": batch[0], "y": batch[1], "loss": loss, "gradient": optax.tree.norm(gradient)}


def parts(layers: int, heads: int, normaliser: str, steps: int) -> dict[str, Any]:
    """Milliseconds of making a batch, and of loss and gradient of one, each alone in a scan on one device."""
    task: Any = registry.task(config(layers, heads, normaliser))
    params, key = task.init(SEED), step.key(SEED, "parts", "hash")

    def data(carry: jax.Array, step: jax.Array) -> tuple[jax.Array, None]:
        return carry + sum(part.sum() for part in task.batch(jax.random.fold_in(key, step))), None

    def gradient(params: Any, batch: Any) -> tuple[Any, None]:
        slope = jax.grad(lambda params: task.loss(params, batch, jnp.int32(0))[0])(params)
        return jax.tree.map(lambda leaf, change: leaf - 1e-3 * change, params, slope), None

    @jax.jit
    def all_data() -> jax.Array:
        return jax.lax.scan(data, jnp.float32(0), jnp.arange(steps))[0]

    @jax.jit
    def all_gradients(params: Any, batch: Any) -> Any:
        return jax.lax.scan(lambda params, _: gradient(params, batch), params, length=steps)[0]

    batch = task.batch(key)
    return {"data": milliseconds(all_data) / steps, "gradient": milliseconds(lambda: all_gradients(params, batch)) / steps}


def products() -> dict[str, float]:
    """GFLOP/s of a large float32 matrix product on one device, with all cores."""
    n = MATMUL["size"]
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    matrix = jnp.asarray(np.random.default_rng(SEED).normal(size=(n, n)).astype(np.float32))
    return {"gflops": 2 * n**3 / milliseconds(lambda: product(matrix)) / 1e6}


def milliseconds(call: Callable[[], Any]) -> float:
    """Of the quickest of several calls, after a first one that compiles."""
    jax.block_until_ready(call())
    taken = []
    for _ in range(MATMUL["repeats"]):
        begun = time.perf_counter()
        jax.block_until_ready(call())
        taken.append(time.perf_counter() - begun)
    return min(taken) * 1e3


if __name__ == "__main__":
    if jax.config.jax_platforms == "cpu":
        jax.config.update("jax_num_cpu_devices", CORES)  # as the command line does for trainings
    found = {"sinkjax": sinkjax.__version__} | versions("jax", "jaxlib")
    device = lambda: {"device": jax.devices()[0].device_kind, "devices": jax.device_count()}  # noqa: E731
    serve(
        {
            "run": run,
            "example": example,
            "parts": parts,
            "products": products,
            "versions": lambda: {"versions": found, **device()},
        }
    )
