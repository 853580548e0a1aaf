"""The explorer in a notebook: its module in a real Chromium, with real clicks, over messages as a kernel passes them."""

from __future__ import annotations

import contextlib
import gc
import json
import queue
import threading
import time
import weakref
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import sinkjax
from sinkjax.explorer.answers import Answers
from sinkjax.explorer.compute import Workbench
from sinkjax.explorer.launch import first_state
from sinkjax.explorer.state import write_state
from sinkjax.explorer.widget import Explorer, module
from tests.pages import complaints, width_of

TEXT = "They sent for Ness at half past two."
# What anywidget gives `render`, as far as the module uses it: traits, and messages both ways.
PAGE = """<!doctype html><meta charset="utf-8"><title>notebook</title><div id="cell"></div><script type="module">
import widget from "/module.js";
const post = (path, body) => fetch(path, { method: "POST", body: JSON.stringify(body) }).then((answer) => answer.json());
const heard = {}, call = (name, value) => (heard[name] ?? []).forEach((listener) => listener(value));
const traits = await post("/traits", null);
window.model = {
  get: (name) => traits[name],
  set: (name, value) => { traits[name] = value; call(`change:${name}`); },
  save_changes: () => post("/save", traits),
  on: (name, listener) => (heard[name] ??= []).push(listener),
  off: (name, listener) => { heard[name] = heard[name].filter((entry) => entry !== listener); },
  send: async (message) => { for (const answer of await post("/message", message)) call("msg:custom", answer); },
};
window.end = widget.render({ model, el: document.getElementById("cell") });
</script>"""


class Still(Workbench):
    """A workbench that compiles nothing ahead."""

    def warm(self, state):
        yield from ()


def answers(tmp_path, kind: type[Workbench] = Still) -> Answers:
    bench = kind(sinkjax.load("mini-softmax"))
    return Answers(bench, first_state(bench, TEXT), tmp_path)


@contextlib.contextmanager
def shown(explorer: Explorer) -> Iterator[str]:
    """The address of a page that shows a widget, with this process as its kernel."""
    sent: queue.Queue = queue.Queue()
    explorer.send = lambda content, buffers=None: sent.put(content)

    class Kernel(BaseHTTPRequestHandler):
        def do_GET(self):
            kind, text = ("text/javascript", module()) if self.path == "/module.js" else ("text/html", PAGE)
            self.answer(kind, text)

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/message":
                explorer._handle_custom_msg(body, [])
                self.answer("application/json", json.dumps([sent.get(timeout=120)]))
            elif self.path == "/save":
                explorer.state = body["state"]
                self.answer("application/json", "null")
            else:
                self.answer("application/json", json.dumps({"state": explorer.state}))

        def answer(self, kind: str, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Kernel) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.page
def test_with_real_clicks_it_is_the_explorer_and_python_has_its_edit(browser, tmp_path):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    explorer = Explorer(answers(tmp_path))
    root = "document.querySelector('#cell > div')?.shadowRoot"  # none until the module is loaded

    def settled() -> dict:
        """What is on screen, when all that was asked for is drawn."""
        script = f"const page = {root}?.querySelector('.page');" + (
            "return page?.dataset.shown && !page.classList.contains('busy') ? page.dataset.shown : null"
        )
        return json.loads(WebDriverWait(browser, 120).until(lambda driver: driver.execute_script(script)))

    def run(script: str):
        return browser.execute_script(f"const root = {root}; {script}")

    def click(selector: str) -> dict:
        target = run(f"return root.querySelector({json.dumps(selector)})")
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", target)
        target.click()
        return settled()

    with shown(explorer) as address:
        browser.set_window_size(1100, 900)
        browser.get(address)
        assert settled()["kind"] == "mask_key"
        assert run("return root.getElementById('link').hidden")  # there is no address that could hold the state
        click("#tokens button:nth-child(3)")
        state = click('[data-kind="attend_self"]')
        assert (state["kind"], state["token"]) == ("attend_self", 2)
        pixels = "return root.querySelector('#attention figure.{} canvas').toDataURL()"
        assert run(pixels.format("before")) != run(pixels.format("after"))
        WebDriverWait(browser, 60).until(lambda _: explorer.state == state)
        (edit,) = explorer.edits
        assert edit.label == sinkjax.attend_self(2).label

        # What is drawn is what Python computes from the edit that it has.
        model = explorer._answers.bench.model
        tokens, lengths = sinkjax.encode(model, [TEXT], bos="model", length=32)
        probe = sinkjax.Probe(attention_received=True)
        out = sinkjax.forward(model.params, tokens, model.config, edits=explorer.edits, probe=probe, lengths=lengths)
        rates = sinkjax.metrics.sink_rate(out.record, key=0, per="layer")[0]
        points = run("return [...root.querySelectorAll('#sink polyline')].at(-1).getAttribute('points')")
        heights = [float(point.split(",")[1]) for point in points.split()]
        np.testing.assert_allclose([1 - (height - 8) / 182 for height in heights], rates, atol=1e-6)

        browser.execute_script("model.set('state', {...model.get('state'), kind: 'drop_mlp', token: 0})")  # as Python sets it
        WebDriverWait(browser, 60).until(lambda _: settled()["kind"] == "drop_mlp")
        click("#tokens button:nth-child(1)")
        click('[data-kind="add_logit"]')
        run("root.getElementById('no-heads').click()")
        WebDriverWait(browser, 60).until(lambda _: "tick at least one" in run("return root.getElementById('status').textContent"))
        click("#all-heads")
        box = run("return root.getElementById('prompt')")
        box.clear()
        box.send_keys("<script>document.title='run'</script> <b>it</b>")
        WebDriverWait(browser, 60).until(lambda _: settled()["prompt"].startswith("<script>"))
        assert browser.title == "notebook"
        assert run("return root.querySelectorAll('script, b').length") == 0
        click("#save")
        WebDriverWait(browser, 60).until(lambda _: run("return root.getElementById('saved').textContent").startswith("Saved."))
        assert [*tmp_path.glob("add_logit-*.zarr")]

        browser.set_window_size(500, 900)
        WebDriverWait(browser, 60).until(lambda _: run("return root.querySelector('.page.narrow') !== null"))
        assert width_of(browser) <= 500
        assert [entry for entry in complaints(browser) if "favicon" not in entry] == []
        browser.execute_script("end()")
        browser.get("about:blank")
    assert browser.find_elements(By.ID, "cell") == []
    explorer.close()


def test_a_message_is_answered_by_its_number_and_a_wrong_state_by_a_sentence(tmp_path):
    explorer, sent = Explorer(answers(tmp_path)), []
    explorer.send = lambda content, buffers=None: sent.append(content)
    try:
        explorer._handle_custom_msg({"number": "a-1", "path": "measure", "body": explorer.state}, [])
        explorer._handle_custom_msg({"number": "a-2", "path": "measure", "body": {"prompt": "", "more": 1}}, [])
        explorer._handle_custom_msg({"number": "a-3", "path": "model", "body": None}, [])
    finally:
        explorer.close()
    assert [(answer["number"], answer["ok"]) for answer in sent] == [("a-1", True), ("a-2", False), ("a-3", True)]
    assert sent[0]["said"]["tokens"][0] == "<|bos|>"
    assert "unknown key 'more'" in sent[1]["said"]["error"]
    assert sent[2]["said"]["state"] == explorer.state


def test_a_defect_is_told_on_the_page_too(tmp_path, monkeypatch):
    explorer, sent = Explorer(answers(tmp_path)), []
    explorer.send = lambda content, buffers=None: sent.append(content)

    def broken(body):
        raise RuntimeError("no memory")

    monkeypatch.setattr(explorer._answers, "measure", broken)
    with pytest.raises(RuntimeError, match="no memory"):
        explorer._hear(explorer, {"number": "a-1", "path": "measure", "body": {}}, [])
    assert sent == [{"number": "a-1", "ok": False, "said": {"error": "RuntimeError('no memory')"}}]
    explorer.close()


def test_every_kind_is_compiled_while_nothing_is_asked_for_and_again_for_a_longer_prompt(tmp_path):
    compiled = []

    class Listed(Still):
        def warm(self, state):
            for kind in ("one", "two"):
                compiled.append((kind, len(state.prompt)))
                yield kind

    explorer = Explorer(answers(tmp_path, Listed))
    explorer.send = lambda content, buffers=None: None

    def wait_for(count: int) -> None:
        end = time.monotonic() + 60
        while len(compiled) < count and time.monotonic() < end:
            time.sleep(0.01)

    wait_for(2)
    longer = " ".join([TEXT] * 4)
    explorer._hear(explorer, {"number": "a-1", "path": "measure", "body": explorer.state | {"prompt": longer}}, [])
    wait_for(4)
    assert compiled == [("one", len(TEXT)), ("two", len(TEXT)), ("one", len(longer)), ("two", len(longer))]
    explorer.close()


def test_closing_it_frees_the_model_and_ends_its_thread(tmp_path):
    given = answers(tmp_path)
    held, explorer = weakref.ref(given.bench), Explorer(given)
    del given
    explorer.close()
    explorer.close()  # a second time changes nothing
    assert not explorer._compiling.is_alive()
    gc.collect()
    assert held() is None
    explorer._hear(explorer, {"number": "a-1", "path": "model", "body": None}, [])  # too late: nobody is there to be answered


def test_explore_gives_the_widget_with_what_the_page_shows_first(tmp_path):
    explorer = sinkjax.explore("mini-softmax", prompt=TEXT, out=tmp_path)
    try:
        assert explorer.state == json.loads(write_state(explorer._answers.start))
        assert explorer.edits[0].label == sinkjax.mask_key(0).label
        shown = explorer._repr_mimebundle_()
        assert "application/vnd.jupyter.widget-view+json" in (shown[0] if isinstance(shown, tuple) else shown)
    finally:
        explorer.close()


def test_the_module_imports_nothing_and_asks_no_other_host():
    text = module()
    assert not [line for line in text.splitlines() if line.startswith("import ")]
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
