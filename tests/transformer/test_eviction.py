"""Cache policies: which keys a query still sees, against masks, loops and a literal cache."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import sinkjax
from sinkjax import H2O, Config, KeyNorm, Probe, SnapKV, Streaming
from sinkjax.model.attention_bias import KeyValueBias
from sinkjax.model.config import NoPosition
from sinkjax.model.normalisers import NAMED
from sinkjax.model.positions import Alibi
from sinkjax.model.rotary import LayerRopes, Rope
from sinkjax.transformer.cached import stream
from sinkjax.transformer.spec import ForwardSpec
from tests.model.variants import draw, softmax

B, T = 2, 24
TOKENS = np.random.default_rng(0).integers(23, size=(B, T + 1))
VARIANTS: dict[str, dict[str, Any]] = {
    "rope": {},
    "alibi": {"position": Alibi(), "normaliser": NAMED["sink-logit"]},
    "layers": {"windows": (5, None), "position": LayerRopes((Rope(100.0),), (0, None)), "kv_bias": KeyValueBias()},
    "rows": {"position": NoPosition(), "normaliser": NAMED["relu-index"]},
    "kernel": {"position": NoPosition(), "normaliser": NAMED["elu-kernel-sum"]},
}


@pytest.fixture(scope="module", autouse=True)
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@dataclass(frozen=True)
class Blocks(Streaming):
    """Streaming in blocks of three tokens, so that a short text has several."""

    @property
    def block(self) -> int:
        return 3


@dataclass(frozen=True)
class Literal(H2O):
    """StreamingLLM as it is told: a cache of k keys; when it is full, the oldest key goes that is not of the first tokens."""

    sinks: int = 0

    def worth(self, position, score, last):
        return jnp.where(position < self.sinks, jnp.inf, position)


def config_of(tiny_config: Config, **changes: Any) -> Config:
    return replace(tiny_config, **{"layers": 2, **changes})


def loss(config: Config, policy: Any, chunk: int = T) -> np.ndarray:
    """-log p of every next token, read in chunks."""
    spec, params, states, found = (
        ForwardSpec(config=config, probe=Probe(), logits=False, cache_policy=policy),
        draw(config),
        None,
        [],
    )
    for first in range(0, T, chunk):
        piece = jnp.asarray(TOKENS[:, first : first + chunk + 1])
        nll, states = stream(params, piece, jnp.full(B, T + 1), jnp.int32(first), states, (), spec=spec)
        found.append(nll[..., 0])
    return np.concatenate(found, axis=1)


def whole(config: Config, edits: Any = ()) -> np.ndarray:
    """The same by one forward with all keys."""
    return np.asarray(sinkjax.forward(draw(config), TOKENS, config, edits, Probe(nll=True)).record["nll"])[:, :T]


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(
    "policy", [Blocks(4, T), Blocks(0, T), Blocks(4, 5 * T), H2O(T), H2O(T + 7), KeyNorm(T), SnapKV(T)], ids=str
)
def test_a_cache_that_holds_all_keys_gives_the_plain_forward(tiny_config, name: str, policy: Any) -> None:
    config = config_of(tiny_config, **VARIANTS[name])
    assert np.abs(loss(config, policy, 12) - whole(config)).max() < 1e-11


@pytest.mark.parametrize("window", [1, 4, 9])
def test_without_sinks_it_is_a_sliding_window(tiny_config, window: int) -> None:
    config = config_of(tiny_config)
    want = whole(replace(config, windows=(window,) * config.layers))
    assert np.abs(loss(config, Blocks(0, window), 12) - want).max() < 1e-11


def test_without_positions_it_is_a_mask(tiny_config) -> None:
    config = config_of(tiny_config, position=NoPosition())
    far = sinkjax.edit("logits", "set", -np.inf, keys=slice(4, None), distances=slice(5, None))
    found = loss(config, Blocks(4, 5))
    assert np.abs(found - whole(config, far)).max() < 1e-11
    assert np.abs(found - whole(config)).max() > 1e-3


@pytest.mark.parametrize(("sinks", "window"), [(4, 5), (1, 8), (3, 1)])
def test_positions_are_those_in_a_literal_cache(tiny_config, sinks: int, window: int) -> None:
    config = config_of(tiny_config)
    found = loss(config, Blocks(sinks, window))
    assert np.abs(found - loss(config, Literal(sinks + window, sinks))).max() < 1e-11
    assert np.abs(found[:, sinks + window :] - loss(config, Blocks(0, sinks + window))[:, sinks + window :]).max() > 1e-3


@pytest.mark.parametrize("policy", [Blocks(2, 4), H2O(6), SnapKV(6, 3, 3)], ids=str)
def test_chunks_change_nothing(tiny_config, policy: Any) -> None:
    config = config_of(tiny_config)
    assert np.abs(loss(config, policy, 3) - loss(config, policy, T)).max() < 1e-12


def most_attended(held: list[int], attention: list[dict[int, float]], norms: np.ndarray) -> dict[int, float]:
    return {key: sum(row.get(key, 0.0) for row in attention) for key in held}


def lowest_norm(held: list[int], attention: list[dict[int, float]], norms: np.ndarray) -> dict[int, float]:
    return {key: -norms[key] for key in held}


def snapkv(pooling: str) -> Any:
    """Score by the last three queries, pooled by PyTorch over three neighbours among the keys before the last three."""
    pool = {"avg": torch.nn.functional.avg_pool1d, "max": torch.nn.functional.max_pool1d}[pooling]

    def pooled(held: list[int], attention: list[dict[int, float]], norms: np.ndarray) -> dict[int, float]:
        before = held[:-3]
        total = torch.tensor([[sum(row.get(key, 0.0) for row in attention[-3:]) for key in before]])
        return dict(zip(before, pool(total, 3, stride=1, padding=1)[0].tolist(), strict=True))

    return pooled


@pytest.mark.parametrize(
    ("policy", "kept", "score"),
    [
        (H2O(4), 2, most_attended),
        (H2O(7), 3, most_attended),
        (KeyNorm(7), 3, lowest_norm),
        (SnapKV(7, 3, 3), 3, snapkv("avg")),
        (SnapKV(9, 3, 3, "max"), 3, snapkv("max")),
    ],
    ids=["H2O, 4", "H2O, 7", "key norm", "SnapKV", "SnapKV, maximum"],
)
def test_the_keys_that_stay_are_those_of_a_loop(tiny_config, policy: Any, kept: int, score: Any) -> None:
    """One layer without positions, so that its queries, keys and values are those of the forward; its outputs are put in."""
    config = config_of(tiny_config, layers=1, position=NoPosition())
    probe = Probe(capture=[sinkjax.Capture(site) for site in ("query", "key", "value", "head_out")])
    record = sinkjax.forward(draw(config), TOKENS, config, probe=probe).record
    q, keys, values = (np.asarray(record[name])[:, 0] for name in ("queries", "keys", "values"))
    out = np.array(record["head_out"])[:, 0]
    for text in range(B):
        for kv_head in range(config.kv_heads):
            held: list[int] = []
            attention: list[dict[int, float]] = []
            norms = np.linalg.norm(keys[text, :, kv_head], axis=-1)
            for i in range(T + 1):
                held.append(i)
                attention.append(dict.fromkeys(held, 0.0))
                for head in range(kv_head * config.group, (kv_head + 1) * config.group):
                    row = softmax(keys[text, held, kv_head] @ q[text, i, head] * config.scale)
                    out[text, i, head] = row @ values[text, held, kv_head]
                    for key, weight in zip(held, row, strict=True):
                        attention[-1][key] += weight
                if len(held) == policy.k:
                    worth = score(held, attention, norms)
                    held.remove(min((key for key in held if key <= i - kept), key=worth.__getitem__))
    want = whole(config, sinkjax.edit("head_out", "set", out[None]))
    assert np.abs(loss(config, policy) - want).max() < 1e-11
    assert np.abs(want - whole(config)).max() > 1e-3
