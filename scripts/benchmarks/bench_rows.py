"""Measure what a sweep saves by taking rows before its edits from the baseline: activation patching, in processor time.

    python scripts/benchmarks/bench_rows.py             about four minutes on two cores
    python scripts/benchmarks/bench_rows.py --quick     every second layer and position

The same sweep runs with and without sharing, in turn, in one process; compilation is not counted. It prints both times, their
ratio, and the ratio of the rows that `plan` counts.
"""

from __future__ import annotations

import argparse

import jax
import numpy as np
from bench_overhead import processor_time

import sinkjax
from sinkjax.sweeps.plan import plan

MODEL, LENGTH, POSITIONS, ROUNDS = "smollm2-135m", 64, 16, 3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="every second layer and position")
    step = 2 if parser.parse_args().quick else 1
    model = sinkjax.load(MODEL)
    L, draw = model.config.layers, np.random.default_rng(0)
    tokens, other = draw.integers(0, model.config.vocab_size, (2, 1, LENGTH))
    stream = sinkjax.Probe(capture=(sinkjax.Capture("resid"),))
    donor = np.asarray(sinkjax.forward(model, other, probe=stream, logits=False).record["resid"])[0]
    places = range(0, LENGTH, LENGTH // POSITIONS * step)
    edits = [
        sinkjax.edit("resid", "set", donor[layer, position], layers=layer, queries=position).named(f"{layer}, {position}")
        for layer in range(0, L, step)
        for position in places
    ]
    last = sinkjax.Capture("resid", layers=(L - 1,), positions=(LENGTH - 1,))  # from which logits at the last position follow
    for name, probe in (("logits at the last position", sinkjax.Probe(capture=(last,))), ("losses", sinkjax.Probe(nll=True))):
        counted = {share: plan(model.config, edits, [LENGTH], LENGTH, probe, share_rows=share) for share in (True, False)}
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for number in range(ROUNDS + 1):
            for share, taken in seconds.items():
                run = lambda: sinkjax.sweep(model, tokens, edits, probe, progress=False, share_rows=share)  # noqa: E731, B023
                taken += [processor_time(run)] * (number > 0)  # the first one compiles
        whole, shared = np.median(seconds[False]), np.median(seconds[True])
        bound = counted[False].flops / counted[True].flops
        print(f"{len(edits)} edits, {name}: {shared:.1f} s, without sharing rows {whole:.1f} s: {whole / shared:.2f} times")
        print(f"  rows from {counted[True].schedule.cuts}; the plan counts {bound:.2f} times; JAX {jax.__version__}")


if __name__ == "__main__":
    main()
