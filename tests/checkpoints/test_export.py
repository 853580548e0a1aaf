"""Export to a Hugging Face folder: transformers computes the same, and anything but a Llama is refused by the field's name."""

import dataclasses

import jax
import numpy as np
import pytest
import torch
import transformers

import sinkjax
from sinkjax.data.corpora import packaged_documents
from sinkjax.data.vocabulary import train_bpe
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import NoPosition
from sinkjax.model.heads import HeadGate
from sinkjax.model.normalisers import OffByOne
from sinkjax.model.rotary import Rope
from tests.checkpoints.test_native import SCALINGS, drawn


def logits_of_transformers(folder, tokens):
    """In float64, but where transformers computes in float32 all the same: angles and norms."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    with torch.no_grad():
        return type(model).__name__, model(torch.as_tensor(tokens)).logits.numpy()


@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"tied": True, "activation": "gelu_tanh", "position": Rope(777.0)},
        {"qkv_bias": True, "out_bias": True, "mlp_bias": True, "activation": "relu"},
        *({"position": Rope(10_000.0, scaling), "context": 128 if scaling == SCALINGS[-1] else 64} for scaling in SCALINGS),
    ],
    ids=str,
)
def test_transformers_computes_the_same_and_the_folder_loads_back(variant, tiny_config, tmp_path, rng):
    model = drawn(dataclasses.replace(tiny_config, width=36, **variant))
    tokens = rng.integers(0, 61, (2, 40))
    sinkjax.export(model, tmp_path)
    kind, theirs = logits_of_transformers(tmp_path, tokens)
    assert kind == "LlamaForCausalLM"
    with jax.enable_x64(True):
        doubled = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), model.params)
        ours = np.asarray(sinkjax.forward(doubled, tokens, model.config).logits)
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=5e-5 * np.abs(ours).max())
    again = sinkjax.load(tmp_path)
    assert again.config == model.config
    jax.tree.map(np.testing.assert_array_equal, again.params, model.params)


def test_the_tokenizer_goes_along(tiny_config, tmp_path):
    tokenizer = train_bpe(packaged_documents(), 300)
    model = drawn(dataclasses.replace(tiny_config, width=36, vocab_size=300), tokenizer=tokenizer)
    sinkjax.export(model, tmp_path, dtype="bfloat16")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "Drivers in the Corran valley face a detour"
    assert theirs(text, add_special_tokens=False)["input_ids"] == tokenizer.encode(text)
    assert (theirs.bos_token_id, theirs.eos_token_id) == (0, 1)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    assert (config.bos_token_id, config.eos_token_id, config.dtype) == (0, 1, torch.bfloat16)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("normaliser", OffByOne()),
        ("position", NoPosition()),
        ("gate", HeadGate()),
        ("windows", (None, 4, 4)),
        ("out_bias", True),
    ],
)
def test_anything_else_is_refused_by_the_name_of_the_field(field, value, tiny_config, tmp_path):
    model = drawn(dataclasses.replace(tiny_config, **{field: value}))
    with pytest.raises(SinkjaxError, match=f"Llama .* {field} "):
        sinkjax.export(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()
