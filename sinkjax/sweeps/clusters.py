"""Sweeps on the workers of a Dask cluster or of Ray: one task per call, whose results this process keeps.

A worker receives the model and the prompts once and keeps them, compiled programs and the last baseline. It needs no access to
the store. The scheduler repeats the tasks of a worker that died; a call's result is the same wherever it is computed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import threading
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.errors import SinkjaxError, short
from sinkjax.probes.record import Record
from sinkjax.runtime.settings import fixed_settings
from sinkjax.sweeps.calls import compute
from sinkjax.sweeps.computation import Computation
from sinkjax.sweeps.schedule import Chunk, Schedule, deal
from sinkjax.sweeps.shared import baseline

RAY = "ray"
Call = tuple[int, Chunk]
Answer = tuple[Record, dict[str, Any]]  # a call's record, and the facts of the worker's machine
_KEPT: dict[str, tuple[Computation, Schedule, dict]] = {}  # in a worker: the sweep that it computes
_ONE = threading.Lock()  # a worker of several threads computes one call at a time


@fixed_settings
def task(name: str, given: list[Any], x64: bool, call: Call) -> Answer:
    """Compute a call in a worker. name: of the sweep. given: the computation and its schedule, or Ray's reference to them."""
    with _ONE:
        jax.config.update("jax_enable_x64", x64)
        if name not in _KEPT:
            computation, schedule = given if len(given) == 2 else _of_ray().get(given[0])
            _KEPT.clear()
            _KEPT[name] = _with_arrays(computation, jnp.asarray), schedule, {}
        computation, schedule, known = _KEPT[name]
        run_of = call[0], call[1].base

        def run(function: Any, *inputs: Any, **changes: Any) -> Any:
            if function is not baseline:
                return computation.each(function, *inputs, **changes)
            if run_of not in known:
                known.clear()
                known[run_of] = computation.each(function, *inputs, **changes)
            return known[run_of]

        rounds = deal([call], computation.hardware().devices, computation.spec.depth)
        ((_, _, fetch),) = compute(computation, schedule, rounds, run)
        return fetch(), computation.facts()


def computed(client: Any, computation: Computation, schedule: Schedule, left: Sequence[Call]) -> Iterator[tuple[Call, Answer]]:
    """Compute calls on a cluster, and yield each when it is done. Errors: a call's; a worker that dies again and again."""
    bare = _with_arrays(computation, np.asarray), schedule
    answers = _on_ray if client == RAY else _on_dask
    try:
        with contextlib.closing(answers(client, bare, left)) as answered:
            for number, answer in answered:
                yield left[number], answer
    except SinkjaxError:
        raise
    except Exception as error:  # the scheduler's own, such as KilledWorker
        why = " ".join(str(error).split())[:200]
        raise SinkjaxError(
            f"the cluster could not compute a call ({type(error).__name__}: {why}); finished work is kept"
        ) from error


def _with_arrays(computation: Computation, convert: Any) -> Computation:
    """Return a computation without a tokenizer, with its arrays converted: NumPy's travel, because JAX's would lose float64."""
    params, tokens, lengths, past = jax.tree.map(
        convert, (computation.model.params, computation.tokens, computation.lengths, computation.past)
    )
    model = dataclasses.replace(computation.model, params=params, tokenizer=None)
    return dataclasses.replace(computation, model=model, tokens=tokens, lengths=lengths, past=past)


def check_client(client: Any) -> None:
    """Raise unless `client` is a client of Dask or the name of Ray."""
    if client == RAY:
        _of_ray()
    elif not all(hasattr(client, name) for name in ("submit", "scatter", "cancel")):
        raise SinkjaxError(f"client must be a dask.distributed.Client or {RAY!r}, not {short(client)}")


def _on_dask(client: Any, given: tuple, left: Sequence[Call]) -> Generator[tuple[int, Answer]]:
    from distributed import as_completed

    name, x64 = secrets.token_hex(8), bool(jax.config.read("jax_enable_x64"))
    shared = [client.scatter(part, broadcast=True, hash=False) for part in given]
    numbers = {client.submit(task, name, shared, x64, call, pure=False): number for number, call in enumerate(left)}
    try:
        for future, answer in as_completed([*numbers], with_results=True):
            yield numbers.pop(future), answer
    finally:
        client.cancel([*numbers])


def _on_ray(_: Any, given: tuple, left: Sequence[Call]) -> Generator[tuple[int, Answer]]:
    ray = _of_ray()
    if not ray.is_initialized():
        ray.init()
    name, shared, x64 = secrets.token_hex(8), [ray.put(given)], bool(jax.config.read("jax_enable_x64"))
    remote = ray.remote(num_gpus=int(ray.cluster_resources().get("GPU", 0) > 0), max_retries=3)(task)
    numbers = {remote.remote(name, shared, x64, call): number for number, call in enumerate(left)}
    try:
        while numbers:
            (done,), _ = ray.wait([*numbers], num_returns=1)
            yield numbers.pop(done), ray.get(done)
    finally:
        for reference in numbers:
            ray.cancel(reference)


def _of_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise SinkjaxError("client='ray' needs ray, which is not installed: pip install ray") from None
    return ray
