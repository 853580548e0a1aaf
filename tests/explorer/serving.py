"""A server of the explorer in this process, and requests to it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sinkjax.explorer.answers import Answers
from sinkjax.explorer.compute import Workbench
from sinkjax.explorer.launch import Served, first_state


@contextmanager
def serving(bench: Workbench, out: Path, prompt: str) -> Iterator[Served]:
    """A server that ends with the block."""
    explorer = Served(Answers(bench, first_state(bench, prompt), out))
    try:
        yield explorer
    finally:
        explorer.close()


def ask(address: str, body: object = None, origin: str | None = "own", **headers: str) -> tuple[int, str, dict[str, str]]:
    """Status, text and headers of an answer. body: as JSON, bytes as they are; None: a GET. origin: "own", another, or none."""
    given = dict(headers)
    if body is not None and origin is not None:
        given["Origin"] = "/".join(address.split("/")[:3]) if origin == "own" else origin
    raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(address, raw, given)) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)
