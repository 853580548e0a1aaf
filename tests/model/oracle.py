"""A whole decoder as loops in numpy, one prompt at a time: the oracle of everything that a config can choose."""

from __future__ import annotations

from collections.abc import Callable
from math import erf

import numpy as np

from sinkjax import Config
from sinkjax.model.positions import Alibi, BucketIndex, Learned, RelativeBias, Sinusoidal
from sinkjax.model.rotary import Rope

ACTIVATION: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * (1 + np.vectorize(erf)(x / np.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: np.where(x > 0, x, 0),
}


def logits(params: dict, tokens: np.ndarray, config: Config) -> np.ndarray:
    """Tokens [T] to logits [T, V] of a config with a vocabulary and softmax."""
    h = np.array([params["embed"][token] for token in tokens])
    if isinstance(config.position, Learned):
        h = h + params["positions"][: len(h)]
    if isinstance(config.position, Sinusoidal):
        half = config.width // 2
        for i in range(len(h)):
            for n in range(half):
                angle = i / config.position.base ** (n / half)
                h[i, n] += np.sin(angle)
                h[i, half + n] += np.cos(angle)
    for layer in range(config.layers):
        w = {name: leaf[layer] for name, leaf in params["layers"].items()}
        h = sublayer(h, lambda x, w=w, layer=layer: attention(x, w, config, layer), w, "attn", config)
        h = sublayer(h, lambda x, w=w: mlp(x, w, config), w, "mlp", config)
    h = h if config.norm_place == "post" else norm(h, params["final_norm"], config)
    return h @ (params["embed"].T if config.tied else params["unembed"])


def sublayer(h: np.ndarray, part: Callable, w: dict, name: str, config: Config) -> np.ndarray:
    gain = w[f"{name}_norm"]
    if config.norm_place == "post":
        return norm(h + part(h), gain, config)
    if config.norm_place == "sandwich":
        return h + norm(part(norm(h, gain, config)), w[f"{name}_out_norm"], config)
    return h + part(norm(h, gain, config))


def norm(h: np.ndarray, gain: np.ndarray, config: Config) -> np.ndarray:
    return np.array([row * gain / np.sqrt(np.mean(row**2) + config.norm.eps) for row in h])


def mlp(x: np.ndarray, w: dict, config: Config) -> np.ndarray:
    up, activation = x @ w["up"] + w.get("up_bias", 0), ACTIVATION[config.activation]
    hidden = activation(x @ w["gate"] + w.get("gate_bias", 0)) * up if config.gated_mlp else activation(up)
    return hidden @ w["down"] + w.get("down_bias", 0)


def attention(x: np.ndarray, w: dict, config: Config, layer: int) -> np.ndarray:
    T, out = len(x), np.zeros((len(x), config.width))
    for head in range(config.heads):
        shared = head // config.group
        q, k, v = x @ w["q"][:, head], x @ w["k"][:, shared], x @ w["v"][:, shared]
        if isinstance(config.position, Rope):
            q, k = (np.array([turned(row, i, config.position.theta) for i, row in enumerate(rows)]) for rows in (q, k))
        for i in range(T):
            seen = [j for j in range(T) if visible(i, j, config, layer)]
            scores = np.array([q[i] @ k[j] * config.scale + bias(i - j, head, w, config) for j in seen])
            powers = np.exp(scores - scores.max())
            out[i] += (powers / powers.sum()) @ v[seen] @ (w["o"] if config.summed_heads else w["o"][head])
    return out


def visible(i: int, j: int, config: Config, layer: int) -> bool:
    window = config.windows[layer] if config.windows else None
    return j < (config.prefix or 0) or (j <= i and (window is None or i - j < window))


def turned(row: np.ndarray, i: int, theta: float) -> np.ndarray:
    half, new = len(row) // 2, row.copy()
    for n in range(half):
        angle = i / theta ** (n / half)
        new[n] = row[n] * np.cos(angle) - row[half + n] * np.sin(angle)
        new[half + n] = row[half + n] * np.cos(angle) + row[n] * np.sin(angle)
    return new


def bias(distance: int, head: int, w: dict, config: Config) -> float:
    distance = max(distance, 0)
    if isinstance(config.position, Alibi):
        return -distance / 2 ** (8 * (head + 1) / config.heads)
    if isinstance(config.position, BucketIndex):
        return bucket(distance, config.position.buckets, config.position.max_distance)
    if isinstance(config.position, RelativeBias):
        return w["relative_bias"][head, bucket(distance, config.position.buckets, config.position.max_distance)]
    return 0.0


def bucket(distance: int, buckets: int, most: int) -> int:
    """The bucket of a distance, by counting the steps of equal ratio below it."""
    near = buckets // 2
    if distance < near:
        return distance
    return min(near + sum(distance >= near * (most / near) ** (step / near) for step in range(1, near)), buckets - 1)
