"""Measure long prompts, a sweep and trainings on a GPU or TPU, and the rate of a product: docs/results/benchmarks-full.md.

    python scripts/benchmarks/bench_accelerator.py       eight minutes on one accelerator; without one, tables that say so
    python scripts/benchmarks/bench_accelerator.py --part training    the trainings alone
    python scripts/benchmarks/bench_accelerator.py --quick     a smoke run of small cases on any device; prints and writes nothing

The peer, transformers with eager attention and hooks, is measured where PyTorch finds the same device. Weights are random.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from bench_peers import command, pretrain_sinkjax, trigger_sinkjax
from bench_peers.command import filled, say, span
from measured import Goal, Number, as_number

import sinkjax
from sinkjax.papers.pretrain._sizes import SIZES
from sinkjax.report.markdown import table as markdown

PROBE = sinkjax.Probe(attention_received=True, resid_max=True, resid_norm=True, resid_argmax=True)
SHORT, LONG = 0.50, 0.40  # goals of a forward: the share of the rate that products reach, up to 2k positions and beyond
SWEEP = 5.0  # times as fast as transformers
STEPS = {"60m": 0.35, "1b": 0.50}  # goals of a training step, as shares


def causal_flops(config: sinkjax.Config, length: int) -> int:
    """Operations of a block's matrices, and of the scores and mixtures of the visible pairs of positions alone."""
    attention = config.width * config.head_dim * 2 * (config.heads + config.kv_heads)
    mlp = 3 * config.width * (config.mlp_width or 0)
    pairs = length * (length + 1) // 2
    return 2 * length * (attention + mlp) + 4 * pairs * config.heads * config.head_dim


@dataclass(frozen=True)
class Case:
    """What is run. tokens: of one call of the forward, in as many prompts as that makes. product: the side of a square matrix."""

    model: str
    dtype: str
    implementations: tuple[str, ...]
    lengths: tuple[int, ...]
    tokens: int
    prompts: int
    product: int
    rounds: int
    seeds: int
    steps: int
    trainings: tuple[str, ...]
    shapes: dict[str, dict[str, Any]]


def training_shape(size: str, **otherwise: Any) -> dict[str, Any]:
    """A micro-batch of a size of the pretraining lab, on random tokens."""
    fields = SIZES[size].fields
    names = ("layers", "width", "heads", "mlp_width", "context", "compute_dtype")
    small = {"batch": fields.get("micro_batch", fields["batch"]), "vocabulary": fields.get("vocab_size", 2048)}
    return {name: fields[name] for name in names if name in fields} | small | otherwise


FULL = Case(
    model="untrained:llama-3.2-3b",
    dtype="bfloat16",
    implementations=("sinkjax", "fused", "pallas"),
    lengths=(64, 512, 2048, 8192, 32_768),
    tokens=32_768,
    prompts=16,
    product=8192,
    rounds=3,
    seeds=64,
    steps=600,
    trainings=("sinkjax", "fused"),
    shapes={"60m": training_shape("60m"), "1b": training_shape("1b", remat=True)},
)
QUICK = Case(
    model="mini-softmax",
    dtype="float32",
    implementations=("sinkjax", "pallas"),
    lengths=(16, 64),
    tokens=64,
    prompts=2,
    product=256,
    rounds=1,
    seeds=2,
    steps=200,
    trainings=("sinkjax", "fused"),
    shapes={"60m": training_shape("mini", layers=1, context=32, batch=2)},
)

NOT_MEASURED = "not measured"
HEAD = ["what", "ms", "reached", "goal"]


@dataclass(frozen=True)
class Row:
    """A row of a table. taken: milliseconds of each round, or why there are none. reached: in `unit`, at least `goal`."""

    name: str
    taken: Sequence[float] | str = ""
    reached: float | None = None
    unit: str = "%"
    goal: float | None = None

    def cells(self) -> list[str]:
        """The row in Markdown."""
        taken = self.taken if isinstance(self.taken, str) else span(self.taken)
        goal = "" if self.goal is None else UNITS[self.unit].format(self.goal)
        if self.reached is None:
            return [self.name, taken, "", goal]
        missed = ", missed" * (self.goal is not None and self.reached < self.goal)
        return [self.name, taken, UNITS[self.unit].format(self.reached), goal + missed]

    def numbers(self) -> Iterator[Number]:
        """The numbers that other pages take."""
        if not isinstance(self.taken, str):
            yield as_number(f"{self.name} (ms)", self.taken)
        if self.reached is not None:
            shares = 100 if self.unit == "%" else 1
            goal: Goal = (None if self.goal is None else shares * self.goal, None)
            unit = "" if self.unit == TIMES else f" ({self.unit})"
            yield as_number(f"{self.name}{unit}", [shares * self.reached], ".0f" if self.unit == "%" else ".3g", goal)


TIMES = "times as long"
UNITS = {"%": "{:.0%}", TIMES: f"{{:.3g}} {TIMES}", "TFLOP/s": "{:.3g} TFLOP/s"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    parser = command.parser(__doc__, "bench_accelerator", "small cases on any device")
    parser.add_argument("--part", choices=("forward", "training"), nargs="+", default=("forward", "training"))
    options = parser.parse_args(arguments)
    case = QUICK if options.quick else FULL
    there = options.quick or jax.default_backend() != "cpu"
    device = jax.devices()[0].device_kind
    if "forward" in options.part:
        rows = list((measure if there else not_measured)(case))
        command.publish(section(case, rows, there), options, numbers(rows), device)
    if "training" in options.part:
        options.section += "_trainings"
        rows = list((measure_trainings if there else no_trainings)(case))
        text = filled("accelerator-trainings", where=where(there), table=table(rows))
        command.publish(text, options, numbers(rows), device)


def table(rows: Sequence[Row]) -> str:
    """Rows in Markdown."""
    return markdown(HEAD, [row.cells() for row in rows])


def numbers(rows: Sequence[Row]) -> list[Number]:
    """The numbers of rows."""
    return [one for row in rows for one in row.numbers()]


def not_measured(case: Case) -> Iterator[Row]:
    """The rows of a machine without an accelerator."""
    for length in case.lengths:
        for how in case.implementations:
            yield Row(f"forward, {length:,} positions, {how}", NOT_MEASURED, goal=goal_of(length))
    yield Row("mask sweep, sinkjax", NOT_MEASURED)
    yield Row("mask sweep, transformers", NOT_MEASURED, unit=TIMES, goal=SWEEP)
    yield Row(f"trigger task, {case.seeds} seeds, a step of one", NOT_MEASURED)


def no_trainings(case: Case) -> Iterator[Row]:
    """The rows of trainings of a machine without an accelerator."""
    for size in case.shapes:
        for how in case.trainings:
            yield Row(f"{size}, loss and gradient, {how}", NOT_MEASURED, goal=STEPS[size])


def measure(case: Case) -> Iterator[Row]:
    """The rows of the forward, the sweep and the trigger task."""
    rate = {dtype: product_rate(case, dtype) for dtype in dict.fromkeys((case.dtype, "float32", "bfloat16"))}
    for dtype, value in rate.items():
        yield Row(f"product of {case.product} x {case.product}, {dtype}", reached=value / 1e12, unit="TFLOP/s")
    model = sinkjax.load(case.model, dtype=case.dtype)
    for length in case.lengths:
        for how in case.implementations:
            yield forward(case, model, length, how, rate[case.dtype])
    yield from sweep(case, model)
    taken = [trigger_sinkjax.run(1, 1, "softmax", case.seeds, case.steps)["milliseconds"] for _ in range(case.rounds)]
    yield Row(f"trigger task, {case.seeds} seeds, a step of one", taken)


def measure_trainings(case: Case) -> Iterator[Row]:
    """The rows of trainings, as `measure` yields them."""
    rate = {}
    for size, shape in case.shapes.items():
        dtype = shape.get("compute_dtype", "float32")
        if dtype not in rate:
            rate[dtype] = product_rate(case, dtype)
            yield Row(f"product of {case.product} x {case.product}, {dtype}", reached=rate[dtype] / 1e12, unit="TFLOP/s")
        for how in case.trainings:
            yield training(case, size, shape | {"attention_impl": how}, rate[dtype])


def training(case: Case, size: str, shape: dict[str, Any], rate: float) -> Row:
    """The loss and gradient of a micro-batch."""
    task, values, batch = pretrain_sinkjax.begun(shape)
    gradient = jax.jit(jax.value_and_grad(lambda values, batch: task.loss(values, batch, 0)[0]))
    name = f"{size}, loss and gradient, {shape['attention_impl']}"
    begun = time.perf_counter()
    try:
        taken = milliseconds(lambda: gradient(values, batch), case.rounds)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return Row(name, f"{NOT_MEASURED}: out of memory", goal=STEPS[size])
    say(f"{name}: {time.perf_counter() - begun:.0f} s with compilation")
    reached = pretrain_sinkjax.about(shape)["flops"] * shape["batch"] * shape["context"] / median(taken) * 1e3 / rate
    return Row(name, taken, reached, goal=STEPS[size])


def product_rate(case: Case, dtype: str) -> float:
    """FLOP/s of a product of matrices of this dtype, in full precision."""
    matrix = jnp.ones((case.product, case.product), dtype)
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    return 2 * case.product**3 / min(milliseconds(lambda: product(matrix), 3)) * 1e3


def forward(case: Case, model: sinkjax.Model, length: int, how: str, rate: float) -> Row:
    """A forward of the blocks with statistics, by one implementation of attention, beside its causal products."""
    tokens = prompts(model, max(1, case.tokens // length), length)
    call = partial(sinkjax.forward, model.params, tokens, model.config, probe=PROBE, logits=False, attention_impl=how)
    taken = milliseconds(lambda: call().record, case.rounds)
    flops = model.config.layers * causal_flops(model.config, length) * len(tokens)
    reached = flops / median(taken) * 1e3 / rate
    return Row(f"forward, {length:,} positions, {how}", taken, reached, goal=goal_of(length))


def sweep(case: Case, model: sinkjax.Model) -> Iterator[Row]:
    """Masking key 0 in each layer, beside transformers where PyTorch has the same kind of device."""
    tokens, layers = prompts(model, case.prompts, 64), range(model.config.layers)
    edits = [sinkjax.mask_key(0, layers=layer) for layer in layers]
    ours = milliseconds(lambda: sinkjax.sweep(model, tokens, edits, PROBE), case.rounds)
    yield Row("mask sweep, sinkjax", ours)
    import torch

    gpu = jax.default_backend() == "gpu"
    if gpu and not torch.cuda.is_available():
        yield Row("mask sweep, transformers", f"{NOT_MEASURED}: PyTorch has no GPU here", unit=TIMES, goal=SWEEP)
        return
    theirs = eager_sweep(model, np.asarray(tokens), "cuda" if gpu else "cpu")
    taken = milliseconds(theirs, case.rounds)
    yield Row("mask sweep, transformers", taken, median(taken) / median(ours), TIMES, SWEEP)


def eager_sweep(model: sinkjax.Model, tokens: np.ndarray, device: str) -> Callable[[], Any]:
    """The same sweep by whole forwards of transformers' Llama of this shape, with the same statistics. Weights are random."""
    import torch
    from bench_peers.transformers_side import MaskedKey
    from transformers import LlamaConfig, LlamaForCausalLM

    ours, edit = model.config, MaskedKey()
    config = LlamaConfig(
        vocab_size=ours.vocab_size,
        hidden_size=ours.width,
        intermediate_size=ours.mlp_width,
        num_hidden_layers=ours.layers,
        num_attention_heads=ours.heads,
        num_key_value_heads=ours.kv_heads,
        head_dim=ours.head_dim,
        tie_word_embeddings=ours.tied,
        attn_implementation=edit.name,
    )
    dtype = getattr(torch, str(jax.tree.leaves(model.params)[0].dtype))
    with torch.device(device):
        blocks = LlamaForCausalLM(config).to(dtype).eval().model
        given = torch.from_numpy(tokens.astype(np.int64)).to(device)
        seen = torch.arange(given.shape[1], 0, -1)

    @torch.inference_mode()
    def whole() -> list[Any]:
        found = []
        for edit.layer in range(ours.layers):
            out = blocks(given, output_attentions=True, output_hidden_states=True, use_cache=False)
            received = [weights.sum(dim=2) / seen for weights in out.attentions]
            sizes = [(*state.abs().max(dim=-1), torch.linalg.vector_norm(state, dim=-1)) for state in out.hidden_states]
            found.append([part.cpu() for part in (*received, *(part for depth in sizes for part in depth))])
        return found

    return whole


def prompts(model: sinkjax.Model, count: int, length: int) -> jax.Array:
    """Random tokens: int32 [count, length]."""
    return jax.random.randint(jax.random.key(0), (count, length), 0, model.config.vocab_size)


def milliseconds(call: Callable[[], Any], rounds: int) -> list[float]:
    """Of a call, an entry a round, after one that compiles."""
    found = []
    for number in range(rounds + 1):
        begun = time.perf_counter()
        jax.block_until_ready(call())
        found.append((time.perf_counter() - begun) * 1e3)
        say(f"round {number} of {rounds}: {found[-1]:.4g} ms")
    return found[1:]


def goal_of(length: int) -> float:
    """The share of the rate of products that a forward of so many positions is to reach."""
    return SHORT if length <= 2048 else LONG


def section(case: Case, rows: Sequence[Row], there: bool) -> str:
    """The section of the forward and the sweep, in Markdown."""
    model, sizes = case.model.removeprefix("untrained:"), {"tokens": f"{case.tokens:,}", "prompts": case.prompts}
    return filled("accelerator", model=model, dtype=case.dtype, **sizes, where=where(there), table=table(rows))


def where(there: bool) -> str:
    """The device, as text."""
    return f"on {jax.devices()[0].device_kind}, jax {jax.__version__}" if there else "on a machine without an accelerator"


if __name__ == "__main__":
    main()
