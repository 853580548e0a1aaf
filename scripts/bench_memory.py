"""Compare the bytes that a sweep plans with those of the compiled programs, for several shapes: docs/benchmarks.md.

python scripts/bench_memory.py             about three minutes on two cores; nothing is computed but programs compiled
python scripts/bench_memory.py --quick     one case; prints the section and writes nothing
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Any

import jax
import numpy as np
from bench_context import PROBE, SMOLLM2
from bench_peers import command
from bench_peers.command import say
from sections import markdown

import sinkjax
from sinkjax import Config, Probe
from sinkjax.edits.edit import resolve
from sinkjax.model import params
from sinkjax.runtime.hardware import ONE
from sinkjax.sweeps.plan import Cost
from sinkjax.sweeps.schedule import stack
from sinkjax.sweeps.shared import baseline, edited
from sinkjax.transformer.spec import ForwardSpec

SMALL = replace(SMOLLM2, layers=3, width=128, heads=6, kv_heads=2, head_dim=32, mlp_width=352, vocab_size=2000, tied=False)
GOAL = (1.0, 1.15)


@dataclass(frozen=True)
class Case:
    """A call: its model, prompts, positions, edits, probe and dtype. weights: whether the edits act on attention weights."""

    what: str
    config: Config
    B: int
    T: int
    edits: int
    probe: Probe
    dtype: str = "float32"
    weights: bool = False


CASES = (
    Case("statistics", SMOLLM2, 16, 64, 1, PROBE),
    Case("statistics, many edits", SMOLLM2, 2, 64, 8, PROBE),
    Case("loss", SMOLLM2, 16, 64, 1, Probe(attention_received=True, nll=True)),
    Case("maps of all layers", SMOLLM2, 3, 64, 2, Probe(attention=True)),
    Case("groups of queries", SMOLLM2, 1, 512, 2, PROBE),
    Case("groups of queries", SMOLLM2, 1, 2048, 1, PROBE),
    Case("groups of queries", SMOLLM2, 1, 8192, 1, PROBE),
    Case("statistics", SMOLLM2, 16, 64, 1, PROBE, "bfloat16"),
    Case("small: statistics", SMALL, 4, 64, 3, Probe(attention_received=True, resid_max=True)),
    Case("small: loss", SMALL, 8, 64, 3, Probe(nll=True)),
    Case("small: maps", SMALL, 2, 96, 3, Probe(attention=True)),
    Case("small: groups of queries", SMALL, 1, 600, 3, Probe(attention_received=True, row_entropy=True)),
    Case("small: weights edited", SMALL, 1, 600, 3, Probe(attention_received=True, row_entropy=True), weights=True),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compile, and write or print the section."""
    options = command.parser(__doc__, "bench_memory", "one case").parse_args(arguments)
    command.publish(section([(case, *measure(case)) for case in (CASES[-5:-4] if options.quick else CASES)]), options)


def measure(case: Case) -> tuple[int, int]:
    """Bytes planned, and those of the larger one of a sweep's two programs with all parameters."""
    say(f"{case.what}: {case.B} prompts of {case.T} tokens, {case.edits} edits, {case.dtype}")
    config, shape = case.config, jax.ShapeDtypeStruct
    weights = jax.tree.map(lambda leaf: shape(leaf.shape, case.dtype), params.abstract(config))
    batch = shape((case.B, case.T), "int32"), shape((case.B,), "int32")
    spec = ForwardSpec(config=config, probe=case.probe, logits=False)
    change = partial(sinkjax.edit, sinkjax.Site.WEIGHTS, "set", 0.0, keys=0) if case.weights else partial(sinkjax.mask_key, 0)
    changes = [change(layers=layer % config.layers) for layer in range(case.edits)]
    edits = stack([resolve(each, config, [case.T] * case.B, case.T) for each in changes])
    base = jax.eval_shape(lambda *args: baseline(*args, spec=spec)[0].counting(edits), weights, *batch)
    first = baseline.lower(weights, *batch, spec=spec)
    then = edited.lower(weights, *batch, edits, shape((), "int32"), base, spec=spec)
    used = max(size(weights, *inputs) + beside(lowered) for lowered, inputs in ((first, batch), (then, (*batch, edits, base))))
    cost = Cost.of(config, case.T, case.probe, case.dtype, ONE, streams=1, weights_edited=case.weights)
    return cost.weights + case.B * cost.stream + cost.block + case.edits * cost.run(case.B), used


def size(*trees: Any) -> int:
    """Bytes of all leaves."""
    return sum(int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(trees))


def beside(lowered: Any) -> int:
    """Bytes of a program's results and temporaries."""
    memory = lowered.compile().memory_analysis()
    return memory.output_size_in_bytes + memory.temp_size_in_bytes


def section(rows: Sequence[tuple[Case, int, int]]) -> str:
    """The section, in Markdown."""
    lines = []
    for case, planned, used in rows:
        met = "met" if GOAL[0] <= round(planned / used, 2) <= GOAL[1] else "missed"
        sizes = f"{case.B} x {case.T}", str(case.edits), case.dtype
        lines.append([case.what, *sizes, f"{planned / 1e6:,.1f}", f"{used / 1e6:,.1f}", f"{planned / used:.2f}", met])
    return "\n\n".join(
        (
            "## Planned memory",
            "What a plan takes as the peak of a device, beside the larger one of a sweep's two compiled programs: all "
            "parameters, its inputs, results and temporaries, as XLA states them for a CPU. The shape of SmolLM2, and a "
            f"small one of 3 layers (d 128) in which temporaries weigh more. Goal: {GOAL[0]} to {GOAL[1]}. Compiled on "
            f"{date.today().isoformat()} with jax {jax.__version__} on {jax.default_backend()}. `python "
            "scripts/bench_memory.py` writes this section.",
            markdown(["probe", "prompts", "edits", "dtype", "planned, MB", "compiled, MB", "ratio", "goal"], lines),
        )
    )


if __name__ == "__main__":
    main()
