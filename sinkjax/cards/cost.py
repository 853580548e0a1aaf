"""The cost of the sink: loss added by few bits and few keys, with and without sparing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sinkjax.cards.ground import Ground
from sinkjax.errors import SinkjaxError
from sinkjax.evaluation import evaluate
from sinkjax.transformer.eviction import H2O, Streaming

ALL = ("weights", "activations", "kv")


@dataclass(frozen=True)
class Row:
    """Loss added by one setting, in nats, with its interval; None if this model cannot run it, with the reason."""

    setting: str
    loss: dict[str, Any] | None
    reason: str = ""


@dataclass(frozen=True)
class Cost:
    """Loss without rounding, and rows of settings. spared: the positions that a row "sink spared" keeps in full precision."""

    plain: dict[str, Any]
    rows: list[Row]
    spared: list[int]

    def of(self, setting: str) -> float | None:
        """Return the mean loss that a setting adds; None if it was not measured."""
        return next((row.loss["mean"] for row in self.rows if row.setting == setting and row.loss), None)

    def sentence(self) -> str:
        """Say in one line what 8 bits per tensor cost."""
        plain, spared, token = (self.of(name) for name in (TENSOR, SPARED, TOKEN))
        if plain is None:
            return "not measured: " + next((row.reason for row in self.rows if row.setting == TENSOR), "")
        parts = [f"8 bits, a scale per tensor: {plain:+.3g} nats"]
        parts += [f"{spared:+.3g} with the sink spared"] if spared is not None else []
        parts += [f"{token:+.3g} with a scale per token"] if token is not None else []
        return ", ".join(parts)


TENSOR, SPARED, TOKEN = "8 bits, tensor", "8 bits, tensor, sink spared", "8 bits, token"


def cost(ground: Ground, more: bool = False) -> Cost:
    """Measure the loss in use.

    Args:
        ground: The prompts.
        more: Also 4 bits, and caches of a quarter of the prompts' keys.

    Returns:
        The loss of each setting.
    """
    key, length = ground.key, ground.own.tokens.shape[1]
    settings: dict[str, dict[str, Any]] = {
        TENSOR: {**dict.fromkeys(ALL, 8), "scale": "tensor"},
        SPARED: {**dict.fromkeys(ALL, 8), "scale": "tensor", "keep": (key,)},
        TOKEN: {**dict.fromkeys(ALL, 8), "scale": "token"},
    }
    if more:
        kept = max(4, length // 4)
        settings |= {
            "4 bits, channel": {**dict.fromkeys(ALL, 4), "scale": "channel"},
            "4 bits, channel, sink spared": {**dict.fromkeys(ALL, 4), "scale": "channel", "keep": (key,)},
            "4 bits, token": {**dict.fromkeys(ALL, 4), "scale": "token"},
            f"last {kept} keys": {"cache": Streaming(0, kept)},
            f"first key and last {kept - 1}": {"cache": Streaming(1, kept - 1)},
            f"first 4 keys and last {kept - 4}": {"cache": Streaming(4, kept - 4)} if kept > 4 else {},
            f"H2O, {kept} keys": {"cache": H2O(kept)},
        }
    base = evaluate(ground.model, ground.own.tokens).by_text()
    rows = []
    for name, setting in settings.items():
        if not setting:
            continue
        try:
            added = evaluate(ground.model, ground.own.tokens, **setting).by_text() - base
        except SinkjaxError as error:
            rows.append(Row(name, None, str(error)))
        else:
            rows.append(Row(name, ground.number(added)))
    return Cost(ground.number(base), rows, [key])
