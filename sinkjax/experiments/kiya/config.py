"""The configs of the experiments of Kiya et al. 2026. This module imports no JAX."""

from __future__ import annotations

from dataclasses import dataclass

from sinkjax.errors import SinkjaxError
from sinkjax.experiments.config import Study, at_least, below, share


@dataclass(frozen=True, kw_only=True)
class Mask(Study):
    """Mask the logits towards one key in each single layer, in layers 0 to l, and in all layers (Figs. 4 and 8)."""

    key: int = 0
    """the key that is masked; key + 1 is where the paper finds the sink afterwards"""
    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink (Gu et al. 2025)"""
    controls: int = 20
    """random controls for each budget of layers: another key masked in as many random layers"""
    control_prompts: int = 8
    """prompts on which the controls are measured, the first of all"""
    map_layers: tuple[int, ...] = (0, 10, 20)
    """layers whose attention maps are drawn"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, key=0, controls=1, control_prompts=1, length=3)
        below(self, "key", "length")
        share(self, "eps")
        if self.key + 1 >= self.length:
            raise SinkjaxError(f"key {self.key} is the last of {self.length} positions, so the sink has nowhere to move")
        for layer in self.map_layers:
            if layer < 0:
                raise SinkjaxError(f"map_layers has the negative layer {layer}; layers count from 0")
