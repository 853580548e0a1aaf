"""The printed plan of a study: its runs and their costs."""

from __future__ import annotations

import functools
import re
import statistics
import time
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from sinkjax.model import params
from sinkjax.report.terminal import in_words, show
from sinkjax.runtime.hardware import PLATFORMS
from sinkjax.runtime.progress import duration
from sinkjax.study.parts import Part
from sinkjax.study.work import Calculation, TrainingSpec
from sinkjax.sweeps.plan import TOKENS_PER_CALL, Plan
from sinkjax.tasks import registry
from sinkjax.train.runs import table
from sinkjax.train.state import training_bytes
from sinkjax.transformer.cost import block_flops
from sinkjax.transformer.layers import block_step, empty_slots
from sinkjax.transformer.spec import ForwardSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sinkjax.model.config import Config
    from sinkjax.probes.probe import Probe
    from sinkjax.runtime.hardware import Hardware

Planned = tuple[Part | Calculation, Plan | None]  # a part of a study, with the plan if it is a sweep
REPEATS = 8
BACKWARD = 3  # matrix products of a training step, as a multiple of a forward pass
# Bytes of a process on a CPU, measured with `kiya/mask` on a model of 1.4M parameters, which need almost no memory.
# `scripts/benchmarks/bench_studies.py` compares plans with runs of other models (docs/results/benchmarks-full.md).
LIBRARIES = 600_000_000  # Python, JAX and a first sweep
PROGRAM = 10_000_000  # a compiled program
PAGE = 150_000_000  # figures and page, after the models are freed
VOCABULARY_ENTRY = 260  # bytes of a tokenizer, on Gemma 3 270M
MOST_FLOPS = 3e11  # maximum FLOPs of one measurement, which takes seconds even for wide models on a CPU


def show_parts(
    study: str,
    work: Iterable[tuple[Part | Calculation | TrainingSpec, Config, Plan | None]],
    length: Callable[[], int],
    dtype: str,
    hardware: Hardware,
) -> None:
    """Print the plan of each part of a study, and their total if a CPU runs them.

    length: returns the number of tokens of a prompt; a study of trainings has none.
    """
    parts: list[Planned] = []
    for spec, config, planned in work:
        title = f"{study}: {spec.name}"
        if isinstance(spec, TrainingSpec):
            show_training_plan(title, spec, config)
            continue
        parts.append((spec, planned))
        if isinstance(spec, Calculation):
            show_calculation(title, spec, config, length(), dtype)
        elif planned is not None:
            show_plan(title, planned, config, spec.probe, dtype, hardware)
    if hardware.kind == "cpu" and hardware.devices == hardware.shards == 1 and any(planned for _, planned in parts):
        show_total(study, parts, config, dtype)


def show_plan(title: str, plan: Plan, config: Config, probe: Probe, dtype: str, hardware: Hardware) -> None:
    """Print edits, prompts, calls, compilations, bytes, FLOPs and an estimate of the time."""
    b, T, idle = plan.schedule.prompt_block, plan.positions, hardware.processes - plan.processes
    processes = f"{hardware.processes}" + f", {idle} of them idle: {plan.processes} are enough" * (idle > 0)
    computed = plan.row_passes / plan.layer_passes
    lines = [
        ("edits", plan.edits),
        *(("", kind) for kind in plan.kinds),
        ("prompts", f"{plan.prompts} of {plan.positions} tokens"),
        ("attention", plan.attention),
        ("compilations", plan.compiles),
        ("devices", f"{plan.devices * hardware.shards}" + f", {hardware.shards} for each copy" * (hardware.shards > 1)),
        *([("processes", processes)] if hardware.processes > 1 else []),
        ("calls of a device", f"{plan.rounds} of {b} prompts and up to {max(plan.schedule.widths)} edits"),
        ("tokens in a call", f"up to {b * T * max(plan.schedule.widths):,}"),
        ("use of the devices", f"{plan.kept:.0%} of their time goes into blocks that one device would have to compute"),
        ("blocks computed", f"{plan.layer_passes * b:,} of {(plan.edits + 1) * config.layers * plan.prompts:,} without sharing"),
        *([("rows computed", f"{computed:.0%} of these blocks'; the others are the baseline's")] if computed < 1 else []),
        *((f"memory: {part}", in_words(count)) for part, count in plan.bytes.items()),
        ("memory: peak", in_words(plan.peak_bytes)),
        ("result, uncompressed", in_words(plan.result_bytes)),
        ("FLOPs", f"{plan.flops:.3g}"),
        ("time", _time(plan, config, probe, dtype, hardware)),
    ]
    show(title, ("", ""), lines, "the time excludes compilation and work outside blocks")


def _time(plan: Plan, config: Config, probe: Probe, dtype: str, hardware: Hardware) -> str:
    """Describe the time of a sweep's blocks: processor time on a CPU, which others may also use, else wall-clock time."""
    on_cpu = hardware.kind == "cpu"
    flops, source = plan.flops if on_cpu else plan.critical_flops / hardware.shards, "measured here on a block"
    if hardware.platform in PLATFORMS:
        rate, source = PLATFORMS[hardware.platform].rates.get(dtype), f"of the data sheet of {hardware.platform}"
    else:
        rate = block_rate(config, plan.positions, probe, dtype)
    if not rate:
        return f"no rate for {dtype}"
    return f"about {duration(flops / rate)}{' of processor time' * on_cpu} at the {rate / 1e9:,.0f} GFLOP/s {source}"


def block_seconds(parts: Iterable[Planned], config: Config, dtype: str) -> float:
    """Return the processor time of the blocks of a study's sweeps on a CPU, at the rate of a block that is timed here."""
    sweeps = [(spec.probe, planned) for spec, planned in parts if isinstance(spec, Part) and planned is not None]
    return sum(planned.flops / block_rate(config, planned.positions, probe, dtype) for probe, planned in sweeps)


def study_bytes(parts: Iterable[Planned], config: Config, dtype: str) -> int:
    """Estimate the peak memory of a CPU process that runs a study's parts in order and makes its page, in bytes.

    The untrained twin stays once it is loaded, and so do compiled programs.
    """
    model = params.count(config) * jnp.dtype(dtype).itemsize + VOCABULARY_ENTRY * (config.vocab_size or 0)
    models, kept, peak = 1, LIBRARIES, 0
    for spec, planned in parts:
        if isinstance(spec, Calculation):
            beside, programs = spec.beside(config, dtype), 0
        else:
            assert planned is not None
            beside, programs = planned.peak_bytes - planned.bytes["parameters"], planned.compiles
        models, kept = max(models, 1 + spec.twin), kept + PROGRAM * programs
        peak = max(peak, kept + models * model + beside)
    return max(peak, kept + PAGE)


def show_total(title: str, parts: Sequence[Planned], config: Config, dtype: str) -> None:
    """Print the total cost of a study on a CPU: memory of the process, FLOPs and processor time of blocks."""
    lines = [
        ("memory of the process", in_words(study_bytes(parts, config, dtype))),
        ("models in memory", "the model and its untrained twin" if any(spec.twin for spec, _ in parts) else "the model"),
        ("FLOPs", f"{sum(planned.flops for _, planned in parts if planned):.3g}"),
        ("processor time", f"about {duration(block_seconds(parts, config, dtype))} in blocks, at the rate measured here"),
    ]
    show(title, ("", ""), lines, "memory with the libraries; the time excludes loading, compiling, continuations and the page")


def show_calculation(title: str, calculation: Calculation, config: Config, length: int, dtype: str) -> None:
    """Print a calculation's purpose, inputs and model; it has no edits to count, and its cost is unknown."""
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
        *(("attention", how) for how in [getattr(task.config, "attention_impl", None)] if how),
        *((f"memory: {part}", in_words(size)) for part, size in training_bytes(task).items()),
        ("FLOPs", f"{flops:.3g} at most, {flops / training.steps / runs:.3g} a step: of matrix products"),
    ]
    show(title, ("", ""), lines, "a training: a run that reaches its goal stops before its last step")


def _first_sentence(compute: object) -> str:
    """Return the start of a function's docstring, up to the first full stop or colon."""
    while isinstance(compute, functools.partial):
        compute = compute.func
    line = " ".join((compute.__doc__ or "").split("\n\n")[0].split())
    return re.split(r"[.:](?: |$)", line)[0] or "its own numbers"


@functools.cache
def block_rate(config: Config, T: int, probe: Probe, dtype: str) -> float:
    """Measure the FLOP/s of a block with its statistics on the default device, counted as in `block_flops`.

    Seconds are processor time on a CPU, which other work may share, else wall-clock time: the median of REPEATS. Weights are all
    1.
    """
    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    prompts = max(1, TOKENS_PER_CALL[jax.default_backend()] // T)
    layer = jax.tree.map(lambda leaf: jnp.ones(leaf.shape[1:], dtype), params.abstract(config)["layers"])
    h, lengths = jnp.ones((prompts, T, config.width), dtype), jnp.full((prompts,), T)
    spec = ForwardSpec(config=config, probe=probe, logits=False)

    @jax.jit
    def run(h: jax.Array, layer: params.Params) -> Any:
        step = block_step(spec, lengths, (), h)
        slots = empty_slots(step, {"layers": jax.tree.map(lambda leaf: leaf[None], layer)}, h, probe)
        return step((h, slots), (jnp.asarray(0), layer))

    def seconds() -> float:
        start = clock()
        jax.block_until_ready(run(h, layer))
        return clock() - start

    seconds()
    flops = block_flops(config, T) * prompts * T
    return flops / statistics.median(seconds() for _ in range(max(1, min(REPEATS, int(MOST_FLOPS / flops)))))
