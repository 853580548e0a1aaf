"""`sweep`: many edits on one model and one batch of prompts; planned, shared, stored and resumable."""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkjax.analysis.finite import lost
from sinkjax.checkpoints.model import check_model
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import user_location
from sinkjax.config_files.locations import Location, reached
from sinkjax.edits.edit import Edit, as_edits, coordinates_of, resolve
from sinkjax.edits.term import Edits
from sinkjax.errors import SinkjaxError, short
from sinkjax.model.batch import check_batch
from sinkjax.model.params import check_finite, dtype_of
from sinkjax.probes.probe import Probe
from sinkjax.runtime import interruption, processes
from sinkjax.runtime.progress import bar
from sinkjax.runtime.settings import fixed_settings
from sinkjax.sweeps import clusters
from sinkjax.sweeps.arrays import CHANGED
from sinkjax.sweeps.calls import Fetch, compute, keep, started
from sinkjax.sweeps.computation import Computation, unchanged
from sinkjax.sweeps.dataset import Memory
from sinkjax.sweeps.header import COORDINATES, IDENTITY, Header, Json, attributes_of_sweep
from sinkjax.sweeps.programs import compile_programs
from sinkjax.sweeps.schedule import Chunk, Round, Schedule, deal
from sinkjax.sweeps.store import WRITERS, Store, begin, existing
from sinkjax.transformer.implementations import AUTO
from sinkjax.transformer.past import Past, put_in_front
from sinkjax.transformer.spec import ForwardSpec

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model

Size = tuple[int | None, int | None, bool]  # the memory and the batch size of `sweep`, and whether rows are shared


@fixed_settings
def sweep(
    model: Model,
    tokens: Any,
    edits: Sequence[Edit],
    probe: Probe = Probe(attention_received=True),
    lengths: Any = None,
    labels: Mapping[str, Sequence[Any]] | None = None,
    out: str | Path | None = None,
    *,
    memory: int | None = None,
    batch_size: int | None = None,
    precision: str = "highest",
    attributes: Mapping[str, Any] | None = None,
    progress: bool = True,
    check: bool = True,
    strict: bool = False,
    attention_impl: str = AUTO,
    attention_mask: Any = None,
    past: Past | None = None,
    share_rows: bool = True,
    client: Any = None,
) -> xarray.Dataset:
    """Measure every edit on every prompt.

    Prompts (and edits, if there are fewer prompts than devices) are spread over all devices, or over all axes except "model" of
    the mesh that the model was placed on. If the mesh has devices of joined processes (`jax.distributed`), the model can be
    larger than a host; all processes then compute every call, and the first one writes.

    Args:
        model: The model.
        tokens: int [B, T], padded on the right, or float [B, T, d].
        edits: Edits of any kind. Each kind compiles once, and an edit whose first layer is l reuses the earlier blocks of the
            baseline.
        probe: The statistics to measure.
        lengths: int [B], by default T for all.
        labels: Mapping from dimension to labels; by default, edits are labelled by `edit.label`.
        out: A zarr store, written chunk by chunk. Repeating the call resumes it, even after a kill, with the same bits as an
            undisturbed run. Simultaneous calls in several processes share the work. A URL ("s3://bucket/mask.zarr") names a
            store in an object store, which requires the extra `remote` and the protocol's own library (s3fs, gcsfs). None keeps
            the result in memory.
        memory: Bytes per device to plan with, by default all its memory.
        batch_size: Maximum number of prompts per call, by default the fastest. Sweeps with equal calls share their programs.
        precision: Matrix product precision, as in `sinkjax.forward`.
        attributes: Provenance to store with the result (text, BOS policy, ...), as JSON.
        progress: Whether to show a progress bar.
        check: Whether NaN or infinite parameters are an error; False lets you study a broken model.
        strict: Whether resuming a store that was started on other hardware is an error. Otherwise a message reports it, and the
            numbers agree up to rounding; the attribute `hardware` lists the machines.
        attention_impl: As for `sinkjax.forward`. The attribute `sweep` has its name, or none for "sinkjax". "auto" keeps the
            implementation with which a store was started, and uses a single one for all edits and the baseline. On a GPU in 16
            bits, "fused" runs with edited scores use a different program from the baseline, so they also differ by the rounding
            of weights to 16 bits.
        attention_mask: A mask in place of `lengths`, as for `sinkjax.forward`.
        past: Keys and values in front of every prompt, as for `sinkjax.forward`. A store keeps their digest.
        share_rows: Whether an edit takes the rows before the first one where it acts from the baseline, if that saves time and
            every statistic allows it. It changes numbers only by rounding.
        client: A `dask.distributed.Client`, or "ray" for the cluster that Ray has or starts: its workers, which need sinkjax but
            no access to `out`, compute the calls, and this process keeps their results. None computes here.

    Returns:
        A dataset with a leading `edit` dimension and the coordinates of `Edit.named`; `cells_addressed` and `cells_changed`
        count the cells of each edit, and the attribute `unchanged` lists the labels of edits that changed no cell in any prompt.
        `non_finite` counts the positions with an infinite or NaN activation, by depth; the attribute `overflowed` has the number
        of prompts with such positions, by label.

    Raises:
        SinkjaxError: Prompts are padded on the left, or their mask has a hole; an edit does not fit (`Edit.resolve`), addressed
            no cell, or left an attention row empty; a parameter is not finite; the store belongs to another sweep or, with
            `strict`, to another machine; the output cannot be written; the attention implementation does not support an edit or
            the probe; the past does not fit; the client is of another type, or its workers fail.
    """
    check_model(model)
    refuse(not isinstance(attributes, Mapping | None), f"attributes must be a mapping, not {short(attributes)}")
    if check:
        check_finite(model.params)
    path = None if out is None else user_location(out)
    size = memory, batch_size, share_rows
    asked = {"precision": precision, "attention_impl": attention_impl, "attention_mask": attention_mask, "past": past}
    computation = prepared(model, tokens, edits, probe, lengths, labels, path, **asked)
    if client is not None:
        clusters.check_client(client)
        refuse(computation.joined, "a model on devices of joined processes has no `client`: they compute each call together")
    refuse(computation.joined and path is None, "a sweep of joined processes needs `out`, a folder or URL that all can access")
    names = " ".join(computation.coordinates)
    about = {**(attributes or {}), **({COORDINATES: names} if names else {})}
    if path is None:
        return _judged(_in_memory(computation, size, about, progress, client), computation.resolved)
    with reached(path):
        return _judged(_in_store(path, computation, size, about, progress, strict, client), computation.resolved)


def prepared(
    model: Model,
    tokens: Any,
    edits: Sequence[Edit],
    probe: Probe,
    lengths: Any = None,
    labels: Mapping[str, Sequence[Any]] | None = None,
    out: Location | None = None,
    *,
    precision: str = "highest",
    attention_impl: str = AUTO,
    attention_mask: Any = None,
    past: Past | None = None,
) -> Computation:
    """Check the arguments of a sweep, and return what it computes; nothing runs. Errors: as for `sweep`."""
    refuse(not isinstance(labels, Mapping | None), f"labels must be a mapping, not {short(labels)}")
    edits = as_edits(edits)
    tokens, lengths, known = check_batch(tokens, lengths, model.config, model.tokenizer, attention_mask)
    _, P = put_in_front(model.params, past, model.config, tokens.shape[1], model.source)
    spec = ForwardSpec(config=model.config, probe=probe, logits=False, precision=precision, past=P)
    probe.check(model.config, tokens.shape[1])
    resolved = [resolve(edit, model.config, known, tokens.shape[1], str(dtype_of(model.params))) for edit in edits]
    for axis, values in (labels or {}).items():
        wrong = isinstance(values, str) or not hasattr(values, "__len__")
        refuse(wrong, f"labels of {axis!r} must be a list of numbers or of strings, not {short(values)}")
    labels = {"edit": [edit.label for edit in edits]} | dict(labels or {})
    computation = Computation(model, tokens, lengths, resolved, spec, labels, coordinates_of(edits), past)
    return computation.attending(attention_impl, out)


def _in_memory(computation: Computation, size: Size, attributes: Json, progress: bool, client: Any) -> xarray.Dataset:
    """Compute every call and return the results; no file is written."""
    variables, fixed = computation.layout
    schedule = computation.schedule(*size)
    attributes = attributes_of_sweep(computation.identity(), computation.facts(), schedule, attributes)
    results, rounds = Memory(variables, schedule.prompt_block), computation.rounds(schedule)
    if client is None:
        compile_programs([(computation, schedule, rounds)])
    with bar("sweep", progress, results.done.size, 0) as advance:
        if client is None:
            _run(results, computation, schedule, rounds, 1, advance)
        else:
            _run_on(client, results, computation, schedule, schedule.calls(len(computation.lengths)), advance)
    return results.dataset(attributes, fixed)


def _in_store(
    path: Location, computation: Computation, size: Size, attributes: Json, progress: bool, strict: bool, client: Any
) -> xarray.Dataset:
    """Compute every call that the store `path` lacks, and return its results, which are read lazily."""
    identity = computation.identity()

    def ready() -> Store:
        """Create or resume the store."""
        about = identity, computation.facts()
        store = begin(
            path, identity, lambda: Header.of_sweep(*about, computation.schedule(*size), attributes, *computation.layout)
        )
        if not store.done.all():
            store.join(computation.facts(), strict)
        return store

    if computation.joined:
        fill_together(ready, computation, progress)
        return Store(path).dataset()
    fill(store := ready(), computation, progress, client, strict)
    return store.dataset()


def _run(
    results: Memory | Store,
    computation: Computation,
    schedule: Schedule,
    rounds: Iterable[Round],
    threads: int,
    advance: Callable[[int, str], None],
) -> None:
    """Compute the calls of these rounds, and let threads keep their results while the devices go on. advance: shows progress."""
    hardware, begun, before = computation.hardware(), time.monotonic(), int(results.done.sum())
    one_fetches, stopped = threading.Lock(), threading.Event()

    def job(block: int, chunk: Chunk, fetch: Fetch) -> None:
        with one_fetches:  # so that a signal waits for one call only
            record = None if stopped.is_set() else fetch()
        if record is not None:
            keep(results, computation, schedule, block, chunk, record)

    with ThreadPoolExecutor(threads) as pool:
        try:
            jobs = (pool.submit(job, *call) for call in compute(computation, schedule, rounds))
            for kept in started(jobs, hardware.calls_ahead * hardware.devices):
                kept.result()
                done = int(results.done.sum())
                advance(done, f"{(done - before) / (time.monotonic() - begun):.2f} edits/s")
        finally:  # after an error, no further call is fetched
            stopped.set()
            pool.shutdown(cancel_futures=True)


def _run_on(
    client: Any,
    results: Memory | Store,
    computation: Computation,
    schedule: Schedule,
    left: Sequence[tuple[int, Chunk]],
    advance: Callable[[int, str], None],
    strict: bool = False,
) -> None:
    """Let the workers of a cluster compute these calls, and keep their results. strict: see `Store.join`."""
    begun, before, machines = time.monotonic(), int(results.done.sum()), [computation.facts()]
    for (block, chunk), (record, facts) in clusters.computed(client, computation, schedule, left):
        if facts not in machines and isinstance(results, Store):
            results.join(facts, strict)
            machines.append(facts)
        keep(results, computation, schedule, block, chunk, record)
        done = int(results.done.sum())
        advance(done, f"{(done - before) / (time.monotonic() - begun):.2f} edits/s")


def finished(
    out: Path,
    model: Model,
    tokens: Any,
    edits: Sequence[Edit],
    probe: Probe,
    lengths: Any,
    attributes: Mapping[str, Any],
    attention_impl: str = AUTO,
) -> bool:
    """Return whether `out` has the complete sweep; `edits` are placeholders for edits whose values need a prepared model.

    Everything else that determines the numbers must agree: model, prompts, probe, labels, versions, and `attributes`, which
    determine the values together with the model and the prompts. Errors: a finished store of another sweep (each difference
    is named).
    """
    identity = prepared(model, tokens, edits, probe, lengths, out=out, attention_impl=attention_impl).identity()
    if (header := Header.read(out)) is None:
        return False
    identity["edits"]["sha256"] = header.attributes[IDENTITY].get("edits", {}).get("sha256")
    store = existing(out, identity)
    same = json.loads(json.dumps(attributes)).items() <= header.attributes.items()
    return same and store is not None and store.finished and not store.faults


def fill(store: Store, computation: Computation, progress: bool, client: Any = None, strict: bool = False) -> None:
    """Compute every call that the store lacks, here or by a cluster, and make its arrays; others may do the same."""
    work = _work(store, computation)
    with bar("sweep", progress, store.done.size, int(store.done.sum())) as advance:
        while not store.finished:
            if client is None:
                rounds = next(work)
                compile_programs([(computation, store.schedule, rounds)])
                _run(store, computation, store.schedule, _missing(store, rounds), WRITERS, advance)
            else:
                _run_on(client, store, computation, store.schedule, store.left(), advance, strict)
            if not store.left():
                store.compact(computation.layout[1])
        store.finish()


def _work(store: Store, computation: Computation) -> Iterator[list[Round]]:
    """Yield this process's share if several fill the store (whole runs, so that few are computed twice), then all remaining
    calls.

    A process that helps others or resumes a store starts at the end of the order, which others reach last.
    """
    (number, count), B, L = processes.rank(), len(computation.lengths), computation.spec.depth
    devices = computation.hardware().devices
    if count > 1:
        yield store.schedule.shares(B, devices, count, L)[number]
    while True:
        rounds = deal(store.left(), devices, L)
        first = len(rounds) * number // count
        yield rounds if count == 1 and store.new else (rounds[first:] + rounds[:first])[::-1]


def _missing(store: Store, rounds: Iterable[Round]) -> Iterator[Round]:
    """Yield each round's calls that are still missing when the round is requested."""
    for entry in rounds:
        done = {device for device, block, chunk in entry.calls() if store.look(chunk, block)}
        chunks = tuple(None if device in done else chunk for device, chunk in enumerate(entry.chunks))
        if any(chunks):
            yield Round(entry.runs, chunks)


@processes.needed()
def fill_together(ready: Callable[[], Store], computation: Computation, progress: bool) -> None:
    """`fill` a store when the model spans devices of several processes: all compute every call, and the first one writes.

    ready: returns the store, in the first process. A signal to any process stops all of them after the current call.
    """
    store: Any = processes.by_first(ready)  # None in the other processes

    def agree() -> dict[str, Any]:
        left = [(block, store.schedule.chunks.index(chunk)) for block, chunk in store.left()]
        return {"schedule": store.schedule.to_json(), "left": left, "all": store.done.size, "done": int(store.done.sum())}

    def end() -> None:
        if not store.finished:
            store.compact(computation.layout[1])
        refuse(not store.finished, f"{store.path}: a call {CHANGED}; rerun the same command to recompute only that")

    agreed = processes.from_first(agree)
    schedule, hardware, L = Schedule.from_json(agreed["schedule"]), computation.hardware(), computation.spec.depth
    rounds = deal([(block, schedule.chunks[number]) for block, number in agreed["left"]], hardware.devices, L)
    begun, written = time.monotonic(), 0
    with bar("sweep", progress and processes.first(), agreed["all"], agreed["done"], heed=False) as advance:
        for block, chunk, fetch in started(compute(computation, schedule, rounds), hardware.calls_ahead * hardware.devices):
            processes.by_first(functools.partial(keep, store, computation, schedule, block, chunk, fetch()))
            written += len(chunk.edits)
            advance(agreed["done"] + written, f"{written / (time.monotonic() - begun):.2f} edits/s")
            if asked := processes.largest(interruption.received() or 0)[0]:
                interruption.receive(asked)
                interruption.check()
        processes.by_first(end)


def _judged(dataset: xarray.Dataset, resolved: list[Edits]) -> xarray.Dataset:
    """Return the results with what they say about edits. Errors: an edit addressed no cell."""
    addressed = dataset.cells_addressed.sum("prompt").values
    for number, edits in enumerate(resolved):
        if edits and addressed[number] == 0:
            raise SinkjaxError(f"edit {number} ({dataset.edit.values[number]}) addressed no cell: it did nothing")
    return dataset.assign_attrs(unchanged=unchanged(dataset), overflowed=lost(dataset))
