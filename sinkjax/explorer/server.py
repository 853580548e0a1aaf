"""The server of the page: one computation at a time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, TypeVar

from sinkjax.errors import SinkjaxError
from sinkjax.explorer.answers import Answers
from sinkjax.explorer.guard import Guard

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

T = TypeVar("T")

MOST_BYTES = 100_000  # maximum bytes of a request
PATIENCE = 15.0  # seconds until a closing page no longer counts as open; a reload takes less
SILENCE = 180.0  # the same for a silent page; browsers let hidden pages send one signal a minute
LOOK = 0.5  # polling interval in seconds
FILES = ("", "page.css", "main.js", "page.js", "draw.js", "viewer.js", "viewer.css")  # "": page.html
KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


class Superseded(Exception):
    """A newer computation replaced one that was waiting."""


class Turns:
    """Run one computation at a time, in a thread; of those waiting, only the newest runs."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._newest = 0

    async def take(self, work: Callable[[], T], superseding: bool = True) -> T:
        """Return the result of `work`. Raises `Superseded` if a newer one was asked for before this one began.

        superseding: whether it supersedes those that wait, and newer ones supersede it.
        """
        self._newest += superseding
        number = self._newest
        async with self._lock:
            if superseding and number != self._newest:
                raise Superseded("a newer change took the place of this one")
            return await asyncio.to_thread(work)


def application(answers: Answers, token: str, host: str, end: Callable[[], None]) -> Guard:
    """Make the web application.

    Args:
        answers: One model's answers.
        token: Required first part of every path.
        host: Its address and port; it does not respond to any other.
        end: Called when no page is open any more.

        Returns:
            The ASGI application.
    """
    from starlette import applications, responses, routing

    turns = Turns()
    open_until: dict[str, float] = {}  # page -> when it counts as closed unless it sends another signal

    async def file(request: Request) -> Response:
        name = request.scope["path"].removeprefix("/") or "page.html"
        folder = "viewing" if name.startswith("viewer.") else "explorer"
        content = files("sinkjax").joinpath(folder, name).read_bytes()
        return responses.Response(content, media_type=KINDS[name.partition(".")[2]])

    async def answer(request: Request) -> Response:
        name = request.scope["path"].removeprefix("/")
        work = partial(answers.answer, name, await _body(request))
        return responses.JSONResponse(await turns.take(work, superseding=name == "measure"))

    async def signal(request: Request) -> Response:
        patience = SILENCE if request.scope["path"].startswith("/seen/") else PATIENCE
        open_until[request.path_params["page"]] = time.monotonic() + patience
        return responses.Response(status_code=204)

    async def refuse(request: Request, error: Exception) -> Response:
        return responses.JSONResponse({"error": str(error)}, status_code=409 if isinstance(error, Superseded) else 400)

    async def warm() -> None:
        """Compile every kind of edit while nothing is asked for."""
        while True:
            if not await turns.take(answers.compile_one, superseding=False):
                await asyncio.sleep(LOOK)

    async def watch() -> None:
        while not open_until or max(open_until.values()) >= time.monotonic():
            await asyncio.sleep(LOOK)
        end()

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(warm()), asyncio.create_task(watch())]
        yield
        for task in tasks:
            task.cancel()

    app = applications.Starlette(
        routes=[
            *(routing.Route(f"/{name}", file) for name in FILES),
            routing.Route("/model", answer),
            *(routing.Route(f"/{name}", answer, methods=["POST"]) for name in ("measure", "continue", "explain", "save")),
            *(routing.Route(f"/{name}/{{page}}", signal, methods=["POST"]) for name in ("seen", "left")),
        ],
        exception_handlers={SinkjaxError: refuse, Superseded: refuse},
        lifespan=lifespan,
    )
    return Guard(app, token, host)


async def _body(request: Request) -> bytes:
    """The body of a request. Errors: more than MOST_BYTES."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise SinkjaxError(f"a request of more than {MOST_BYTES:,} bytes is too long: use a shorter prompt")
    return body
