"""Measure a sweep's processor time, in memory and into a store, as a multiple of the time of the blocks that it computes.

    python scripts/benchmarks/bench_overhead.py             about three minutes on two cores
    python scripts/benchmarks/bench_overhead.py --quick     1 round; prints the section and writes nothing

Plain jitted forwards with the same probe take a known time per block. They are measured in turn with the sweeps, in one process,
so that other work on the machine slows both. Compilation is not counted.
"""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import jax
import numpy as np
from bench_peers import command
from bench_peers.command import filled, say, span
from measured import as_number

import sinkjax
from sinkjax.report.markdown import table as markdown
from sinkjax.sweeps.plan import plan

PROBE = sinkjax.Probe(attention_received=True, resid_max=True, resid_norm=True, resid_argmax=True)
MODEL, EDITS, PROMPTS, LENGTH = "mini-softmax", 64, 64, 64
ROUNDS = 9
GOALS = {"in memory": 1.15, "into a store": 1.35}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    options = command.parser(__doc__, "bench_overhead", "1 round").parse_args(arguments)
    load = os.getloadavg()[0]
    found = measure(1 if options.quick else ROUNDS)
    numbers = [as_number(way, taken, goal=(None, GOALS[way])) for way, taken in found.items()]
    command.publish(section(found, load), options, numbers)


def measure(rounds: int) -> dict[str, list[float]]:
    """Return, for each way to sweep, its processor time in each round as a multiple of the time of its blocks."""
    model = sinkjax.load(MODEL)
    L, vocabulary = model.config.layers, model.config.vocab_size
    tokens = jax.numpy.asarray(np.random.default_rng(0).integers(0, vocabulary, (PROMPTS, LENGTH)), "int32")
    edits = [sinkjax.mask_key(number // L, layers=number % L) for number in range(EDITS)]
    planned = plan(model.config, edits, [LENGTH] * PROMPTS, LENGTH, PROBE, share_rows=False)
    forwards = planned.layer_passes * planned.schedule.prompt_block / PROMPTS / L
    needed = 1 + sum(L - number % L for number in range(EDITS)) / L
    probed = jax.jit(lambda params, tokens: sinkjax.forward(params, tokens, model.config, probe=PROBE, logits=False).record)

    def plain() -> None:
        for _ in range(round(forwards / 4)):
            jax.block_until_ready(probed(model.params, tokens))

    def in_memory() -> None:
        sinkjax.sweep(model, tokens, edits, PROBE, progress=False, share_rows=False)

    def into_store() -> None:
        with tempfile.TemporaryDirectory() as folder:
            sinkjax.sweep(model, tokens, edits, PROBE, out=Path(folder) / "x.zarr", progress=False, share_rows=False)

    ways = dict(zip(GOALS, (in_memory, into_store), strict=True))
    for run in (plain, *ways.values()):
        run()
    b, widths, chunks = planned.schedule.prompt_block, planned.schedule.widths, planned.schedule.chunks
    rows = -(-PROMPTS // b) * b * sum(widths[chunk.kind] for chunk in chunks)
    padding = 1 - PROMPTS * EDITS / rows
    say(f"calls of {b} prompts and up to {max(widths)} edits; {padding:.1%} of their rows are padding")
    found: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, run in ways.items():  # plain forwards before and after, half of the time each
            taken = [processor_time(each) for each in (plain, plain, run, plain, plain)]
            each = (sum(taken) - taken[2]) / (4 * round(forwards / 4))
            found[way].append(taken[2] / (each * needed))
    return found


def processor_time(run: Callable[[], None]) -> float:
    """Return the seconds of processor time of all threads, in user mode and in the kernel."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    run()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def section(found: dict[str, list[float]], load: float) -> str:
    """Return the section, in Markdown."""
    rows = [[way, span(each), str(GOALS[way]), "met" if median(each) <= GOALS[way] else "missed"] for way, each in found.items()]
    sizes = {"model": MODEL, "edits": EDITS, "prompts": PROMPTS, "length": LENGTH, "jax": jax.__version__, "load": f"{load:.2f}"}
    return filled("overhead", **sizes, table=markdown(["sweep", "times its blocks", "goal", ""], rows))


if __name__ == "__main__":
    main()
