"""The server answers this machine's browser, on its own page, with the token, one computation at a time; and it ends."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import re
import socket
import sys
import threading
import time
import weakref

import pytest

import sinkjax
from sinkjax.cli import main as cli
from sinkjax.errors import SinkjaxError
from sinkjax.explorer import server
from sinkjax.explorer.answers import Answers
from sinkjax.explorer.compute import Workbench
from sinkjax.explorer.launch import ENDING, Served, answers_of, first_state
from sinkjax.explorer.server import Presence, Superseded, Turns
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


def test_a_state_is_measured(address):
    status, text, _ = ask(f"{address}measure", STATE)
    assert status == 200
    assert json.loads(text)["tokens"] == ["<|bos|>", "T", "he", "y", " s", "ent", " for", " ", "N", "ess", "."]


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
        (b"\xff\xfe{", "not valid JSON"),
        (b"", "not valid JSON"),
        (STATE | {"token": 20, "kind": "drop_mlp"}, "position 20 is out of range"),
        (STATE | {"prompt": " a" * 513}, "must be one line"),
        (STATE | {"prompt": "a" * 200_000}, "more than 100,000 bytes"),
        (STATE | {"more": 1}, "unknown key 'more'"),
        (STATE | {"prompt": "a \ud800 b"}, "half a character at position 2"),
        (STATE | {"more\ud800": 1}, "unknown key 'more\\ud800'"),
    ],
    ids=("half", "bytes", "empty", "position", "spaces", "long", "key", "half a character", "key of half a character"),
)
def test_what_is_no_state_gets_400_and_a_sentence(address, body, says):
    for path in ("measure", "save"):
        status, text, _ = ask(f"{address}{path}", body)
        assert status == 400
        assert says in json.loads(text)["error"]


def test_513_tokens_are_refused_with_a_sentence(bench):
    long = dataclasses.replace(bench.model, config=dataclasses.replace(bench.model.config, context=2048))
    with pytest.raises(SinkjaxError, match=r"513 tokens, .* 512"):
        Workbench(long).prompt("x" + " a" * 512, "none")
    assert len(Workbench(long).prompt("x" + " a" * 511, "none").texts) == 512


def test_paths_and_methods_that_are_not_there(address):
    assert ask(f"{address}nothing")[0] == 404
    assert ask(f"{address}../cli/main.py")[0] in (403, 404)
    assert ask(f"{address}measure")[0] == 405


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


def test_it_is_over_when_every_page_has_closed(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(server.time, "monotonic", lambda: now[0])
    presence = Presence()
    assert not presence.over  # no page has opened yet
    presence.seen("one")
    presence.seen("two")
    presence.left("one")
    now[0] += server.PATIENCE + 1
    assert not presence.over
    presence.left("two")
    presence.seen("two")  # it was only loaded again
    now[0] += server.PATIENCE + 1
    assert not presence.over
    now[0] += server.SILENCE
    assert presence.over


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


@pytest.mark.parametrize("closes", [False, True], ids=("waiting", "closed"))
@pytest.mark.parametrize("with_body", [False, True], ids=("headers", "body"))
def test_a_request_that_is_half_sent_neither_keeps_the_server_nor_prints_anything(
    bench, tmp_path, capfd, caplog, with_body, closes
):
    with serving(bench, tmp_path, "They sent for Ness.") as explorer:
        _, _, host, token, _ = explorer.address.split("/")
        with socket.create_connection(host.split(":")) as half:
            head = f"Host: {host}\r\nOrigin: http://{host}\r\nContent-Length: 99\r\n\r\n{{" if with_body else "Host:"
            half.sendall(f"POST /{token}/measure HTTP/1.1\r\n{head}".encode())
            time.sleep(0.3)
            if closes:
                half.shutdown(socket.SHUT_RDWR)
                time.sleep(0.3)
            begun = time.monotonic()
            explorer.close()
            assert time.monotonic() - begun < 2 * ENDING
            assert closes or not with_body or b" 503 " in half.recv(1000)
    assert capfd.readouterr() == ("", "")
    assert not [line for line in caplog.messages if "Exception" in line]  # which a process without logging prints


def test_a_port_that_is_taken_and_no_port_are_one_sentence(bench, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SinkjaxError, match=f"port {port} .*or 0"):
            Served(answers_of(bench.model, None, tmp_path), port)
    with pytest.raises(SinkjaxError, match="port 70000 cannot be used"):
        Served(answers_of(bench.model, None, tmp_path), 70_000)


def test_without_its_packages_the_command_names_the_extra(monkeypatch, capsys):
    for name in ("starlette", "uvicorn"):
        monkeypatch.setitem(sys.modules, name, None)
    assert cli.main(["explore"]) == 2
    assert re.fullmatch(r"sinkjax: .* starlette, uvicorn, .*pip install 'sinkjax\[explore\]'\n", capsys.readouterr().err)
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(SinkjaxError, match=r"notebook .*anywidget, .*pip install"):
        sinkjax.explore("mini-softmax")
