"""Models of attention and little else, their parameters, and a loop in numpy that says what they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from sinkjax import Config
from sinkjax.model import params, rope
from sinkjax.model.attention_bias import KeyBias, ValueBias
from sinkjax.model.config import NoPosition
from sinkjax.model.heads import ConstantGate, ElementGate, HeadGate, NonSparseGate, SharedGate, ValueGate, ValueScale
from sinkjax.model.normalisers import NAMED
from sinkjax.model.rotary import Rope


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


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def elu_plus_one(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def summed(row: np.ndarray) -> np.ndarray:
    return row / (row.sum() + 1e-8)


def at_most_one(row: np.ndarray) -> np.ndarray:
    return row / max(abs(row.sum()), 1)


def of_norm(row: np.ndarray, p: float) -> np.ndarray:
    return row / (row**p).sum() ** (1 / p)


# Name of a normaliser -> the weights of a row of visible scores, from the query's position and the head's sink logit.
WEIGHTS: dict[str, Callable[[np.ndarray, int, float], np.ndarray]] = {
    "softmax": lambda row, i, sink: softmax(row),
    "sink-logit": lambda row, i, sink: softmax(row, sink),
    "off-by-one": lambda row, i, sink: softmax(row, 0.0),
    "relu-none": lambda row, i, sink: relu(row),
    "relu-index": lambda row, i, sink: relu(row) / max(i, 1),
    "relu-count": lambda row, i, sink: relu(row) / (i + 1),
    "sigmoid": lambda row, i, sink: sigmoid(row),
    "sigmoid-shift": lambda row, i, sink: sigmoid(row - 2),
    "sigmoid-sum": lambda row, i, sink: summed(sigmoid(row)),
    "elu": lambda row, i, sink: elu_plus_one(row),
    "elu-sum": lambda row, i, sink: summed(elu_plus_one(row)),
    "softpick": lambda row, i, sink: relu(np.expm1(row)) / (np.abs(np.expm1(row)).sum() + 1e-8 * max(np.exp(row).max(), 1)),
    "scaled": lambda row, i, sink: 0.1 * softmax(row),
    "softmax-p": lambda row, i, sink: of_norm(np.exp(row), 1 / 2),
    "softmax-third": lambda row, i, sink: of_norm(np.exp(row), 1 / 3),
    "softmax-4": lambda row, i, sink: of_norm(np.exp(row), 4),
    "sigmoid-p": lambda row, i, sink: of_norm(sigmoid(row), 2),
    "sigmoid-half": lambda row, i, sink: of_norm(sigmoid(row), 1 / 2),
    "clipped": lambda row, i, sink: np.clip(1.03 * softmax(row) - 0.03, 0, 1),
    "clipped-both": lambda row, i, sink: np.clip(1.3 * softmax(row) - 0.1, 0, 1),
    **dict.fromkeys(("identity", "elu-kernel", "mlp-kernel"), lambda row, i, sink: row),
    **dict.fromkeys(("identity-max", "mlp-kernel-max"), lambda row, i, sink: at_most_one(row)),
    "elu-kernel-sum": lambda row, i, sink: summed(row),
}


def rms(x: np.ndarray, gain: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * gain


def by_numpy(weights: dict, x: np.ndarray, config: Config) -> tuple[np.ndarray, np.ndarray]:
    """[T, d] to [T, d], and the weights [L, H, T, 1 + T], first those of a key of no token (0 without one)."""
    H, K, D, T, maps = config.heads, config.kv_heads, config.head_dim, len(x), []
    name = next(name for name, record in NAMED.items() if record == config.normaliser)
    for layer in range(config.layers):
        w = jax.tree.map(lambda leaf, layer=layer: leaf[layer], weights["layers"])
        q, k, v = (np.einsum("td,dhn->thn", x, w[part]) for part in "qkv")
        if config.qk_norm:
            q, k = rms(q, w["q_norm"], config.qk_norm.eps), rms(k, w["k_norm"], config.qk_norm.eps)
        if isinstance(config.position, Rope):
            tables = rope.tables(np.arange(T)[None], *rope.frequencies(config.position, D, np.array([T]), np.float64))
            q, k = (np.asarray(rope.rotate(part[None], *tables))[0] for part in (q, k))
        if isinstance(config.gate, ValueGate | ValueScale):
            scaled = isinstance(config.gate, ValueScale)
            v = v * (w["value_scale"][:, None] if scaled else sigmoid(np.einsum("td,dhn->thn", x, w["value_gate"])))
        extra, bias = w.get("attention_bias", {}), config.kv_bias
        key, value = np.zeros((K, D)), np.zeros((K, D)) + extra.get("value", 0)
        if "key" in extra:
            key[..., : extra["key"].shape[-1]] = extra["key"]
        if isinstance(bias, KeyBias) and bias.value != "zero":
            value[:] = bias.value_scale * (np.ones(D) / D**0.5 if bias.value == "ones" else np.eye(D)[0])
        k, v = (np.repeat(np.concatenate([first[None], rest]), H // K, axis=1) for first, rest in ((key, k), (value, v)))
        if name.startswith("elu-kernel"):
            q, k = elu_plus_one(q), elu_plus_one(k)
        if name.startswith("mlp-kernel"):
            q, k = (relu(part @ w["normaliser"]["inner"]) @ w["normaliser"]["outer"] for part in (q, k))
        scores = np.einsum("qhn,khn->hqk", q, k) * (D**-0.5 if config.score_scale is None else config.score_scale)
        sinks, maps = w.get("normaliser", {}).get("sink", np.zeros(H)), [*maps, np.zeros_like(scores)]
        first = int(bias is None or isinstance(bias, ValueBias))
        for head, i in np.ndindex(H, T):
            maps[-1][head, i, first : i + 2] = WEIGHTS[name](scores[head, i, first : i + 2], i, sinks[head])
        o = np.einsum("hqk,khn->qhn", maps[-1], v) + extra.get("output", 0)
        if config.head_norm:
            o = rms(o, w["head_norm"], config.head_norm.eps) + w.get("head_norm_offset", 0)
        if isinstance(config.gate, ElementGate | NonSparseGate):
            gate = sigmoid(np.einsum("td,dhn->thn", x, w["element_gate"]))
            o = o * ((1 + gate) / 2 if isinstance(config.gate, NonSparseGate) else gate)
        if isinstance(config.gate, SharedGate):
            o = o * sigmoid(x @ w["shared_gate"])[:, None]
        if isinstance(config.gate, ConstantGate):
            o = o * sigmoid(w["constant_gate"])
        if isinstance(config.gate, HeadGate):
            o = o * sigmoid(x @ w["head_gate"])[..., None]
        out = o.sum(1) @ w["o"] if config.summed_heads else np.einsum("qhn,hnd->qd", o, w["o"])
        x = x + out if config.residual else out
    return x, np.stack(maps)
