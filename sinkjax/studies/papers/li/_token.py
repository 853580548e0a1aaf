"""What the studies of one token share: its position."""

from __future__ import annotations

from dataclasses import dataclass

import sinkjax.studies as st
from sinkjax.config_files.checks import at_least, below, refuse


@dataclass(frozen=True, kw_only=True)
class OneToken(st.ControlledSinks):
    """A study of the sink on one token, with earlier and later tokens around it."""

    position: int = 10
    """the token whose attention or head outputs are edited, as in the paper"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, position=1, length=3)
        below(self, "position", "length")
        last = self.position + 1 >= self.length
        refuse(last, f"position {self.position} is the last of {self.length}, so no later token can attend to it")


HAS_SINK = 1.0  # per cent of heads: below this gu/sink-rate counts no sink, so there is nothing to halve or to lose


def received(position: int) -> st.Measure:
    """The continuous sink score of a token: the attention that its key receives, mean over queries, heads and layers."""
    return st.Measure(
        f"attention that key {position} receives (%)",
        lambda data: 100 * data["attention_received"].isel(key=position).mean(("layer", "head")).values,
        unit="percentage points",
    )
