"""The cost of the sink: loss added by few bits and few keys, and the rest under each remedy, on text that chose neither."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis.finite import mean_loss
from sinkjax.cards.files import clamp
from sinkjax.cards.ground import Ground, signed
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
        if (plain := self.of(TENSOR)) is None:
            return "not measured: " + next((row.reason for row in self.rows if row.setting == TENSOR), "")
        parts = [f"loss with 8 bits and one scale per tensor: {signed(plain, ' nats per token')}"]
        for name, how in ((SPARED, "the sink left unrounded"), (TOKEN, "one scale per token")):
            parts += [f"{signed(loss)} with {how}"] if (loss := self.of(name)) is not None else []
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
    prompts, base = ground.other, ground.other.numbers["nll"]
    rows: list[CostRow] = []
    added: dict[str, NDArray[np.float64]] = {}
    clamped = clamp(places.clamp()) if places.activation.stands_out else None
    for name, setting in settings(places.position, base.shape[1], clamped, prefix, more).items():
        try:
            added[name] = _added(ground, base, setting)
        except SinkjaxError as error:
            rows.append(CostRow(name, None, str(error)))
        else:
            saved = prompts.number(added[TENSOR] - added[name]) if name in REMEDIES and TENSOR in added else None
            rows.append(CostRow(name, prompts.number(added[name]), saved=saved))
    evicted, kept = [], 1 if places.position == 0 else 4
    for size in CACHES:
        last, first = f"last {size} keys", f"{FIRST[kept]} and last {size - kept}"
        if places.position < kept and last in added and first in added:
            evicted.append({"keys": size, "kept": kept, **prompts.number(added[last] - added[first])})
    on = "the same passages" if ground.other is ground.own else "other passages"
    return Cost(prompts.number(mean_loss(base)), rows, [places.position], evicted, on)


def settings(key: int, length: int, clamped: Any, prefix: Any, more: bool) -> dict[str, dict[str, Any]]:
    """Return the arguments of `evaluate` by setting.

    key: the sink's position. length: tokens of a prompt; smaller caches are measured. clamped, prefix: the edit and the past of
    these remedies, None if there are none. more: as for `cost`.
    """
    eight, spared = {**dict.fromkeys(ALL, 8), "scale": "tensor"}, {"keep": (key,)}
    base: dict[str, dict[str, Any]] = {TENSOR: eight, SPARED: eight | spared, TOKEN: {**eight, "scale": "token"}}
    if not more:
        return base
    base |= {SINKS: {**eight, "keep": "sinks"}, ROTATED: {**eight, "rotate": True}}
    if clamped is not None:
        base[CLAMPED] = {**eight, "edits": clamped}
    if prefix is not None:
        base |= {"sink prefix": {"past": prefix}, PREFIX: {**eight, "past": prefix}}
    for name, setting in ROUNDED.items():
        base |= {name: setting, f"{name}, sink spared": setting | spared}
    for size in (size for size in CACHES if size < length):
        base |= {
            f"last {size} keys": {"cache": Streaming(0, size)},
            **{f"{name} and last {size - kept}": {"cache": Streaming(kept, size - kept)} for kept, name in FIRST.items()},
            f"H2O, {size} keys": {"cache": H2O(size)},
            f"key norm, {size} keys": {"cache": KeyNorm(size)},
            f"SnapKV, {size} keys": {"cache": SnapKV(size, window=size // 2)},
        }
    return base


def worth_it(loss: Mapping[str, Any]) -> bool:
    """Whether added loss is worth a remedy, or a saving worth its cost: above `WORTH`, by an interval above 0."""
    return loss["low"] is not None and loss["low"] > 0 and loss["mean"] > WORTH


def _added(ground: Ground, base: NDArray[Any], setting: dict[str, Any]) -> NDArray[np.float64]:
    """Return the loss that a setting adds, by prompt. A prefix replaces the BOS, so only shared tokens count."""
    impl = "auto" if setting.keys() & {"cache", "past"} else ground.run.keywords["attention_impl"]
    alone = "past" in setting and ground.policy == "model"  # the last token was cut from the prompts with BOS
    nll = evaluate(ground.model, ground.other.bare if alone else ground.other.tokens, attention_impl=impl, **setting).nll
    return mean_loss(*((nll[:, :-2], base[:, 1:-1]) if alone else (nll, base))).astype(np.float64)
