"""The configs of the experiments of Kiya et al. 2026. This module imports no JAX."""

from __future__ import annotations

from dataclasses import dataclass

from sinkjax.config_files.checks import MIN_QUERIES, above, at_least, below, each_once, layers_from_0, share
from sinkjax.errors import SinkjaxError
from sinkjax.studies.config import Controlled, Study


@dataclass(frozen=True, kw_only=True)
class Mask(Controlled):
    """Mask the logits towards one key in each single layer, in layers 0 to l, in all layers, and in some heads (Figs. 4, 8)."""

    key: int = 0
    """the key that is masked; key + 1 is where the paper finds the sink afterwards"""
    controls: int = 20
    """random controls for each budget of layers: another key masked in as many random layers"""
    head_shares: tuple[float, ...] = (0.1, 0.5)
    """shares of all heads that are masked as a set, in whole layers' worth of heads"""
    map_layers: tuple[int, ...] = (0, 10, 20)
    """layers whose attention maps are drawn"""
    loss: bool = True
    """whether to measure the loss too, which takes a third of the time"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, key=0, length=3)
        below(self, "key", "length")
        if not self.head_shares or not all(0 < part < 1 for part in self.head_shares):
            raise SinkjaxError(f"head_shares must hold at least one number, each between 0 and 1, not {list(self.head_shares)}")
        if self.key + 1 >= self.length:
            raise SinkjaxError(f"key {self.key} is the last of {self.length} positions, so the sink has nowhere to move")
        layers_from_0(self, "map_layers")


@dataclass(frozen=True, kw_only=True)
class Baseline(Study):
    """No edit: attention and activations by layer, once without and once with the BOS before the same text (Figs. 1a and 6).

    The BOS is `bos` if that is a token id, else the one that the model's files name; a model without one runs without.
    """

    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink (Gu et al. 2025)"""
    onset: float = 0.5
    """share of a layer's heads that must sink on position 0 for the layer to count as the sink's onset"""
    massive: float = 10.0
    """how many times larger |h| must be at position 0 than at a typical (the median) other position to be massive"""
    map_layers: tuple[int, ...] = (0, 1, 2, 5, 10, 20)
    """layers whose attention maps are drawn"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, length=16)
        above(self, massive=1)
        share(self, "eps")
        share(self, "onset")
        layers_from_0(self, "map_layers")


@dataclass(frozen=True, kw_only=True)
class BosSwap(Controlled):
    """The embedding of the first token changes places with that of a later one, with and without a BOS (Figs. 2 and 7).

    The BOS is `bos` if that is a token id, else the one that the model's files name; a model without one runs without.
    """

    positions: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    """where the first token's embedding goes, one arm each"""
    shown: int = 8
    """the one of them of which maps and layers are drawn"""
    massive: float = 10.0
    """how many times larger |h| must be at a position than at a typical (the median) one that is not swapped to be massive"""
    controls: int = 20
    """random swaps of two other positions"""
    map_layers: tuple[int, ...] = (0, 5, 20)
    """layers whose attention maps are drawn"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, length=16)
        above(self, massive=1)
        layers_from_0(self, "map_layers")
        _positions(self, self.length - MIN_QUERIES, "queries")


@dataclass(frozen=True, kw_only=True)
class Embedding(Study):
    """Keys and queries of the first block made from embeddings alone: the BOS against the mean of the others (section 3).

    No text is read. The BOS is `bos` if that is a token id, else the one that the model's files name.
    """

    special: bool = False
    """whether special tokens other than the BOS enter the mean embedding"""
    published: tuple[float, ...] = (26.155, 100.611, 0.521, 0.010)
    """the paper's ||k_bos||, ||k_avg||, cos(q_avg, k_bos) and cos(q_avg, k_avg) of Llama-3.2-3B"""
    percentile: float = 95.0
    """among the vocabulary's tokens, where the BOS must lie for its direction to be called special"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.published) != 4:
            raise SinkjaxError(f"published takes four numbers, not {len(self.published)}")
        if not 0 < self.percentile < 100:
            raise SinkjaxError(f"percentile must lie between 0 and 100, not {self.percentile}")


@dataclass(frozen=True, kw_only=True)
class Rope(Study):
    """Scores of the first block between a mean query at rotary index i and a BOS or mean key at index j (Fig. 3).

    No text is read. The BOS is `bos` if that is a token id, else the one that the model's files name.
    """

    special: bool = False
    """whether special tokens other than the BOS enter the mean embedding"""
    indices: int = 128
    """rotary indices of queries and keys: 0 to indices - 1"""
    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink (Gu et al. 2025)"""
    controls: int = 200
    """random ordinary tokens whose keys take the place of the BOS's"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, indices=16, controls=1)
        share(self, "eps")


@dataclass(frozen=True, kw_only=True)
class SelfOnly(Controlled):
    """The query at one position attends to itself alone: over positions, single layers, first layers and all (Figs. 5, 9)."""

    prompts: int = 16
    """passages of text"""
    positions: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 30, 36, 42, 48)
    """where the query is, one arm for each set of layers"""
    first_layers: tuple[int, ...] = (2, 3, 6, 10, 12, 15)
    """numbers n of first layers that are edited together; those that a model has no more of than n are left out"""
    shown: int = 8
    """the position of which attention maps are drawn"""
    controls: int = 20
    """random controls for each budget of layers, as many links taken away at random; and draws of one other key seen instead"""
    map_layers: tuple[int, ...] = (0, 10, 20)
    """layers whose attention maps are drawn"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, length=MIN_QUERIES + 2)
        layers_from_0(self, "map_layers")
        _positions(self, self.length - MIN_QUERIES - 1, "later queries")
        for count in self.first_layers:
            if count < 2:
                raise SinkjaxError(f"first_layers has {count}, but single layers are edited anyway; the smallest is 2")


@dataclass(frozen=True, kw_only=True)
class AfterSoftmax(Controlled):
    """The edits of kiya/mask and kiya/self on the weights after the softmax, with and without renormalising (footnote 8)."""

    key: int = 0
    """the key that is masked; the new place of its sink is the next one"""
    position: int = 8
    """the position whose query attends to itself alone"""
    first_layers: tuple[int, ...] = (1, 3, 12, 20)
    """numbers n of first layers that are edited together, beside all; those that a model has no more of than n are left out"""
    eps: float = 0.3
    """share of attention that a key must receive on average to be a head's sink (Gu et al. 2025)"""
    controls: int = 20
    """random controls for each edit and way: another key, or a query that sees one other key instead of itself, in all layers"""
    map_layers: tuple[int, ...] = (0, 10, 20)
    """layers whose attention maps are drawn"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, key=0, position=1, length=MIN_QUERIES + 2)
        layers_from_0(self, "map_layers")
        last = self.length - MIN_QUERIES - 1
        for name, place in (("key + 1", self.key + 1), ("position", self.position)):
            if place > last:
                raise SinkjaxError(f"{name} is {place}, beyond {last}: a sink needs {MIN_QUERIES} later queries")
        for count in self.first_layers:
            if count < 1:
                raise SinkjaxError(f"first_layers has {count}; the smallest number of layers is 1")


def _positions(config: BosSwap | SelfOnly, last: int, queries: str) -> None:
    """Raise unless `positions` are different ones after the first that enough queries see, and `shown` is one of them."""
    each_once(config, "positions")
    for position in config.positions:
        if not 1 <= position <= last:
            raise SinkjaxError(f"positions has {position}, but must lie in 1 to {last}: a sink needs {MIN_QUERIES} {queries}")
    if config.shown not in config.positions:
        raise SinkjaxError(f"shown must be one of positions ({', '.join(map(str, config.positions))}), not {config.shown}")
