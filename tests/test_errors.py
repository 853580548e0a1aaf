"""What an error says is one line that no terminal acts on."""

from __future__ import annotations

import pytest

from sinkjax.errors import SPACING, SinkjaxError, printable, refuse_control


@pytest.mark.parametrize("character", ["\0", "\a", "\x1b", "\x7f", "\x9b", "\n", "\u2028", "\ud800", "\ufffe"])
def test_a_control_character_is_escaped_and_refused(character):
    assert str(SinkjaxError(f"the path a{character}b")) == f"the path a{character!r}b".replace("'", "")
    with pytest.raises(SinkjaxError, match=r"the label .*character.* at position 1"):
        refuse_control("the label", f"a{character}b")


def test_other_text_is_left_alone():
    text = "Δ 3 % … “Łódź” 漢字 😀 \u00a0\u202f"
    assert printable(text) == text
    refuse_control("it", text)
    refuse_control("a text", "one\ttwo\r\nthree\x85four\u2028five", but=SPACING)
