"""What studies of one position's activation share: which layer writes it, and dropping its MLP output or a random position's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sinkjax
import sinkjax.studies as st
from sinkjax.config_files.checks import MIN_QUERIES, at_least, seen


@dataclass(frozen=True, kw_only=True)
class Position(st.Controlled):
    """A study that drops the MLP output of one position."""

    position: int = 0
    """position of the massive activation, whose MLP output is dropped"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, length=8, position=0)
        seen(self, self.position, "position")

    def another(self, rng: np.random.Generator) -> int:
        """A random other position that enough queries see."""
        return int(rng.choice([place for place in range(self.length - MIN_QUERIES) if place != self.position]))

    def others(self, rng: np.random.Generator) -> list[int]:
        """Different random other positions, one for each control, or all that there are."""
        return st.without_replacement(self.controls, lambda: self.another(rng))


def kept_mlp(config: Position) -> dict[str, sinkjax.Edit]:
    """The no-op of a dropped MLP output."""
    edit = sinkjax.edit("mlp_out", "scale", 1.0, queries=config.position)
    return {f"MLP output at position {config.position} times 1": edit}


def record(config: Any, model: Any, batch: st.Batch, probe: sinkjax.Probe) -> Mapping[Any, Any]:
    """The record of the unedited model on the first prompts, those of the controls, which every sweep has."""
    few = slice(st.control_prompts(config))
    tokens, lengths = batch.tokens[few], batch.lengths[few]
    return sinkjax.forward(model.params, tokens, model.config, (), probe, lengths, logits=False).record


def growth(values: NDArray, position: int) -> int:
    """The layer in which a position's value grows most, by the mean over prompts. values: float[prompt, depth, position]."""
    return int(np.diff(values[:, :, position].mean(axis=0)).argmax())


def layer_of_growth(statistic: str) -> st.Values:
    """The layer in which a statistic of the residual stream grows most at `config.position`."""

    def compute(config: Any, model: Any, batch: st.Batch) -> int:
        return growth(np.asarray(record(config, model, batch, sinkjax.Probe.of(statistic))[statistic]), config.position)

    return st.Values(lambda config, architecture, prompts: 0, compute)


def real(x: Any, view: Any, fill: float = 0) -> Any:
    """x [B, T, d] with `fill` beyond each prompt's length."""
    import jax.numpy as jnp

    return jnp.where(jnp.arange(x.shape[1])[None, :, None] < view.lengths[:, None, None], x, fill)
