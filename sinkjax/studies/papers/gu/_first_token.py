"""The first token beside others: the config of such a study, and the other positions of the prompts that are its controls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax.studies as st
from sinkjax.analysis import intervals
from sinkjax.config_files.checks import at_least, share
from sinkjax.report.figures.layers import Panel

SHORTEST = 8  # tokens of a prompt: its first half then holds some other positions to compare the first one with
OTHERS = "Of the other positions: means, and the range of the controls."


@dataclass(frozen=True, kw_only=True)
class FirstToken(st.StudyConfig):
    """What the studies that set the first token against others have in common."""

    controls: int = 20
    """other positions of the first half of a prompt, drawn at random, among which the first one is ranked"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, controls=1, length=SHORTEST)


@dataclass(frozen=True, kw_only=True)
class FirstTokenSinks(FirstToken):
    """The same of sinks."""

    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink"""

    def __post_init__(self) -> None:
        super().__post_init__()
        share(self, "eps")


def positions(config: FirstToken) -> tuple[int, ...]:
    """Position 0, and up to `controls` others drawn from the first half, which at least half of the queries see."""
    others = np.arange(1, config.length // 2 + 1)
    rng = intervals.generator(config.seed, "gu control positions")
    return (0, *sorted(rng.choice(others, min(config.controls, len(others)), replace=False).tolist()))


def note(config: FirstToken) -> str:
    """What the controls are, for the page."""
    return f"""Controls: the same number at {len(positions(config)) - 1} other positions, drawn at random from the first half of a
        prompt. A percentile says how many of them have a smaller one. Nothing is edited, so the no-op edit is the run itself."""


def beside(
    results: st.Results,
    title: str,
    ylabel: str,
    first: NDArray,
    others: NDArray,
    x: Sequence[float] | None = None,
    **options: Any,
) -> Panel:
    """Axes of the first position and the range of the others. first: float[prompt, x], or float[x]. others: float[x, control]."""
    x = range(len(others)) if x is None else x
    lone = st.Line("position 0", x, [st.constant(value) for value in first]) if first.ndim == 1 else first
    curves = {"position 0": lone, "other positions": st.ranges("other positions", x, others)}
    return results.panel(title, ylabel, curves, x, **options)
