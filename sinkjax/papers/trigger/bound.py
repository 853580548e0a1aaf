"""trigger/bound: what softmax without a sink costs. Layers whose BOS mass is held, in training or after it, and lower bounds.

The bounds and their derivation: `docs/results/trigger-bounds.md` and `_bounds.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from sinkjax.config_files.checks import at_least, refuse
from sinkjax.papers.trigger import _bound_measure as measure
from sinkjax.papers.trigger._config import Trials, training
from sinkjax.papers.trigger._frontier import above_bounds, held_losses, loss_and_mass
from sinkjax.papers.trigger._task import NEVER
from sinkjax.study import Lab, TrainingSpec
from sinkjax.tasks.trigger.config import CappedTraining
from sinkjax.tasks.trigger.task import model


@dataclass(frozen=True, kw_only=True)
class Settings(Trials):
    caps: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99, 0.997, 0.999, 1.0)
    """masses on BOS that are held in the rows other than BOS's and the trigger's"""
    cap_seeds: int = 4
    """runs of each mass that is held in training"""
    cap_steps: int = 5000
    """training steps of each of these runs"""
    shifts: tuple[float, ...] = (-2.0, -4.0, -6.0, -8.0, -10.0, -12.0)
    """added to BOS's logit in those rows of the trained layers"""

    def check(self) -> None:
        super().check()
        at_least(self, cap_seeds=1, cap_steps=1)
        for name in ("caps", "shifts"):
            refuse(not getattr(self, name), f"{name} is empty")
        wrong = list(self.caps) != sorted(set(self.caps)) or not 0 <= self.caps[0] <= self.caps[-1] <= 1
        refuse(wrong, f"caps must rise from 0 to 1 at most, not {list(self.caps)}")


def study(lab: Lab, s: Settings) -> None:
    """What softmax without a sink costs."""
    stated = training(s, {})
    free = TrainingSpec("free", stated, model(stated), partial(measure.free, s, s.caps, s.shifts))
    held = CappedTraining(**vars(training(s, {"seeds": s.cap_seeds, "steps": s.cap_steps, "tolerance": NEVER})), caps=s.caps)
    capped = TrainingSpec("capped", held, model(held), partial(measure.capped, s, s.caps, s.cap_seeds))
    layers = lab.train("free", free, "free to sink"), lab.train("capped", capped, "mass held in training")

    lab.identity("bounds", "docs/results/trigger-bounds.md, on Ran-Milo 2026, Theorem 1", above_bounds(*layers))
    lab.describe("losses", "ours", lambda read: held_losses(read, *layers))
    lab.draw(loss_and_mass, *layers, "in training")
    lab.draw(loss_and_mass, *layers, "after training")
