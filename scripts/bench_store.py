"""Measure what the store of a sweep takes: files a call and milliseconds an edit, beside the sweep's own time.

    python scripts/bench_store.py             about five minutes on two cores
    python scripts/bench_store.py --quick     the small model alone, 1 round; prints the section and writes nothing

Times are processor time of all threads, so that a busy machine says much the same as a quiet one. It goes to docs/benchmarks.md.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import jax
import numpy as np
from bench_context import PROBE
from bench_peers import command
from bench_peers.command import cpu_name, say, span
from sections import markdown

import sinkjax
from sinkjax.config_files import files
from sinkjax.edits.edit import Edit, resolve
from sinkjax.model.batch import check_batch
from sinkjax.sweeps import run
from sinkjax.sweeps import store as stores
from sinkjax.sweeps.computation import Computation
from sinkjax.sweeps.header import CALLS, Header
from sinkjax.sweeps.store import Store, begin
from sinkjax.transformer.spec import ForwardSpec

LENGTH = 64
GOAL_FILES, GOAL_SHARE = 1, 0.05  # a variable and call; of the sweep's time


@dataclass(frozen=True)
class Case:
    """A sweep that masks each of `keys` in every `step`-th layer, one after the other. rounds: how often it is measured."""

    model: str
    prompts: int
    keys: int
    step: int
    rounds: int


CASES = (Case("untrained:smollm2-135m", 16, 1, 5, 1), Case("mini-sink", 16, 16, 1, 5), Case("mini-sink", 4, 16, 1, 5))


@dataclass(frozen=True)
class Row:
    """One sweep. calls, edits, variables, files written, of them kept: counts. store, sweep: seconds."""

    case: Case
    calls: int
    edits: int
    variables: int
    files: int
    kept: int
    store: Sequence[float]
    sweep: Sequence[float]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    options = command.parser(__doc__, "bench_store", "the small model, 1 round").parse_args(arguments)
    load = os.getloadavg()[0]
    cases = [replace(case, rounds=1) for case in CASES[1:]] if options.quick else CASES
    command.publish(section([measure(case) for case in cases], load), options)


def measure(case: Case) -> Row:
    """One sweep again and again, each time into a new store, in turn with the same records, computed before."""
    say(f"{case.model}: {case.prompts} prompts")
    model = sinkjax.load(case.model)
    config = model.config
    edits: list[Edit] = [sinkjax.compose(label="no edit")]
    edits += [sinkjax.mask_key(key, layers=layer) for key in range(case.keys) for layer in range(0, config.layers, case.step)]
    drawn = np.random.default_rng(0).integers(0, config.vocab_size, (case.prompts, LENGTH))
    tokens, lengths, known = check_batch(drawn, None, config)
    resolved, labels = [resolve(edit, config, known, LENGTH) for edit in edits], {"edit": [edit.label for edit in edits]}
    computation = Computation(model, tokens, lengths, resolved, ForwardSpec(config=config, probe=PROBE, logits=False), labels, {})
    schedule = computation.schedule(None)
    compute, records, written = run.compute, dict[Any, Any](), list[Path]()

    def keep(*arguments: Any) -> Iterator[tuple]:
        for block, chunk, record in compute(*arguments):
            records[block, chunk] = record
            yield block, chunk, record

    def known_before(computation: Computation, schedule: Any, todo: Any) -> Iterator[tuple]:
        for entry in todo:
            for _, block, chunk in entry.calls():
                yield block, chunk, records[block, chunk]

    def noted(write: Any) -> Any:
        def write_and_note(file: Path, *rest: Any, **options: Any) -> Any:
            if file.parent.name == CALLS or file.name[0].isdecimal():
                written.append(file)
            return write(file, *rest, **options)

        return write_and_note

    def once(function: Any, seconds: list[float]) -> Any:
        """A function that notes how long it took: parts that a sweep makes once are not counted."""

        def timed(*arguments: Any) -> Any:
            begun = time.process_time()
            found = function(*arguments)
            seconds.append(time.process_time() - begun)
            return found

        return timed

    def filled(by: Any) -> tuple[float, Store, int]:
        """Seconds of filling a new store, the store, and its files that were not there before."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.zarr"
            identity = computation.identity()
            header = Header.of_sweep(identity, computation.facts(), schedule, {}, *computation.layout)
            store, run.compute, made = begin(path, identity, lambda: header), by, list[float]()
            store.publish = once(store.publish, made)  # type: ignore[method-assign]
            begun = time.process_time()
            run.fill(store, computation, progress=False)
            took, names = time.process_time() - begun - sum(made), {variable.name for variable in store.variables}
            return took, store, sum(file.partition("/")[0] in names for file in store.header.sums)

    try:
        stores.write, stores.write_new, stores.write_aside = map(noted, (files.write, files.write_new, files.write_aside))
        _, store, kept = filled(keep)  # compiles
        stores.write, stores.write_new, stores.write_aside = files.write, files.write_new, files.write_aside
        pairs = [(filled(known_before)[0], filled(compute)[0]) for _ in range(case.rounds)]
    finally:
        stores.write, stores.write_new, stores.write_aside = files.write, files.write_new, files.write_aside
        run.compute = compute
    calls = len(schedule.chunks) * -(-case.prompts // schedule.prompt_block)
    alone, whole = zip(*pairs, strict=True)
    return Row(case, calls, len(edits), len(store.variables), len(written), kept, alone, whole)


def section(rows: Sequence[Row], load: float) -> str:
    """The section, in Markdown."""
    lines = []
    for row in rows:
        per_call = row.files / row.calls / row.variables
        shares = [alone / whole for alone, whole in zip(row.store, row.sweep, strict=True)]
        lines.append(
            [
                f"{row.case.model}, {row.case.prompts} x {LENGTH}" + f", each {row.case.step}th layer" * (row.case.step > 1),
                f"{row.edits}",
                f"{row.edits / row.calls:.1f}",
                f"{row.files / row.edits:.1f}",
                f"{row.kept}",
                f"{per_call:.2f}",
                "met" if per_call <= GOAL_FILES else "missed",
                span([1000 * seconds / row.edits for seconds in row.store]),
                span([1000 * seconds / row.edits for seconds in row.sweep]),
                span([100 * share for share in shares]),
                "met" if median(shares) <= GOAL_SHARE else "missed",
            ]
        )
    head = ["sweep", "edits", "edits a call", "files an edit", "of all, kept", "files a variable and call", f"goal: {GOAL_FILES}"]
    head += ["store, ms an edit", "sweep, ms an edit", "store, % of the sweep", f"goal: {GOAL_SHARE:.0%}"]
    return "\n\n".join(
        (
            "## The store of a sweep",
            "Masks of a key in one layer after the other, and the unedited run, with "
            "`attention_received`, `resid_max`, `resid_norm` and `resid_argmax`, each sweep into a new store. The store's part "
            "is the time of the same sweep with all records computed before: checks, objects and their checksums, then the "
            "chunks of the arrays and their compression. A call writes one object, from which chunks of several edits are "
            "made; chunks of one edit are written before it, and only renamed. "
            "Compilation, labels and metadata, which a sweep makes once, are not counted. Milliseconds of "
            "processor time of all threads, as the machine does other work; medians (smallest to largest). Measured on "
            f"{date.today().isoformat()} on {cpu_name()}, {os.cpu_count()} cores, jax {jax.__version__}, load average {load:.2f} "
            "before the start. `python scripts/bench_store.py` writes this section.",
            markdown(head, lines),
        )
    )


if __name__ == "__main__":
    main()
