"""The static part of a forward pass, as one record: with it, and the shapes of its arrays, a pass compiles once."""

from __future__ import annotations

from dataclasses import dataclass

from sinkjax.errors import SinkjaxError, one_of
from sinkjax.model.config import Config
from sinkjax.model.quantisation import Quantisation
from sinkjax.probes.probe import Probe
from sinkjax.transformer.eviction import CachePolicy

PRECISIONS = ("highest", "high", "default")
IMPLEMENTATIONS = ("sinkjax", "fused", "pallas")


@dataclass(frozen=True, kw_only=True)
class ForwardSpec:
    """The static arguments of a forward pass.

    Attributes:
        config: The architecture.
        probe: The measurements.
        logits: Whether they are computed.
        precision: Precision of every matrix product, one of PRECISIONS ("highest": full float32 on every device).
        unroll: Whether the blocks are compiled one after the other and not as a loop, which copies the gradient's inputs of
            each: for training a few small blocks.
        remat: Whether the inside of a block is computed once more for its gradient, instead of being kept.
        attention_impl: One of IMPLEMENTATIONS; see `fused.py` and `flash.py` in this folder.
        quantisation: The bits of activations, keys and values, or None; the weights' bits are in the parameters.
        cache: Which keys a pass in pieces keeps (`cached.stream`); None: all of them.
    """

    config: Config
    probe: Probe = Probe()
    logits: bool = False
    precision: str = "highest"
    unroll: bool = False
    remat: bool = False
    attention_impl: str = "sinkjax"
    quantisation: Quantisation | None = None
    cache: CachePolicy | None = None

    def __post_init__(self) -> None:
        one_of("precision", self.precision, PRECISIONS)
        one_of("attention_impl", self.attention_impl, IMPLEMENTATIONS)
        if not isinstance(self.probe, Probe):
            raise SinkjaxError(f"probe must be a Probe, not {self.probe!r}; Probe.of(*names) makes one from names")
