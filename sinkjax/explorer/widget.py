"""The explorer as a widget, for Jupyter, Colab, VS Code and marimo, with local or remote kernels."""

from __future__ import annotations

import json
import threading
from importlib.resources import files
from typing import Any

import anywidget
import traitlets

from sinkjax.edits.edit import Edit
from sinkjax.errors import SinkjaxError
from sinkjax.explorer.answers import Answers
from sinkjax.explorer.state import edits_of, read_state, write_state
from sinkjax.viewing.maps import asset


def _read(name: str) -> str:
    return files("sinkjax").joinpath("explorer", name).read_text(encoding="utf-8")


def module() -> str:
    """Return the widget's script: one module without imports."""
    body = _read("page.html").split('<body class="page">')[1].split("<noscript>")[0]
    constants = f"const PAGE = {json.dumps(body)}, STYLE = {json.dumps(asset('viewer.css') + _read('page.css'))};\n"
    parts = [asset("viewer.js"), *(_read(name) for name in ("draw.js", "page.js", "widget.js"))]
    lines = [line for part in parts for line in part.splitlines() if not line.startswith("import ")]
    return constants + "\n".join(lines)


class Explorer(anywidget.AnyWidget):
    """The explorer of one model in a notebook. A running cell delays its responses, because a kernel does one thing at a time.

    Attributes:
        state: The displayed state, as a dict with the fields of a link; it can be set.
    """

    _esm = module()
    state = traitlets.Dict().tag(sync=True)

    def __init__(self, answers: Answers):
        """Show the first state, and start compiling every kind of edit in a thread while idle."""
        super().__init__(state=json.loads(write_state(answers.start)))
        self._answers: Answers | None = answers
        self._turn, self._asked = threading.Lock(), threading.Event()
        self.on_msg(self._hear)
        self._compiling = threading.Thread(target=self._compile, daemon=True)
        self._compiling.start()

    @property
    def edits(self) -> tuple[Edit, ...]:
        """The displayed edit, for `sinkjax.forward`; () if there is none. An invalid `state` is an error."""
        return edits_of(read_state(json.dumps(self.state)))

    def close(self) -> None:
        """Close the explorer, and free the model."""
        if getattr(self, "_answers", None) is not None:
            with self._turn:
                self._answers = None
            self._asked.set()
            self._compiling.join()
        super().close()

    def _hear(self, _: Any, message: dict[str, Any], buffers: Any) -> None:
        """Answer a message {"number", "path", "body"} from the page."""
        with self._turn:
            if self._answers is None:
                return
            body = json.dumps(message["body"])
            try:
                said, ok = self._answers.answer(message["path"], body), True
            except SinkjaxError as error:
                said, ok = {"error": str(error)}, False
            except Exception as error:  # otherwise the page would wait forever; the kernel's log gets the traceback
                self.send({"number": message["number"], "ok": False, "said": {"error": repr(error)}})
                raise
        self.send({"number": message["number"], "ok": ok, "said": said})
        self._asked.set()

    def _compile(self) -> None:
        while True:
            with self._turn:
                if self._answers is None:
                    return
                more = self._answers.compile_one()
            if not more:
                self._asked.wait()
                self._asked.clear()
