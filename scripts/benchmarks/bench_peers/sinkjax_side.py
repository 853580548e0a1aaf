"""sinkjax: the public `forward` and `sweep`, and what XLA makes of the programs behind them."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sinkjax
from bench_peers.worker import serve, versions
from sinkjax.checkpoints.presets import named
from sinkjax.data.corpora import passages
from sinkjax.edits.edit import resolve
from sinkjax.model import params
from sinkjax.sweeps.plan import plan
from sinkjax.sweeps.schedule import stack
from sinkjax.sweeps.shared import baseline, edited
from sinkjax.transformer.forward import run
from sinkjax.transformer.spec import ForwardSpec

STATISTICS = ("attention_received", "resid_max", "resid_norm", "resid_argmax")  # a record also counts non-finite positions
PROBE = sinkjax.Probe.of(*STATISTICS)
PRECISION = "highest"


class Side:
    """The model and its prompts."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.model = sinkjax.load("smollm2-135m")
        self.stores = 0

    def choose(self, prompts: int, length: int) -> dict[str, Any]:
        """Take prompts from the packaged text and write them to the folder: the model, where they come from, and the versions."""
        encode = self.model.tokenizer.encode
        chosen = passages("packaged", prompts, length=length, size=lambda text: len(encode(text)))
        self.tokens, _ = sinkjax.encode(self.model, chosen.texts, bos="none", length=length)
        np.save(self.folder / "tokens.npy", self.tokens)
        used = {"sinkjax": sinkjax.__version__} | versions("jax", "jaxlib")
        return {"model": named(self.model.source), "text": chosen.source, "versions": used}

    def forward(self) -> dict[str, np.ndarray]:
        """The record of one forward."""
        out = sinkjax.forward(self.model.params, self.tokens, self.model.config, probe=PROBE, logits=False, precision=PRECISION)
        return {name: np.asarray(out.record[name]) for name in STATISTICS}

    def sweep(self, layers: list[int]) -> dict[str, Any]:
        """The records of a sweep, written to a store of its own and read when they are saved."""
        self.stores += 1
        out = self.folder / f"sweep-{self.stores}.zarr"
        result = sinkjax.sweep(self.model, self.tokens, masks(layers), probe=PROBE, out=out, precision=PRECISION, progress=False)
        return {name: result[name] for name in STATISTICS}

    def work(self, layers: list[int]) -> dict[str, Any]:
        """FLOPs of one block on all prompts, and the blocks that a forward and a sweep compute."""
        B, T = self.tokens.shape
        planned = plan(self.model.config, masks(layers), [T] * B, T, PROBE)
        passes = {"forward": self.model.config.layers, "sweep": planned.layer_passes}
        return {"block_flops": planned.flops / planned.layer_passes, "passes": passes}

    def compile(self, depth: int | None = None) -> dict[str, Any]:
        """Compile the programs for the model, or for one of another depth: seconds, bytes planned, bytes compiled."""
        config = self.model.config if depth is None else replace(self.model.config, layers=depth)
        B, T = self.tokens.shape
        weights = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.float32), params.abstract(config))
        tokens, lengths = jax.ShapeDtypeStruct((B, T), jnp.int32), jax.ShapeDtypeStruct((B,), jnp.int32)
        edits = masks(range(config.layers))
        planned = plan(config, edits, [T] * B, T, PROBE)
        width = planned.schedule.widths[0]
        stacked = stack([resolve(edit, config, [T] * B, T) for edit in edits[:width]])
        spec = ForwardSpec(config=config, probe=PROBE, logits=False, precision=PRECISION)
        shared = jax.eval_shape(lambda *args: baseline(*args, spec=spec)[0].counting(stacked), weights, tokens, lengths)
        start = jax.ShapeDtypeStruct((), jnp.int32)
        programs = {
            "forward": lambda: run.lower(weights, tokens, lengths, (), spec=spec),
            "sweep, baseline": lambda: baseline.lower(weights, tokens, lengths, spec=spec),
            "sweep, edits": lambda: edited.lower(weights, tokens, lengths, stacked, start, shared, spec=spec),
        }
        return {"planned": planned.bytes, "programs": {name: measured(lower) for name, lower in programs.items()}}


def masks(layers: Any) -> list[sinkjax.Edit]:
    """One edit for each layer: no query but query 0 sees key 0."""
    return [sinkjax.mask_key(0, layers=layer) for layer in layers]


def measured(lower: Any) -> dict[str, float]:
    """Seconds to trace and to compile a program, and the bytes of its arguments, results and temporaries."""
    begun = time.perf_counter()
    lowered = lower()
    traced = time.perf_counter()
    compiled = lowered.compile()
    done = time.perf_counter()
    memory = compiled.memory_analysis()
    return {
        "trace": traced - begun,
        "compile": done - traced,
        "arguments": memory.argument_size_in_bytes,
        "results": memory.output_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
    }


@partial(jax.jit, static_argnames="repeats")
def products(a: jax.Array, b: jax.Array, repeats: int) -> jax.Array:
    """`repeats` products, each of the last one's result, so that none can be left out."""
    return jax.lax.fori_loop(0, repeats, lambda _, x: jnp.matmul(x, b, precision=PRECISION), a)


def matmul(size: int, repeats: int) -> None:
    """`repeats` products of square float32 matrices."""
    products(jnp.ones((size, size)), jnp.eye(size), repeats).block_until_ready()


if __name__ == "__main__":
    side = Side(Path(sys.argv[1]))
    jobs = (side.choose, side.forward, side.sweep, side.work, side.compile, matmul)
    serve({job.__name__: job for job in jobs})
