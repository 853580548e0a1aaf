"""The purpose of the sink: whether its heads do nothing or broadcast, and the loss without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sinkjax.analysis.finite import mean_loss
from sinkjax.analysis.kinds import sink_kind
from sinkjax.cards.ground import FEW, SOME, Ground, signed
from sinkjax.cards.where import SinkPlaces
from sinkjax.model.site import Site
from sinkjax.probes.probe import Capture
from sinkjax.transformer.implementations import AUTO

LOSSES = {  # name -> as the card says it
    "values zeroed": "its values set to 0",
    "key hidden": "its key hidden",
    "held": "its activation held at the mean",
    "removed": "its activation set to 0",
}
KINDS = ("no-op", "broadcast", "neither")


@dataclass(frozen=True)
class Purpose:
    """The purpose of the sink.

    Attributes:
        kinds: Share of heads and prompts whose sink is a no-op, a broadcast or neither (`metrics.sink_kind`).
        by_head: [layer, head, kind] of the heads that sink, by their most frequent kind.
        loss: Loss added, in nats, by name: "values zeroed" (the sink's value in all layers), "key hidden" (from all other
            queries), and, if an activation stands out, "held" (its dims at the mean over prompts) and "removed" (its dims at 0).
    """

    kinds: dict[str, float]
    by_head: list[tuple[int, int, str]]
    loss: dict[str, dict[str, Any]]

    def sentence(self) -> str:
        """Describe the purpose in one line."""
        shares = self.kinds | {"too weak to classify (Fesser et al.)": 1 - sum(self.kinds.values())}
        listed = ", ".join(f"{share:.0%} {name}" for name, share in shares.items() if share > 0)
        losses = "; ".join(f"{LOSSES[name]}: {signed(loss)}" for name, loss in self.loss.items())
        return f"heads: {listed}; loss added without the sink, in nats: {losses}"


def purpose(ground: Ground, places: SinkPlaces) -> Purpose:
    """Classify the heads, and measure the loss without the sink's value, key and activation."""
    activation, some, base = places.activation, ground.own.tokens[SOME], ground.own.numbers["nll"][SOME]
    runs = {"values zeroed": ground.edited(some, value=0.0), "key hidden": ground.hidden}
    if activation.stands_out:
        for name, value in (("held", activation.held[activation.layer]), ("removed", 0.0)):
            runs[name] = ground.edited(some, held=(activation.layer, activation.dims, value))
    kinds, by_head = _kinds(ground)
    return Purpose(kinds, by_head, {name: ground.own.number(mean_loss(run["nll"], base)) for name, run in runs.items()})


def _kinds(ground: Ground) -> tuple[dict[str, float], list[tuple[int, int, str]]]:
    if "o" not in ground.model.params["layers"]:
        return {}, []
    captures = (Capture(Site.VALUE),)  # no other implementation than the default has maps
    record = ground.run(ground.own.tokens[FEW], (), attention=True, capture=captures, attention_impl=AUTO)
    measured = {name: np.asarray(record[name], np.float64) for name in ("attention", "values")}
    kinds = sink_kind(measured, np.asarray(ground.model.params["layers"]["o"], np.float64)).kind
    by_head = []
    for layer, head in np.argwhere(ground.heads).tolist():
        counts = [int((kinds[:, layer, head] == kind).sum()) for kind in KINDS]
        if any(counts):
            by_head.append((layer, head, KINDS[int(np.argmax(counts))]))
    return {kind: float((kinds == kind).mean()) for kind in KINDS}, by_head
