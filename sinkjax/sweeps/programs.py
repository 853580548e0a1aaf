"""The programs of sweeps: compiled several at a time, before the calls that run them.

`jax.jit` keeps a program that was compiled ahead, so a call of the same shapes finds it. Threads gain because XLA compiles most
of a program on one core, and a study has several that take seconds each.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from sinkjax.runtime.hardware import data_axes
from sinkjax.sweeps.calls import in_rounds
from sinkjax.sweeps.computation import Computation
from sinkjax.sweeps.schedule import Round, Schedule
from sinkjax.sweeps.shared import each

Sweep = tuple[Computation, Schedule, Iterable[Round]]


def compile_programs(sweeps: Iterable[Sweep]) -> None:
    """Compile what the rounds of these sweeps run, each program once. What is compiled already takes milliseconds.

    Joined processes compile as they go, because on GPUs their compilers wait for each other, in one order.
    """
    programs: dict[Hashable, jax.stages.Lowered] = {}
    for computation, schedule, rounds in sweeps:
        if not computation.joined:
            _lower(computation, schedule, rounds, programs)
    with ThreadPoolExecutor(max(1, min(len(programs), os.cpu_count() or 1))) as pool:
        list(pool.map(jax.stages.Lowered.compile, programs.values()))


def _lower(
    computation: Computation, schedule: Schedule, rounds: Iterable[Round], programs: dict[Hashable, jax.stages.Lowered]
) -> None:
    """Add the programs of these rounds that `programs` lacks, by what decides them; nothing runs."""
    mesh, spec, L = computation.mesh, computation.spec, computation.spec.depth
    placed = jax.tree.leaves(computation.params)[0].sharding  # results of one call, which the next one takes, lie in its mesh
    where = NamedSharding(placed.mesh, PartitionSpec(data_axes(mesh) or None)) if isinstance(placed, NamedSharding) else None
    first: dict[Hashable, Round] = {}
    for entry in rounds:
        chunk = next(chunk for _, _, chunk in entry.calls())
        first.setdefault((chunk.kind, chunk.start == L, chunk.base is None), entry)

    def run(function: Callable, *inputs: Any, **changes: Any) -> Any:
        own = dataclasses.replace(spec, **changes)
        shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(inputs))
        key = function.__name__, mesh, own, jax.tree.structure(inputs), shapes
        if key not in programs:
            programs[key] = each.lower(computation.params, *inputs, function=function, mesh=mesh, spec=own)
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where), programs[key].out_info)

    for _ in in_rounds(computation, schedule, first.values(), run):
        pass
