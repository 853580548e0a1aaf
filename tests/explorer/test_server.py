"""The server answers this machine's browser, on its own page, with the token, one computation at a time; and it ends."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import weakref

import pytest

import sinkjax
from sinkjax.explorer import server
from sinkjax.explorer.answers import Answers
from sinkjax.explorer.compute import Workbench
from sinkjax.explorer.launch import Served, first_state
from sinkjax.explorer.server import Superseded, Turns
from tests.explorer.serving import ask, serving

STATE = {"prompt": "They sent for Ness.", "bos": "model"}


class Still(Workbench):
    """A workbench that compiles nothing ahead."""

    def warm(self, state):
        yield from ()


@pytest.fixture(scope="module")
def bench() -> Still:
    return Still(sinkjax.load("mini-softmax"))


@pytest.fixture(scope="module")
def address(bench, tmp_path_factory) -> str:
    with serving(bench, tmp_path_factory.mktemp("kept"), "They sent for Ness.") as explorer:
        yield explorer.address


def test_the_page_and_its_files_come_from_here_alone(address):
    status, page, headers = ask(address)
    assert status == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"
    for name in ("page.css", "main.js", "page.js", "draw.js", "viewer.js", "viewer.css"):
        status, text, _ = ask(f"{address}{name}")
        assert status == 200
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")  # the name of a format, which nobody fetches
    assert "http" not in page


def test_a_wrong_token_gets_403(address):
    start, token = address.rstrip("/").rsplit("/", 1)
    wrong = token[:-1] + ("A" if token[-1] != "A" else "B")
    for path in (f"{start}/", f"{start}/{wrong}/", f"{start}/{token}", f"{start}/{token[:-1]}/", f"{start}/x/../page.js"):
        assert ask(path)[0] == 403
    status, text, _ = ask(f"{start}/{wrong}/measure", STATE)
    assert (status, "token" in text) == (403, True)


def test_another_host_or_origin_gets_403(address):
    host = address.split("/")[2]
    assert ask(address, Host="evil.example")[0] == 403
    assert ask(address, Host=f"localhost:{host.split(':')[1]}")[0] == 403
    assert ask(address, Origin="http://evil.example")[0] == 403
    for origin in ("http://evil.example", "null", None, f"https://{host}"):
        assert ask(f"{address}measure", STATE, origin=origin)[0] == 403
        assert ask(f"{address}save", STATE, origin=origin)[0] == 403


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "not valid JSON"),
        (STATE | {"token": 20, "kind": "drop_mlp"}, "position 20 is out of range"),
        (STATE | {"prompt": "a" * 200_000}, "more than 100,000 bytes"),
        (STATE | {"more": 1}, "unknown key 'more'"),
        (STATE | {"prompt": "a \ud800 b"}, "half a character at position 2"),
    ],
)
def test_what_is_no_state_gets_400_and_a_sentence(address, body, says):
    for path in ("measure", "save"):
        status, text, _ = ask(f"{address}{path}", body)
        assert status == 400
        assert says in json.loads(text)["error"]


def test_of_those_that_wait_only_the_newest_is_computed():
    done, going, go_on = [], threading.Event(), threading.Event()

    def work(number):
        going.set()
        assert go_on.wait(30)
        done.append(number)
        return number

    async def all_at_once():
        turns = Turns()
        first = asyncio.create_task(turns.take(lambda: work(0)))
        await asyncio.to_thread(going.wait)
        others = [asyncio.create_task(turns.take(lambda number=number: work(number))) for number in (1, 2, 3)]
        await asyncio.sleep(0)
        go_on.set()
        return await asyncio.gather(first, *others, return_exceptions=True)

    first, *superseded, last = asyncio.run(all_at_once())
    assert (first, last, done) == (0, 3, [0, 3])
    assert [type(entry) for entry in superseded] == [Superseded, Superseded]


def test_closing_the_page_ends_the_server_and_frees_the_model(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "PATIENCE", 0.0)
    monkeypatch.setattr(server, "LOOK", 0.01)
    bench = Still(sinkjax.load("mini-softmax"))
    explorer = Served(Answers(bench, first_state(bench, "They sent for Ness."), tmp_path))
    assert ask(f"{explorer.address}seen/one", b"")[0] == 204
    assert ask(f"{explorer.address}left/one", b"")[0] == 204
    waiting = threading.Thread(target=explorer.wait)
    waiting.start()
    waiting.join(30)
    assert not waiting.is_alive()
    held = weakref.ref(bench)
    del bench
    gc.collect()
    assert held() is None
