"""The cost of a card in tokens, FLOPs and bytes, before it is measured: it follows from the architecture alone."""

from __future__ import annotations

import math

import jax.numpy as jnp

from sinkjax.cards.cause import SAMPLE
from sinkjax.cards.cost import settings
from sinkjax.cards.ground import ROWS, SOME
from sinkjax.cards.maker import CONTROLS, LENGTH
from sinkjax.evaluation import CHUNK, SINKS, TOKENS
from sinkjax.model.config import Config
from sinkjax.model.params import abstract, count
from sinkjax.model.quantisation import MATRICES
from sinkjax.report.terminal import in_words
from sinkjax.transformer.cost import block_flops, run_bytes
from sinkjax.transformer.eviction import ScoredCache

SLOWER = 4  # a token computed alone takes so many times as long as in a block (SmolLM2, 2 cores)


def tokens(config: Config, prompts: int, length: int, bos: bool, more: bool) -> tuple[int, int]:
    """Count the tokens of all runs, at most: whose loss is computed, and others. One computed alone counts `SLOWER` times.

    Args:
        config: The architecture.
        prompts: Number of passages.
        length: Tokens of a prompt.
        bos: Whether the model's files name a BOS, so that prompts run with and without it.
        more: Whether the card is made with `more`.

    Returns:
        The two numbers.
    """
    few, half, short = min(ROWS, prompts), (prompts + 1) // 2, min(length, LENGTH)
    some, every, other = (-(-count // few) * few for count in (min(SOME.stop, prompts), prompts, half))
    scored = (every * (1 + bos) + other) * length  # unedited
    scored += (4 * some + 3 * few) * length  # key, value and activation of the sink; a token alone, and tokens put elsewhere
    scored += (2 * CONTROLS + 3) * few * short  # neurons and weights
    padded = -(-length // CHUNK) * CHUNK  # as caches read texts
    for setting in settings(0, length, clamped=(), prefix=(), more=more).values():
        finding = 1 + (setting.get("keep") == SINKS)  # which takes one more run
        cached = padded * (SLOWER if isinstance(setting.get("cache"), ScoredCache) else 1)
        scored += half * (cached if "cache" in setting else length * finding)
    plain = 2 * few * length + min(SAMPLE, config.vocab_size or 0)  # attention maps, the scan and its text
    return scored, plain


def flops(config: Config, prompts: int, length: int, bos: bool, more: bool) -> float:
    """Return the FLOPs of blocks and logits; arguments as for `tokens`."""
    scored, plain = tokens(config, prompts, length, bos, more)
    logits = 2 * (config.embed_width or config.width) * (config.vocab_size or 0)
    return float((scored + plain) * config.layers * block_flops(config, length) + scored * logits)


def memory(config: Config, prompts: int, length: int, dtype: str) -> dict[str, int]:
    """Return bytes by part: parameters, the rounded copy of their matrices, and either the rounding or one call, if larger.

    XLA for CPUs needs three float32 arrays as large as the largest matrix to round 16-bit weights, and nothing for wider ones.
    """
    size = jnp.dtype(dtype).itemsize
    matrices = [math.prod(leaf.shape) for name, leaf in abstract(config)["layers"].items() if name in MATRICES]
    rounding = 12 * max(matrices) if size < 4 else 0
    rows = max(min(ROWS, prompts), min((prompts + 1) // 2, TOKENS // length))  # of a call under an edit, or with few bits
    call = run_bytes(config, rows, length, True, size, edited=True)
    parts = {"parameters": count(config) * size, "rounded matrices": sum(matrices) * size}
    return parts | {"rounding, or the largest call": max(rounding, call)}


def lines(config: Config, prompts: int, length: int, bos: bool, dtype: str) -> list[tuple[str, str]]:
    """Return what a card needs as (heading, text): bytes, and FLOPs without and with `more`."""
    parts = memory(config, prompts, length, dtype)
    base, whole = (flops(config, prompts, length, bos, more) for more in (False, True))
    return [
        ("prompts", f"{prompts} of {length} tokens"),
        *((f"memory: {name}", in_words(size)) for name, size in parts.items()),
        ("memory: peak", f"{in_words(sum(parts.values()))} in {dtype}"),
        ("FLOPs", f"at most {base:.3g}, or {whole:.3g} with --cost"),
    ]
