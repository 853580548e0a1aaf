"""A state as code: Python that computes the page's numbers, and the YAML of a sweep. This module does not import JAX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sinkjax.config_files import documents
from sinkjax.explorer.state import State, arguments

STATISTICS = ("attention_received", "resid_max", "nll")
FILLER = " ."  # appended to a prompt in its file; the sweep's length cuts it off

PYTHON = """\
import jax
import sinkjax

model = sinkjax.load({model})
tokens, lengths = sinkjax.encode(model, [{prompt}], bos={bos}, length={size})
edit = {edit}
probe = sinkjax.Probe(attention=({layer},), attention_received=True, resid_max=True, nll=True)
before = sinkjax.forward(model, tokens, probe=probe, lengths=lengths)
after = sinkjax.forward(model, tokens, edits=edit, probe=probe, lengths=lengths)

attention = after.record["attention"][0, 0]{head}  # layer {layer}, {which}: [query, key]
received = after.record["attention_received"][0].mean(axis=1)  # [layer, key], mean over heads
largest = after.record["resid_max"][0]  # max |h|: [depth, position]
sink = sinkjax.metrics.sink_rate(after.record, key={key}, per="layer")[0]  # share of heads: [layer]
loss = after.record["nll"][0]  # for the token after each position, in nats
chances, words = jax.lax.top_k(jax.nn.softmax(after.last_logits[0]), {count})
print([model.tokenizer.decode([word]) for word in words])
"""


def python(state: State, model: dict[str, Any], size: int, words: int) -> str:
    """Write Python code that computes the displayed numbers.

    Args:
        state: The displayed state.
        model: The name to load the model by, and further arguments of `sinkjax.load` that are not the defaults.
        size: Padded length of the prompt on the page, for equal shapes.
        words: Number of next words listed.

    Returns:
        The code, which ends with `attention`, `received`, `largest`, `sink`, `loss`, `chances` and `words` after the edit.
    """
    called = ", ".join(f"{name}={_literal(value)}" for name, value in arguments(state).items())
    loaded = [f"{name}={_literal(value)}" for name, value in model.items() if (name, value) != ("dtype", "float32")]
    return PYTHON.format(
        model=", ".join(loaded).removeprefix("model="),
        prompt=_literal(state.prompt),
        bos=_literal(state.bos),
        size=size,
        edit="()  # none" if state.kind == "none" else f"sinkjax.{state.kind}({called})",
        layer=state.layer,
        head=".mean(axis=0)" if state.head is None else f"[{state.head}]",
        which="mean over heads" if state.head is None else f"head {state.head}",
        key=state.key,
        count=words,
    )


def sweep_config(state: State, model: dict[str, Any], length: int, prompt_file: Path) -> str:
    """Write YAML for `sinkjax sweep` to measure the state's edit next to no edit.

    Args:
        state: The displayed state.
        model: See `python`.
        length: Tokens of the prompt, including the BOS.
        prompt_file: Path of the file with `prompt_line`.

        Returns:
            The YAML document.
    """
    given = arguments(state).items()
    edit = {name: f"{value.start}:{value.stop}" if isinstance(value, slice) else value for name, value in given}
    values = {
        "experiment": "sweep",
        **model,
        "text": str(prompt_file),
        "split": "all",
        "prompts": 1,
        "length": length,
        "bos": state.bos,
        "key": state.key,
        "probe": list(STATISTICS),
        "edits": [{"compose": []}, *([{state.kind: edit}] if state.kind != "none" else [])],
    }
    return documents.dump(values)


def prompt_line(state: State) -> str:
    """Return the content of the text file with this sweep's prompt.

    A passage has as many tokens as the sweep's length, not counting a BOS; so with a BOS, one more token follows and is cut off.
    """
    return f"{state.prompt}{FILLER if state.bos == 'model' else ''}\n"


def _literal(value: Any) -> str:
    """Write an argument as Python; texts have double quotes."""
    if isinstance(value, slice):
        return f"slice({value.start}, {value.stop})"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | list) else repr(value)
