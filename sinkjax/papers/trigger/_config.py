"""Settings of every study of the trigger task, and the training that they describe."""

from __future__ import annotations

from dataclasses import dataclass

from sinkjax.config_files.checks import above, at_least, each_once, refuse, share
from sinkjax.study import Trains
from sinkjax.tasks.trigger.config import TriggerTraining

Changes = dict[str, object]  # fields of a training that differ
SMALLEST = 4  # coordinates of a token: two flags, noise and the bias channel


@dataclass(frozen=True, kw_only=True)
class Trials(Trains):
    """Settings of every study of the trigger task; the defaults are the paper's."""

    steps: int = 50_000
    """training steps of a run, at most"""
    width: int = 16
    """coordinates of a token, n"""
    length: int = 16
    """tokens of a sequence, BOS included, L"""
    batch: int = 128
    """sequences of a step, all of them fresh"""
    rate: float = 1e-3
    """learning rate of Adam"""
    tolerance: float = 5e-3
    """a run stops when every output on a batch is closer than this to its target"""
    evaluate_every: int = 50
    """steps between two points of the learning curves"""
    sequences: int = 10_000
    """held-out sequences for loss and attention, with triggers drawn as in training"""
    shared_data: bool = False
    """the same data for all runs of a model: intervals are then over initialisations only"""
    map_sequences: int = 1000
    """held-out sequences for maps and edits"""
    trigger_position: int = 7
    """position of their trigger, counted from 0 (the paper's position 8)"""
    moves: tuple[int, ...] = (4, 12)
    """positions that BOS is swapped with, counted from 0"""
    sinks: float = 0.5
    """smallest mean weight on BOS, in rows other than BOS's and the trigger's, of a head that is counted as sinking"""
    solved: float = 1.0
    """a run has solved the task when its loss is below this percentage of an idle model's (one that writes nothing)"""

    def check(self) -> None:
        at_least(self, steps=1, width=SMALLEST, length=4, batch=1, evaluate_every=1, sequences=1, map_sequences=2)
        above(self, rate=0, tolerance=0, solved=0)
        share(self, "sinks")
        each_once(self, "moves")
        last, trigger = self.length - 1, self.trigger_position
        refuse(not 2 <= trigger <= last, f"trigger_position must lie from 2 to {last}, not {trigger}")
        for place in self.moves:
            outside = not 0 < place <= last or place == trigger
            refuse(outside, f"moves must lie from 1 to {last} and off the trigger, but contains {place}")


def training(config: Trials, changes: Changes) -> TriggerTraining:
    """The training that a study states, with some fields changed."""
    shared = ("seed", "seeds", "steps", "batch", "tolerance", "width", "length", "dtype", "shared_data")
    stated = {name: getattr(config, name) for name in shared}
    stated |= {"learning_rates": (config.rate,), "eval_every": config.evaluate_every}
    return TriggerTraining(**{**stated, **changes})
