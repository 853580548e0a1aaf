"""Loading holds the weights in the target dtype and at most two copies of the largest tensor, as the operating system counts."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.checkpoints.files import GGUF_METADATA, LLAMA, gguf_weights, random_weights, write_folder, write_gguf

# 232 MB in float32, of which the largest tensor (the embedding) is 33.6 MB.
LARGE = LLAMA | {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 10, "vocab_size": 16384, "head_dim": 128}
METADATA = GGUF_METADATA | {"embedding_length": 512, "feed_forward_length": 2048, "block_count": 10, "vocab_size": 16384}
METADATA |= {"rope.dimension_count": 128}
MIB = 2**20
SLACK = 4 * MIB  # the header, and the temporaries of a block of rows

WATCH = """
import gc, json, re, sys, threading, time
import jax, sinkjax

def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024

def load(path, dtype):
    model = sinkjax.load(path, dtype=dtype)
    return sum(leaf.nbytes for leaf in jax.tree.leaves(model.params))

def watch(done, peak):
    while not done.is_set():
        peak.append(max(peak.pop(), anonymous()))
        time.sleep(0.001)

def measure(path, dtype):
    load(path, dtype)  # compiles: what a compiler needs does not grow with the model
    gc.collect()
    start, peak, done = anonymous(), [0], threading.Event()
    watcher = threading.Thread(target=watch, args=(done, peak))
    watcher.start()
    weights = load(path, dtype)
    done.set()
    watcher.join()
    return peak[0] - start, weights

cases = [case.split("=") for case in sys.argv[1:]]
print(json.dumps([measure(*case) for case in cases]))
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """(kind, dtype) -> bytes at the peak, bytes of the weights, bytes of the largest tensor in float32."""
    weights = {name: array.astype(np.float16) for name, array in random_weights(LARGE).items()}
    folder = tmp_path_factory.mktemp("large")
    paths = {"folder": write_folder(folder, LARGE, weights)}
    paths["gguf"] = write_gguf(folder / "large.gguf", METADATA, gguf_weights(weights, 4, 2))
    cases = [(kind, dtype) for kind in paths for dtype in ("float32", "bfloat16")]
    command = [sys.executable, "-c", WATCH, *(f"{paths[kind]}={dtype}" for kind, dtype in cases)]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072"}  # memory that is freed goes back at once
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    largest = 4 * max(array.size for array in weights.values())
    return {case: (*numbers, largest) for case, numbers in zip(cases, json.loads(out.stdout), strict=True)}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_peak_memory(measured, kind, dtype):
    peak, weights, largest = measured[kind, dtype]
    print(f"{kind} {dtype}: peak {peak / MIB:.0f} MiB, weights {weights / MIB:.0f} MiB, largest tensor {largest / MIB:.0f} MiB")
    assert weights < peak <= weights + 2 * largest + SLACK
