"""The configs of the experiments of the background papers. This module imports no JAX."""

from __future__ import annotations

from dataclasses import dataclass

from sinkjax.experiments.config import Study, at_least, below, share


@dataclass(frozen=True, kw_only=True)
class Background(Study):
    """What the background experiments share."""

    prompts: int = 64
    """passages of text"""
    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink (Gu et al. 2025)"""
    controls: int = 20
    """random controls for each budget"""
    control_prompts: int = 8
    """prompts on which the controls are measured, the first of all"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, controls=1, control_prompts=1, length=8)
        share(self, "eps")


@dataclass(frozen=True, kw_only=True)
class Massive(Background):
    """Massive activations by Sun et al.'s rule, and what setting them to zero or to their mean does (Sun et al. 2024)."""

    position: int = 0
    """position whose activations are set"""
    dims: int = 2
    """how many of the largest dims are set (Sun et al.: two)"""
    layer_prompts: int = 16
    """prompts on which the activations are set after each layer in turn"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, position=0, dims=1, layer_prompts=1)
        below(self, "position", "length")
