"""Request handlers of the explorer, shared by the web server and the notebook widget."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sinkjax.errors import SinkjaxError
from sinkjax.explorer.compute import Workbench
from sinkjax.explorer.saving import codes, save
from sinkjax.explorer.state import State, read_state, write_state


class Answers:
    """Request handlers of one explorer, each returning a JSON-serialisable dict. Call one at a time.

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
        """Answer the page's request of this name. Errors: see `measure`."""
        asked = {"measure": self.measure, "continue": self.go_on, "explain": self.explain, "save": self.save}
        return self.model() if name == "model" else asked[name](body)

    def model(self) -> dict[str, Any]:
        """Return facts about the model for the page, and the first state."""
        return self.bench.facts() | {"state": json.loads(write_state(self.start)), "out": str(self.out)}

    def measure(self, body: str | bytes) -> dict[str, Any]:
        """Return the results of a state. Errors: `body` is not a state, or does not fit the model or the prompt."""
        state, begun = read_state(body), time.perf_counter()
        shown = self.bench.view(state) | codes(self.bench, state, self.out)
        self.latest = state
        return shown | {"milliseconds": 1000 * (time.perf_counter() - begun)}

    def go_on(self, body: str | bytes) -> dict[str, Any]:
        """Continue the prompt with and without the edit. Errors: see `measure`."""
        return self.bench.continued(read_state(body))

    def explain(self, body: str | bytes) -> dict[str, Any]:
        """Return the components that cause the sink, with their effects. Errors: see `measure`."""
        return self.bench.explained(read_state(body))

    def save(self, body: str | bytes) -> dict[str, Any]:
        """Save a state; return its location and the command that shows it. Errors: see `measure`; the folder is not writable."""
        store = save(self.bench, read_state(body), self.out)
        return {"store": str(store), "command": shlex.join(["sinkjax", "report", str(store)])}

    def compile_one(self) -> bool:
        """Compile one more kind of edit for the latest prompt's length; return False if none is left."""
        try:
            size = self.bench.prompt(self.latest.prompt, self.latest.bos).tokens.shape[1]
            kinds = self._kinds.setdefault(size, self.bench.warm(self.latest))
            return next(kinds, None) is not None
        except SinkjaxError:
            return False
