"""The cost of the sink: loss added by few bits and few keys, and the rest under each remedy, on text that chose neither."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis.finite import mean_loss
from sinkjax.cards.files import clamp
from sinkjax.cards.ground import Ground, Prompts, signed
from sinkjax.cards.where import SinkPlaces
from sinkjax.errors import SinkjaxError
from sinkjax.evaluation import evaluate
from sinkjax.transformer.eviction import Streaming
from sinkjax.transformer.past import Past
from sinkjax.transformer.scored_caches import H2O, KeyNorm, SnapKV

ALL = ("weights", "activations", "kv")
CACHES = (16, 64, 256)  # keys, where prompts have more
WORTH = 0.01  # nats
FIRST = {1: "first key", 4: "first 4 keys"}  # kept in front of a window
TENSOR, SPARED, TOKEN = "8 bits, tensor", "8 bits, tensor, sink spared", "8 bits, token"
ROTATED, CLAMPED, PREFIX = "8 bits, tensor, rotated", "8 bits, tensor, clamped", "8 bits, tensor, sink prefix"
SINKS = "8 bits, tensor, sinks of each prompt spared"
PROCESSORS = "processors differ within the intervals, because the last bit of a scale decides how values are rounded"
REMEDIES = {SPARED: "keep position {key} in full precision", TOKEN: "use a scale per token"} | {
    SINKS: 'find the sinks of each prompt and keep them in full precision (keep="sinks")',
    ROTATED: "rotate activations and weights (QuaRot)",
    CLAMPED: "clamp the activation (clamp.json)",
    PREFIX: "put the sink prefix in front (prefix.safetensors)",
}
ROUNDED: dict[str, dict[str, Any]] = {  # further rows of few bits, each also with the sink spared
    "8 bits, channel": {**dict.fromkeys(ALL, 8), "scale": "channel"},
    **{f"4 bits, {scale}": {**dict.fromkeys(ALL, 4), "scale": scale} for scale in ("tensor", "channel", "token")},
    "NVFP4": dict.fromkeys(ALL, "nvfp4"),
    "MXFP4": dict.fromkeys(ALL, "mxfp4"),
}


@dataclass(frozen=True)
class CostRow:
    """The cost of one setting.

    Attributes:
        setting: Bits or format and the unit that shares a scale, or the keys of a cache, and the remedy, if any.
        loss: Loss added, in nats; None if this model cannot run the setting.
        reason: Reason why it cannot.
        saved: For a remedy of 8 bits with a scale per tensor, the loss that it saves, paired by prompt.
    """

    setting: str
    loss: dict[str, Any] | None
    reason: str = ""
    saved: dict[str, Any] | None = None


@dataclass(frozen=True)
class Cost:
    """The cost of a sink.

    Attributes:
        plain: Loss without rounding, with all keys.
        rows: Loss added by each setting.
        spared: The positions kept in full precision by a row "sink spared".
        evicted: For each cache size: `keys`, the size; `kept`, the number of first keys that include the sink; and the loss that
            a window adds beyond a cache of the same size with these keys, paired by prompt. Empty if no such cache was measured.
        measured_on: "other passages" if the text has passages that were not used to find the sink, else "the same passages".
    """

    plain: dict[str, Any]
    rows: list[CostRow]
    spared: list[int]
    evicted: list[dict[str, Any]]
    measured_on: str

    def of(self, setting: str) -> dict[str, Any] | None:
        """Return the loss that a setting adds, with its interval; None if it was not measured."""
        return next((row.loss for row in self.rows if row.setting == setting), None)

    def remedies(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the remedies of 8 bits with a scale per tensor whose saving is worth it, and the loss that each leaves."""
        return [(row.setting, row.loss) for row in self.rows if row.loss and row.saved and worth_it(row.saved)]

    def sentence(self) -> str:
        """Describe the cost of 8 bits with a scale per tensor in one line."""
        plain, spared, token = (self.of(name) for name in (TENSOR, SPARED, TOKEN))
        if plain is None:
            return "not measured: " + next((row.reason for row in self.rows if row.setting == TENSOR), "")
        parts = [f"loss with 8 bits and one scale per tensor: {signed(plain, ' nats per token')}"]
        parts += [f"{signed(spared)} with the sink left unrounded"] if spared is not None else []
        parts += [f"{signed(token)} with one scale per token"] if token is not None else []
        return f"{', '.join(parts)} (on {self.measured_on}; {PROCESSORS})"


def cost(ground: Ground, places: SinkPlaces, prefix: Past | None = None, more: bool = False) -> Cost:
    """Measure the loss in use on other prompts than the sink was found on, if there are any.

    Args:
        ground: The prompts.
        places: Where the sinks and activations are.
        prefix: The sink prefix, if the model has one.
        more: Also the other remedies, 8 bits per channel, 4 bits, and caches of 16, 64 and 256 keys, where prompts have more.

    Returns:
        The loss of each setting.
    """
    key, prompts = ground.key, ground.other
    eight = {**dict.fromkeys(ALL, 8), "scale": "tensor"}
    settings: dict[str, dict[str, Any]] = {
        TENSOR: eight,
        SPARED: {**eight, "keep": (key,)},
        TOKEN: {**eight, "scale": "token"},
    }
    if more:
        settings |= _more(places, eight, prefix, prompts.tokens.shape[1])
    base = prompts.numbers["nll"]
    rows: list[CostRow] = []
    added: dict[str, NDArray[np.float64]] = {}
    for name, setting in settings.items():
        try:
            added[name] = _added(ground, base, setting)
        except SinkjaxError as error:
            rows.append(CostRow(name, None, str(error)))
        else:
            saved = prompts.number(added[TENSOR] - added[name]) if name in REMEDIES and TENSOR in added else None
            rows.append(CostRow(name, prompts.number(added[name]), saved=saved))
    on = "the same passages" if ground.other is ground.own else "other passages"
    return Cost(prompts.number(mean_loss(base)), rows, [key], _evicted(prompts, added, key), on)


def _evicted(prompts: Prompts, added: Mapping[str, NDArray[np.float64]], key: int) -> list[dict[str, Any]]:
    """Return `Cost.evicted` from the loss that settings add, by prompt."""
    kept, rows = (1 if key == 0 else 4), []
    for size in CACHES if key < kept else ():
        last, first = f"last {size} keys", f"{FIRST[kept]} and last {size - kept}"
        if last in added and first in added:
            rows.append({"keys": size, "kept": kept, **prompts.number(added[last] - added[first])})
    return rows


def _more(places: SinkPlaces, eight: dict[str, Any], prefix: Past | None, length: int) -> dict[str, dict[str, Any]]:
    key = places.position
    settings: dict[str, dict[str, Any]] = {SINKS: {**eight, "keep": "sinks"}, ROTATED: {**eight, "rotate": True}}
    if places.activation.stands_out:
        settings[CLAMPED] = {**eight, "edits": clamp(places.clamp())}
    if prefix is not None:
        settings["sink prefix"] = {"past": prefix}
        settings[PREFIX] = {**eight, "past": prefix}
    for name, setting in ROUNDED.items():
        settings |= {name: setting, f"{name}, sink spared": {**setting, "keep": (key,)}}
    for size in (size for size in CACHES if size < length):
        settings |= {
            f"last {size} keys": {"cache": Streaming(0, size)},
            **{f"{name} and last {size - kept}": {"cache": Streaming(kept, size - kept)} for kept, name in FIRST.items()},
            f"H2O, {size} keys": {"cache": H2O(size)},
            f"key norm, {size} keys": {"cache": KeyNorm(size)},
            f"SnapKV, {size} keys": {"cache": SnapKV(size, window=size // 2)},
        }
    return settings


def worth_it(loss: Mapping[str, Any]) -> bool:
    """Whether added loss is worth a remedy, or a saving worth its cost: above `WORTH`, by an interval above 0."""
    return loss["low"] is not None and loss["low"] > 0 and loss["mean"] > WORTH


def _added(ground: Ground, base: NDArray[Any], setting: dict[str, Any]) -> NDArray[np.float64]:
    """Return the loss that a setting adds, by prompt. A prefix replaces the BOS, so only shared tokens count."""
    if "past" not in setting or ground.policy != "model":
        how = "auto" if setting.keys() & {"cache", "past"} else ground.run.keywords["attention_impl"]
        nll = evaluate(ground.model, ground.other.tokens, attention_impl=how, **setting).nll
        return mean_loss(nll, base).astype(np.float64)
    nll = evaluate(ground.model, ground.other.bare, **setting).nll  # its last token was cut from the prompts with BOS
    return mean_loss(nll[:, :-2], base[:, 1:-1]).astype(np.float64)
