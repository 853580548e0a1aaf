"""The configs of the trigger lab: small models trained on the task of Ran-Milo 2026 (section C of its data). Imports no JAX."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sinkjax.config_files.checks import above, at_least, each_once, share
from sinkjax.errors import SinkjaxError
from sinkjax.studies.config import Trains

SMALLEST = 4  # coordinates of a token: two flags, noise and the bias channel


@dataclass(frozen=True, kw_only=True)
class Trials(Trains):
    """What every experiment of the trigger lab has to state; the defaults are the paper's."""

    steps: int = 50_000
    """of a run, unless it is done before"""
    width: int = 16
    """coordinates of a token, n"""
    length: int = 16
    """tokens of a sequence, BOS included, L"""
    batch: int = 128
    """sequences of a step, all of them new"""
    rate: float = 1e-3
    """of Adam's steps"""
    tolerance: float = 5e-3
    """a run is done when no output of a batch is further from its target"""
    evaluate_every: int = 50
    """steps between two points of the learning curves"""
    sequences: int = 10_000
    """held-out sequences of loss and attention, their triggers drawn as in training"""
    shared_data: bool = False
    """the same data for all runs of a model: intervals are then over initialisations only"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, steps=1, width=SMALLEST, length=4, batch=1, evaluate_every=1, sequences=1)
        above(self, rate=0, tolerance=0)


@dataclass(frozen=True, kw_only=True)
class Lab(Trials):
    """An experiment that maps its models' attention."""

    map_sequences: int = 1000
    """held-out sequences of maps and interventions"""
    trigger_position: int = 7
    """where the trigger of those stands, counted from 0 (the paper's position 8)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, map_sequences=2)
        if not 2 <= self.trigger_position < self.length:
            raise SinkjaxError(f"trigger_position must lie from 2 to {self.length - 1}, not {self.trigger_position}")


@dataclass(frozen=True, kw_only=True)
class Edited(Lab):
    """A study that edits its trained models."""

    moves: tuple[int, ...] = (4, 12)
    """positions with which BOS changes places, counted from 0"""

    def __post_init__(self) -> None:
        super().__post_init__()
        each_once(self, "moves")
        for place in self.moves:
            if not 0 < place < self.length or place == self.trigger_position:
                raise SinkjaxError(f"moves must lie from 1 to {self.length - 1} and off the trigger, and holds {place}")


@dataclass(frozen=True, kw_only=True)
class Judged(Lab):
    """A study that asks of each run whether it sinks and whether it solves the task."""

    sinks: float = 0.5
    """mean weight on BOS, or share of it, in the rows of other tokens than the trigger, from which on a head sinks"""
    solved: float = 1.0
    """per cent of the loss of a model that writes nothing, below which a run has solved the task"""

    def __post_init__(self) -> None:
        super().__post_init__()
        share(self, "sinks")
        above(self, solved=0)


@dataclass(frozen=True, kw_only=True)
class OneLayer(Edited):
    """One layer and one head: softmax sinks on BOS, ReLU solves the task without a sink (Fig. 3), and what edits do to both."""

    seeds: int = 64
    """runs of each model, each with an initialisation and data of its own"""


@dataclass(frozen=True, kw_only=True)
class Heads(Edited, Judged):
    """Several layers and heads with a residual stream: which heads sink (Figs. 4 to 8)."""

    seeds: int = 4
    """runs of each model, each with an initialisation and data of its own"""
    rate: float = 1e-4
    """of Adam's steps"""
    sizes: tuple[str, ...] = ("2x2", "4x4")
    """layers x heads"""

    def __post_init__(self) -> None:
        super().__post_init__()
        each_once(self, "sizes")
        for size in self.sizes:
            if not re.fullmatch(r"[1-9]\d?x[1-9]\d?", size):
                raise SinkjaxError(f"sizes holds {size!r}, but a size is written layers x heads, as 2x2")


@dataclass(frozen=True, kw_only=True)
class Sizes(Lab):
    """One layer and one head, and one thing at a time made smaller or larger: depth, heads, n, L, BOS, the scale of scores."""

    seeds: int = 3
    """runs of each model, each with an initialisation and data of its own"""
    steps: int = 20_000
    """of a run, unless it is done before"""
    layers: tuple[int, ...] = (1, 2, 4)
    """depths, with a residual stream wherever there is more than one layer"""
    heads: tuple[int, ...] = (2, 4)
    """heads of one layer, each n wide"""
    widths: tuple[int, ...] = (8, 32)
    """other values of n"""
    lengths: tuple[int, ...] = (8, 32)
    """other values of L"""
    deep_rate: float = 1e-4
    """of Adam's steps for models with a residual stream, as in the paper"""

    def __post_init__(self) -> None:
        super().__post_init__()
        above(self, deep_rate=0)
        shortest = self.trigger_position + 1  # the trigger of the maps must fit
        for name, least in (("layers", 1), ("heads", 1), ("widths", SMALLEST), ("lengths", shortest)):
            each_once(self, name)
            if min(getattr(self, name)) < least:
                raise SinkjaxError(f"{name} must be at least {least}, and holds {min(getattr(self, name))}")


@dataclass(frozen=True, kw_only=True)
class Assumptions(Judged):
    """One layer and one head, and one assumption of the theorem at a time removed: which still sink, which solve the task."""

    steps: int = 10_000
    """of a run, unless it is done before"""


@dataclass(frozen=True, kw_only=True)
class Bound(Trials):
    """What softmax without a sink costs: layers whose BOS mass is held, in training or after it, beside what can be proved."""

    seeds: int = 8
    """runs of the layer that is free to sink"""
    caps: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99, 0.997, 0.999, 1.0)
    """masses on BOS that are held at the rows but BOS's and the trigger's"""
    cap_seeds: int = 4
    """runs of each mass that is held in training"""
    cap_steps: int = 5000
    """of each of these runs"""
    shifts: tuple[float, ...] = (-2.0, -4.0, -6.0, -8.0, -10.0, -12.0)
    """added to BOS's logit at those rows of the trained layers"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, cap_seeds=1, cap_steps=1)
        each_once(self, "caps")
        each_once(self, "shifts")
        if list(self.caps) != sorted(self.caps) or not 0 <= self.caps[0] <= self.caps[-1] <= 1:
            raise SinkjaxError(f"caps must rise from 0 to 1 at most, not {list(self.caps)}")
