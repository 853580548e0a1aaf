"""The preset gemma3-270m, where its package is installed: files, weights, logits and tokens against transformers' own reading."""

from __future__ import annotations

import random
import re
import sys
import unicodedata
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
import transformers
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_TOKENIZER_MAPPING, convert_gguf_tokenizer

import sinkjax
from sinkjax.checkpoints import presets
from sinkjax.checkpoints.gguf_file import read_gguf
from sinkjax.checkpoints.model import Model
from tests.checkpoints.files import TEXTS_OF
from tests.model.prose import PASSAGES

NAME = "gemma3-270m"
pytestmark = pytest.mark.gemma3
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"  # that the package states
MIB = 2**20


@pytest.fixture(scope="module")
def model() -> Model:
    return sinkjax.load(NAME)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> transformers.PreTrainedModel:
    """Transformers' reading of the same bytes, in a file without the vocabulary, which takes it most of a minute."""
    metadata, tensors = read_gguf(*presets.preset_files(NAME))
    path = tmp_path_factory.mktemp("gemma3") / "m.gguf"
    writer = gguf.GGUFWriter(path, "gemma3")
    for key, value in metadata.items():
        if key.startswith("gemma3."):
            (writer.add_uint32 if isinstance(value, int) else writer.add_float32)(key, value)
    writer.add_vocab_size(len(metadata["tokenizer.ggml.tokens"]))
    for name, tensor in tensors.items():
        kind = gguf.GGMLQuantizationType[tensor.stored]
        writer.add_tensor(name, tensor.raw() if kind else tensor.array(), raw_dtype=kind or None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    read = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    )
    return read.eval()


def test_it_is_found_without_importing_its_package_and_says_what_it_is(model: Model) -> None:
    assert not [name for name in sys.modules if name.startswith("gemma3_270m")]
    assert re.search(r"gemma3-270m .*Gemma's terms of use.*Q4_K_M", presets.named(model.source))
    assert (model.tokenizer.bos, model.tokenizer.eos) == (2, 1)
    assert model.tokenizer.tokens([2]) == ["<bos>"]


def test_weights_and_logits_are_those_of_transformers_reading(model: Model, theirs: transformers.PreTrainedModel) -> None:
    stored = theirs.state_dict()
    for name, array in sinkjax.to_arrays(model).items():
        np.testing.assert_array_equal(array, stored[name].numpy(), err_msg=name)
    tokens, _ = sinkjax.encode(model, PASSAGES[:2], bos="model", length=40)
    found = sinkjax.forward(model.params, tokens, model.config, probe=sinkjax.Probe(resid_max=True))
    with torch.no_grad():
        want = theirs(torch.as_tensor(np.array(tokens))).logits.numpy()
    assert np.nanmax(np.asarray(found.record["resid_max"])) > 1e5  # a hard case for float32
    assert np.abs(np.asarray(found.logits) - want).max() < 1e-4


def lines() -> list[str]:
    """Texts of the repository, characters of every kind, and words between unusual spaces and whole tokens."""
    draw = random.Random(0)
    root = Path(__file__).parents[2]
    files = [*sorted(root.glob("docs/*.md")), *sorted(root.glob("sinkjax/model/*.py"))]
    read = [line for file in files for line in file.read_text(encoding="utf-8").splitlines() if line.strip()][:2000]
    characters = [chr(code) for code in range(1, 0x30000) if unicodedata.category(chr(code)) not in ("Cn", "Co", "Cs")]
    drawn = ["".join(draw.choices(characters, k=draw.randint(1, 30))) for _ in range(2000)]
    words = [word for line in read for word in line.split()]
    between = [*TEXTS_OF["between"], " " * 40]
    mixed = [
        "".join(draw.choice(words) + draw.choice(between) * draw.randint(1, 3) for _ in range(draw.randint(1, 10)))
        for _ in range(2000)
    ]
    return read + drawn + mixed


def test_tokens_are_those_of_transformers(model: Model) -> None:
    metadata, _ = read_gguf(*presets.preset_files(NAME))
    named = GGUF_TOKENIZER_MAPPING["tokenizer"].items()
    columns = {name: metadata[f"tokenizer.{key}"] for key, name in named if f"tokenizer.{key}" in metadata}
    backend, _ = convert_gguf_tokenizer("gemma3", columns)
    texts = lines()
    assert len(texts) > 5000
    for text, want in zip(texts, backend.encode_batch(texts, add_special_tokens=False), strict=True):
        ids = model.tokenizer.encode(text)
        assert ids == want.ids, text
        assert model.tokenizer.decode(ids) == backend.decode(ids, skip_special_tokens=False), text
