"""Coordinate the processes that `jax.distributed` joined, such as one per host of a TPU slice: agree, and let only one write."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sinkjax.errors import SinkjaxError
from sinkjax.runtime import interruption

T = TypeVar("T")
ADDRESS, COUNT, NUMBER = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
WORDS = 120  # maximum characters of JAX's message when another process was lost
GRACE = 2.0  # seconds that a failed first process gives the others, because JAX ends them once it is gone


def join() -> None:
    """Join the processes that a launcher started; JAX's back end must not run yet.

    Slurm, Open MPI, Kubernetes and TPU slices specify the participants themselves. Elsewhere, set three variables for each
    process: ADDRESS, the address (host:port) of the first process; COUNT, the number of processes; and NUMBER, its index from 0.
    Errors: neither is given; the other processes do not connect.
    """
    stated = [int(os.environ[name]) if os.environ.get(name, "").isdecimal() else None for name in (COUNT, NUMBER)]
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(num_processes=stated[0], process_id=stated[1])
    except (RuntimeError, ValueError) as error:
        raise SinkjaxError(
            f"the processes cannot be joined ({' '.join(str(error).split())}); start them with a launcher, or set {ADDRESS},"
            f" {COUNT} and {NUMBER}"
        ) from None
    for number in interruption.SIGNALS:  # JAX has replaced Python's handler with its own
        if (handler := signal.getsignal(number)) is not None:
            signal.signal(number, handler)
    meet()


def meet() -> None:
    """Wait for all processes: on CPUs they must connect within half a minute, so before one of them compiles a long program."""
    largest(0)


def end(code: int) -> None:
    """End this failed process immediately if it is one of several; JAX's own exit would wait five minutes for the others."""
    if joined():
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(GRACE * first())
        os._exit(code)


@contextlib.contextmanager
def needed() -> Iterator[None]:
    """Turn JAX's runtime error about a lost joined process into one sentence."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not joined():
            raise
        why = " ".join(str(error).split())[:WORDS]
        raise SinkjaxError(f"this process lost the processes that it was joined to ({why}); start all of them again") from error


def rank() -> tuple[int, int]:
    """Return this process's index and the number of processes, joined or not, from JAX, Slurm, or COUNT and NUMBER."""
    if joined():
        return jax.process_index(), jax.process_count()
    for count, number in (("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"), (COUNT, NUMBER)):
        stated = [os.environ.get(name, "") for name in (number, count)]
        if all(text.isdecimal() for text in stated) and int(stated[0]) < int(stated[1]):
            return int(stated[0]), int(stated[1])
    return 0, 1


def joined() -> bool:
    """Return whether this is one of several processes."""
    return jax.process_count() > 1


def first() -> bool:
    """Return whether this is the process that writes."""
    return jax.process_index() == 0


def by_first(action: Callable[[], T]) -> T | None:
    """Run an action in the first process and return its result, None in the others, which wait; its errors are raised in all."""
    if not joined():
        return action()
    result, raised = None, None
    if first():
        try:
            result = action()
        except BaseException as error:  # the others must be told first
            raised = error
    message = _of_first("" if raised is None else str(raised) or type(raised).__name__)
    if raised is not None:
        raise raised
    if message:
        raise SinkjaxError(message)
    return result


def from_first(action: Callable[[], Any]) -> Any:
    """Run `action` in the first process and return its JSON result in all; if it raises, all processes raise."""
    result = by_first(action)
    return json.loads(_of_first(json.dumps(result))) if joined() else result


def _of_first(text: str) -> str:
    """A text of the first process, in all of them."""
    content = text.encode(errors="replace") if first() else b""
    size = int(_of_each(np.array(len(content), np.int32))[0])
    return bytes(_of_each(np.frombuffer(content.ljust(size, b"\0"), np.uint8))[0]).decode() if size else ""


def largest(*values: int) -> list[int]:
    """Return the maximum over processes of each of these numbers, int32."""
    if not joined():
        return [*values]
    return [int(most) for most in _of_each(np.array(values, np.int32)).max(axis=0)]


def check_same(what: str, value: Any) -> None:
    """Raise in all processes unless they have the same JSON value. what: its name in the message."""
    crc = zlib.crc32(json.dumps(value, sort_keys=True).encode()) >> 1
    most, least = largest(crc, -crc)
    if most != -least:
        raise SinkjaxError(f"the joined processes have different {what}; each must see the same files")


def whole(tree: Any) -> Any:
    """Gather arrays sharded over joined processes into numpy arrays on each; in a single process, return them unchanged.

    Only one array at a time is complete on a device.
    """
    return jax.tree.map(lambda leaf: np.asarray(_everywhere()[1](leaf)), tree) if joined() else tree


def place(tree: Any, where: NamedSharding) -> Any:
    """Make global arrays from arrays that are the same in every process, on the host or on a device."""
    return jax.tree.map(lambda leaf: jax.make_array_from_callback(np.shape(leaf), where, np.asarray(leaf).__getitem__), tree)


def _of_each(values: np.ndarray) -> np.ndarray:
    """Gather an array from each process, [processes, ...]; all must have the same shape and dtype."""
    divided, gather = _everywhere()
    owners = [device.process_index for device in jax.devices()]
    given = jax.make_array_from_callback((len(owners), *values.shape), divided, lambda index: values[None])
    return np.asarray(gather(given))[[owners.index(number) for number in range(jax.process_count())]]


@functools.cache
def _everywhere() -> tuple[NamedSharding, Callable[[jax.Array], jax.Array]]:
    """Return the sharding that splits a leading axis over all devices, and a function that replicates an array on them."""
    mesh = Mesh(np.array(jax.devices()), ("device",))
    divided, everywhere = NamedSharding(mesh, PartitionSpec("device")), NamedSharding(mesh, PartitionSpec())
    return divided, jax.jit(lambda array: array, out_shardings=everywhere)
