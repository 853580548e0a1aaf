"""Models of attention and nothing else, their parameters, and a loop in numpy that says what they give."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from sinkjax import Config
from sinkjax.model import params
from sinkjax.model.config import NoPosition
from sinkjax.model.normalisers import ReLU


def bare(**changes: Any) -> Config:
    """Two layers and heads of attention with nothing around it, as wide as an odd number allows."""
    sizes = {"layers": 2, "width": 7, "heads": 2, "kv_heads": 2, "head_dim": 7, "mlp_width": None, "context": 12}
    less: dict[str, Any] = {"vocab_size": None, "norm": None, "position": NoPosition(), "score_scale": 1.0}
    return Config(**{**sizes, **less, "activation": "silu", "tied": False, **changes})


def draw(config: Config, dtype: str = "float64") -> dict:
    """Parameters large enough that scores differ, the learned ones of a normaliser too."""
    noise = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: 0.3 * noise.standard_normal(leaf.shape).astype(dtype), params.abstract(config))


def softmax(row: np.ndarray, sink: float | None = None) -> np.ndarray:
    powers = np.exp(row)
    return powers / (powers.sum() + (0 if sink is None else np.exp(sink)))


def naive(weights: dict, x: np.ndarray, config: Config) -> np.ndarray:
    """[T, d] to [T, d], row by row; softmax, sink logit and ReLU by index."""
    w = weights["layers"]
    for layer in range(config.layers):
        out = np.zeros_like(x)
        for head in range(config.heads):
            q, k, v = (x @ w[name][layer, :, head] for name in "qkv")
            for i in range(len(x)):
                scores = k[: i + 1] @ q[i] * (config.head_dim**-0.5 if config.score_scale is None else config.score_scale)
                if isinstance(config.normaliser, ReLU):
                    row = np.maximum(scores, 0) / max(i, 1)
                else:
                    row = softmax(scores, w["normaliser"]["sink"][layer, head] if "normaliser" in w else None)
                mixed = row @ v[: i + 1]
                if config.gate is not None:
                    mixed = mixed / (1 + np.exp(-x[i] @ w["head_gate"][layer, :, head]))
                out[i] += mixed @ w["o"][layer, head]
        x = x + out if config.residual else out
    return x
