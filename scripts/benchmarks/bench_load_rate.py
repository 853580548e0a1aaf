"""Measure how fast a checkpoint loads, beside the rate at which its files are read: docs/results/benchmarks-full.md.

python scripts/benchmarks/bench_load_rate.py                     0.3 GB, less than a minute on two cores, Linux
python scripts/benchmarks/bench_load_rate.py --gigabytes 6.4     the size of a model of 3 billion parameters
python scripts/benchmarks/bench_load_rate.py --quick             0.05 GB, one round; prints the section and writes nothing

The checkpoint is made of random weights in a temporary folder (TMPDIR): safetensors in bfloat16, in shards.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

import jax
import ml_dtypes
import numpy as np
from bench_peers import command
from bench_peers.command import cpu, filled, table_of
from bench_peers.worker import CORES
from measured import Number, as_number

import sinkjax
from sinkjax.checkpoints.safetensors import write_safetensors

GOAL = 80  # percent of the rate at which the files are read
SHARDS, ROUNDS, PIECE = 4, 5, 1 << 24
SHAPE = {  # a block of llama-3.2-3b, and a small vocabulary
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 16_384,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
QUICK = SHAPE | {"hidden_size": 1024, "intermediate_size": 2048, "num_attention_heads": 8, "vocab_size": 8192}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write or print the section."""
    parser = command.parser(__doc__, "bench_load_rate", "0.05 GB, one round")
    parser.add_argument("--gigabytes", type=float, default=0.3, help="of the checkpoint, at least (default 0.3)")
    options = parser.parse_args(arguments)
    load, shape = os.getloadavg()[0], QUICK if options.quick else SHAPE
    size, found = measured(shape, 0.05 if options.quick else options.gigabytes, 1 if options.quick else ROUNDS)
    device = f"{cpu()}, {CORES} cores{', beside other work' * (load > 0.25 * CORES)}"
    text = section(found, size=f"{size / 1e9:.2f}", device=device, load=f"{load:.2f}")
    command.publish(text, options, [*numbers(found)], device, "bench_loading")


def measured(shape: Mapping[str, object], gigabytes: float, rounds: int) -> tuple[int, dict[str, dict[str, list[float]]]]:
    """Return the bytes of the files, and by their place the bytes a second of each way and round.

    The ways are measured in turn, so that other work slows all of them: plain reads of all bytes, a load, and the SHA-256 of the
    bytes, which a load computes beside the rest.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = write(folder, shape, gigabytes)
        size = sum(file.stat().st_size for file in files)
        ways: dict[str, Callable[[], object]] = {
            "reading": lambda: [*pieces(files)],
            "loading": lambda: jax.block_until_ready(sinkjax.load(folder, dtype="bfloat16").params),
            "SHA-256": lambda: hash_all(files),
        }
        ways["loading"]()  # compiles
        found: dict[str, dict[str, list[float]]] = {}
        for place in ("disk", "memory"):
            found[place] = {way: [] for way in ways}
            for _ in range(rounds):
                for way, run in ways.items():
                    gc.collect()
                    for file in files if place == "disk" else ():
                        drop(file)
                    begun = time.perf_counter()
                    run()
                    found[place][way].append(size / (time.perf_counter() - begun))
                    command.say(f"{way} from {place}: {found[place][way][-1] / 1e9:.3g} GB/s")
    return size, found


def write(folder: Path, shape: Mapping[str, object], gigabytes: float) -> list[Path]:
    """Write a checkpoint with as many layers as make this size, in shards that are on the disk, and return its shards."""
    d, inner, D = (int(str(shape[name])) for name in ("hidden_size", "intermediate_size", "head_dim"))
    heads, groups = (int(str(shape[f"num_{kind}_heads"])) for kind in ("attention", "key_value"))
    block = {"input_layernorm": (d,), "post_attention_layernorm": (d,), "self_attn.q_proj": (heads * D, d)}
    block |= {"self_attn.k_proj": (groups * D, d), "self_attn.v_proj": (groups * D, d), "self_attn.o_proj": (d, heads * D)}
    block |= {"mlp.gate_proj": (inner, d), "mlp.up_proj": (inner, d), "mlp.down_proj": (d, inner)}
    ends = {"embed_tokens": (int(str(shape["vocab_size"])), d), "norm": (d,)}
    bytes_of = lambda shapes: 2 * sum(int(np.prod(each)) for each in shapes.values())  # noqa: E731
    layers = max(1, -(-(round(gigabytes * 1e9) - bytes_of(ends)) // bytes_of(block)))
    parts = [ends, *({f"layers.{layer}.{name}": each for name, each in block.items()} for layer in range(layers))]
    shapes = {f"model.{name}.weight": each for part in parts for name, each in part.items()}
    place = {name: f"model-{number % SHARDS + 1:05}-of-{SHARDS:05}.safetensors" for number, name in enumerate(sorted(shapes))}
    rng, files = np.random.default_rng(0), [folder / file for file in sorted({*place.values()})]
    for file in files:
        write_safetensors(file, {name: drawn(rng, shapes[name]) for name in shapes if place[name] == file.name})
        with file.open("rb") as written:
            os.fsync(written.fileno())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": place}))
    (folder / "config.json").write_text(json.dumps({**shape, "num_hidden_layers": layers}))
    return files


def drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Random finite numbers: bfloat16 below 2."""
    bits = np.frombuffer(rng.bytes(2 * int(np.prod(shape))), np.uint16) & np.uint16(0xBFFF)
    return bits.view(ml_dtypes.bfloat16).reshape(shape)


def pieces(files: Sequence[Path]) -> Iterator[memoryview]:
    """Read files piece by piece, into the same memory."""
    into = memoryview(bytearray(PIECE))
    for path in files:
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(into):
                yield into[:count]


def hash_all(files: Sequence[Path]) -> str:
    """The SHA-256 of files."""
    found = hashlib.sha256()
    for piece in pieces(files):
        found.update(piece)
    return found.hexdigest()


def drop(path: Path) -> None:
    """Have the next reader find a file on the disk only."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def numbers(found: Mapping[str, Mapping[str, Sequence[float]]]) -> Iterator[Number]:
    """The rates, and the share of the reading rate that a load reaches; its bound is that of the SHA-256."""
    for place, ways in found.items():
        for way, taken in ways.items():
            yield as_number(f"{way} from {place} (GB/s)", [each / 1e9 for each in taken])
        share, bound = (
            [100 * one / read for one, read in zip(ways[way], ways["reading"], strict=True)] for way in ("loading", "SHA-256")
        )
        most = f"{min(100.0, median(bound)):.0f}"
        yield as_number(f"load from {place}, share of the reading rate (%)", share, ".0f", (GOAL, None), most)


def section(found: Mapping[str, Mapping[str, Sequence[float]]], **about: str) -> str:
    """The section, in Markdown."""
    rounds = len(found["disk"]["reading"])
    return filled("load-rate", shards=SHARDS, rounds=rounds, jax=jax.__version__, table=table_of([*numbers(found)]), **about)


if __name__ == "__main__":
    main()
