"""Conversations as prompts, in the formats of a few known chat templates.

A model's files hold its template as a program, which is never run here: a template is recognised by the expressions in which it
writes a message, and any other is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sinkjax.checkpoints.model import Model
from sinkjax.config_files import documents
from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError, short

FORMATS = documents.parse(Path(__file__).with_name("chat.yaml").read_text(encoding="utf-8"), "chat.yaml")
OTHER = ("<think>", "reasoning", "strftime_now")  # no known format has hidden reasoning, or the date of the day
SYSTEM = r"<\|im_start\|>system\n([^<{}'\"]+)<\|im_end\|>"  # the system message that ChatML's templates may write by default


def is_conversation(prompt: Any) -> bool:
    """Return whether a prompt is a list of messages."""
    return isinstance(prompt, list | tuple) and len(prompt) > 0 and all(isinstance(entry, Mapping) for entry in prompt)


def chat_text(model: Model, prompt: Any) -> tuple[str, str]:
    """Return the text up to the assistant's next turn, with the BOS that the template writes, and the text that ends that turn.

    prompt: a user's message, or a list of messages {"role", "content"}.

    Errors: no tokenizer; no template, or one that is not known; roles that do not alternate, or that the format does not have.
    """
    tokenizer, name = model.tokenizer, model.source["name"]
    if tokenizer is None:
        raise SinkjaxError(f"the files of {name} hold no tokenizer, so there is no chat template")
    system, turns = _turns([{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt)
    refuse(tokenizer.template is None, f"the files of {name} have no chat template: write the prompt as one text, without chat")
    template = _plain(tokenizer.template or "")
    known = [its for its in FORMATS.values() if re.search(its["pattern"], template, re.DOTALL)]
    if not known or any(word in template for word in OTHER):
        raise SinkjaxError(
            f"the chat template of {name} is none of those known (ChatML, Llama 3, Gemma, Llama 2, Mistral), and templates are"
            " never run: write the prompt as one text, without chat"
        )
    its = known[0]
    ids = {"bos": tokenizer.bos, "eos": tokenizer.eos}
    special = {key: "" if token is None else tokenizer.decode([token]) for key, token in ids.items()}
    written = re.search(SYSTEM, template)
    system = system if system is not None else written[1] if written else its.get("default")
    refuse(system is not None and not its.keys() & {"system", "inside"}, f"the chat template of {name} has no system message")
    contents = [content.strip() if its.get("strip") else content for content in turns]
    begin = special["bos"] if "bos_token" in template and "{bos}" not in its["user"] else ""
    if system is not None and "system" in its:
        begin += its["system"].format(system.strip() if its.get("strip") else system)
    elif system is not None:
        contents[0] = its["inside"].format(system) + (turns[0].rstrip() if its["strip"] == "joined" else contents[0])
    text = "".join((its["user"], its["assistant"])[at % 2].format(content, **special) for at, content in enumerate(contents))
    return begin + text + its.get("last", ""), its["end"].format(**special)


def _turns(messages: Any) -> tuple[str | None, list[str]]:
    """Return the system message, if any, and the contents of the turns of a conversation, which begin and end with the user's."""
    refuse(not is_conversation(messages), f"a chat is a string or a list of messages, not {short(messages)}")
    for message in messages:
        whole = set(message) == {"role", "content"} and all(isinstance(value, str) for value in message.values())
        refuse(not whole, f'a message must have a "role" and a "content", both strings, and nothing else, not {short(message)}')
    first = int(messages[0]["role"] == "system")
    roles = [message["role"] for message in messages[first:]]
    right = roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
    refuse(
        not right, f"roles must be user, assistant, user, ... and end with user, after an optional system, not {', '.join(roles)}"
    )
    contents = [message["content"] for message in messages]
    return (contents[0] if first else None), contents[first:]


def _plain(template: str) -> str:
    """Return a template without white space outside of its quotes, and with line breaks in place of their escapes."""
    parts = re.findall(r"'[^']*'|\"[^\"]*\"|[^'\"\s]+", template.replace("\\n", "\n"))
    return "".join(parts).replace("message.role", "message['role']").replace("message.content", "message['content']")
