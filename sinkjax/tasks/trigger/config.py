"""Trainings on the trigger task (Ran-Milo 2026, arXiv 2603.11487): data, model and stopping rule. This module does not import
JAX."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Literal

from sinkjax.config_files.checks import above, at_least, each_once, only_for, refuse
from sinkjax.config_files.documents import LATER, typed
from sinkjax.errors import SinkjaxError
from sinkjax.model.names import NormaliserName
from sinkjax.train.config import Training

LONGEST = 100_000  # tokens of a sequence, and numbers in a token


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """The sequences of the trigger task; `Trigger` describes them in full."""

    width: int = 16
    """n, numbers in a token"""
    length: int = 16
    """L, tokens in a sequence, BOS included"""
    first: int | None = None
    """earliest position of the trigger, by default the second ordinary token's"""
    last: int | None = None
    """latest position of the trigger, by default the last token's"""
    noise: float = 1.0
    """noise is uniform on (-noise, noise)"""
    bos: Literal["flag", "noisy", "none"] = "flag"
    """the first token: only its flag, its flag and noise, or no such token"""
    second_anchor: bool = False
    """BOS is followed by another token without noise, with BOS flag 1 and bias channel 1, which distinguishes it from BOS"""
    zero_token: bool = False
    """the ordinary tokens are preceded by one of all zeros, whose value is 0 under any weights"""


@dataclass(frozen=True, kw_only=True)
class Trigger(Sequences):
    """Trigger-conditional averaging (Ran-Milo 2026); positions and coordinates count from 0.

    A token is a vector of `width` numbers: 0 the BOS flag, 1 the trigger flag, 2 .. width - 2 noise, width - 1 the bias channel,
    which is 1 on ordinary tokens and 0 on BOS and trigger. At the trigger's position the target is the mean of all ordinary
    tokens up to and including the trigger, elsewhere it is 0. Tokens before the ordinary ones never enter the mean.
    """

    residual: bool = False
    """targets of models with a residual stream: the input is added to them"""

    def __post_init__(self) -> None:
        typed(self)
        at_least(self, LONGEST, width=1, length=1, first=0, last=0)
        refuse(self.width < 4, f"width must be at least 4, two flags, a number of noise and the bias channel, not {self.width}")
        refuse(not 0 < self.noise < math.inf, f"noise must be positive, not {self.noise}")
        refuse(self.second_anchor and self.bos == "none", 'second_anchor needs a first one, but bos is "none"')
        first, last = self.span
        short = f"length {self.length} is too short: a trigger needs an ordinary token before it"
        refuse(self.length < self.specials + 2, f"{short}, and {self.specials} special ones come first")
        outside = f"triggers at {first} to {last} do not fit: they must stand at {self.specials + 1} to {self.length - 1}"
        inside = self.specials < first <= last < self.length
        refuse(not inside, f"{outside}, behind an ordinary token and within length {self.length}")

    @property
    def specials(self) -> int:
        """Number of tokens before the ordinary ones."""
        return (self.bos != "none") + self.second_anchor + self.zero_token

    @property
    def span(self) -> tuple[int, int]:
        """The earliest and the latest position of the trigger."""
        first = self.specials + 1 if self.first is None else self.first
        return first, self.length - 1 if self.last is None else self.last

    def check_position(self, position: int) -> None:
        """Raise unless a trigger can be at this position, within `span` or not."""
        if not self.specials < position < self.length:
            raise SinkjaxError(f"trigger position {position} is outside of {self.specials + 1} to {self.length - 1}")


@dataclass(frozen=True, kw_only=True)
class TriggerTraining(Sequences, Training):
    """Only attention, without norm, MLP, positions and 1 / sqrt(d), trained on the trigger task; the defaults are the paper's.

    Its variants are the normalisers. The loss is the mean squared error over all positions and coordinates.
    """

    layers: int = 1
    """blocks"""
    heads: int = 1
    """heads of a block, each as wide as a token"""
    kv_heads: int | None = None
    """key-value heads, by default one for each head"""
    normalisers: tuple[NormaliserName, ...] = ("softmax",)
    """functions from scores to attention weights; several are trained together, unless one of them has learned parameters"""
    gate: bool = False
    """a sigmoid gate on each head's output"""
    residual: bool | None = None
    """whether a block adds to its input, and the target to the tokens; by default with two or more layers"""
    scaled: bool = False
    """whether scores are divided by sqrt(width)"""
    init_std: float = 0.02
    """standard deviation of the matrices at initialisation"""
    escape: float = field(default=0.0, metadata=LATER)
    """how far a gate is closed for ordinary tokens and open for the trigger at initialisation, added to its logits; or the sink
    logit that a model starts with"""
    penalty: float = field(default=0.0, metadata=LATER)
    """cost of the mean weight on the first key in training, in the rows of all other tokens except the trigger"""
    tolerance: float = 5e-3
    """a run stops when no output on a fresh training batch is further from its target"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, layers=1, heads=1, kv_heads=1, penalty=0)
        above(self, init_std=0, tolerance=0)
        only_for(self, "escape", self.gate or "sink-logit" in self.normalisers, "a gate or a sink logit")
        each_once(self, "normalisers")
        self.data  # noqa: B018 - the data refuse fields that do not fit

    @property
    def summary(self) -> str:
        """A short description of the model and its training."""
        size = f"{self.layers} layer{'s' * (self.layers > 1)}, {self.heads} head{'s' * (self.heads > 1)}"
        return f"The trigger task: {' and '.join(self.normalisers)}, {size}"

    @property
    def with_residual(self) -> bool:
        """Whether the model has a residual stream."""
        return self.layers > 1 if self.residual is None else self.residual

    @property
    def data(self) -> Trigger:
        """The sequences."""
        shared = {field.name: getattr(self, field.name) for field in dataclasses.fields(Sequences)}
        return Trigger(**shared, residual=self.with_residual)


@dataclass(frozen=True, kw_only=True)
class CappedTraining(TriggerTraining):
    """One layer whose BOS mass is clamped in every row except BOS's and the trigger's; the variants are its values.

    The scores decide how the remaining mass is divided among the other keys, and the whole of the trigger's row.
    """

    caps: tuple[float, ...] = (0.0, 0.5, 0.9, 0.99, 1.0)
    """BOS masses, each held in separate runs"""

    def __post_init__(self) -> None:
        super().__post_init__()
        each_once(self, "caps")
        for cap in self.caps:
            refuse(not 0 <= cap <= 1, f"caps must be BOS masses from 0 to 1, but contains {cap}")
        other = self.normalisers != ("softmax",) or self.layers != 1 or self.bos == "none"
        refuse(other, 'a BOS mass is held in one layer of softmax with BOS: normalisers ["softmax"], layers 1, bos not none')

    @property
    def summary(self) -> str:
        """A short description of the model and its training."""
        return f"The trigger task: one layer of softmax, BOS mass held at {', '.join(f'{cap:g}' for cap in self.caps)}"
