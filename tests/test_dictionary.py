"""The calls of other libraries that the documentation names exist in the version that is installed, and run without a warning."""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from transformers.models.llama.modeling_llama import repeat_kv

PAGE = Path(__file__).parents[1] / "docs" / "dictionary.md"
TOKENS = [[1, 5, 9, 21]]


def left(heading: str) -> list[str]:
    """The names in the first column of the tables of a section."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [name for cell in re.findall(r"^\| ([^|]*) \|", section, re.MULTILINE) for name in re.findall(r"`([^`]+)`", cell)]


@pytest.fixture
def strict() -> Iterator[None]:
    """A name that is on its way out is an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*deprecated", category=Warning)
        yield


@pytest.fixture(scope="module")
def llama() -> Any:
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, bos_token_id=1, eos_token_id=2)
    config._attn_implementation = "eager"
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{one}": one for one in range(64)}, unk_token="w0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token="w1", eos_token="w2", pad_token="w3")
    folder = tmp_path_factory.mktemp("words")
    made.save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.usefixtures("strict")
def test_transformers_calls_run(llama: Any, tmp_path: Path):
    tokens = torch.tensor(TOKENS)
    calls = {
        "AutoModelForCausalLM.from_pretrained(name)": lambda: transformers.AutoModelForCausalLM.from_pretrained(tmp_path),
        "model.save_pretrained(folder)": lambda: llama.save_pretrained(tmp_path),
        "attention_mask": lambda: llama(tokens, attention_mask=torch.ones_like(tokens)),
        "position_ids": lambda: llama(tokens, position_ids=torch.arange(4)[None]),
        "output_attentions=True": lambda: llama(tokens, output_attentions=True).attentions[1],
        "output_hidden_states=True": lambda: llama(tokens, output_hidden_states=True).hidden_states[2],
        "labels=tokens": lambda: llama(tokens, labels=tokens).loss,
        "outputs.loss": lambda: llama(tokens, labels=tokens).loss,
        "model.generate(...)": lambda: llama.generate(
            tokens, max_new_tokens=2, do_sample=False, cache=transformers.DynamicCache()
        ),
        "cache=...": lambda: llama(tokens, cache=transformers.DynamicCache()),
        "repeat_kv(values, groups)": lambda: repeat_kv(torch.ones(1, 2, 4, 8), 2),
        "register_forward_hook": lambda: llama.register_forward_hook(lambda *_: None).remove(),
    }
    assert {*calls, "head_mask"} == {*left("transformers")}  # head_mask: of transformers 4, as its row says
    for name in sorted(calls, key=lambda name: "from_pretrained" in name):
        calls[name]()


@pytest.mark.usefixtures("strict")
def test_transformer_lens_calls_and_hooks_are_there(llama: Any, tokenizer: Any):
    lens = pytest.importorskip("transformer_lens")
    bridge = lens.TransformerBridge.boot_transformers("tiny", hf_model=llama, tokenizer=tokenizer)
    names = left("TransformerLens")
    hooks = {name.removeprefix("blocks.l.") for name in names if "hook_" in name and "(" not in name}
    there = {re.sub(r"^blocks\.1\.", "", name) for name in bridge.hook_dict}
    assert {name for name in hooks if not any(one == name or one.endswith(f".{name}") for one in there)} == set()
    calls = [name.partition("(")[0].rpartition(".")[2] for name in names if "(" in name]
    assert [call for call in calls if not callable(getattr(bridge, call, None) or getattr(lens.patching, call, None))] == []
    assert bridge.set_use_split_qkv_input
    assert bridge.set_use_attn_result
    assert bridge.enable_compatibility_mode

    def mask(scores: Any, hook: Any) -> Any:
        scores[:, :, 1:, 0] = float("-inf")
        return scores

    tokens = torch.tensor(TOKENS)
    masked = bridge.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_attn_scores", mask)])
    assert not torch.allclose(masked, bridge(tokens))
    assert bool(bridge(tokens, return_type="loss") > 0)


@pytest.mark.usefixtures("strict")
def test_the_norms_output_has_its_gain_in_transformer_lens(llama: Any, tokenizer: Any):
    lens = pytest.importorskip("transformer_lens")
    gained = type(llama)(llama.config).eval()
    gained.model.layers[1].input_layernorm.weight.data.fill_(3.0)
    bridge = lens.TransformerBridge.boot_transformers("tiny", hf_model=gained, tokenizer=tokenizer)
    _, cache = bridge.run_with_cache(torch.tensor(TOKENS))
    assert torch.allclose(cache["blocks.1.ln1.hook_out"], 3 * cache["blocks.1.ln1.hook_normalized"], atol=1e-5)


@pytest.mark.usefixtures("strict")
def test_nnsight_calls_run(llama: Any, tokenizer: Any):
    """nnsight reads the lines of a `with`, so these are written out."""
    nnsight = pytest.importorskip("nnsight")
    model = nnsight.TransformersModel(llama, task="text-generation", tokenizer=tokenizer)
    with model.trace("w4 w5 w6"):
        model.model.layers[0].mlp.output[:] = 0
        states = model.model.layers[1].output.save()
    with model.trace() as tracer:  # noqa: SIM117
        with tracer.invoke("w4 w5"):
            logits = model.lm_head.output.save()
    with model.generate("w4 w5", max_new_tokens=2) as tracer:
        continued = tracer.result.save()
    assert states.shape[-1] == 32
    assert logits.shape[-1] == 64
    assert continued.shape[-1] >= 3
    assert hasattr(model.model.layers[0].self_attn, "source")
    assert len(left("nnsight")) == 7


def test_pefts_way_to_merge_is_there():
    """`sinkjax.checkpoints.adapters.ADVICE` names it."""
    pytest.importorskip("peft")
    assert callable(importlib.import_module("peft.tuners.lora").LoraModel.merge_and_unload)
