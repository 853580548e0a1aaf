"""Loading takes little more memory than the shards of the weights, pages of mapped files included, as Linux counts."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.checkpoints.files import GGUF_METADATA, LLAMA, gguf_weights, random_weights, write_folder, write_gguf

# 232 MB in float32, of which the embedding and the unembedding are 33.6 MB each.
LARGE = LLAMA | {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 10, "vocab_size": 16384, "head_dim": 128}
METADATA = GGUF_METADATA | {"embedding_length": 512, "feed_forward_length": 2048, "block_count": 10, "vocab_size": 16384}
METADATA |= {"rope.dimension_count": 128}
MIB = 2**20
SHARE = 1.15  # of the shards, that loading may take at its peak
SLACK = 16 * MIB  # pieces under way, and what the allocator keeps

WATCH = """
import gc, json, re, sys
import jax, numpy as np, sinkjax

def resident(field):
    return int(re.search(field + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024

def load(path, dtype, mesh):
    model = sinkjax.load(path, dtype=dtype, mesh=mesh)
    return sum(shard.data.nbytes for leaf in jax.tree.leaves(model.params) for shard in leaf.addressable_shards)

def measure(path, dtype, devices):
    mesh = None if devices == "1" else jax.make_mesh((1, int(devices)), ("data", "model"))
    load(path, dtype, mesh)  # compiles: what a compiler needs does not grow with the model
    gc.collect()
    start = resident("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
    shards = load(path, dtype, mesh)
    return resident("VmHWM") - start, shards

cases = [case.split("=") for case in sys.argv[1:]]
print(json.dumps([measure(*case) for case in cases]))
"""

CASES = [("folder", "float32", 1), ("folder", "bfloat16", 1), ("folder", "float32", 4), ("gguf", "float32", 1)]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Case -> bytes at the peak, bytes of the shards."""
    weights = {name: array.astype(np.float16) for name, array in random_weights(LARGE).items()}
    folder = tmp_path_factory.mktemp("large")
    paths = {"folder": str(write_folder(folder, LARGE, weights, shards=3))}
    paths["gguf"] = str(write_gguf(folder / "large.gguf", METADATA, gguf_weights(weights, 4, 2)))
    command = [sys.executable, "-c", WATCH, *(f"{paths[kind]}={dtype}={devices}" for kind, dtype, devices in CASES)]
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "4", "MALLOC_MMAP_THRESHOLD_": "131072"}  # freed memory goes back at once
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return dict(zip(CASES, json.loads(out.stdout), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_peak_memory(measured, case):
    peak, shards = measured[case]
    print(f"{case}: peak {peak / MIB:.0f} MiB, shards {shards / MIB:.0f} MiB")
    assert 0.9 * shards < peak <= SHARE * shards + SLACK
