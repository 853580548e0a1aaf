"""The configs of the experiments of Li et al. 2026. This module imports no JAX.

The full text of the paper was not available. What it states was taken from its abstract and from summaries of it; what those do
not state (layers, factors, what a mean is taken over, which statistic of a matrix, how many prompts) is a choice made here, and
each config says which. Positions and layers count from 0, so the paper's first token is position 0 and its layer 1 is layer 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from sinkjax.config_files.checks import at_least, below, each_once, layers_from_0, share
from sinkjax.errors import SinkjaxError
from sinkjax.studies.config import ControlledSinks, StudyConfig


@dataclass(frozen=True, kw_only=True)
class Variance(StudyConfig):
    """The variance of the first block's head outputs by position, on random tokens.

    Chosen here: 256 prompts; the variance of each dim over the prompts, averaged over dims; the structure of W_O is the L2 norm
    of each of its rows, one for each dim of a head, whose rank correlation (Kendall's tau-b) with the standard deviation of that
    dim is taken in each head.
    """

    prompts: int = 256
    """sequences of random tokens"""
    permutations: int = 200
    """random pairings of the dims of a head with the rows of W_O, the controls of the rank correlation"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, prompts=3, permutations=20, length=8)
        if self.bos != "none":
            raise SinkjaxError(
                'bos must be "none": with a BOS before every sequence nothing varies at position 0, with which all is compared'
            )


@dataclass(frozen=True, kw_only=True)
class SuperNeurons(ControlledSinks):
    """The MLP neurons with the largest gate and up vectors: what drives them, what they feed, what happens without them.

    Chosen here: a neuron's size is the product of the L2 norms of its gate and up vectors, each over the median of its layer; the
    largest of all layers are the super neurons; they are ablated by setting them to 0, at every position unless said otherwise.
    """

    neurons: int = 8
    """how many of the largest are studied and ablated, one by one and together"""
    extreme: float = 5.0
    """size from which a neuron counts as one of extreme norm"""
    controls: int = 20
    """draws of as many other neurons of the same layers"""
    control_prompts: int = 8
    """prompts on which the controls are measured and neurons are looked at, the first of all"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, neurons=2)


@dataclass(frozen=True, kw_only=True)
class Dominance(StudyConfig):
    """How far one dim of the first token's hidden state dominates, and how keys lock in on it.

    Chosen here: u_1 of a head is the first right singular vector of its rotated queries, those of position 0 left out, all
    prompts stacked and not centred, with the sign that makes the mean query positive along it.
    """

    eps: float = 0.3
    """attention that a key must receive on average to be a head's sink (Gu et al. 2025)"""
    ratio: float = 200.0
    """dominance ratio that the paper reports to be exceeded in shallow layers"""
    aligned: float = 0.7
    """cosine from which a head counts as well aligned"""
    controls: int = 20
    """other keys, drawn at random, whose alignment is compared with that of key 0"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, controls=1, length=4)
        share(self, "eps")
        share(self, "aligned")


@dataclass(frozen=True, kw_only=True)
class Isolate(ControlledSinks):
    """One token may attend to nothing but itself; does it become a sink?

    Chosen here: the layers (each one alone, the first ones together, all).
    """

    position: int = 10
    """the token that is isolated, as in the paper"""
    controls: int = 20
    """random controls for each budget of layers: the token may attend to one other key instead of itself"""

    def __post_init__(self) -> None:
        super().__post_init__()
        inner_position(self)


@dataclass(frozen=True, kw_only=True)
class Amplify(ControlledSinks):
    """The head outputs of one token pushed away from their mean, against the same outputs merely scaled.

    Chosen here: all heads of a layer; the mean over a head's dims, and that over the positions up to the token, both; the
    factors; the layers; and as a further control a change of the same size in a random direction.
    """

    position: int = 10
    """the token whose head outputs are amplified, as in the paper"""
    factors: tuple[float, ...] = (2.0, 5.0, 10.0, 20.0, 50.0)
    """strengths of the dose-response; 1 changes nothing and is measured beside them"""
    layers: tuple[int, ...] = (0, 1, 2)
    """layers of the dose-response, each one alone"""
    factor: float = 10.0
    """strength at which every layer is amplified alone, and for which there are controls"""
    controls: int = 20
    """random directions for each layer of the dose-response"""

    def __post_init__(self) -> None:
        super().__post_init__()
        inner_position(self)
        each_once(self, "factors")
        each_once(self, "layers")
        layers_from_0(self, "layers")
        if min(self.factors) <= 1 or self.factor not in self.factors:
            raise SinkjaxError(f"factors must be above 1 and hold factor ({self.factor:g}), not {self.factors}")


def inner_position(config: Isolate | Amplify) -> None:
    """Raise unless the position stands after the first token and before the last."""
    at_least(config, position=1, length=3)
    below(config, "position", "length")
    if config.position + 1 >= config.length:
        raise SinkjaxError(f"position {config.position} is the last of {config.length}, so no later token can attend to it")
