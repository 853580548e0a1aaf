"""sinkjax: the public `forward` and `sweep`."""

from __future__ import annotations

import sys
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
from sinkjax.sweeps.plan import plan
from sinkjax.transformer.cost import block_flops

STATISTICS = ("attention_received", "resid_max", "resid_norm", "resid_argmax")  # a record also counts non-finite positions
PROBE = sinkjax.Probe.of(*STATISTICS)
PRECISION = "highest"
RIGHT, WRONG = 260, 1000  # as in torch_side.py, which has no JAX


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

    def patch(self, task: str, layers: list[int], positions: list[int]) -> dict[str, np.ndarray]:
        """Patch the clean stream into the corrupted prompt at each layer and position."""
        if task == "last":
            clean, corrupted = self.tokens[:1], self.tokens[1:]
            found = sinkjax.patch(self.model, clean, corrupted, RIGHT, WRONG, layers=layers, positions=positions, progress=False)
            return {task: found.logit_difference.values.ravel()}
        edits, probe = self._patches(layers, positions), sinkjax.Probe(nll=True)
        found = sinkjax.sweep(self.model, self.tokens[1:], edits, probe, precision=PRECISION, progress=False)
        return {task: found["nll"].values[:, 0, :-1].mean(axis=-1)}

    def saved(self, task: str, layers: list[int], positions: list[int]) -> dict[str, float]:
        """How many times as many FLOPs one forward for each patch has as the sweep."""
        config, T = self.model.config, self.tokens.shape[1]
        probe = sinkjax.Probe(nll=True) if task == "losses" else sinkjax.Probe(logits_of=(RIGHT, WRONG))
        planned = plan(config, self._patches(layers, positions), [T], T, probe)
        block, unembedding = T * block_flops(config, T), 2 * config.width * (config.vocab_size or 0)
        each = config.layers * block + unembedding * (T if task == "losses" else 1)
        return {"times": len(layers) * len(positions) * each / planned.flops}

    def _patches(self, layers: list[int], positions: list[int]) -> list[sinkjax.Edit]:
        probe = sinkjax.Probe(capture=(sinkjax.Capture("resid"),))
        donors = np.asarray(sinkjax.forward(self.model, self.tokens[:1], probe=probe, logits=False).record["resid"])
        cells = [(layer, position) for layer in layers for position in positions]
        return [
            sinkjax.edit("resid", "set", donors[:, layer, at], layers=layer, queries=at).named(f"{layer}, {at}")
            for layer, at in cells
        ]


def masks(layers: Any) -> list[sinkjax.Edit]:
    """One edit for each layer: no query but query 0 sees key 0."""
    return [sinkjax.mask_key(0, layers=layer) for layer in layers]


@partial(jax.jit, static_argnames="repeats")
def products(a: jax.Array, b: jax.Array, repeats: int) -> jax.Array:
    """`repeats` products, each of the last one's result, so that none can be left out."""
    return jax.lax.fori_loop(0, repeats, lambda _, x: jnp.matmul(x, b, precision=PRECISION), a)


def matmul(size: int, repeats: int) -> None:
    """`repeats` products of square float32 matrices."""
    products(jnp.ones((size, size)), jnp.eye(size), repeats).block_until_ready()


if __name__ == "__main__":
    side = Side(Path(sys.argv[1]))
    jobs = (side.choose, side.forward, side.sweep, side.work, side.patch, side.saved, matmul)
    serve({job.__name__: job for job in jobs})
