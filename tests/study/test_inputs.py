"""What is said of a study's prompts before it runs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sinkjax.study.inputs import of_chat

TEXTS = {0: "<|endoftext|>", 1: "<|im_start|>", 2: "<s>"}


def model(special: list[int]) -> SimpleNamespace:
    tokenizer = SimpleNamespace(special=special, tokens=lambda ids: [TEXTS[one] for one in ids])
    return SimpleNamespace(tokenizer=tokenizer)


@pytest.mark.parametrize(("special", "answer"), [([0, 1], "--bos 0"), ([1], "not applicable")])
def test_a_bos_that_begins_chat_turns_is_told_before_the_run_with_the_option_that_answers(special, answer):
    said = of_chat(model(special), (None, "none", 1))  # type: ignore[arg-type]
    assert said.startswith("the BOS '<|im_start|>'")
    assert answer in said
    assert ("--bos" in said) == (0 in special)


@pytest.mark.parametrize("bos", [(None, "none"), (2,), ()])
def test_other_prefixes_are_not(bos):
    assert of_chat(model([0, 1]), bos) == ""  # type: ignore[arg-type]
    assert of_chat(SimpleNamespace(tokenizer=None), bos) == ""  # type: ignore[arg-type]
