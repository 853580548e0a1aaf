"""A model with a tokenizer and a text, small enough to run a study on in a second."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from sinkjax.config_files import documents
from sinkjax.study import premises
from sinkjax.study.registry import Chosen, config_type
from tests.checkpoints.files import LLAMA, random_weights, write_folder

LAYERS = 3
HEADS = 4
BOS = "<s>"
SENTENCE = "the attention of a query goes to the first key and stays there whatever the text is about"
SWEEP = """
experiment: sweep
model: {folder}/model
text: {folder}/text.txt
prompts: {prompts}
length: {length}
probe: [attention_received, resid_max]
edits:
  - compose: []
  - mask_key: {{key: {{each: "0:{keys}"}}, layers: {{each: "0:3"}}}}
"""


def write_model(folder: Path, **other: object) -> Path:
    """A random Llama of three layers with a byte-level tokenizer that names a BOS. other: what its config.json states
    instead; None: what it does not state.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: number for number, character in enumerate([BOS, *alphabet])}
    values = {**LLAMA, "num_hidden_layers": LAYERS, "vocab_size": len(vocabulary), "bos_token_id": 0, **other}
    values = {key: value for key, value in values.items() if value is not None or key not in other}
    weights = {name: 0.3 * array for name, array in random_weights(values).items()}
    if values["tie_word_embeddings"]:
        del weights["lm_head.weight"]
    write_folder(folder, values, weights)
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([BOS])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": BOS}))
    return folder


def write_text(path: Path) -> Path:
    """Forty different paragraphs, one a line and each a document; about half of them are in the split "confirm"."""
    lines = (f"{SENTENCE[number:]} {SENTENCE[:number]}" for number in range(40))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def write_sweep(folder: Path, path: Path, prompts: int = 3, length: int = 12, keys: int = 1) -> Path:
    """A config of a sweep on the model and text that were written to `folder`."""
    path.write_text(SWEEP.format(folder=folder, prompts=prompts, length=length, keys=keys))
    return path


def study(experiment: str, folder: Path, **fields: object) -> Chosen:
    """A study on the model and text that were written to `folder`, on 3 prompts of 12 tokens."""
    small = {"model": str(folder / "model"), "text": str(folder / "text.txt"), "prompts": 3, "length": 12}
    small |= {"bos": "none", "split": "confirm"}
    return Chosen(experiment, documents.build(config_type(experiment), {**small, **fields}, "the test"))


def mask(folder: Path, **fields: object) -> Chosen:
    """kiya/mask at its smallest."""
    return study("kiya/mask", folder, **{"controls": 4, "control_prompts": 2, "map_layers": [0, 2], **fields})


def streaming(folder: Path, **fields: object) -> Chosen:
    """background/streaming at its smallest, of all studies with sweeps, controls, maps and texts the quickest."""
    small = {"controls": 4, "control_prompts": 2, "cache": 6, "caches": [6], "keep": 1, "keeps": [0, 1], "twin": False}
    return study("background/streaming", folder, **{**small, **fields})


def write_both(folder: Path) -> Path:
    """Model and text in one folder."""
    write_model(folder / "model")
    write_text(folder / "text.txt")
    return folder


@contextlib.contextmanager
def of_any_size() -> Iterator[None]:
    """The premises of a massive activation and of a sink hold in models that have none."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_unedited", "_sinks"):
            patch.setattr(premises, name, lambda *given, **options: (True, ""))
        yield
