"""What the sequences of the trigger task look like. This module imports no JAX, so that help and errors are immediate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from sinkjax.errors import SinkjaxError, one_of


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """Trigger-conditional averaging (Ran-Milo 2026); positions and coordinates count from 0.

    A token is a vector of `width` numbers: 0 the BOS flag, 1 the trigger flag, 2 .. width - 2 noise, width - 1 the bias channel,
    which is 1 on ordinary tokens and 0 on BOS and trigger. At the trigger's position the target is the mean of all ordinary
    tokens up to and with the trigger, elsewhere it is 0. What stands before the ordinary tokens never enters the mean.
    """

    width: int = 16
    """n, numbers in a token"""
    length: int = 16
    """L, tokens in a sequence, BOS included"""
    first: int | None = None
    """earliest position of the trigger, by default the second ordinary token's"""
    last: int | None = None
    """latest position of the trigger, by default the last token's"""
    noise: float = 1.0
    """noise is uniform in -noise .. noise"""
    bos: Literal["flag", "noisy", "none"] = "flag"
    """the first token: its flag alone, its flag and noise, or no such token"""
    second_anchor: bool = False
    """after BOS stands another token without noise: BOS flag 1 and bias channel 1, so that it can be told from BOS"""
    zero_token: bool = False
    """before the ordinary tokens stands one that is all zeros, whose value is 0 under any weights"""
    residual: bool = False
    """targets of models with a residual stream: the input is added to them"""

    def __post_init__(self) -> None:
        one_of("bos", self.bos, ("flag", "noisy", "none"))
        if self.width < 4:
            raise SinkjaxError(f"width must be at least 4, two flags, a number of noise and the bias channel, not {self.width}")
        if not 0 < self.noise < math.inf:
            raise SinkjaxError(f"noise must be positive, not {self.noise}")
        if self.second_anchor and self.bos == "none":
            raise SinkjaxError('second_anchor needs a first one, and bos is "none"')
        first, last = self.span
        if self.length < self.specials + 2:
            raise SinkjaxError(
                f"length {self.length} is too short: a trigger needs an ordinary token before it, and {self.specials} stand first"
            )
        if not self.specials < first <= last < self.length:
            raise SinkjaxError(
                f"triggers at {first} to {last} do not fit: they must stand at {self.specials + 1} to {self.length - 1},"
                f" behind an ordinary token and within length {self.length}"
            )

    @property
    def specials(self) -> int:
        """How many tokens stand before the ordinary ones."""
        return (self.bos != "none") + self.second_anchor + self.zero_token

    @property
    def span(self) -> tuple[int, int]:
        """The earliest and the latest position of the trigger."""
        return (
            self.specials + 1 if self.first is None else self.first,
            self.length - 1 if self.last is None else self.last,
        )

    def check_position(self, position: int) -> None:
        """Raise unless a trigger can stand there, be it within `span` or not."""
        if not self.specials < position < self.length:
            raise SinkjaxError(f"trigger position {position} is outside of {self.specials + 1} to {self.length - 1}")
