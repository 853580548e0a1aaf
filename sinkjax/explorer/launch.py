"""Launch the explorer: as a notebook widget, or on a server in a thread for the command line."""

from __future__ import annotations

import secrets
import socket
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkjax.checkpoints.load import load
from sinkjax.checkpoints.model import Model
from sinkjax.config_files.files import user_path
from sinkjax.data.prompts import trained_prefix
from sinkjax.errors import SinkjaxError
from sinkjax.explorer.answers import Answers
from sinkjax.explorer.compute import Workbench
from sinkjax.explorer.server import application
from sinkjax.explorer.state import State
from sinkjax.runtime import extras

if TYPE_CHECKING:
    from sinkjax.explorer.widget import Explorer

HOST = "127.0.0.1"
ENDING = 2  # seconds that a response may take while the server stops
PROMPT = "They sent for Ness at half past two to bring the doctor over."


def explore(model: Model | str, prompt: str | None = None, out: str | Path = "results/explore") -> Explorer:
    """Explore a model interactively in a notebook, in a widget that is shown if it is a cell's last expression.

    The command `sinkjax explore` shows the same page in a browser.

    Args:
        model: The model, or an argument of `sinkjax.load`.
        prompt: The first prompt.
        out: The folder for saved states.

    Returns:
        A widget (anywidget), whose `state` and `edits` follow the display; `close()` stops it.

    Raises:
        SinkjaxError: The packages of `sinkjax[explore]` are not installed; the model has no tokenizer; the prompt is not a single
            line.
    """
    extras.require("the explorer in a notebook", "explore", "anywidget")
    from sinkjax.explorer.widget import Explorer

    return Explorer(answers_of(load(model) if isinstance(model, str) else model, prompt, out))


def answers_of(model: Model, prompt: str | None, out: str | Path) -> Answers:
    """Make the handlers for a model. Errors: it has no tokenizer; the prompt is not a single line, or does not fit the model."""
    bench = Workbench(model)
    return Answers(bench, first_state(bench, PROMPT if prompt is None else prompt), user_path(out))


def first_state(bench: Workbench, prompt: str) -> State:
    """Return the page's first state: the first key masked, showing a middle layer. Errors: the prompt cannot be shown."""
    facts = bench.facts()
    of_model = bench.tokenizer.bos is not None and trained_prefix(bench.model)[0] == [bench.tokenizer.bos]
    state = State(prompt=prompt, bos="model" if of_model else "none", kind="mask_key", layer=facts["layers"] // 2)
    bench.prompt(state.prompt, state.bos)
    return state


class Served:
    """The explorer of one model on a server in a thread.

    Attributes:
        address: The page's address, with the required token.
    """

    def __init__(self, answers: Answers, port: int = 0):
        """Start the server.

        Args:
            answers: The model's answers.
            port: Port of the page, which only this machine can access; 0 for any free port.

        Raises:
            SinkjaxError: The packages are not installed; the port is taken.
        """
        import uvicorn

        token, listening = secrets.token_urlsafe(16), _listening(port)
        host = f"{HOST}:{listening.getsockname()[1]}"
        self.address = f"http://{host}/{token}/"
        app = application(answers, token, host, self.end)
        config = uvicorn.Config(
            app, access_log=False, log_config=None, lifespan="on", timeout_graceful_shutdown=ENDING, ws="none"
        )
        server = uvicorn.Server(config)
        self._server = weakref.ref(server)  # release the model once the thread has ended
        self._ended = threading.Event()
        self._thread = threading.Thread(target=_serve, args=(server, listening, self._ended), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the server has stopped: no page has been open for a while, or `end` was called."""
        # Not `join`: in Python 3.11, a signal that interrupts it marks the thread as ended while it still runs.
        while not self._ended.wait(0.2):  # in short intervals, so that signals are handled
            pass

    def end(self) -> None:
        if (server := self._server()) is not None:
            server.should_exit = True

    def close(self) -> None:
        """Stop the server and release the model."""
        self.end()
        self.wait()
        self._thread.join()


def _serve(server: Any, listening: socket.socket, ended: threading.Event) -> None:
    try:
        server.run(sockets=[listening])
    finally:
        ended.set()


def _listening(port: int) -> socket.socket:
    """Open a socket that listens on the local address. Errors: the port is taken, or none is available."""
    found = socket.socket()
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((HOST, port))
        found.listen()
    except (OSError, OverflowError) as error:
        found.close()
        reason = error.strerror if isinstance(error, OSError) else "there are 65535"
        raise SinkjaxError(f"port {port} cannot be used ({reason}); choose another, or 0 for any that is free") from None
    return found
