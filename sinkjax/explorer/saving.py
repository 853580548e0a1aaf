"""A state as files: the store of a small sweep, with the YAML and the prompt to run it again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from sinkjax.config_files import documents
from sinkjax.config_files.files import write
from sinkjax.edits.edit import compose
from sinkjax.explorer.code import STATISTICS, prompt_line, python, sweep_config
from sinkjax.explorer.compute import WORDS, Workbench, looking_nowhere
from sinkjax.explorer.state import State, edits_of, write_state
from sinkjax.probes.probe import Probe
from sinkjax.sweeps.run import sweep

DIGITS = 8  # a state's files are named by so many digits of its sha256


@dataclass(frozen=True)
class Files:
    """Where a state goes: the same one always to the same files."""

    store: Path
    config: Path
    prompt: Path


def files_of(state: State, out: Path) -> Files:
    """The files of a state in the folder `out`."""
    digest = hashlib.sha256(write_state(looking_nowhere(state)).encode()).hexdigest()[:DIGITS]
    base = out / f"{state.kind}-{digest}"
    return Files(*(base.with_name(f"{base.name}{suffix}") for suffix in (".zarr", ".yaml", ".txt")))


def codes(bench: Workbench, state: State, out: Path) -> dict[str, str]:
    """The state as code: {"python": ..., "yaml": ...}. Errors: a prompt that cannot be encoded."""
    prompt = bench.prompt(state.prompt, state.bos)
    return {
        "python": python(state, bench.named(), prompt.tokens.shape[1], WORDS),
        "yaml": sweep_config(state, bench.named(), prompt.length, files_of(state, out).prompt),
    }


def save(bench: Workbench, state: State, out: Path) -> Path:
    """Measure a state as a sweep of no edit and its edit.

    Args:
        bench: The model.
        state: The displayed state.
        out: The folder; a state that was saved there before is not computed again.

    Returns:
        The store, which `sinkjax report` reads. A YAML file for `sinkjax sweep` and the prompt are next to it.

    Raises:
        SinkjaxError: The edit does not fit the prompt; the folder cannot be written.
    """
    files, prompt = files_of(state, out), bench.prompt(state.prompt, state.bos)
    edits = [compose(), *edits_of(state)]
    for edit in edits:
        edit.resolve(bench.model.config, prompt.lengths, prompt.length)  # an edit that does not fit leaves no files
    write(files.prompt, prompt_line(state))
    write(files.config, codes(bench, state, out)["yaml"])
    sweep(
        bench.model,
        prompt.tokens[:, : prompt.length],
        edits,
        probe=Probe.of(*STATISTICS),
        lengths=prompt.lengths,
        out=files.store,
        attributes={"explorer": documents.plain(documents.fields(state))},
        progress=False,
    )
    return files.store
