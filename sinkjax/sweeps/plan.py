"""A sweep before it runs: how edits are grouped into kinds and chunks, and what that costs in compilations, bytes and FLOPs.

Edits of one kind and one base are sorted by the block at which they start from it and cut into chunks; a chunk starts at its
smallest block. Prompts are cut only when a chunk of a single edit does not fit the memory.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.backend import host_memory
from sinkjax.edits.edit import Edit, resolve
from sinkjax.edits.term import Edits
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.model.params import abstract, count
from sinkjax.probes.probe import Probe
from sinkjax.sweeps.schedule import Schedule, cut_into_chunks, kind_of
from sinkjax.sweeps.shared import baseline
from sinkjax.sweeps.sharing import origins
from sinkjax.transformer.attention import block_size, query_groups
from sinkjax.transformer.output import NLL_TOKENS
from sinkjax.transformer.spec import ForwardSpec

# Tokens in one call beyond which a device gains nothing from more: a CPU's matrix products are at full rate from about a
# thousand rows on, and each further edit in a chunk only adds skipped blocks that must be run.
TOKENS_PER_CALL = {"cpu": 1024, "gpu": 32768, "tpu": 32768}


@dataclass(frozen=True)
class Plan:
    """What a sweep will do.

    edits, prompts, positions: sizes. kinds: description of each kind of edit. schedule: the calls. compiles: jitted programs.
    layer_passes: blocks times edits times prompt blocks that are computed, bases included. bytes: peak estimate of each
    device, by part. flops: of all matrix products. result_bytes: the uncompressed result.
    """

    edits: int
    prompts: int
    positions: int
    kinds: tuple[str, ...]
    schedule: Schedule
    compiles: int
    layer_passes: int
    bytes: dict[str, int]
    flops: float
    result_bytes: int

    @property
    def peak_bytes(self) -> int:
        """Estimated peak of each device's memory."""
        return sum(self.bytes.values())


@dataclass(frozen=True)
class Hardware:
    """Where a sweep is to run.

    memory: bytes that the parameters and one call may take on a device, None: what it has. devices: groups of devices over which
    the edits of a chunk are spread. shards: devices of a group, over which the parameters are. platform: "cpu", "gpu" or "tpu",
    None: that of this process.
    """

    memory: int | None = None
    devices: int = 1
    shards: int = 1
    platform: str | None = None


def plan(
    config: Config,
    edits: Sequence[Edit],
    lengths: Sequence[int] | np.ndarray,
    T: int,
    probe: Probe,
    *,
    memory: int | None = None,
    dtype: str = "float32",
    devices: int = 1,
    shards: int = 1,
    platform: str | None = None,
) -> Plan:
    """Plan a sweep of `edits` over prompts of these lengths, padded to T. No weights are needed.

    memory: bytes that the parameters and one call may take on a device, by default what it has. devices: groups of devices over
    which the edits of a chunk are spread. shards: devices of a group, over which the parameters are.
    Errors: an edit that does not fit the model or the prompts; a memory in which one prompt does not fit.
    """
    probe.check(config, T)
    resolved = [resolve(entry, config, lengths, T) for entry in edits]
    hardware = Hardware(memory, devices, shards, platform)
    return plan_resolved(config, resolved, (len(lengths), T), probe, dtype, hardware)


def plan_resolved(
    config: Config,
    resolved: Sequence[Edits],
    batch: tuple[int, int],
    probe: Probe,
    dtype: str,
    hardware: Hardware,
) -> Plan:
    """`plan` of edits that are resolved already. batch: prompts and positions, B and T."""
    B, T = batch
    devices = hardware.devices
    if not resolved:
        raise SinkjaxError("a sweep needs at least one edit")
    given: Any = device_memory() if hardware.memory is None else hardware.memory
    if not isinstance(given, int | float | np.number) or not 0 < given < math.inf:
        raise SinkjaxError(f"memory must be a number of bytes above 0, not {given!r}")
    memory = int(given)
    starts = origins(resolved, config)
    bases = {origin.base for origin in starts} - {None}
    cost = Cost.of(config, T, probe, dtype, hardware.shards, streams=2 if bases else 1)  # the unedited run and one base at a time
    prompt_block = cost.prompts_that_fit(B, memory)
    tokens = prompt_block * T
    each = max(
        1, min(cost.edits_that_fit(prompt_block, memory), TOKENS_PER_CALL[hardware.platform or jax.default_backend()] // tokens)
    )

    groups: dict[tuple, list[int]] = {}
    for number, entry in enumerate(resolved):
        groups.setdefault(kind_of(entry), []).append(number)
    widths = tuple(devices * min(each, math.ceil(len(numbers) / devices)) for numbers in groups.values())
    chunks = cut_into_chunks(list(groups.values()), widths, starts, config.layers)

    blocks = math.ceil(B / prompt_block)
    computed = [chunk for chunk in chunks if chunk.start < config.layers]
    whole = {chunk.base for chunk in chunks}
    runs = len(whole) + sum(widths[chunk.kind] for chunk in computed)
    layer_passes = len(whole) * config.layers + sum(widths[chunk.kind] * (config.layers - chunk.start) for chunk in computed)
    unembedding = 2 * config.width * (config.vocab_size or 0) if probe.nll else 0
    widest = max((widths[chunk.kind] for chunk in computed), default=devices) // devices
    return Plan(
        edits=len(resolved),
        prompts=B,
        positions=T,
        kinds=tuple(_describe(resolved[numbers[0]], len(numbers)) for numbers in groups.values()),
        schedule=Schedule(prompt_block, widths, chunks),
        compiles=len({None if chunk.base is None else chunk.kind for chunk in chunks}) + len({chunk.kind for chunk in computed}),
        layer_passes=layer_passes * blocks,
        bytes={
            "parameters": cost.weights,
            "shared runs": prompt_block * cost.stream,
            "one call": cost.block + widest * cost.run(prompt_block),
        },
        flops=float(layer_passes * block_flops(config, T) + runs * unembedding) * blocks * tokens,
        result_bytes=len(resolved) * B * cost.record,
    )


@dataclass(frozen=True)
class Cost:
    """Bytes that a sweep takes on a device.

    positions: T, of each prompt. weights: the parameters. block: those of one block, which a scan copies. stream: of one prompt,
    the inputs of all blocks of the runs that are shared. record: of one prompt. run(B): one edited run of B prompts.
    """

    positions: int
    weights: int
    block: int
    stream: int
    record: int
    run: Callable[[int], int]

    @classmethod
    def of(cls, config: Config, T: int, probe: Probe, dtype: str, shards: int, streams: int) -> Cost:
        """The cost of prompts of T positions, with the parameters spread over `shards` devices and `streams` shared runs kept."""
        size = jnp.dtype(dtype).itemsize
        record = _record_bytes(config, T, probe, dtype)
        return cls(
            positions=T,
            weights=count(config) * size // shards,
            block=_block_parameters(config) * size // shards,
            stream=streams * config.layers * T * config.width * size,
            record=record,
            run=lambda B: _run_bytes(config, B, T, probe.nll, size) + 2 * B * record,  # one is written meanwhile
        )

    def prompts_that_fit(self, B: int, memory: int) -> int:
        """Prompts per call, in blocks of about one size. Errors: a memory in which not one fits."""

        def need(prompts: int) -> int:
            return self.weights + self.block + prompts * self.stream + self.run(prompts)

        most = bisect.bisect_right(range(1, B + 1), memory, key=need)
        if not most:
            raise SinkjaxError(
                f"one prompt of {self.positions} tokens needs about {need(1) / 1e9:.2f} GB,"
                f" more than the {memory / 1e9:.2f} GB allowed"
            )
        return math.ceil(B / math.ceil(B / most))

    def edits_that_fit(self, prompts: int, memory: int) -> int:
        """Edited runs of so many prompts that fit beside the parameters and the baseline."""
        return (memory - self.weights - self.block - prompts * self.stream) // self.run(prompts)


def device_memory() -> int:
    """Bytes of a device that a sweep may plan with: 90 % of its limit; of a CPU, its share of half of what the host has free."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(0.9 * stats["bytes_limit"])
    return host_memory() // 2 // jax.local_device_count()


def _describe(edits: Edits, size: int) -> str:
    terms = " + ".join(f"{term.op} {term.site}" for term in edits) or "no edit"
    return f"{terms}: {size} {'edit' if size == 1 else 'edits'}"


def _block_parameters(config: Config) -> int:
    """Entries of the matrices of one block that a token meets: of experts those that it takes."""
    taken = 1.0 if config.experts is None else config.experts.active / config.experts.count
    leaves = [
        leaf for leaf in jax.tree.leaves(abstract(config)["layers"]) if leaf.init == "normal" and "buckets" not in leaf.axes
    ]
    mixed = [leaf for leaf in leaves if leaf.axes[1] == "expert"]
    rest = sum(math.prod(leaf.shape[1:]) for leaf in leaves if leaf.axes[1] != "expert")
    return rest + round(taken * sum(math.prod(leaf.shape[1:]) for leaf in mixed))


def block_flops(config: Config, T: int) -> int:
    """FLOPs of one block per token; attention with all keys that are computed, hidden ones too."""
    pairs = sum((end - begin) * max(end, min(config.prefix or 0, T)) for begin, end in query_groups(T))
    return 2 * _block_parameters(config) + 4 * pairs * config.heads * config.head_dim // T


def _run_bytes(config: Config, B: int, T: int, nll: bool, size: int) -> int:
    """Bytes alive at the widest point of one edited run of B prompts, its record aside.

    The counts of arrays fit what XLA reports for compiled runs (tests/sweeps/test_plan.py holds them to it).
    """
    wide = max(size, 4)
    heads = config.head_dim * (6 * config.heads + 2 * config.kv_heads) * size
    scores = 3 * config.heads * block_size(T) * wide
    taken = 1 if config.experts is None else 2 * config.experts.active  # rows of experts are padded to blocks
    block = B * T * max(heads + scores, 3 * taken * (config.mlp_width or 0) * size)
    loss = 2 * min(B * T, max(B, NLL_TOKENS)) * (config.vocab_size or 0) * wide if nll else 0
    return 4 * B * T * config.width * size + max(block, loss)


def _record_bytes(config: Config, T: int, probe: Probe, dtype: str) -> int:
    """Bytes of one prompt's record, from the shapes of an abstract run."""
    shaped = jax.ShapeDtypeStruct
    params = jax.tree.map(lambda leaf: shaped(leaf.shape, dtype), abstract(config))
    tokens = shaped((1, T), "int32") if config.vocab_size else shaped((1, T, config.width), dtype)
    run = functools.partial(baseline, spec=ForwardSpec(config=config, probe=probe))
    record = jax.eval_shape(run, params, tokens, shaped((1,), "int32"))[1]
    return sum(array.size * array.dtype.itemsize for array in record.values())
