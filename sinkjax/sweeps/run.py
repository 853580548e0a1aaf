"""`sweep`: many edits, one model, one batch of prompts; planned, shared, stored, resumable."""

from __future__ import annotations

import contextlib
import functools
import itertools
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from sinkjax import interruption, processes
from sinkjax.analysis.finite import lost
from sinkjax.checkpoints.model import check_model
from sinkjax.config_files.files import user_place
from sinkjax.config_files.places import Place, reached
from sinkjax.edits.edit import Edit, as_edits, coordinates_of, resolve
from sinkjax.edits.term import Edits
from sinkjax.errors import SinkjaxError, short
from sinkjax.model.batch import check_batch
from sinkjax.model.params import check_finite
from sinkjax.probes.probe import Probe
from sinkjax.probes.record import Record
from sinkjax.progress import bar, say
from sinkjax.sweeps.claims import Claims
from sinkjax.sweeps.computation import CELLS, Computation, unchanged
from sinkjax.sweeps.schedule import Chunk, Round, Schedule, deal, stack
from sinkjax.sweeps.shared import baseline, edited
from sinkjax.sweeps.store import Store, create, exists, resume
from sinkjax.transformer.fused import check_fused

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model


COORDINATES = "coordinates"  # attribute: variables that xarray takes for coordinates, by the CF conventions


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
    precision: str = "highest",
    attributes: Mapping[str, Any] | None = None,
    progress: bool = True,
    check: bool = True,
    strict: bool = False,
    attention_impl: str = "sinkjax",
) -> xarray.Dataset:
    """Measure every edit on every prompt.

    Prompts, and where there are fewer of them than devices edits too, are spread over the axes but "model" of the mesh on which
    the model was placed, else over all devices. Where that mesh is of joined processes (`jax.distributed`), so that a model may
    be wider than a host, all of them compute every call, and the first one writes.

    Args:
        model: The model.
        tokens: int [B, T], padded on the right, or float [B, T, d].
        edits: Of any kinds; each kind compiles once, and an edit whose first layer is l takes the blocks before it from the
            baseline.
        probe: The statistics.
        lengths: int [B], by default T for all.
        labels: Dimension -> labels; edits are labelled by `edit.label` by default.
        out: A zarr store, written chunk by chunk; the same call resumes it, and after a kill gives the values of an undisturbed
            run bit for bit. Calls in several processes at once share the work. A URL ("s3://bucket/mask.zarr") is one in an
            object store, for which the extra `remote` and the protocol's own library (s3fs, gcsfs) must be installed. None keeps
            the result in memory.
        memory: Bytes of each device to plan with, by default what it has.
        precision: Matrix product precision, as in `sinkjax.forward`.
        attributes: Provenance kept with the result (text, BOS policy, ...), as JSON.
        progress: Whether to show a bar.
        check: Whether parameters that are NaN or infinite are refused; False is for the study of a broken model.
        strict: Whether a store that was begun on other hardware is refused. It is resumed otherwise, which is said, and gives the
            same numbers to rounding; the attribute `hardware` lists the machines.
        attention_impl: As for `sinkjax.forward`, and stored. With "fused" in 16 bits on a GPU, runs whose scores are edited are
            computed by another program than the baseline, so that they differ by the rounding of weights to 16 bits too.

    Returns:
        A dataset with a leading `edit` dimension and the coordinates of `Edit.named`; `cells_addressed` and `cells_changed` say
        what each edit touched, and the attribute `unchanged` lists the labels of edits that changed no cell in any prompt.
        `non_finite` counts the positions with an infinite or NaN activation, by depth; the attribute `overflowed` has the number
        of such prompts by label.

    Raises:
        SinkjaxError: An edit does not fit (`Edit.resolve`), addressed no cell, or left a row of attention empty; a parameter is
            not finite; the store is of another sweep, or with `strict` of another machine; the output cannot be written; a fused
            attention cannot do what an edit or the probe asks for.
    """
    check_model(model)
    for name, given in (("labels", labels), ("attributes", attributes)):
        if not isinstance(given, Mapping | None):
            raise SinkjaxError(f"{name} must be a mapping, not {short(given)}")
    if check:
        check_finite(model.params)
    edits = as_edits(edits)
    tokens, lengths, known = check_batch(tokens, lengths, model.config)
    probe.check(model.config, tokens.shape[1])
    dtype = str(jax.tree.leaves(model.params)[0].dtype)
    resolved = [resolve(edit, model.config, known, tokens.shape[1], dtype) for edit in edits]
    computation = Computation(model, tokens, lengths, resolved, probe, precision, attention_impl)
    if computation.spec.attention_impl == "fused":
        for terms in resolved:
            check_fused(model.config, terms, probe)
    labels = {"edit": [edit.label for edit in edits]} | dict(labels or {})
    coordinates = coordinates_of(edits)
    identity = computation.identity(labels, coordinates)
    if computation.joined and out is None:
        raise SinkjaxError("a sweep of joined processes needs `out`, a folder or URL that all of them see")

    def ready(path: Place) -> Store:
        """The store at `path`, made or taken up again."""
        if exists(path):
            store = resume(path, identity)
        else:
            variables, fixed = computation.layout(labels, coordinates)
            about = {**(attributes or {}), **({COORDINATES: " ".join(coordinates)} if coordinates else {})}
            store = create(path, identity, computation.facts(), computation.schedule(memory), about, variables, fixed)
        if damage := store.damage():
            say(f"{path}: {damage}; computing only that again")
        if store.lost:
            store.restore(computation.layout(labels, coordinates)[1])
        if not store.done.all():
            store.join(computation.facts(), strict)
        return store

    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "sweep.zarr" if out is None else user_place(out)
        with reached(path):
            if computation.joined:
                with processes.needed():
                    fill_together(functools.partial(ready, path), computation, progress)
                dataset = Store(path).dataset()
            else:
                fill(store := ready(path), computation, progress)
                dataset = store.dataset()
            _refuse_untouched(dataset, resolved)
            result = dataset.load() if out is None else dataset
            return result.assign_attrs(unchanged=unchanged(dataset), overflowed=lost(dataset))


def finished(
    out: Path, model: Model, tokens: Any, edits: Sequence[Edit], probe: Probe, lengths: Any, attributes: Mapping[str, Any]
) -> bool:
    """Whether `out` holds all of a sweep, for edits whose values only a prepared model gives: `edits` stand in for them.

    Everything else that decides the numbers must agree: model, prompts, probe, labels, versions, and `attributes`, of which with
    the model and the prompts the values are a function; without all of those it is not finished. Errors: a finished store of
    another sweep (each difference is named).
    """
    if not exists(out):
        return False
    tokens, lengths, known = check_batch(tokens, lengths, model.config)
    resolved = [resolve(edit, model.config, known, tokens.shape[1]) for edit in edits]
    identity = Computation(model, tokens, lengths, resolved, probe, "highest").identity({"edit": [edit.label for edit in edits]})
    store = resume(out, identity, but=("edits", "sha256"))
    return bool(store.packed.all()) and not store.lost and store.has(attributes)


def fill(store: Store, computation: Computation, progress: bool) -> None:
    """Compute and write every chunk that the store does not have, beside other processes that do the same.

    What others compute is waited for, and taken over if they end.
    """
    begun, written, announced = time.monotonic(), 0, False
    devices, L = computation.hardware().devices, computation.model.config.layers
    own = iter([_own(store, computation)])  # then whatever the others have not begun
    with bar("sweep", progress, store.done.size, shown := int(store.done.sum())) as advance, store.claims() as claims:

        def show() -> None:
            nonlocal shown
            now = int(store.done.sum())
            advance(now - shown, f"{written / (time.monotonic() - begun):.2f} edits/s")
            shown = now

        while not store.packed.all():
            calls, computed = store.left(), False
            rounds = next(own, None) or deal(_from_here(calls), devices, L)
            for block, chunk, record in compute(computation, store.schedule, _unclaimed(store, claims, rounds)):
                computed = True
                written += _write(store, computation, block, chunk, record)
                claims.drop(name_of(block, chunk))
                store.pack(claims)
                show()
            store.pack(claims)
            if computed:
                continue
            show()
            if (left := store.left()) == calls and not store.packed.all():
                if progress and left and not announced:
                    say(f"{store.path}: waiting for {claims.owner(name_of(*left[0]))}, which computes what is left of it")
                    announced = True
                time.sleep(claims.pause)
        claims.clear()
        store.clear()


def _own(store: Store, computation: Computation) -> list[Round]:
    """The rest of this process's share, if several processes fill the store: whole runs, so few are computed twice."""
    number, count = processes.rank()
    if count == 1:
        return []
    left, found = set(store.left()), []
    B, L = len(computation.lengths), computation.model.config.layers
    for entry in store.schedule.shares(B, computation.hardware().devices, count, L)[number]:
        pairs = zip(entry.runs, entry.chunks, strict=True)
        chunks = tuple(chunk if chunk and (run[0], chunk) in left else None for run, chunk in pairs)
        if any(chunks):
            found.append(Round(entry.runs, chunks))
    return found


def _from_here(calls: list[tuple[int, Chunk]]) -> list[tuple[int, Chunk]]:
    """The same calls, rotated by process, so that processes that finish early do not compete for the same one."""
    number, count = processes.rank()
    first = len(calls) * number // count
    return calls[first:] + calls[:first]


def fill_together(ready: Callable[[], Store], computation: Computation, progress: bool) -> None:
    """`fill` where the model lies on devices of several processes: all of them compute every call, and the first one writes.

    ready: gives the store, in the first process. A signal to any of them ends all after the call under way.
    """
    stores: list[Store] = []

    def begin() -> dict[str, Any]:
        stores.append(store := ready())
        left = [(block, store.schedule.chunks.index(chunk)) for block, chunk in store.left()]
        return {"schedule": store.schedule.to_json(), "left": left, "all": store.done.size, "done": int(store.done.sum())}

    agreed = processes.from_first(begin)
    schedule, devices, L = Schedule.from_json(agreed["schedule"]), computation.hardware().devices, computation.model.config.layers
    rounds = deal([(block, schedule.chunks[number]) for block, number in agreed["left"]], devices, L)
    begun, written = time.monotonic(), 0
    with contextlib.ExitStack() as stack:
        claims = stack.enter_context(stores[0].claims()) if stores else None
        advance = stack.enter_context(bar("sweep", progress and processes.first(), agreed["all"], agreed["done"], heed=False))

        def keep(block: int, chunk: Chunk, record: Record) -> None:
            assert claims is not None
            _write(stores[0], computation, block, chunk, record)
            stores[0].pack(claims)

        def end() -> None:
            assert claims is not None
            store = stores[0]
            while store.done.all() and not store.packed.all():  # what a killed process had computed and not packed
                store.pack(claims)
                if not store.packed.all():  # a killed process still has the lease, or another one is at it
                    time.sleep(claims.pause)
            if not store.packed.all():
                raise SinkjaxError(f"{store.path}: {store.damage()}; rerun the same command to recompute only that")
            claims.clear()
            store.clear()

        for block, chunk, record in compute(computation, schedule, rounds):
            processes.by_first(functools.partial(keep, block, chunk, record))
            written += len(chunk.edits)
            advance(len(chunk.edits), f"{written / (time.monotonic() - begun):.2f} edits/s")
            if asked := processes.largest(interruption.received() or 0)[0]:
                interruption.receive(asked)
                interruption.check()
        processes.by_first(end)


def name_of(block: int, chunk: Chunk) -> str:
    """What a call is called when processes claim calls: chunks of edits share none, so the first one tells them apart."""
    return f"{block}.{chunk.edits[0]}"


def _unclaimed(store: Store, claims: Claims, rounds: Iterable[Round]) -> Iterator[Round]:
    """Of each round those calls that this process could claim, when it is asked for, and that no other has done by then."""
    for entry in rounds:
        chunks: list[Chunk | None] = [None] * len(entry.chunks)
        for device, block, chunk in entry.calls():
            if _claim(store, claims, block, chunk):
                chunks[device] = chunk
        if any(chunks):
            yield Round(entry.runs, tuple(chunks))


def _claim(store: Store, claims: Claims, block: int, chunk: Chunk) -> bool:
    """Claim a call, unless it is another's, or done."""
    try:
        if not claims.take(name_of(block, chunk)):
            return False
    except OSError as error:
        raise SinkjaxError(f"cannot write to {store.path}: {error.strerror or error}") from error
    store.look(chunk.edits, block)
    if done := bool(store.done[list(chunk.edits), block].all()):
        claims.drop(name_of(block, chunk))
    return not done


def compute(computation: Computation, schedule: Schedule, todo: Iterable[Round]) -> Iterator[tuple[int, Chunk, Record]]:
    """The record of each call, (block of prompts, chunk of edits), with a leading axis over edits; a few rounds are under way."""
    under_way: deque[tuple[Round, Record]] = deque()
    ahead = computation.hardware().calls_ahead
    for begun in itertools.chain(_rounds(computation, schedule, todo), itertools.repeat(None, ahead)):
        if begun:
            under_way.append(begun)
        if under_way and (begun is None or len(under_way) > ahead):
            done, record = under_way.popleft()
            record = processes.whole(record) if computation.joined else jax.device_get(record)
            for device, block, chunk in done.calls():
                of_base = chunk.start >= computation.model.config.layers  # it serves all edits
                own = slice(device, device + 1) if of_base else device
                yield block, chunk, jax.tree.map(lambda array, own=own: array[own], record)


def _rounds(computation: Computation, schedule: Schedule, todo: Iterable[Round]) -> Iterator[tuple[Round, Record]]:
    """The records of each round, with leading axes over devices and, but of a base, edits; a base is run once."""
    L = computation.model.config.layers
    for runs, rounds in itertools.groupby(todo, key=lambda entry: entry.runs):
        first = np.array([block for block, _ in runs]) * schedule.prompt_block
        prompts = first[:, None] + np.arange(schedule.prompt_block)
        prompts = np.where(prompts < len(computation.lengths), prompts, 0)  # what fills up the last block is not written
        tokens, lengths = computation.place((computation.tokens[prompts], computation.lengths[prompts]))
        bases = [number for _, number in runs]
        of_base: Edits = ()
        if None not in bases:
            of_base = computation.place(
                stack([_for_prompts(computation.resolved[number], own) for number, own in zip(bases, prompts, strict=True)])
            )
        base, record = computation.each(baseline, tokens, lengths, of_base)
        for entry in rounds:
            if entry.start == L:
                yield entry, record
                continue
            [kind] = {chunk.kind for _, _, chunk in entry.calls()}
            idle = next(chunk for _, _, chunk in entry.calls())  # its edits stand in where there is nothing to do
            stacked, starts = [], []
            for own, chunk in zip(prompts, entry.chunks, strict=True):
                edits = (chunk or idle).edits
                numbers = (edits + edits[-1:] * schedule.widths[kind])[: schedule.widths[kind]]
                stacked.append(stack([_for_prompts(computation.resolved[number], own) for number in numbers]))
                starts.append(L if chunk is None else chunk.start)
            edits, start = computation.place((stack(stacked), np.array(starts, np.int32)))
            yield entry, computation.each(edited, tokens, lengths, edits, start, base.counting(edits))


def _for_prompts(edits: Edits, prompts: np.ndarray) -> Edits:
    return tuple(term.for_prompts(prompts) for term in edits)


def _write(store: Store, computation: Computation, block: int, chunk: Chunk, record: Record) -> int:
    """Check and write one chunk; returns the number of (edit, block) pairs written."""
    size = store.schedule.prompt_block
    prompts = min(size, len(computation.lengths) - block * size)
    shape = (len(chunk.edits), prompts)
    values = {}
    for name, array in record.items():
        array = array[: shape[0], :prompts]
        array = np.broadcast_to(array, (*shape, *array.shape[2:]))  # what the base gives serves all edits of a chunk
        values[name] = array.sum(axis=-1) if name in CELLS else array
    empty = values.pop("empty_rows", np.zeros(shape))
    if empty.any():
        edit = chunk.edits[int(np.argwhere(empty)[0][0])]
        raise SinkjaxError(f"edit {edit} leaves {int(empty.max())} rows of attention without a key")
    store.write(chunk.edits, block, dict.fromkeys(CELLS, np.zeros(shape)) | values)
    return len(chunk.edits)


def _refuse_untouched(dataset: xarray.Dataset, resolved: list[Edits]) -> None:
    addressed = dataset.cells_addressed.sum("prompt").values
    for number, edits in enumerate(resolved):
        if edits and addressed[number] == 0:
            raise SinkjaxError(f"edit {number} ({dataset.edit.values[number]}) addressed no cell: it did nothing")
