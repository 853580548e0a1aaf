"""Measure one block of SmolLM2's shape on long prompts, beside its products: docs/results/benchmarks-full.md.

    python scripts/benchmarks/bench_context.py             about four minutes on two cores
    python scripts/benchmarks/bench_context.py --quick     a smoke run at 512 positions; prints the section and writes nothing

Times are processor time of all threads, so that a busy machine says much the same as a quiet one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from bench_peers import command
from bench_peers.command import filled, say, span
from measured import Number, as_number

from sinkjax import Config, Probe
from sinkjax.analysis.estimates import three_digits
from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.model import params
from sinkjax.model.fingerprint import fingerprints
from sinkjax.report.markdown import table as markdown
from sinkjax.transformer.attention import query_groups, tile_size
from sinkjax.transformer.cost import block_parameters
from sinkjax.transformer.forward import run
from sinkjax.transformer.spec import ForwardSpec

SMOLLM2 = open_checkpoint("smollm2-135m").config
BLOCK = replace(SMOLLM2, layers=1, vocab_size=None, tied=False)
PROBE = Probe(attention_received=True, resid_max=True, resid_norm=True, resid_argmax=True)
LENGTHS = {512: 5, 1024: 5, 2048: 5, 4096: 5, 8192: 5, 32_768: 1, 131_072: 0}  # positions -> rounds; 0: compiled alone
GOAL = 1.5  # times what the products of a causal pass take
MATMUL = 2048


@dataclass(frozen=True)
class Row:
    """What one pass takes, an entry a round. temporaries: in bytes. Without rounds it was compiled, and not run.

    ratios: the seconds over those of its causal products; floors: the same of the products and exponentials alone.
    """

    length: int
    seconds: Sequence[float]
    ratios: Sequence[float]
    floors: Sequence[float]
    temporaries: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    options = command.parser(__doc__, "bench_context", "512 positions, 1 round").parse_args(arguments)
    load = os.getloadavg()[0]
    rows = [measure(length, rounds) for length, rounds in ({512: 1} if options.quick else LENGTHS).items()]
    command.publish(section(rows, *fingerprint_bytes(), load), options, numbers(rows))


def measure(length: int, rounds: int) -> Row:
    """One pass over a prompt, in turn with products of matrices, whose rate is the bound, and with its attention laid bare."""
    block = replace(BLOCK, context=max(length, BLOCK.context))
    weights = params.init(block, 0, "float32", 0.02)
    x = jax.random.normal(jax.random.key(0), (1, length, block.width))
    inputs = (weights, x, jnp.array([length]), ())
    program = run.lower(*inputs, spec=ForwardSpec(config=block, probe=PROBE, logits=False)).compile()
    a, repeats = jnp.ones((MATMUL, MATMUL)), max(1, 4096 // length)
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    heads = [jax.random.normal(jax.random.key(1), (length, n, block.head_dim)) for n in (block.heads, block.kv_heads)]
    matrices, pairs = causal_flops(block, length)
    seconds, ratios, floors = [], [], []
    for _ in range(rounds):
        per_flop = taken(lambda: product(a), 4) / (2 * MATMUL**3)
        seconds.append(taken(lambda: program(*inputs), repeats))
        bare = taken(lambda: bare_attention(*heads, heads[1]), repeats)
        ratios.append(seconds[-1] / ((matrices + pairs) * per_flop))
        floors.append((matrices * per_flop + bare) / ((matrices + pairs) * per_flop))
    say(f"{length} positions: {span(ratios) if ratios else 'compiled'}")
    return Row(length, seconds, ratios, floors, program.memory_analysis().temp_size_in_bytes)


@jax.jit
def bare_attention(q_THD: jax.Array, k_TKD: jax.Array, v_TKD: jax.Array) -> jax.Array:
    """Scores, exponentials and mixtures in the tiles of `transformer.attention`, and nothing else."""
    (T, H, D), K = q_THD.shape, k_TKD.shape[1]
    size = tile_size(T)
    product = partial(jnp.einsum, precision="highest")

    def tile(q_QHD: jax.Array, end: int) -> jax.Array:
        rows = q_QHD.swapaxes(0, 1).reshape(K, -1, D)
        weights = jnp.exp(product("krd,nkd->krn", rows, k_TKD[:end]))
        return product("krn,nkd->krd", weights, v_TKD[:end])

    def group(begin: int, end: int) -> jax.Array:
        return jax.lax.map(partial(tile, end=end), q_THD[begin:end].reshape(-1, size, H, D)).reshape(-1, D)

    return jnp.concatenate([group(begin, end) for begin, end in query_groups(T)])


def taken(call: Callable[[], Any], repeats: int) -> float:
    """Seconds of processor time of a call, after one that does not count."""
    jax.block_until_ready(call())
    begun = time.process_time()
    for _ in range(repeats):
        jax.block_until_ready(call())
    return (time.process_time() - begun) / repeats


def causal_flops(config: Config, length: int) -> tuple[int, int]:
    """Those of a block's matrices, and of the scores and mixtures of the visible pairs of positions alone."""
    pairs = length * (length + 1) // 2
    return 2 * length * block_parameters(config), 4 * pairs * config.heads * config.head_dim


def fingerprint_bytes() -> tuple[int, int]:
    """Bytes that the fingerprint of all of SmolLM2's weights takes beside them, and theirs."""
    tree = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, "float32"), params.abstract(SMOLLM2))
    memory = fingerprints.lower(tree).compile().memory_analysis()
    return memory.temp_size_in_bytes, memory.argument_size_in_bytes


def numbers(rows: Sequence[Row]) -> list[Number]:
    """The numbers that other pages take; the bound is the floor."""
    ran = [row for row in rows if row.seconds]
    return [
        as_number(f"{row.length:,} positions", row.ratios, goal=(None, GOAL), bound=three_digits(median(row.floors)))
        for row in ran
    ]


def section(rows: Sequence[Row], temporaries: int, weights: int, load: float) -> str:
    """Return the section, in Markdown."""
    lines = []
    for row in rows:
        held = f"{row.temporaries / 1e6:.0f}"
        if not row.seconds:
            lines.append([f"{row.length:,}", "not run", "", "", "", held])
            continue
        met = "met" if median(row.ratios) <= GOAL else "missed"
        lines.append([f"{row.length:,}", span(row.seconds), span(row.ratios), met, span(row.floors), held])
    return filled(
        "context",
        product=MATMUL,
        goal=GOAL,
        jax=jax.__version__,
        load=f"{load:.2f}",
        table=markdown(["positions", "seconds", "times the bound", "goal", "floor", "temporaries, MB"], lines),
        weights=f"{weights / 1e6:.0f}",
        temporaries=f"{temporaries / 1e6:.1f}",
        share=f"{temporaries / weights:.1%}",
    )


if __name__ == "__main__":
    main()
