"""Fuzzers of the five parsers: sound files, mutated at random, must be read or refused in one sentence.

`python -m tests.robustness.fuzz --seconds 600 --seed 0` runs them for so long. A mutation depends on the seed, the parser and
its number, so `fuzz(parser, seed, [number])` makes one again.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import random
import re
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sinkjax.errors import SinkjaxError
from tests.checkpoints import files
from tests.robustness import broken

READ, REFUSED, WRONG = "read", "refused in a sentence", "wrong"
PATIENCE = 60.0  # seconds of processor time: a quadratic parser or a run that began, not a slow machine
WORDS = (
    b"\0", b"\xff\xfe", b"\x1b[31m", b"{", b"}", b"[", b"]", b'"', b":", b",",
    b"&a ", b"*a", b"!!float ", b"<<: *a", b"- ", b"null",
    b"NaN", b"-Infinity", b"1e999", b"-1", b"0", b"99999999999999999999",
    b"true", b"\n", b"\t", b"\xe2\x80\xa8", b"? ", b"|\n", b"%YAML",
)  # fmt: skip
NUMBERS = (0, 1, 2, 3, 7, 8, 9, 31, 32, 127, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**62, 2**63, 2**64 - 1)
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3, 0.5, -0.0, 2**31, 2**63, 2**64, 10**30, 1e308, float("nan"), float("inf"),
    "", "a", "\0", "\x1b[31m",
    "x" * 5000, "-.inf", "0:3", [], [[]], [None], [1] * 1000, {}, {"type": [1]}, {"type": "RMSNorm"}, {"each": [0, 1]}, {"a": {}},
)  # fmt: skip


@dataclass(frozen=True)
class Parser:
    """Seeds, sound files of one format; how a random tree or record of it is changed; and what reads one."""

    file: str
    seeds: Callable[[], Sequence[bytes]]
    read: Callable[[Path], Any]
    change: Callable[[random.Random, bytes], bytes]


def mutation(seed: int, name: str, number: int, seeds: Sequence[bytes]) -> bytes:
    """One of a parser's seeds, changed in its structure, in its bytes, or in both."""
    rng, parser = random.Random(f"{seed} {name} {number}"), PARSERS[name]
    data = rng.choice(seeds)
    kind = rng.random()
    if kind < 0.6:
        data = parser.change(rng, data)
    if kind > 0.4:
        for _ in range(rng.choice((1, 1, 2, 4))):
            data = change_bytes(rng, data, seeds)
    return data


def change_bytes(rng: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Flip, drop, double, insert, splice or cut bytes, or write a number over them."""
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + rng.choice((1, 1, 2, 4, 8, 64, 512)))
    match rng.randrange(7):
        case 0:
            return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        case 1:
            return data[:at] + data[end:]
        case 2:
            return data[:end] + data[at:end] * rng.choice((1, 2, 50)) + data[end:]
        case 3:
            return data[:at] + rng.choice(WORDS) * rng.choice((1, 1, 1, 20, 2000)) + data[at:]
        case 4:
            other = rng.choice(seeds)
            return data[:at] + other[rng.randrange(len(other) + 1) :]
        case 5:
            return data[:at]
        case _:
            number = struct.pack("<Q", rng.choice(NUMBERS))[: rng.choice((1, 2, 4, 8))]
            return data[:at] + number + data[at + len(number) :]


def change_tree(rng: random.Random, tree: Any) -> Any:
    """A tree of mappings and lists with one to three of its entries replaced, dropped, renamed or doubled."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice((1, 1, 2, 3))):
        nodes = list(_nodes(tree))
        if not nodes:
            return tree
        node = rng.choice(nodes)
        key = rng.choice(list(node) if isinstance(node, dict) else range(len(node)))
        match rng.randrange(5):
            case 0:
                del node[key]
            case 1 if isinstance(node, dict):
                node[rng.choice(("", "x", "type", "\x1b", "model_type", str(rng.randrange(9))))] = node.pop(key)
            case 2:
                node[key] = copy.deepcopy(rng.choice(list(_nodes(tree))))
            case 3 if isinstance(node, list):
                node *= rng.choice((2, 100))
            case _:
                node[key] = copy.deepcopy(rng.choice(VALUES))
    return tree


def _nodes(tree: Any) -> Iterator[Any]:
    """Every mapping and list that is not empty."""
    entries = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    if entries:
        yield tree
    for entry in entries:
        yield from _nodes(entry)


def change_json(rng: random.Random, data: bytes) -> bytes:
    return json.dumps(change_tree(rng, json.loads(data))).encode()


def change_yaml(rng: random.Random, data: bytes) -> bytes:
    return yaml.safe_dump(change_tree(rng, yaml.safe_load(data)), allow_unicode=True).encode(errors="surrogatepass")


def change_safetensors(rng: random.Random, data: bytes) -> bytes:
    """Its header as a tree; the data as they are."""
    size = int.from_bytes(data[:8], "little")
    header = json.dumps(change_tree(rng, json.loads(data[8 : 8 + size]))).encode()
    return struct.pack("<Q", len(header)) + header + data[8 + size :]


def change_gguf(rng: random.Random, data: bytes) -> bytes:
    """A number written over one of those behind a name, where counts, types, lengths and dims stand; or a name doubled."""
    names = [at for at in range(24, len(data) - 16) if data[at : at + 2] in (b"to", b"ll", b"bl", b"ge", b"ou")]
    at = rng.choice(names)
    length = int.from_bytes(data[at - 8 : at], "little")
    place = at + (length if length < 100 else 0) + rng.choice((0, 0, 4, 4, 8, 12, 16, 20))
    return data[:place] + struct.pack("<Q", rng.choice(NUMBERS))[: rng.choice((4, 8))] + data[place + 4 :]


def read_document(path: Path) -> None:
    """A YAML file as a study, or a sweep with its edits, or a training."""
    from sinkjax.edits.edit_list import read_edits
    from sinkjax.study import registry
    from sinkjax.tasks import registry as trainings

    text = path.read_text(encoding="utf-8", errors="replace")
    if re.search("^training:", text, re.MULTILINE):
        trainings.read(text, "the file")
        return
    chosen = registry.read(text, "the file")
    if chosen.experiment == "sweep":
        read_edits(chosen.config.edits)


def read_folder(path: Path) -> None:
    from sinkjax.checkpoints.load import open_checkpoint

    open_checkpoint(str(path.parent), weights=False)


def read_tokenizer(path: Path) -> None:
    """A tokenizer.json, and what is done with it."""
    from sinkjax.checkpoints.tokenizer_files import read_folder_tokenizer

    tokenizer = read_folder_tokenizer(path.parent, {"bos_token_id": 0})
    if tokenizer is not None:
        ids = tokenizer.encode("a b, 12 é \U0001f600")
        tokenizer.decode(ids)
        tokenizer.tokens(ids[:3])
        assert tokenizer.special is not None


def read_gguf(path: Path) -> None:
    """A GGUF as `load` reads it, without the device."""
    from sinkjax.checkpoints.gguf import read_gguf_checkpoint
    from sinkjax.checkpoints.names import slots
    from sinkjax.checkpoints.stream import check_names

    checkpoint = read_gguf_checkpoint(path)
    check_names(checkpoint, slots(checkpoint.config, checkpoint.names))
    for tensor in checkpoint.tensors.values():
        tensor.array()
    if checkpoint.tokenizer is not None:
        checkpoint.tokenizer.encode("a b")


def read_safetensors(path: Path) -> None:
    from sinkjax.checkpoints.safetensors import read_safetensors

    for tensor in read_safetensors(path).values():
        tensor.array()


def yaml_seeds() -> list[bytes]:
    from sinkjax.config_files.files import config_path, configs

    edits = ("compose: []", "mask_key: {key: 0, layers: {each: '0:3'}}", "edit: {site: resid, op: scale, value: 0, queries: 0}")
    sweep = "experiment: sweep\nedits:\n" + "".join(f"  - {edit}\n" for edit in edits)
    aliases = "experiment: sweep\nedits:\n  - mask_key: &a {key: 0}\n  - mask_key: {<<: *a, layers: &b [0, 1]}\nprobe: [nll]\n"
    shipped = [config_path(name).read_bytes() for name in configs() if name.startswith(("kiya", "trigger", "background"))]
    return [sweep.encode(), broken.DOCUMENTS["pretrain"].encode(), aliases.encode(), *shipped]


def config_seeds() -> list[bytes]:
    from sinkjax.checkpoints.presets import packaged

    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    windows = {**files.QWEN2, "use_sliding_window": True}
    values = (files.LLAMA, files.MISTRAL, files.QWEN2, windows, {**files.LLAMA, "rope_scaling": scaling})
    return [json.dumps(value).encode() for value in values] + [(at / "config.json").read_bytes() for at in packaged().values()]


def tokenizer_seeds() -> list[bytes]:
    from tests.study.tiny import write_model

    with tempfile.TemporaryDirectory() as folder:
        bytes_level = (write_model(Path(folder) / "model") / "tokenizer.json").read_bytes()
    unigram = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -2.0]], "byte_fallback": False}
    piece = {"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": 9}
    piece |= {"vocab": {"<unk>": 0, "a": 1, "##b": 2}}
    switches = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = {"id": 3, "content": "<s>", **switches, "special": True}
    full = {**broken.words(), "added_tokens": [added], "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]}}
    full |= {"decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}}
    strip = {**broken.words(), "decoder": {"type": "Strip", "content": " ", "start": 1, "stop": 0}}
    trees = (broken.words(), full, strip, {**broken.words(), "model": unigram}, {**broken.words(), "model": piece})
    return [bytes_level, *(json.dumps(tree).encode() for tree in trees)]


def gguf_seeds() -> list[bytes]:
    weights = files.gguf_weights(files.random_weights(files.LLAMA), 4, 2)
    words = ["<unk>", "<s>", "▁a", "a", "b", "▁", "ab", *(f"w{n}" for n in range(25))]
    tokenizer: dict[str, Any] = {"tokenizer.ggml.tokens": words, "tokenizer.ggml.token_type": [2, 3] + [1] * 30}
    pieces = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [-float(n) for n in range(32)], **tokenizer}
    pairs = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.merges": ["a b"], **tokenizer}
    with tempfile.TemporaryDirectory() as folder:
        metadata = ({}, pieces, pairs)
        written = [files.write_gguf(Path(folder) / f"{n}", {**files.GGUF_METADATA, **m}, weights) for n, m in enumerate(metadata)]
        return [path.read_bytes() for path in written]


def safetensors_seeds() -> list[bytes]:
    from safetensors.numpy import save

    whole = save(files.random_weights(files.LLAMA))
    entries = {name: {"dtype": kind, "shape": [2, 2], "data_offsets": [8 * n, 8 * n + 8]} for n, (name, kind) in enumerate(
        (("a", "F16"), ("b", "BF16"))
    )}  # fmt: skip
    header = json.dumps({**entries, "__metadata__": {"format": "pt"}}).encode()
    return [whole, struct.pack("<Q", len(header)) + header + bytes(16)]


PARSERS = {
    "yaml": Parser("config.yaml", yaml_seeds, read_document, change_yaml),
    "config.json": Parser("config.json", config_seeds, read_folder, change_json),
    "tokenizer.json": Parser("tokenizer.json", tokenizer_seeds, read_tokenizer, change_json),
    "gguf": Parser("model.gguf", gguf_seeds, read_gguf, change_gguf),
    "safetensors": Parser("model.safetensors", safetensors_seeds, read_safetensors, change_safetensors),
}


@dataclass
class Found:
    """What reading mutations came to: how many of each outcome, what was wrong, and the processor seconds of the slowest."""

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest: float = 0.0


def fuzz(name: str, seed: int, numbers: Iterable[int], until: float = float("inf")) -> Found:
    """Read mutations of a parser's seeds until the numbers or the time is over."""
    parser = PARSERS[name]
    seeds = parser.seeds()
    assert len(seeds) > 1, f"{name} has no seeds to splice"
    found = Found()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / parser.file
        for number in numbers:
            if time.monotonic() > until:
                break
            path.write_bytes(mutation(seed, name, number, seeds))
            outcome, what, seconds = attempt(parser, path)
            found.outcomes[outcome] += 1
            found.slowest = max(found.slowest, seconds)
            if outcome == WRONG:
                found.wrong.append(f"{name}, seed {seed}, mutation {number}: {what}")
    return found


def attempt(parser: Parser, path: Path) -> tuple[str, str, float]:
    """What reading a file comes to, what is wrong with that (another exception, lines, a time), and processor seconds."""
    begun = time.process_time()
    outcome, what = READ, ""
    try:
        parser.read(path)
    except SinkjaxError as error:
        outcome, what = (REFUSED, "") if "\n" not in str(error) else (WRONG, f"several lines: {error}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of Rust's is no Exception
        outcome, what = WRONG, f"{type(error).__name__}: {error}"
    seconds = time.process_time() - begun
    return (WRONG, f"{seconds:.1f} s", seconds) if seconds > PATIENCE else (outcome, what, seconds)


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.robustness.fuzz", description=(__doc__ or "").split("\n")[0])
    options.add_argument("--seconds", type=float, default=600, help="of all parsers together")
    options.add_argument("--seed", type=int, default=0)
    given, failed = options.parse_args(), False
    for name in PARSERS:
        found = fuzz(name, given.seed, itertools.count(), time.monotonic() + given.seconds / len(PARSERS))
        print(f"{name}: seed {given.seed}: {dict(found.outcomes)}", *found.wrong, sep="\n  ", flush=True)
        failed |= bool(found.wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
