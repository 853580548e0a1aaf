"""The printed plan of a study: its runs and their costs."""

from __future__ import annotations

import functools
import re
import time
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from sinkjax.model import params
from sinkjax.report.terminal import in_words, show
from sinkjax.runtime.progress import duration
from sinkjax.sweeps.hardware import PLATFORMS
from sinkjax.sweeps.plan import block_flops
from sinkjax.tasks import registry
from sinkjax.train.runs import table
from sinkjax.train.state import training_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sinkjax.model.config import Config
    from sinkjax.studies.study import Calculation, TrainingSpec
    from sinkjax.sweeps.hardware import Hardware
    from sinkjax.sweeps.plan import Plan

ROWS, REPEATS = 1024, 8
BACKWARD = 3  # products of a training step, as a multiple of a forward's
# Bytes of a CPU process beside models and calls, as kiya/mask grew on mini-sink, whose parameters weigh nothing
# (docs/benchmarks.md): Python, JAX and a first sweep; each compiled program; figures and page, when the models are gone.
LIBRARIES, PROGRAM, PAGE = 600_000_000, 10_000_000, 150_000_000
VOCABULARY_ENTRY = 260  # bytes of a tokenizer, on Gemma 3 270M
MOST_FLOPS = 3e10  # of one measurement: seconds even for wide models on a CPU


def show_plan(title: str, plan: Plan, config: Config, dtype: str, hardware: Hardware) -> None:
    """Print edits, prompts, calls, compilations, bytes, FLOPs and an estimate of the time."""
    b, T = plan.schedule.prompt_block, plan.positions
    lines = [
        ("edits", plan.edits),
        *(("", kind) for kind in plan.kinds),
        ("prompts", f"{plan.prompts} of {plan.positions} tokens"),
        ("compilations", plan.compiles),
        ("devices", f"{plan.devices * hardware.shards}" + f", {hardware.shards} for each copy" * (hardware.shards > 1)),
        *_of_processes(plan, hardware),
        ("calls of a device", f"{plan.rounds} of {b} prompts and up to {max(plan.schedule.widths)} edits"),
        ("tokens in a call", f"up to {b * T * max(plan.schedule.widths):,}"),
        ("use of the devices", f"{plan.kept:.0%} of their time goes into blocks that one device would have to compute"),
        ("blocks computed", f"{plan.layer_passes * b:,} of {(plan.edits + 1) * config.layers * plan.prompts:,} without sharing"),
        *((f"memory: {part}", in_words(count)) for part, count in plan.bytes.items()),
        ("memory: peak", in_words(plan.peak_bytes)),
        ("result, uncompressed", in_words(plan.result_bytes)),
        ("FLOPs", f"{plan.flops:.3g}"),
        ("time", _time([plan], config, dtype, hardware)),
    ]
    show(title, ("", ""), lines, "the time leaves out compilation and everything but matrix products")


def _time(plans: Iterable[Plan], config: Config, dtype: str, hardware: Hardware) -> str:
    """How long the matrix products of some sweeps take, as text."""
    if hardware.platform in PLATFORMS:
        rate, source = PLATFORMS[hardware.platform].rates.get(dtype), f"of the data sheet of {hardware.platform}"
    else:
        rate, source = matrix_rate(config.width, config.mlp_width or config.heads * config.head_dim, dtype), "measured here"
    if not rate:
        return f"no rate for {dtype}"
    seconds = sum(plan.critical_flops for plan in plans) / hardware.shards / rate
    return f"about {duration(seconds)} at the {rate / 1e9:,.0f} GFLOP/s {source}"


def _of_processes(plan: Plan, hardware: Hardware) -> list[tuple[str, str]]:
    """How many processes have a part of a sweep, if there are several."""
    if hardware.processes == 1:
        return []
    idle = hardware.processes - plan.processes
    return [("processes", f"{hardware.processes}" + f", {idle} of them idle: {plan.processes} are enough" * (idle > 0))]


def process_bytes(parts: Iterable[tuple[bool, int, int]], config: Config, dtype: str) -> int:
    """The peak memory of a process on a CPU that runs the parts of a study in their order and makes its page.

    Args:
        parts: Whether each part runs on the untrained twin, which is loaded for the first one that does and stays; the bytes that
            it needs beside the models; the programs that it compiles, which stay.
        config: The architecture of both models.
        dtype: Their dtype.

    Returns:
        Bytes of resident memory.
    """
    own = params.count(config) * jnp.dtype(dtype).itemsize + VOCABULARY_ENTRY * (config.vocab_size or 0)
    models, kept, peak = 1, LIBRARIES, 0
    for twin, beside, programs in parts:
        models, kept = max(models, 1 + twin), kept + PROGRAM * programs
        peak = max(peak, kept + models * own + beside)
    return max(peak, kept + PAGE)


def show_total(title: str, parts: Sequence[tuple[bool, Plan | int]], config: Config, dtype: str, hardware: Hardware) -> None:
    """Print the total cost of a study on a CPU: memory of the process, FLOPs and time.

    parts: see `process_bytes`, with the plans of sweeps and the bytes of calculations.
    """
    plans = [part for _, part in parts if not isinstance(part, int)]
    needs = [
        (twin, part, 0) if isinstance(part, int) else (twin, part.peak_bytes - part.bytes["parameters"], part.compiles)
        for twin, part in parts
    ]
    lines = [
        ("memory of the process", in_words(process_bytes(needs, config, dtype))),
        ("models in memory", "the model and its untrained twin" if any(twin for twin, _ in parts) else "the model"),
        ("FLOPs", f"{sum(plan.flops for plan in plans):.3g}"),
        ("time", _time(plans, config, dtype, hardware)),
    ]
    show(title, ("", ""), lines, "memory with the libraries; FLOPs and time of the sweeps' matrix products alone")


def show_calculation(title: str, calculation: Calculation, config: Config, length: int, dtype: str) -> None:
    """Print a calculation's purpose, inputs and model; it has no edits to count and its cost is not known."""
    count = params.count(config)
    lines = [
        ("what", _first_sentence(calculation.compute)),
        ("prompts", f"{calculation.prompts} of up to {length} tokens"),
        ("parameters", f"{count:,}, {in_words(count * jnp.dtype(dtype).itemsize)} in {dtype}"),
    ]
    show(title, ("", ""), lines, "a calculation, not a sweep: it has no edits, and its cost is not estimated")


def show_training_plan(title: str, spec: TrainingSpec, config: Config) -> None:
    """Print a training's runs, steps, parameters and FLOPs. config: the config of one of its models."""
    training, count, length = spec.training, params.count(config), config.context
    task = registry.task(training)
    runs = len(table(training, task))
    flops = BACKWARD * config.layers * block_flops(config, length) * length * training.batch * training.steps * runs
    lines = [
        ("what", _first_sentence(spec.measure)),
        ("runs", f"{runs}, seeds from {training.seed}"),
        ("steps", f"at most {training.steps:,} of {training.batch} sequences of {length} tokens"),
        ("parameters", f"{count:,} a run, {in_words(count * jnp.dtype(training.dtype).itemsize)} in {training.dtype}"),
        *((f"memory: {part}", in_words(size)) for part, size in training_bytes(task, training).items()),
        ("FLOPs", f"{flops:.3g} at most, {flops / training.steps / runs:.3g} a step: of matrix products"),
    ]
    show(title, ("", ""), lines, "a training: a run that reaches its goal stops before its last step")


def _first_sentence(compute: object) -> str:
    """The start of a function's docstring, up to the first full stop or colon."""
    while isinstance(compute, functools.partial):
        compute = compute.func
    line = " ".join((compute.__doc__ or "").split("\n\n")[0].split())
    return re.split(r"[.:](?: |$)", line)[0] or "its own numbers"


@functools.cache
def matrix_rate(inner: int, outer: int, dtype: str) -> float:
    """FLOPs a second of a product [rows, inner] x [inner, outer] on the default device, in the precision of a sweep."""
    rows = max(64, min(ROWS, int(MOST_FLOPS / REPEATS / (2 * inner * outer))))
    multiply = jax.jit(lambda x, w: jnp.matmul(x, w, precision="highest"))
    x, w = jnp.ones((rows, inner), dtype), jnp.ones((inner, outer), dtype)
    multiply(x, w).block_until_ready()
    start = time.perf_counter()
    for _ in range(REPEATS):
        product = multiply(x, w)
    product.block_until_ready()
    return 2 * rows * inner * outer * REPEATS / (time.perf_counter() - start)
