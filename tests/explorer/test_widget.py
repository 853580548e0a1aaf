"""The explorer in a notebook: messages as a kernel passes them are answered, and closing it frees the model."""

from __future__ import annotations

import gc
import weakref

import sinkjax
from sinkjax.explorer.answers import Answers
from sinkjax.explorer.compute import Workbench
from sinkjax.explorer.launch import first_state
from sinkjax.explorer.widget import Explorer, module

TEXT = "They sent for Ness at half past two."


class Still(Workbench):
    """A workbench that compiles nothing ahead."""

    def warm(self, state):
        yield from ()


def answers(tmp_path, kind: type[Workbench] = Still) -> Answers:
    bench = kind(sinkjax.load("mini-softmax"))
    return Answers(bench, first_state(bench, TEXT), tmp_path)


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


def test_the_module_imports_nothing_and_asks_no_other_host():
    text = module()
    assert not [line for line in text.splitlines() if line.startswith("import ")]
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
