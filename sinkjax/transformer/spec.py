"""The static part of a forward pass as one record. A pass compiles once per record and shapes of arrays."""

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
    """The static arguments of a forward pass, and the defaults of those that may be left out.

    Attributes:
        config: The architecture.
        probe: The measurements.
        logits: Whether to compute the logits.
        precision: Precision of every matrix product, one of PRECISIONS ("highest": full float32 on every device).
        unroll: Whether to unroll the loop over blocks, which otherwise copies each block's inputs for the gradient.
        remat: Whether to recompute the inside of a block for its gradient instead of keeping it.
        attention_impl: One of IMPLEMENTATIONS; see `fused.py` and `flash.py` in this folder.
        quantisation: The bits of activations, keys and values, or None; the weights' bits are in the parameters.
        cache_policy: Which keys stay in a pass of several calls (`cached.py`); None keeps all.
        room: With a cache policy, for how many positions of keys attention is measured; 0: it is not.
        past: How many keys `past.with_past` put in front of the tokens.
        in_place: Whether the loop slices the parameters of each block itself. On a CPU, `lax.scan` over bfloat16 makes a copy of
            all blocks in float32. Not for parameters with a gradient, which would be 0.
        first: The first row that is computed; another run has the rows before it (sweeps/shared.py).
        cuts: First rows of such passes, which need this one's keys, values, and sums over the rows before them.
    """

    config: Config
    probe: Probe
    logits: bool
    precision: str = "highest"
    unroll: bool = False
    remat: bool = False
    attention_impl: str = "sinkjax"
    quantisation: Quantisation | None = None
    cache_policy: CachePolicy | None = None
    room: int = 0
    past: int = 0
    in_place: bool = False
    first: int = 0
    cuts: tuple[int, ...] = ()

    @property
    def depth(self) -> int:
        """How many blocks run: those up to the last layer that is read, all if their output is needed."""
        last, whole = self.probe.until, self.logits or self.probe.nll or self.probe.logits_of or self.config.vocab_size is None
        return self.config.layers if whole or last is None else last + 1

    def __post_init__(self) -> None:
        one_of("precision", self.precision, PRECISIONS)
        one_of("attention_impl", self.attention_impl, IMPLEMENTATIONS)
        if not isinstance(self.probe, Probe):
            raise SinkjaxError(f"probe must be a Probe, not {self.probe!r}; Probe.of(*names) makes one from names")
