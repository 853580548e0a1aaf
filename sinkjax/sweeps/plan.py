"""Plan a sweep before it runs: grouping of edits into kinds and chunks, and the cost in compilations, bytes and FLOPs.

Edits of one kind and one base are sorted by their first block that differs from the base, and cut into chunks; a chunk starts at
its smallest block. The number of prompts and edits per call depends on the devices; see `_best_schedule`.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.config_files.checks import refuse
from sinkjax.edits.edit import Edit, resolve
from sinkjax.edits.term import Edits
from sinkjax.errors import SinkjaxError, short
from sinkjax.model.batch import refuse_beyond_context
from sinkjax.model.config import Config
from sinkjax.model.params import abstract, count
from sinkjax.model.site import Site
from sinkjax.probes.probe import Probe
from sinkjax.probes.record import Record
from sinkjax.runtime.hardware import ONE, Hardware
from sinkjax.sweeps.schedule import Chunk, Round, Schedule, cut_into_chunks, kind_of
from sinkjax.sweeps.shared import baseline
from sinkjax.sweeps.sharing import Origin, first_rows, origins, rows_can_be_shared, worth
from sinkjax.transformer.cost import block_flops, block_parameters, run_bytes, widened_bytes
from sinkjax.transformer.implementations import AUTO, chosen
from sinkjax.transformer.spec import ForwardSpec

# More tokens per call than this gain a device nothing: a CPU's matrix products reach their full rate at about a
# thousand rows, and each further edit in a chunk only adds blocks that could have been skipped. An H200 reaches 70% of the rate
# of its products at 16k tokens of a 3B shape in bfloat16, 66% at 4k, and 47% at 1k.
TOKENS_PER_CALL = {"cpu": 1024, "gpu": 16_384, "tpu": 8192}
# Copies of a record alive in an edited run: the scan's output, the returned record, and a fraction for the current layer.
RECORDS = 2.25
# Fixed cost of a block, in tokens: reading its parameters, and starting it.
TOKENS_PER_BLOCK = {"cpu": 64, "gpu": 512, "tpu": 256}
# Maximum share of the rows of a call that are padding. On a CPU a row costs the same in any call.
PADDED = {"cpu": 0.1, "gpu": 1.0, "tpu": 1.0}


@dataclass(frozen=True)
class Plan:
    """The work of a sweep.

    edits, prompts, positions: sizes. kinds: description of each kind of edit. schedule: the calls. devices: devices per process.
    processes: number of processes with work to do. rounds: maximum number of rounds in a process. compiles: number of jitted
    programs. layer_passes: blocks times edits times prompt blocks computed on all devices, including bases. row_passes: the same,
    with the share of its rows that each block computes. critical_passes:
    passes that one device could do in the sweep's wall-clock time. kept: share of the devices' time, in all processes, spent
    on work that one device would have to do too, with each edit from its own start. bytes: estimated peak per device, by
    part. flops: FLOPs of all matrix products. result_bytes: size of the uncompressed result. attention: the implementation.
    """

    edits: int
    prompts: int
    positions: int
    kinds: tuple[str, ...]
    schedule: Schedule
    devices: int
    processes: int
    rounds: int
    compiles: int
    layer_passes: int
    row_passes: float
    critical_passes: float
    kept: float
    bytes: dict[str, int]
    flops: float
    result_bytes: int
    attention: str

    @property
    def peak_bytes(self) -> int:
        """Estimated peak of each device's memory."""
        return sum(self.bytes.values())

    @property
    def critical_flops(self) -> float:
        """FLOPs that one device could do in the sweep's wall-clock time on all devices."""
        return self.flops * self.critical_passes / self.row_passes


def plan(
    config: Config,
    edits: Sequence[Edit | Edits],
    lengths: Sequence[int] | np.ndarray,
    T: int,
    probe: Probe,
    dtype: str = "float32",
    hardware: Hardware = ONE,
    attention_impl: str = AUTO,
    batch_size: int | None = None,
    share_rows: bool = True,
) -> Plan:
    """Plan a sweep of `edits` over prompts of these lengths, padded to T, without loading weights. Arguments as for `sweep`.

    edits: Resolved or not. Errors: T is beyond the context; an edit does not fit the model or the prompts; the memory is too
    small for one prompt; as for `implementations.chosen`.
    """
    refuse_beyond_context(T, config)
    probe.check(config, T)
    refuse(not edits, "a sweep needs at least one edit")
    resolved = [entry if isinstance(entry, tuple) else resolve(entry, config, lengths, T, dtype) for entry in edits]
    given: Any = batch_size
    wrong = given is not None and not (isinstance(given, int | np.integer) and int(given) > 0)
    refuse(wrong, f"batch_size must be a number of prompts above 0, not {short(batch_size)}")
    B, L, devices = len(lengths), ForwardSpec(config=config, probe=probe, logits=False).depth, hardware.devices
    programs = worth(config, B, T, hardware.kind)
    starts, kinds = origins(resolved, config, L, programs), [kind_of(entry) for entry in resolved]
    attention = chosen(attention_impl, config, resolved, probe, T, dtype, hardware)
    shared = share_rows and rows_can_be_shared(config, probe, attention)
    rows = first_rows(resolved, kinds, starts, T, L, programs / 2) if shared else [0] * len(resolved)
    streams = 1 + any(origin.base is not None for origin in starts)  # the unedited run, and one base at a time
    weights_edited = any(term.site == Site.WEIGHTS for entry in resolved for term in entry)
    size = config, T, probe, dtype, hardware, streams, weights_edited
    cost = DeviceBytes.of(*size, cuts=len({*rows} - {0}))
    if any(rows) and cost.needed(1) > hardware.memory_bytes():
        rows, cost = [0] * len(resolved), DeviceBytes.of(*size)

    by_kind: dict[tuple, list[int]] = {}
    for number, call in enumerate(zip(kinds, rows, strict=True)):
        by_kind.setdefault(call, []).append(number)
    groups = list(by_kind.values())
    names = [" + ".join(f"{term.op} {term.site}" for term in resolved[first]) or "no edit" for first, *_ in groups]
    schedule = _best_schedule(groups, starts, rows, B, L, cost, hardware, min(B, batch_size or B))

    b, widths, chunks = schedule.prompt_block, schedule.widths, schedule.chunks
    shares = [share for share in schedule.shares(B, devices, hardware.processes, L) if share]
    waves = sum(len([*itertools.groupby(share, key=lambda entry: entry.runs)]) for share in shares)
    calls = [chunk for share in shares for entry in share for _, _, chunk in entry.calls() if chunk.start < L]
    layer_passes = L * waves * devices + sum(widths[chunk.kind] * (L - chunk.start) for chunk in calls)
    runs = waves * devices + sum(widths[chunk.kind] for chunk in calls)
    row_passes = L * waves * devices + sum(widths[chunk.kind] * (L - chunk.start) * (T - chunk.row) for chunk in calls) / T
    critical_passes = duration(schedule, B, L, T, hardware, extra=0) / (b * T)
    edited = sum((L - origin.block) * (T - row) for origin, row in zip(starts, rows, strict=True)) / T
    needed = B * (L * len({chunk.base for chunk in chunks}) + edited)
    unembedding = 2 * config.width * (config.vocab_size or 0) if probe.nll else 0
    return Plan(
        edits=len(resolved),
        prompts=B,
        positions=T,
        kinds=tuple(f"{name}: {len(group)} edit{'s' * (len(group) > 1)}" for name, group in zip(names, groups, strict=True)),
        schedule=schedule,
        devices=devices,
        processes=len(shares),
        rounds=max(map(len, shares)),
        compiles=len({None if chunk.base is None else kinds[chunk.base] for chunk in chunks})
        + len({chunk.kind for chunk in chunks if chunk.start < L}),
        layer_passes=layer_passes,
        row_passes=row_passes,
        critical_passes=critical_passes,
        kept=needed / (devices * hardware.processes * b * critical_passes),
        bytes={
            "parameters": cost.weights,
            "shared runs": b * cost.base,
            "one call": cost.block + (width := max((widths[chunk.kind] for chunk in calls), default=1)) * cost.run(b),
            "finished calls": width * b * cost.finished,
        },
        flops=float(row_passes * block_flops(config, T) + runs * unembedding) * b * T,
        result_bytes=len(resolved) * B * cost.record,
        attention=attention,
    )


def duration(schedule: Schedule, B: int, L: int, T: int, hardware: Hardware, extra: int) -> float:
    """Return the time until the last device is done, in tokens of a block; each block costs `extra` tokens more.

    B, L, T: prompts, layers, positions.
    """

    def call(chunk: Chunk) -> float:
        return (schedule.widths[chunk.kind] * schedule.prompt_block * (T - chunk.row) + extra) * (L - chunk.start)

    if hardware.devices * hardware.processes == 1:  # no device waits for another, so calls need not be dealt
        bases, blocks = len({chunk.base for chunk in schedule.chunks}), -(-B // schedule.prompt_block)
        return blocks * (bases * L * (schedule.prompt_block * T + extra) + sum(map(call, schedule.chunks)))
    shares = [share for share in schedule.shares(B, hardware.devices, hardware.processes, L) if share]
    return max(_critical(share, L * (schedule.prompt_block * T + extra), call, hardware.calls_ahead) for share in shares)


def _critical(rounds: Sequence[Round], base: float, call: Callable[[Chunk], float], ahead: int) -> float:
    """Return the time from the first to the last round. base, call: the durations of a base and of each call.

    A device that finishes its part of a round starts the next, but a round starts only after the one `ahead` + 1 rounds earlier
    is completely done.
    """
    finish, done = [0.0] * len(rounds[0].runs), [0.0] * (ahead + 1)
    runs = None
    for entry in rounds:
        begin, runs = 0 if entry.runs == runs else base, entry.runs
        costs = [0 if chunk is None else call(chunk) for chunk in entry.chunks]
        finish = [max(time, done[-1 - ahead]) + begin + cost for time, cost in zip(finish, costs, strict=True)]
        done.append(max(finish))
    return done[-1]


def _best_schedule(
    groups: Sequence[list[int]],
    starts: Sequence[Origin],
    rows: Sequence[int],
    B: int,
    L: int,
    cost: DeviceBytes,
    hardware: Hardware,
    most_prompts: int,
) -> Schedule:
    """Choose the prompts and edits per call that finish earliest within the memory.

    A block takes the time of its tokens plus TOKENS_PER_BLOCK. A wide call starts at the earliest of many edits; narrow calls, or
    few prompts per call, mean more calls; and remainders leave devices idle.
    """
    memory, T = hardware.memory_bytes(), cost.positions
    extra, most = TOKENS_PER_BLOCK[hardware.kind], TOKENS_PER_CALL[hardware.kind]
    lists: list[dict[int | None, list[int]]] = [{} for _ in groups]  # for each kind, the blocks where edits start, by base
    for kind, numbers in enumerate(groups):
        for origin in sorted((starts[number] for number in numbers), key=lambda origin: origin.block):
            if origin.block < L:
                lists[kind].setdefault(origin.base, []).append(origin.block)

    def width(kind: int, b: int) -> int:
        """Return the edits per call of a kind, for b prompts, as if the devices waited for each other."""
        devices, computed = hardware.devices * hardware.processes, T - rows[groups[kind][0]]
        whole, rest = divmod(math.ceil(B / b), devices)
        sharing = devices // rest if rest else 0  # devices per run, if there are fewer runs than devices

        def time(w: int) -> int:
            strides = (whole, w), (min(rest, 1), w * sharing)
            blocks = [(times, block) for times, by in strides if times for each in lists[kind].values() for block in each[::by]]
            return (w * b * computed + extra) * sum(times * (L - block) for times, block in blocks)

        def padded(w: int) -> float:
            """Return the share of padding in a call's rows: prompts of the last block, and edits of chunks that are not full."""
            runs = math.ceil(B / b) * b * sum(math.ceil(len(each) / w) * w for each in lists[kind].values())
            return 1 - B * sum(map(len, lists[kind].values())) / max(1, runs)

        fit = min(cost.edits_that_fit(b, memory), max(1, most // (b * computed)), len(groups[kind]))
        return min((w for w in range(1, max(1, fit) + 1) if w == 1 or padded(w) <= PADDED[hardware.kind]), key=time)

    def schedule(b: int) -> Schedule:
        widths = tuple(width(kind, b) for kind in range(len(groups)))
        return Schedule(b, widths, cut_into_chunks(groups, widths, starts, rows, L))

    fitting = min(cost.prompts_that_fit(B, memory), most_prompts)
    sizes = sorted({math.ceil(B / k) for k in range(1, B + 1)} & set(range(1, fitting + 1)), reverse=True)
    sizes = [b for b in sizes if 1 - B / (math.ceil(B / b) * b) <= PADDED[hardware.kind]]
    return min(map(schedule, sizes), key=lambda made: duration(made, B, L, T, hardware, extra))


@dataclass(frozen=True)
class DeviceBytes:
    """Bytes that a sweep needs on a device.

    positions: T of each prompt. weights: the parameters. block: the parameters of one block, which a scan copies, and the copy
    of a tied unembedding. stream: the inputs of all blocks in the shared runs of one prompt. base: the same with their records.
    record: the record of one prompt. finished: its records in calls that are finished but not written, per edit. run(B): one
    edited run of B prompts.
    """

    positions: int
    weights: int
    block: int
    stream: int
    base: int
    record: int
    finished: int
    run: Callable[[int], int]

    @classmethod
    def of(
        cls,
        config: Config,
        T: int,
        probe: Probe,
        dtype: str,
        hardware: Hardware,
        streams: int,
        weights_edited: bool,
        cuts: int = 0,
    ) -> DeviceBytes:
        """Compute the cost of prompts of T positions, with `streams` shared runs kept. weights_edited: whether an edit acts at
        WEIGHTS. cuts: first rows of calls, for which the shared runs keep keys, values and sums."""
        size, shards = jnp.dtype(dtype).itemsize, hardware.shards
        inner = max(size, 4) if hardware.kind == "cpu" else size  # XLA computes in float32 on a CPU
        record = sum(array.size * array.dtype.itemsize for array in record_shapes(config, T, probe, dtype).values())
        kept = config.width + 2 * config.kv_heads * config.head_dim * bool(cuts)
        stream = streams * config.layers * T * kept * size
        widened = widened_bytes(config, dtype, hardware.kind) if probe.nll else 0
        return cls(
            positions=T,
            weights=count(config) * size // shards,
            block=(block_parameters(config) * inner + widened) // shards,
            stream=stream,
            base=stream + (2 + cuts) * streams * record,  # by layer, as returned, and sums before each cut
            record=record,
            finished=hardware.calls_ahead * record,
            run=lambda B: run_bytes(config, B, T, probe.nll, inner, weights_edited) + int(RECORDS * B * record),
        )

    def needed(self, prompts: int) -> int:
        """Return the bytes of a call of one edit."""
        return self.weights + self.block + prompts * (self.base + self.finished) + self.run(prompts)

    def prompts_that_fit(self, B: int, memory: int) -> int:
        """Return the largest number of prompts per call, at most B; raise if not even one fits."""

        most = bisect.bisect_right(range(1, B + 1), memory, key=self.needed)
        if not most:
            needed = f"one prompt of {self.positions} tokens needs about {self.needed(1) / 1e9:.2f} GB"
            raise SinkjaxError(f"{needed}, more than the {memory / 1e9:.2f} GB allowed")
        return most

    def edits_that_fit(self, prompts: int, memory: int) -> int:
        """Return the number of edited runs of this many prompts that fit next to the parameters and the baseline."""
        return (memory - self.weights - self.block - prompts * self.base) // (self.run(prompts) + prompts * self.finished)


def record_shapes(config: Config, T: int, probe: Probe, dtype: str) -> Record:
    """Return the shapes and dtypes of the record of one prompt of T positions, from an abstract run."""
    shaped = jax.ShapeDtypeStruct
    params = jax.tree.map(lambda leaf: shaped(leaf.shape, dtype), abstract(config))
    tokens = shaped((1, T), "int32") if config.vocab_size else shaped((1, T, config.width), dtype)
    run = functools.partial(baseline, spec=ForwardSpec(config=config, probe=probe, logits=False))
    record: Record = jax.eval_shape(run, params, tokens, shaped((1,), "int32"))[1]
    return record
