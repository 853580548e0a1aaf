"""Requests of the explorer, for the web server and the notebook widget, and a state as the files of a small sweep."""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sinkjax.config_files import documents
from sinkjax.config_files.files import write
from sinkjax.edits.edit import compose
from sinkjax.errors import SinkjaxError
from sinkjax.explorer.code import STATISTICS, prompt_line, python, sweep_config
from sinkjax.explorer.compute import WORDS, Workbench, looking_nowhere
from sinkjax.explorer.state import State, edits_of, read_state, write_state
from sinkjax.probes.probe import Probe
from sinkjax.sweeps.run import sweep

DIGITS = 8  # digits of a state's sha256 in its files' names
PROMPT = ".txt"


class Answers:
    """Answers of one explorer. Ask for one at a time.

    Attributes:
        latest: The most recently measured state.
    """

    def __init__(self, bench: Workbench, start: State, out: Path):
        """Compute nothing yet.

        Args:
            bench: The model.
            start: The first state.
            out: The folder for saved states.
        """
        self.bench, self.start, self.out, self.latest = bench, start, out, start
        self._kinds: dict[int, Iterator[str]] = {}  # by prompt length, the programs still to be compiled

    def answer(self, name: str, body: str | bytes) -> dict[str, Any]:
        """Answer the page's request of this name.

        Args:
            name: "model" for facts about it and the first state; "measure" for the numbers of a state, with its code; "continue"
                for texts with and without the edit; "explain" for the components that cause the sink; or "save" for the store of
                a state and the command that shows it.
            body: The state as JSON, except for "model".

        Returns:
            A mapping for JSON.

        Raises:
            SinkjaxError: `body` is not a state, or does not fit the model or the prompt; the folder is not writable.
        """
        if name == "model":
            return self.bench.facts() | {"state": json.loads(write_state(self.start)), "out": str(self.out)}
        state, begun = read_state(body), time.perf_counter()
        if name == "continue":
            return self.bench.continued(state)
        if name == "explain":
            return self.bench.explained(state)
        if name == "save":
            store = save(self.bench, state, self.out)
            return {"store": str(store), "command": shlex.join(["sinkjax", "report", str(store)])}
        shown = self.bench.view(state) | codes(self.bench, state, self.out)
        self.latest = state
        return shown | {"milliseconds": 1000 * (time.perf_counter() - begun)}

    def compile_one(self) -> bool:
        """Compile one more kind of edit for the latest prompt's length; return False if none is left."""
        try:
            size = self.bench.prompt(self.latest.prompt, self.latest.bos).tokens.shape[1]
            kinds = self._kinds.setdefault(size, self.bench.warm(self.latest))
            return next(kinds, None) is not None
        except SinkjaxError:
            return False


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
