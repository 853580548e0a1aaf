"""A training of the trigger task with BOS's mass held where it is stated. This module imports no JAX."""

from __future__ import annotations

from dataclasses import dataclass

from sinkjax.config_files.checks import each_once
from sinkjax.errors import SinkjaxError
from sinkjax.tasks.trigger.config import TriggerTraining


@dataclass(frozen=True, kw_only=True)
class CappedTraining(TriggerTraining):
    """One layer whose BOS mass at every row but BOS's and the trigger's is held at a value, exactly; its variants are the values.

    Scores decide how the rest is divided among the other keys, and all of the trigger's row.
    """

    caps: tuple[float, ...] = (0.0, 0.5, 0.9, 0.99, 1.0)
    """BOS masses, each held in runs of its own"""

    def __post_init__(self) -> None:
        super().__post_init__()
        each_once(self, "caps")
        for cap in self.caps:
            if not 0 <= cap <= 1:
                raise SinkjaxError(f"caps must be BOS masses from 0 to 1, and holds {cap}")
        if self.normalisers != ("softmax",) or self.layers != 1 or self.bos == "none":
            raise SinkjaxError(
                'a BOS mass is held in one layer of softmax with BOS: normalisers ["softmax"], layers 1, bos not none'
            )

    @property
    def summary(self) -> str:
        """What is trained, in a few words."""
        return f"The trigger task: one layer of softmax, BOS mass held at {', '.join(f'{cap:g}' for cap in self.caps)}"
