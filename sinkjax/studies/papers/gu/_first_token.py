"""What the studies share that rank the first token of a prompt among other positions, which are their controls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax.studies as st
from sinkjax.analysis import intervals, metrics
from sinkjax.analysis.rules import fact
from sinkjax.config_files.checks import at_least, share
from sinkjax.report.figures.layers import Panel


@dataclass(frozen=True, kw_only=True)
class FirstToken(st.StudyConfig):
    """A study that ranks the first token among other positions."""

    controls: int = 20
    """other positions of the first half of a prompt, drawn at random, among which the first one is ranked"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, controls=1, length=8)  # the first half then holds other positions


NOTHING = 1.0  # per cent of heads: below this a model has no sink


ABSOLUTE = "Learned(", "Sinusoidal("  # positions added to the embedding, as stored


def _alike(results: st.Results) -> st.Outcome:
    absolute = str(getattr(results.architecture, "position", "")).startswith(ABSOLUTE)
    return fact(results.bos == "none" and not absolute)


# The premise of Propositions 1 to 4: at all positions of one token repeated the model starts from the same vector.
ALIKE = st.Rule("nothing stands before the repeated token, no BOS either, and no position is added to the embedding", _alike)


def own_first_tokens(config: st.StudyConfig, given: st.Rule) -> st.Rule:
    """The premise of what is said of different first tokens: `given`, and no BOS in front, the same first token everywhere."""
    same = "the first tokens of the prompts are drawn from text or at random; here each of them is the BOS"
    if config.bos != "tokenizer":
        return given if config.bos == "none" else st.never(same)
    return st.Rule(
        f"{given.criterion}, and no BOS is in front", lambda got: given.test(got) if got.bos == "none" else fact(False)
    )


def largest_rate(received: NDArray, eps: float) -> NDArray:
    """Per cent of heads that sink on one and the same key, the one on which most do: float[..., prompt].

    Of keys 0 to the middle, which at least half of the queries see: the last key is seen by its own query alone, so that any head
    that attends to its own position would sink on it. received: float[..., prompt, layer, head, key].
    """
    keys = range(received.shape[-1] // 2 + 1)
    return 100 * np.max([metrics.sink_rate({"attention_received": received}, key, eps) for key in keys], axis=0)


@dataclass(frozen=True, kw_only=True)
class FirstTokenSinks(FirstToken):
    """The same for a study of sinks."""

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
    """The note on the controls."""
    return f"""Controls: the same number at {len(positions(config)) - 1} other positions, drawn at random from the first half of a
        prompt. A percentile is the share of them with a smaller number. As nothing is edited, there is no no-op edit."""


def beside(results: st.Results, title: str, ylabel: str, values: NDArray, start: int = 0, **options: Any) -> Panel:
    """Axes of the first position and the range of the others. values: float[prompt, x, position], 0 first. start: the first x."""
    x = range(start, start + values.shape[1])
    others = st.ranges("other positions", x, np.nanmean(values[..., 1:], axis=0))
    return results.panel(title, ylabel, {"position 0": values[..., 0], "other positions": others}, x, **options)


def curves(
    name: str, xlabel: str, grid: Callable[[st.Results], Any], caption: str, store: str | Sequence[str], **options: Any
) -> st.Figure:
    """`st.curves` of position 0 and the others."""
    about = "Other positions: their mean, and the range of the controls."
    return st.curves(name, xlabel, grid, f"{caption} {about}", store, legend_above=True, **options)
