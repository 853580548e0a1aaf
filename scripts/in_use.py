"""The costs and benefits of a sink in use: loss against bits and loss against cache, with the sink's activation and without it.

    python scripts/in_use.py MODEL TEXT [BOS] [LENGTH]     prints two tables in Markdown

BOS is as for `sinkjax.encode`. Without the activation, the first token's largest dim is set to the mean of the other tokens' in
each layer in which it is massive (Sun et al. 2024 set it to its own mean over texts, which costs nothing). The unit is nats a
token, over 4 rows of LENGTH tokens.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import sinkjax
from sinkjax.edits.edit import Edit

BITS = (8, 6, 4)
MASSIVE = 100.0  # |h| of a massive activation (Sun et al. 2024)


def main(name: str, text: str, bos: str = "model", length: str = "256") -> None:
    """Evaluate, and print."""
    model, size = sinkjax.load(name), int(length)
    ids = piece(model, Path(text).read_text(encoding="utf-8"), bos, size)
    edits: dict[str, Any] = {"as it is": (), "without the activation": mean_activation(model, ids[:1])}
    rows: dict[str, dict[str, Any]] = {"full precision": {}}
    for scale in ("tensor", "token"):
        for bits in BITS:
            rows[f"activations of {bits} bits, one scale a {scale}"] = {"activations": bits, "scale": scale}
    rows["activations of 8 bits, one scale a tensor, first token kept"] = {"activations": 8, "keep": (0,)}
    rows["activations of 8 bits, one scale a tensor, rotated"] = {"activations": 8, "rotate": True}
    rows["keys and values of 4 bits, one scale a token"] = {"kv": 4, "scale": "token"}
    rows["weights of 4 bits, one scale an output"] = {"weights": 4, "scale": "token"}
    show(f"{name}: loss against bits", model, ids, rows, edits)
    caches: dict[str, dict[str, Any]] = {"all keys": {}}
    for keys in (size // 16, size // 4):
        caches[f"window of {keys}"] = {"cache": sinkjax.Streaming(0, keys)}
        caches[f"4 first and {keys - 4} last"] = {"cache": sinkjax.Streaming(4, keys - 4)}
        caches[f"H2O, {keys}"] = {"cache": sinkjax.H2O(keys)}
    show(f"{name}: loss against cache", model, ids, caches, edits)


def piece(model: sinkjax.Model, text: str, bos: str, length: int) -> np.ndarray:
    """Four rows of the text, each with the BOS first: int [4, length]."""
    words = text.split()
    half = len(words) // 2
    rows = [" ".join(words[begin : begin + 2 * length]) for begin in range(half, half + 8 * length, 2 * length)]
    tokens, lengths = sinkjax.encode(model, rows, bos=int(bos) if bos.isdigit() else bos, length=length)
    assert (lengths == length).all()
    return np.asarray(tokens)


def mean_activation(model: sinkjax.Model, ids: np.ndarray) -> Edit:
    """The first token's largest dim, set to the mean of the others' in each layer in which it is massive; in all if in none."""
    probe = sinkjax.Probe(capture=[sinkjax.Capture("resid")])
    h = np.asarray(sinkjax.forward(model.params, ids, model.config, probe=probe, logits=False).record["resid"])[0]
    size = np.abs(h[:, 0])
    dim = int(size.max(axis=0).argmax())
    massive = np.flatnonzero(size[:, dim] > MASSIVE)
    layers = massive if len(massive) else np.arange(len(h))
    return sinkjax.compose(
        *(sinkjax.set_residual(0, float(h[layer, 1:, dim].mean()), dims=dim, layers=int(layer)) for layer in layers)
    )


def show(title: str, model: sinkjax.Model, ids: np.ndarray, rows: dict[str, Any], edits: dict[str, Any]) -> None:
    """Print a table: each way to run, under each edit."""
    print(f"\n### {title}\n\n| | {' | '.join(edits)} |\n| --- |{' --- |' * len(edits)}", flush=True)
    for row, options in rows.items():
        losses = [sinkjax.evaluate(model, ids, edits=edit, **options).loss for edit in edits.values()]
        print(f"| {row} | {' | '.join(f'{loss:.3f}' for loss in losses)} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
