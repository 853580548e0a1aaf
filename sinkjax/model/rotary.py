"""Rotary positions as records: the base, the scaling of frequencies for long prompts, and the assignment to layers."""

from __future__ import annotations

from dataclasses import dataclass

from sinkjax.config_files.checks import is_number, refuse
from sinkjax.errors import SinkjaxError


@dataclass(frozen=True)
class LinearScaling:
    """Rotary frequencies divided by `factor` (position interpolation)."""

    factor: float


@dataclass(frozen=True)
class DynamicScaling:
    """NTK-aware base that grows with each prompt's length beyond `original_context` tokens."""

    factor: float
    original_context: int


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1: long wavelengths divided by `factor`, short ones kept, a linear blend in between."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True)
class YarnScaling:
    """YaRN (Peng et al. 2023): per-frequency blend of interpolation and extrapolation; an attention factor on the tables."""

    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True


@dataclass(frozen=True)
class LongScaling:
    """LongRoPE (Ding et al. 2024): frequencies divided by `short`, or, of a prompt longer than the original context, by `long`.

    factor: on the tables of cosines and sines.
    """

    short: tuple[float, ...]
    long: tuple[float, ...]
    original_context: int
    factor: float


Scaling = LinearScaling | DynamicScaling | Llama3Scaling | YarnScaling | LongScaling


@dataclass(frozen=True)
class QueryGrowth:
    """Rotated queries times 1 + beta ln(1 + floor(index / original_context)): more for each original context (Ministral 3)."""

    beta: float
    original_context: int


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding, half-split pairs (i, i + dims / 2) of the first `dims` dims of each head, or of all if None.

    growth: a factor on the queries that grows with their index, or None.
    """

    theta: float
    scaling: Scaling | None = None
    dims: int | None = None
    growth: QueryGrowth | None = None

    def __post_init__(self) -> None:
        refuse(not is_number(self.theta) or not self.theta > 0, f"the rotary base must be positive, not {self.theta}")

    def check(self, head_dim: int) -> None:
        """Raise unless heads of this width can be rotated in this way."""
        dims = head_dim if self.dims is None else self.dims
        if self.dims is not None and not 2 <= dims <= head_dim:
            raise SinkjaxError(f"rotary dims must be None or from 2 to head_dim ({head_dim}), not {dims}")
        if dims % 2:
            name = "head_dim" if self.dims is None else "number of dims"
            raise SinkjaxError(f"rotary positions need an even {name}, not {dims}")
        if isinstance(self.scaling, DynamicScaling) and dims < 4:  # its base has the exponent D / (D - 2)
            raise SinkjaxError(f"dynamic rotary scaling needs a head_dim of at least 4, not {dims}")
        if isinstance(self.scaling, LongScaling) and {len(self.scaling.short), len(self.scaling.long)} != {dims // 2}:
            raise SinkjaxError(f"LongRoPE needs one short and one long factor for each of {dims // 2} rotary pairs")


@dataclass(frozen=True)
class LayerRopes:
    """Rotary positions that differ between layers (Gemma 3) or are absent in some (SmolLM3).

    layers: the index of each layer's kind, or None if it is not rotated.
    """

    kinds: tuple[Rope, ...]
    layers: tuple[int | None, ...]

    def __post_init__(self) -> None:
        if len({kind.dims for kind in self.kinds}) != 1:
            raise SinkjaxError("rotary positions by layer need at least one kind, and all the same dims")
        refuse(any(kind.growth for kind in self.kinds), "rotary positions by layer have no growth of queries")
        for kind in self.layers:
            if kind is not None and kind not in range(len(self.kinds)):
                raise SinkjaxError(f"rotary kind {kind} of a layer is out of range: there are {len(self.kinds)}")
