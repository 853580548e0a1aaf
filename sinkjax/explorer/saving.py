"""A state as files: the store of a small sweep, with the YAML and the prompt to run it again."""

from __future__ import annotations

import hashlib
from pathlib import Path

from sinkjax.config_files import documents
from sinkjax.config_files.files import write
from sinkjax.edits.edit import compose
from sinkjax.explorer.code import STATISTICS, prompt_line, python, sweep_config
from sinkjax.explorer.compute import WORDS, Workbench, looking_nowhere
from sinkjax.explorer.state import State, edits_of, write_state
from sinkjax.probes.probe import Probe
from sinkjax.sweeps.run import sweep

DIGITS = 8  # digits of a state's sha256 in its files' names
PROMPT = ".txt"


def base_of(state: State, out: Path) -> Path:
    """Return the path of a state's files in `out`, without suffix; it depends only on the state."""
    digest = hashlib.sha256(write_state(looking_nowhere(state)).encode()).hexdigest()[:DIGITS]
    return out / f"{state.kind}-{digest}"


def codes(bench: Workbench, state: State, out: Path) -> dict[str, str]:
    """Return the state as code: {"python": ..., "yaml": ...}. Errors: the prompt cannot be encoded."""
    prompt = bench.prompt(state.prompt, state.bos)
    return {
        "python": python(state, bench.named(), prompt.tokens.shape[1], WORDS),
        "yaml": sweep_config(state, bench.named(), len(prompt.texts), base_of(state, out).with_suffix(PROMPT)),
    }


def save(bench: Workbench, state: State, out: Path) -> Path:
    """Measure a state as a sweep of no edit and its edit.

    Args:
        bench: The model.
        state: The displayed state.
        out: The folder; a state that is already saved there is not recomputed.

    Returns:
        The store, for `sinkjax report`. Next to it are the prompt and a YAML file for `sinkjax sweep`.

    Raises:
        SinkjaxError: The edit does not fit the prompt; the folder cannot be written.
    """
    base, prompt = base_of(state, out), bench.prompt(state.prompt, state.bos)
    edits = [compose(), *edits_of(state)]
    for edit in edits:
        edit.resolve(bench.model.config, prompt.lengths, len(prompt.texts))  # an edit that does not fit leaves no files
    write(base.with_suffix(PROMPT), prompt_line(state))
    write(base.with_suffix(".yaml"), codes(bench, state, out)["yaml"])
    sweep(
        bench.model,
        prompt.tokens[:, : len(prompt.texts)],
        edits,
        probe=Probe.of(*STATISTICS),
        lengths=prompt.lengths,
        out=base.with_suffix(".zarr"),
        attributes={"explorer": documents.plain(documents.fields(state))},
        progress=False,
    )
    return base.with_suffix(".zarr")
