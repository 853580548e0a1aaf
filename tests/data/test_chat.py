"""A conversation becomes the text that the model's own chat template makes of it, without running the template."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from transformers.utils.chat_template_utils import render_jinja_template

import sinkjax
from sinkjax.data.chat import chat_text
from tests.study.tiny import write_model

TEMPLATES = yaml.safe_load(Path(__file__).with_name("chat_templates.yaml").read_text(encoding="utf-8"))
TURNS = [("user", " Who are you? "), ("assistant", "A model.\n"), ("user", "And {you}?")]
TALK = [{"role": role, "content": content} for role, content in TURNS]
SYSTEM = {"role": "system", "content": "Be brief. "}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> sinkjax.Model:
    found = sinkjax.load(write_model(tmp_path_factory.mktemp("model")))
    return dataclasses.replace(found, tokenizer=dataclasses.replace(found.tokenizer, eos=found.tokenizer.encode("$")[0]))


def with_template(model: sinkjax.Model, template: str | None) -> sinkjax.Model:
    return dataclasses.replace(model, tokenizer=dataclasses.replace(model.tokenizer, template=template))


def rendered(template: str, messages: list[dict[str, str]], model: sinkjax.Model) -> str:
    """What transformers makes of the conversation."""
    tokenizer = model.tokenizer
    ids = {"bos_token": tokenizer.bos, "eos_token": tokenizer.eos}
    names = {name: "" if token is None else tokenizer.decode([token]) for name, token in ids.items()}
    return render_jinja_template([messages], chat_template=template, add_generation_prompt=True, **names)[0][0]


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("messages", [TALK[:1], TALK, [SYSTEM, *TALK]], ids=["one", "three", "system"])
def test_a_conversation_is_written_as_its_template_writes_it(model, name, messages):
    its = with_template(model, TEMPLATES[name])
    if messages[0] is SYSTEM and name in ("gemma 2", "mistral 0.1", "mistral 0.2"):
        with pytest.raises(sinkjax.SinkjaxError, match="has no system message"):
            chat_text(its, messages)
    else:
        assert chat_text(its, messages)[0] == rendered(TEMPLATES[name], messages, model)


@pytest.mark.parametrize(
    "template",
    [
        "{% for message in messages %}{{ message['role'] + ': ' + message['content'] }}{% endfor %}",
        TEMPLATES["chatml"] + "<think>",  # as in Qwen3
        TEMPLATES["chatml"].replace("message['content']", "message['content'] | trim"),
        TEMPLATES["chatml"].replace("<|im_end|>", "<|end|>"),
        TEMPLATES["mistral 0.2"].replace("'[INST] '", "' [INST] '"),
        TEMPLATES["llama 3.1"].replace('"26 Jul 2024"', 'strftime_now("%d %b %Y")'),
    ],
)
def test_a_template_that_is_not_known_is_refused(model, template):
    with pytest.raises(sinkjax.SinkjaxError, match="is none of those known"):
        chat_text(with_template(model, template), "Hello")


def test_smollm2_answers_in_its_own_template(smollm2):
    template = smollm2.tokenizer.template
    for messages in (TALK, [SYSTEM, *TALK]):
        assert chat_text(smollm2, messages) == (rendered(template, messages, smollm2), "<|im_end|>")
    assert "SmolLM, trained by Hugging Face" in chat_text(smollm2, TALK)[0]
    found = sinkjax.generate(smollm2, "What is the capital of France?", max_new_tokens=20, chat=True, probe=sinkjax.Probe())
    assert "Paris" in found.text
    assert "<|im_end|>" not in found.text
    assert smollm2.tokenizer.decode(found.prompt) == rendered(
        template, [{"role": "user", "content": "What is the capital of France?"}], smollm2
    )


def test_a_template_is_kept_by_a_folder_and_by_a_tokenizer_of_transformers(model, tmp_path):
    its = with_template(model, TEMPLATES["chatml"])
    sinkjax.export(its, tmp_path / "folder")
    assert sinkjax.load(tmp_path / "folder").tokenizer.template == TEMPLATES["chatml"]
    (tmp_path / "folder" / "chat_template.jinja").write_text(TEMPLATES["gemma 2"], encoding="utf-8")
    assert sinkjax.load(tmp_path / "folder").tokenizer.template == TEMPLATES["gemma 2"]
    from sinkjax.checkpoints.in_memory import as_tokenizer

    other = SimpleNamespace(backend_tokenizer=model.tokenizer.backend, bos_token_id=0, eos_token_id=1, chat_template="a")
    assert as_tokenizer(other).template == "a"
