"""Measure what it would save to take rows before the first edited one from the unedited run, in calls and in studies.

    python scripts/bench_positions.py             about two minutes of processor time
    python scripts/bench_positions.py --quick     one shape, 1 round; prints the section and writes nothing

A sweep does not do so: this is a prototype of the blocks alone. Times are processor time of all threads, so that a busy machine
says much the same as a quiet one. It goes to docs/benchmarks.md.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from bench_context import PROBE, SMOLLM2
from bench_peers import command
from bench_peers.command import cpu_name, say, span
from sections import markdown

import sinkjax
from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.edits.edit import resolve
from sinkjax.edits.site import SITES, Site
from sinkjax.edits.term import Edits
from sinkjax.model import params
from sinkjax.model.params import Params
from sinkjax.runtime.hardware import Hardware
from sinkjax.studies.registry import choose, find
from sinkjax.studies.specs import specs
from sinkjax.sweeps.plan import plan_resolved
from sinkjax.transformer.block import block_step
from sinkjax.transformer.spec import ForwardSpec
from sinkjax.transformer.tape import Cache

LAYERS = 2
SHAPES = {(16, 64): (8, 16), (64, 64): (8,), (2, 512): (64,)}  # prompts and positions -> rows of a tile
STUDIES = {  # whose main sweep has calls of which shape, or nearly so
    "kiya/self": (16, 64),
    "li/isolate": (64, 64),
    "background/streaming": (64, 64),
    "kiya/after-softmax": (64, 64),
    "kiya/mask": (64, 64),
    "background/patch": (16, 64),
}
ROUNDS = 5
Curve = Mapping[int, Sequence[float]]  # eighths of the rows that are shared -> time, as a part of that of whole blocks
SUMMED = ("attention_received", "non_finite")  # statistics that add up over tiles of rows


@dataclass(frozen=True)
class Row:
    """Blocks in tiles. compiling: seconds, of whole blocks and of tiles. kept: what a base keeps beside streams, as a part."""

    shape: tuple[int, int]
    tile: int
    curve: Curve
    compiling: tuple[float, float]
    kept: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    options = command.parser(__doc__, "bench_positions", "one shape, 1 round, one study").parse_args(arguments)
    load, quick = os.getloadavg()[0], options.quick
    shapes = {(16, 64): (16,)} if quick else SHAPES
    rows = [measure(*shape, tile, rounds=1 if quick else ROUNDS) for shape, tiles in shapes.items() for tile in tiles]
    studies = [study for study, shape in STUDIES.items() if shape in shapes][: 1 if quick else None]
    command.publish(section(rows, {study: saved(study, rows) for study in studies}, load), options)


def measure(B: int, T: int, tile: int, rounds: int) -> Row:
    """Blocks under an edit, whole and in tiles, in turn."""
    config = dataclasses.replace(SMOLLM2, layers=LAYERS, vocab_size=None, tied=False)
    spec = ForwardSpec(config=config, probe=PROBE, logits=False)
    weights = params.init(config, 0, "float32", 0.02)
    h, lengths = jax.random.normal(jax.random.key(0), (B, T, config.width)), jnp.full(B, T)
    edits = jax.tree.map(jnp.asarray, resolve(sinkjax.attend_self(T - 1), config, [T] * B, T))
    nothing = jnp.zeros((B, T, config.kv_heads, config.head_dim))

    def whole(weights: Params, first: jax.Array) -> Any:
        step = block_step(spec, lengths, edits, h)
        return jax.lax.scan(step, (h, {}), (jnp.arange(LAYERS), weights["layers"]))

    def tiles(weights: Params, first: jax.Array) -> Any:
        return in_tiles(spec, weights, h, lengths, edits, (nothing, nothing), first, tile)

    programs, compiling = [], []
    for function in (whole, tiles):
        lowered = jax.jit(function).lower(weights, jnp.int32(0))
        begun = time.process_time()
        programs.append(lowered.compile())
        compiling.append(time.process_time() - begun)
        jax.block_until_ready(programs[-1](weights, jnp.int32(0)))
    curve: dict[int, list[float]] = {part: [] for part in range(8) if T * part // 8 % tile == 0}
    for _ in range(rounds):
        alone = seconds(programs[0], weights, 0)
        for part, found in curve.items():
            found.append(seconds(programs[1], weights, T * part // 8) / alone)
    say(f"{B} x {T}, {tile} rows: {', '.join(f'{part}/8 {span(found)}' for part, found in curve.items())}")
    more = 2 * config.kv_heads * config.head_dim + T // tile * config.heads  # keys and values, and sums of weights by tile
    return Row((B, T), tile, curve, (compiling[0], compiling[1]), more / config.width)


def in_tiles(
    spec: ForwardSpec,
    weights: Params,
    h: jax.Array,
    lengths: jax.Array,
    edits: Edits,
    cache: Cache,
    first: jax.Array,
    tile: int,
) -> Any:
    """Blocks on the rows of h [B, T, d] from `first` on, a multiple of the tile; keys and values before it are in the cache."""
    count = h.shape[1] // tile

    def block(h: jax.Array, xs: tuple) -> tuple:
        layer, w = xs

        def one(cache: Cache, xs: tuple) -> tuple:
            row, rows = xs

            def run() -> tuple:
                own = tuple(term.for_rows(row, tile) for term in edits)
                (out, _), found = block_step(spec, lengths, own, rows, row)((rows, {}), (layer, w, cache))
                return found["cache"], (out, found["record"])

            def skip() -> tuple:
                return cache, (rows, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(run)[1][1]))

            return jax.lax.cond(row < first, skip, run)

        _, (out, record) = jax.lax.scan(one, cache, (jnp.arange(count) * tile, jnp.stack(jnp.split(h, count, axis=1))))
        joined = {name: x.sum(axis=0) if name in SUMMED else jnp.concatenate(list(x), axis=1) for name, x in record.items()}
        return jnp.concatenate(list(out), axis=1), joined

    return jax.lax.scan(block, h, (jnp.arange(LAYERS), weights["layers"]))


def seconds(program: Callable, weights: Params, first: int) -> float:
    """Processor time of a call."""
    begun = time.process_time()
    jax.block_until_ready(program(weights, jnp.int32(first)))
    return time.process_time() - begun


def saved(study: str, rows: Sequence[Row]) -> tuple[float, float]:
    """Parts of the main sweep's FLOPs, and of the time of its blocks, that sharing rows would save.

    The first in tiles of 8; the second by what was measured, with the better tile, beside the faster way to share nothing.
    """
    config: Any = choose(study).config
    architecture = open_checkpoint(config.model, weights=False).config
    sweep: Any = specs(find(study), config, architecture)[0]
    lengths, T = [config.length] * sweep.prompts, config.length
    resolved = [resolve(edit, architecture, lengths, T) for edit in sweep.edits]
    batch = sweep.prompts, T
    schedule = plan_resolved(architecture, resolved, batch, sweep.probe, config.dtype, Hardware(platform="cpu")).schedule
    L = architecture.layers
    calls = [(L - chunk.start, min(first_row(resolved[edit], T) for edit in chunk.edits)) for chunk in schedule.chunks]
    calls = [(blocks * schedule.widths[chunk.kind], row) for (blocks, row), chunk in zip(calls, schedule.chunks, strict=True)]
    total = L * len({chunk.base for chunk in schedule.chunks}) + sum(blocks for blocks, _ in calls)

    def time_saved(row: Row) -> float:
        size = row.tile * T // row.shape[1]
        parts = [(blocks, shared // size * size * 8 // T) for blocks, shared in calls]
        alone = min(1.0, median(row.curve[0]))
        return sum(blocks * (alone - median(row.curve[part])) for blocks, part in parts if part) / (alone * total)

    flops = sum(blocks * (shared // 8 * 8) / T for blocks, shared in calls) / total
    return flops, max(time_saved(row) for row in rows if row.shape == STUDIES[study])


def first_row(edits: Edits, T: int) -> int:
    """A row before which an edit changes nothing, in any prompt."""
    found = []
    for term in edits:
        query, key = (np.asarray(mask).any(axis=0) for mask in (term.query, term.key))
        if term.op == "swap":
            found.append(int(np.asarray(term.value).min()))
        elif term.site in (Site.LOGITS, Site.WEIGHTS):
            back = 0 if term.distance is None else int(np.argmax(term.distance))
            found.append(int(np.argmax(query & (np.arange(T) >= np.argmax(key) + back))))
        elif term.site == Site.POSITION:
            found.append(int(np.argmax(query | key)))
        else:
            found.append(int(np.argmax(key if SITES[term.site].positions == ("keys",) else query)))
    return min(found, default=0)


def section(rows: Sequence[Row], studies: Mapping[str, tuple[float, float]], load: float) -> str:
    """The section, in Markdown."""
    calls = [
        [
            f"{row.shape[0]} x {row.shape[1]}",
            f"{row.tile}",
            *(span(row.curve[part]) if part in row.curve else "" for part in (0, 1, 2, 4, 6)),
            f"{row.compiling[1] - row.compiling[0]:+.1f}",
            f"{row.kept:+.0%}",
        ]
        for row in rows
    ]
    plans = [[study, f"{flops:.1%}", f"{time:.1%}"] for study, (flops, time) in studies.items()]
    head = ["prompts x positions", "rows of a tile", *(f"{part}/8 shared" for part in (0, 1, 2, 4, 6)), "s to compile", "memory"]
    return "\n\n".join(
        (
            "## Rows before the first edited one (a prototype)",
            "A sweep computes all rows of a block. Here those before the first edited one are left out: their keys and "
            "values are taken as kept, and the block goes over the others in tiles, with a branch that skips a tile. "
            "Blocks of SmolLM2's shape in float32, with `attention_received`, `resid_max`, `resid_norm` and "
            "`resid_argmax`; processor time of all threads, as a part of that of the same blocks whole, measured in turn; "
            "medians (smallest to largest). Then what tiles add to compilation, in seconds of processor time (whole "
            "blocks must be compiled too), and what an unedited run keeps beside its residual streams, as a part of "
            f"these. Measured on {date.today().isoformat()} on {cpu_name()}, {os.cpu_count()} cores, jax "
            f"{jax.__version__}, load average {load:.2f} before the start. `python scripts/bench_positions.py` writes this "
            "section.",
            markdown(head, calls),
            "Of the main sweep of a study, as it is planned for a CPU: the FLOPs of blocks that tiles of 8 rows would "
            "save, and the time by the measurements above, with the better of the tiles. Blocks that share nothing run "
            "whole, or in tiles if these alone save time (0/8), and then all are compared with that:",
            markdown(["study", "FLOPs", "time of blocks"], plans),
        )
    )


if __name__ == "__main__":
    main()
