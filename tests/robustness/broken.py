"""Files that are wrong in one way each: configs, texts, folders of runs, models. The cases and the fuzzers read them.

`write(folder)` makes `files`, `folders`, `models`, and one sound `model` with its `text.txt`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from sinkjax.config_files import documents
from sinkjax.study.registry import choose
from tests.checkpoints import files as sound
from tests.study.tiny import write_model, write_text

GIVEN: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("broken.yaml").read_text(encoding="utf-8"))
SWEEP = "experiment: sweep\nmodel: {model}\ntext: {text}\nprompts: 3\nlength: 12\nedits:\n"
KIYA = "experiment: kiya/mask\n"
DOCUMENTS = {
    **GIVEN["documents"],
    "bomb": "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)),
    "alias": "a: &a [1]\nb: [" + ", ".join(["*a"] * 101) + "]\n",
    "keys": "".join(f"k{n}: 1\n" for n in range(20_000)),
    "deep": f"{KIYA}a: " + "[" * 100_000,
    "large": f"{KIYA}text: {'x' * 1_000_000}\n",
    "huge": f"{KIYA}prompts: 1{'0' * 400}\n",
    "hex": f"{KIYA}prompts: 0x{'f' * 9000}\n",
}
TEXTS = {"nultext": "\0", "formfeed": "\f", "escapetext": "\x1b[31m"}


def write(folder: Path) -> Path:
    """All of it."""
    write_model(folder / "model")
    write_text(folder / "text.txt")
    _files(folder / "files", folder)
    _folders(folder / "folders")
    _models(folder / "models")
    return folder


def _files(folder: Path, home: Path) -> None:
    folder.mkdir()
    head = SWEEP.format(model=home / "model", text=home / "text.txt")
    for name, text in {**DOCUMENTS, **{name: f"{head}{edits}\n" for name, edits in GIVEN["edits"].items()}}.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    (folder / "latin.yaml").write_bytes(b"experiment: kiya/m\xe4sk\n")
    (folder / "nul.yaml").write_bytes(b"experiment: kiya/mask\0\n")
    lines = (home / "text.txt").read_text(encoding="utf-8").splitlines()
    for name, character in TEXTS.items():
        (folder / f"{name}.txt").write_text("\n".join(f"{line}{character} and on" for line in lines), encoding="utf-8")


def _folders(folder: Path) -> None:
    """Folders of runs, and stores."""
    whole = documents.write("kiya/mask", choose("kiya/mask").config)
    configs = {"truncated": whole[: whole.index("controls")], "cut": whole.rstrip("\n"), "emptyconfig": "", "nostores": whole}
    for name, text in configs.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "config.yaml").write_text(text, encoding="utf-8")
    (folder / "noconfig").mkdir()
    (folder / "binaryconfig").mkdir()
    (folder / "binaryconfig" / "config.yaml").write_bytes(bytes(range(256)))
    attributes = {**GIVEN["stores"], "deepzattrs": "[" * 100_000}
    for name, text in attributes.items():
        (folder / f"{name}.zarr").mkdir()
        (folder / f"{name}.zarr" / ".zattrs").write_text(text, encoding="utf-8")


def _models(folder: Path) -> None:
    """Model folders and GGUF files."""
    configs = {
        **{name: json.dumps({**sound.LLAMA, **changed}) for name, changed in GIVEN["models"].items()},
        "listconfig": "[]",
        "cutconfig": json.dumps(sound.LLAMA)[:100],
        "twice": json.dumps(sound.LLAMA)[:-1] + ', "hidden_size": 32}',
        "deepconfig": '{"a":' + "[" * 100_000,
        "normlist": json.dumps({"model_type": "sinkjax", "norm": {"type": [1]}}),
        "unknownkey": json.dumps({**sound.LLAMA, "x" * 1000: 1}),
    }
    for name, text in configs.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text(text)
    (folder / "noconfig").mkdir()
    tokenizers = {
        "badtokenizer": {"tokenizer.json": "{"},
        "listtokenizer": {"tokenizer.json": "[]"},
        "panic": {"tokenizer.json": json.dumps(panicking())},
        "badsettings": {"tokenizer.json": json.dumps(words()), "tokenizer_config.json": "[]"},
        "missingbos": {"tokenizer.json": json.dumps(words()), "tokenizer_config.json": '{"bos_token": "none such"}'},
    }
    for name, files in tokenizers.items():
        (folder / name).mkdir()
        for file, text in {"config.json": json.dumps(sound.LLAMA), **files}.items():
            (folder / name / file).write_text(text)
    _weights(folder)
    _ggufs(folder)


def words() -> dict[str, Any]:
    """The tokenizer.json of three words."""
    model = {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "<unk>": 2}, "unk_token": "<unk>"}
    sections = ("truncation", "padding", "normalizer", "post_processor", "decoder")
    return {
        "version": "1.0",
        **dict.fromkeys(sections),
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": model,
    }


def panicking() -> dict[str, Any]:
    """A tokenizer.json at which the tokenizers package panics, which is no Exception in Python."""
    return {**words(), "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}


def _weights(folder: Path) -> None:
    """Folders whose safetensors are wrong."""
    weights = sound.random_weights(sound.LLAMA)
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    one = json.dumps(entry)
    headers: dict[str, tuple[str, bytes]] = {
        "overlap": (json.dumps({"a": entry, "b": entry}), bytes(8)),
        "gap": (json.dumps({"a": entry, "b": {**entry, "data_offsets": [12, 20]}}), bytes(20)),
        "names": (f'{{"a": {one}, "a": {one}}}', bytes(8)),
        "shape": (json.dumps({"a": {**entry, "shape": [2**40, 2**40]}}), bytes(8)),
        "tail": (json.dumps({"a": entry}), bytes(16)),
        "header": ("[" * 100_000, b""),
    }
    for name, (header, data) in headers.items():
        sound.write_folder(folder / name, sound.LLAMA, weights)
        text = header.encode()
        (folder / name / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    for name, changed in (
        ("nanweights", {"model.norm.weight": np.full(16, np.nan, np.float32)}),
        ("intweights", {"model.norm.weight": np.ones(16, np.int32)}),
        ("cutweights", {}),
        ("noweights", {}),
        ("badindex", {}),
        ("outside", {}),
    ):
        sound.write_folder(folder / name, sound.LLAMA, {**weights, **changed})
    whole = folder / "cutweights" / "model.safetensors"
    whole.write_bytes(whole.read_bytes()[:-100])
    for name in ("noweights", "badindex", "outside"):
        (folder / name / "model.safetensors").unlink()
    (folder / "badindex" / "model.safetensors.index.json").write_text('{"weight_map": []}')
    (folder / "outside" / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../../text.txt"}}')


def gguf_header(fields: Sequence[tuple[str, int, bytes]], tensors: Sequence[Any] = (), counts: Any = None) -> bytes:
    """A GGUF's header. fields: key, type, bytes of the value. tensors: name, dims, type, offset. counts: stated instead."""
    data = b"GGUF" + struct.pack("<IQQ", 3, *(counts or (len(tensors), len(fields))))
    for key, kind, value in fields:
        data += gguf_text(key) + struct.pack("<I", kind) + value
    for name, dims, kind, offset in tensors:
        data += gguf_text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
    return data


def gguf_text(text: str) -> bytes:
    """A string as GGUF has it."""
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _ggufs(folder: Path) -> None:
    architecture = ("general.architecture", 8, gguf_text("llama"))
    nested = struct.pack("<IQ", 9, 1) * 10_000 + struct.pack("<IQ", 0, 0)
    alignment = ("general.alignment", 4, struct.pack("<I", 0))
    for name, data in {
        "text": b"no GGUF",
        "empty": b"",
        "cut": gguf_header([architecture])[:-3],
        "nested": gguf_header([architecture, ("a", 9, nested)]),
        "zero": gguf_header([architecture], [("a", [0, 4], 0, 0)]) + bytes(64),
        "dims": gguf_header([architecture], [("a", [1] * 64, 0, 0)]) + bytes(64),
        "hugedims": gguf_header([architecture], [("a", [2**63, 2**63], 0, 0)]) + bytes(64),
        "twice": gguf_header([architecture, architecture]),
        "types": gguf_header([("general.architecture", 77, b"")]),
        "count": gguf_header([architecture], counts=(2**63, 2**63)),
        "alignment": gguf_header([architecture, alignment]),
        "version": b"GGUF" + struct.pack("<IQQ", 99, 0, 0),
    }.items():
        (folder / f"{name}.gguf").write_bytes(data)
    vocabulary = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["x" * 80_000, "b"],
        "tokenizer.ggml.scores": [0.0, 0.0],
        "tokenizer.ggml.token_type": [1, 1],
    }
    weights = sound.gguf_weights(sound.random_weights({**sound.LLAMA, "vocab_size": 2}), 4, 2)
    sound.write_gguf(folder / "token.gguf", {**sound.GGUF_METADATA, "vocab_size": 2, **vocabulary}, weights)
