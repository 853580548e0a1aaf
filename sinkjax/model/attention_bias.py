"""Learned key and value biases (Gu et al. 2025, Tables 4, 5, 12, 13).

These are an extra key and value that belong to no token and precede all others, or a value without a key.

The extra key has no column: its weight is measured as `attention_received_bias` (Gu et al.'s Sink_*), no edit acts on it, and
every query sees it, regardless of windows and prefixes. It enters each row through the config's normaliser and scale.
`extra_key.py` has the arrays. L layers, d residual width, H query heads, K key-value heads, D head width.
"""

from __future__ import annotations

from dataclasses import dataclass

from sinkjax.config_files.checks import refuse
from sinkjax.errors import one_of


@dataclass(frozen=True)
class SinkToken:
    """A learned vector that acts as a token before the first; in each block it has its own query, key and value.

    It sees only itself, so its residual stream is the same for all prompts: it runs through the blocks once, as a prompt of one
    position, and the prompts see its keys and values there. Rotary positions and position biases place it at index -1, with
    tokens starting at 0; position vectors are not added to it. Parameters: sink_token [d].
    """


@dataclass(frozen=True)
class KeyBias:
    """A learned key k* per layer, not rotated and without a position bias, with a fixed value.

    shared: one k* for all key-value heads. dims: number of leading dims of k* that are learned, the rest being 0; None for all.
    value: 0,
    the first unit vector ("unit") or the vector of ones over sqrt(D) ("ones"), times value_scale.
    Parameters: layers/attention_bias/key [L, K, dims], or [L, dims] if shared.
    """

    shared: bool = False
    dims: int | None = None
    value: str = "zero"
    value_scale: float = 1.0

    def __post_init__(self) -> None:
        one_of("value", self.value, ("zero", "unit", "ones"))
        small, scaled = self.dims is not None and self.dims < 1, 0 < self.value_scale < float("inf")
        refuse(small, f"dims of a key bias must be at least 1, or None for all, not {self.dims}")
        refuse(not scaled, f'value_scale of a key bias must be positive, not {self.value_scale}; value="zero" makes it 0')
        useless = self.value == "zero" and self.value_scale != 1
        refuse(useless, f'value_scale of a key bias has no effect with value="zero", but was {self.value_scale}')


@dataclass(frozen=True)
class KeyValueBias:
    """Like `KeyBias`, but with a learned value v*.

    Parameters: layers/attention_bias/key and value [L, K, D], or [L, D] if shared by all key-value heads.
    """

    shared: bool = False


@dataclass(frozen=True)
class ValueBias:
    """A learned vector added to each head's output. Parameters: layers/attention_bias/output [L, H, D], or [L, D] if shared."""

    shared: bool = False


AttentionBias = SinkToken | KeyBias | KeyValueBias | ValueBias


def leaves(bias: AttentionBias | None, heads: int, kv_heads: int, head_dim: int) -> dict[str, dict[str, int]]:
    """Return the named sizes of a bias's parameters per layer, by name."""
    of_keys = {} if getattr(bias, "shared", False) else {"kv_heads": kv_heads}
    match bias:
        case KeyBias():
            return {"key": of_keys | {"head_dim": bias.dims or head_dim}}
        case KeyValueBias():
            return {name: of_keys | {"head_dim": head_dim} for name in ("key", "value")}
        case ValueBias():
            return {"output": ({} if bias.shared else {"heads": heads}) | {"head_dim": head_dim}}
    return {}
