"""Measure one block of SmolLM2's shape on long prompts, beside what its products need, and the weights' fingerprint.

    python scripts/bench_context.py             about three minutes on two cores
    python scripts/bench_context.py --quick     a smoke run at 512 positions; prints the section and writes nothing

Times are processor time of all threads, so that a busy machine says much the same as a quiet one. It goes to docs/benchmarks.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from bench_peers import command
from bench_peers.command import cpu_name, say, span
from sections import markdown

from sinkjax import Config, Probe
from sinkjax.model import params
from sinkjax.model.config import RMSNorm
from sinkjax.model.fingerprint import fingerprints
from sinkjax.model.rotary import Rope
from sinkjax.transformer.forward import run
from sinkjax.transformer.spec import ForwardSpec

SMOLLM2 = Config(
    layers=30,
    width=576,
    heads=9,
    kv_heads=3,
    head_dim=64,
    mlp_width=1536,
    vocab_size=49_152,
    context=8192,
    norm=RMSNorm(1e-5),
    position=Rope(100_000.0),
    activation="silu",
    tied=True,
)
BLOCK = replace(SMOLLM2, layers=1, vocab_size=None, tied=False)
PROBE = Probe(attention_received=True, resid_max=True, resid_norm=True, resid_argmax=True)
LENGTHS = {512: 5, 1024: 5, 2048: 5, 4096: 5, 8192: 5, 32_768: 1, 131_072: 0}  # positions -> rounds; 0: compiled alone
GOAL = 1.5  # times what the products of a causal pass take
MATMUL = 2048


@dataclass(frozen=True)
class Row:
    """What one pass takes, an entry a round: seconds, and ratios to what its causal products take. temporaries: in bytes.

    Without rounds it was compiled, and not run.
    """

    length: int
    seconds: Sequence[float]
    ratios: Sequence[float]
    temporaries: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    options = command.parser(__doc__, "bench_context", "512 positions, 1 round").parse_args(arguments)
    load = os.getloadavg()[0]
    rows = [measure(length, rounds) for length, rounds in ({512: 1} if options.quick else LENGTHS).items()]
    command.publish(section(rows, *fingerprint_bytes(), load), options)


def measure(length: int, rounds: int) -> Row:
    """One pass over a prompt, in turn with products of matrices, whose rate is the bound."""
    block = replace(BLOCK, context=max(length, BLOCK.context))
    weights = params.init(block, 0, "float32", 0.02)
    x = jax.random.normal(jax.random.key(0), (1, length, block.width))
    inputs = (weights, x, jnp.array([length]), ())
    program = run.lower(*inputs, spec=ForwardSpec(config=block, probe=PROBE, logits=False)).compile()
    a = jnp.ones((MATMUL, MATMUL))
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    repeats = max(1, 4096 // length)
    seconds, ratios = [], []
    for _ in range(rounds):
        per_flop = taken(lambda: product(a), 4) / (2 * MATMUL**3)
        seconds.append(taken(lambda: program(*inputs), repeats))
        ratios.append(seconds[-1] / (causal_flops(block, length) * per_flop))
    say(f"{length} positions: {span(ratios) if ratios else 'compiled'}")
    return Row(length, seconds, ratios, program.memory_analysis().temp_size_in_bytes)


def taken(call: Callable[[], Any], repeats: int) -> float:
    """Seconds of processor time of a call, after one that does not count."""
    jax.block_until_ready(call())
    begun = time.process_time()
    for _ in range(repeats):
        jax.block_until_ready(call())
    return (time.process_time() - begun) / repeats


def causal_flops(config: Config, length: int) -> int:
    """Those of a block's matrices, and of the scores and mixtures of the visible pairs of positions alone."""
    attention = config.width * config.head_dim * 2 * (config.heads + config.kv_heads)
    mlp = 3 * config.width * (config.mlp_width or 0)
    pairs = length * (length + 1) // 2
    return 2 * length * (attention + mlp) + 4 * pairs * config.heads * config.head_dim


def fingerprint_bytes() -> tuple[int, int]:
    """Bytes that the fingerprint of all of SmolLM2's weights takes beside them, and theirs."""
    tree = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, "float32"), params.abstract(SMOLLM2))
    memory = fingerprints.lower(tree).compile().memory_analysis()
    return memory.temp_size_in_bytes, memory.argument_size_in_bytes


def section(rows: Sequence[Row], temporaries: int, weights: int, load: float) -> str:
    """The section, in Markdown."""
    lines = []
    for row in rows:
        held = f"{row.temporaries / 1e6:.0f}"
        if not row.seconds:
            lines.append([f"{row.length:,}", "not run", "", "", held])
            continue
        met = "met" if median(row.ratios) <= GOAL else "missed"
        lines.append([f"{row.length:,}", span(row.seconds), span(row.ratios), met, held])
    return "\n\n".join(
        (
            "## Long prompts",
            "One block of SmolLM2's shape on one prompt, float32, with `attention_received`, `resid_max`, `resid_norm` and "
            "`resid_argmax`. The bound is what the products of the matrices and of the visible pairs of positions would take at "
            f"the rate of a product of {MATMUL} x {MATMUL}, measured in turn. Seconds of processor time of all threads, as the "
            f"machine does other work; medians (smallest to largest). Goal: {GOAL} times the bound. Measured on "
            f"{date.today().isoformat()} on {cpu_name()}, {os.cpu_count()} cores, jax {jax.__version__}, load average "
            f"{load:.2f} before the start. `python scripts/bench_context.py` writes this section.",
            markdown(["positions", "seconds", "times the bound", "goal", "temporaries, MB"], lines),
            f"The fingerprint of all weights of SmolLM2 (float32, {weights / 1e6:.0f} MB) takes {temporaries / 1e6:.1f} MB of "
            f"temporaries, {temporaries / weights:.1%} of them.",
        )
    )


if __name__ == "__main__":
    main()
