"""Whether a model has sinks and where: heads, position, token; and its largest activations."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.cards.ground import EPS, Ground, Numbers

STANDS_OUT = 5.0  # minimum ratio to the largest activation of later positions
NAMED = 5  # tokens that are named


@dataclass(frozen=True)
class Activation:
    """The largest |h| at the sink, in the layer of its peak.

    Attributes:
        layer: The layer whose output has the largest mean over prompts.
        dim: The dim that is largest in this layer in most prompts.
        dims: All dims whose mean |h| in this layer stands out, the largest first; only `dim` if none does.
        largest: Mean over prompts at the sink's position.
        elsewhere: Mean over prompts of the same at later positions, largest position by position.
        median: Median |h| of the same layer.
        by_layer: `largest` after each layer.
        held: Signed mean of h in `dims` at the sink after each layer, [layer][dim].
    """

    layer: int
    dim: int
    dims: list[int]
    largest: float
    elsewhere: float
    median: float
    by_layer: list[float]
    held: list[list[float]]

    @property
    def layers(self) -> list[int]:
        """The layers whose output has at least `STANDS_OUT` times `elsewhere`."""
        return [layer for layer, largest in enumerate(self.by_layer) if largest >= STANDS_OUT * self.elsewhere]

    @property
    def stands_out(self) -> bool:
        """Whether it is at least `STANDS_OUT` times the largest |h| at later positions."""
        return self.largest >= STANDS_OUT * self.elsewhere


@dataclass(frozen=True)
class SinkPlaces:
    """The positions of a model's sinks.

    Attributes:
        heads: [layer, head, mean attention to `position`] of each head with more than 0.3.
        of: Total number of heads.
        rate: Share of heads and prompts that sink on any key, with its interval.
        position: The position with the most sinking heads.
        share: Share of all sinks (heads and prompts) that are on `position`.
        token: The text of the token at `position`, if all prompts have the same; else None.
        elsewhere: [token id, text, share of all sinks] of sink tokens at other positions, most frequent first.
        no_key: Attention that goes to no key (a bias, a sink logit), mean over heads, with its interval.
        by_head: Mean attention to `position`, [layer][head].
        activation: The largest activation at `position`.
    """

    heads: list[tuple[int, int, float]]
    of: int
    rate: dict[str, Any]
    position: int
    share: float
    token: str | None
    elsewhere: list[tuple[int, str, float]]
    no_key: dict[str, Any]
    by_head: list[list[float]]
    activation: Activation

    @property
    def sinks(self) -> bool:
        """Whether a head sinks on a key."""
        return bool(self.heads)

    def clamp(self) -> dict[str, Any]:
        """Return the content of clamp.json (see `Card.clamp`)."""
        activation, layers = self.activation, self.activation.layers
        where = {"position": self.position, "dims": activation.dims, "layers": layers}
        clamp = where | {"values": [activation.held[layer] for layer in layers], "bound": activation.elsewhere}
        return clamp if activation.stands_out else {}

    def sentence(self) -> str:
        """Describe the sinks in one line."""
        if not self.sinks:
            return f"no head of {self.of} sinks on a key (mean attention above {EPS})"
        place = f"position {self.position}" + (f", {self.token!r}" if self.token is not None else "")
        return f"{len(self.heads)} of {self.of} heads sink on {place}; {self.share:.0%} of all sinks are there"

    def activation_sentence(self) -> str:
        """Describe the size of the activation at the sink in one line."""
        activation = self.activation
        dims = f"dim{'s' * (len(activation.dims) > 1)} {', '.join(map(str, activation.dims))}"
        return (
            f"largest |h| at position {self.position}: {activation.largest:,.4g} after layer {activation.layer} ({dims}), "
            f"{activation.largest / max(activation.elsewhere, 1e-30):,.3g} times as large as at later positions"
        )


def where(ground: Ground) -> SinkPlaces:
    """Find the heads that sink, their position and tokens, and the largest activation there."""
    own, key = ground.own, ground.key
    received = np.nan_to_num(own.received)
    place, there = received.argmax(axis=-1), received.max(axis=-1) > EPS  # of each prompt, layer and head
    prompt, *_ = np.nonzero(there & (place != key))
    others = Counter(own.tokens[prompt, place[there & (place != key)]].tolist()).most_common(NAMED)
    by_head = np.nanmean(own.received[..., key], axis=0)
    of_key = np.unique(own.tokens[:, key])
    return SinkPlaces(
        heads=[(layer, head, float(by_head[layer, head])) for layer, head in np.argwhere(ground.heads).tolist()],
        of=ground.heads.size,
        rate=own.number(there.mean(axis=(1, 2))),
        position=key,
        share=float((there & (place == key)).sum() / max(there.sum(), 1)),
        token=ground.text_of(int(of_key[0])) if len(of_key) == 1 else None,
        elsewhere=[(token, ground.text_of(token), count / int(there.sum())) for token, count in others],
        no_key=own.number(own.numbers["received_bias"].mean(axis=(1, 2))),
        by_head=by_head.tolist(),
        activation=_activation(own.numbers, ground.vectors["resid"], key),
    )


def _activation(numbers: Numbers, resid: NDArray[np.float64], key: int) -> Activation:
    """Find the largest activation. resid: [prompt, layer, dim] at the sink."""
    largest = np.asarray(numbers["resid_max"][:, 1:], np.float64)  # [prompt, layer, position]
    by_layer = np.nanmean(largest[..., key], axis=0)
    layer = int(np.argmax(by_layer))
    dim = int(np.bincount(numbers["resid_argmax"][:, layer + 1, key]).argmax())
    elsewhere = float(np.nanmax(np.nanmean(np.delete(largest[:, layer], key, axis=1), axis=0)))
    size = np.abs(resid[:, layer]).mean(axis=0)
    dims = [int(each) for each in np.argsort(-size) if size[each] >= STANDS_OUT * elsewhere] or [dim]
    median = float(np.nanmedian(numbers["resid_median"][:, layer + 1]))
    held = resid[:, :, dims].mean(axis=0).tolist()
    return Activation(layer, dim, dims, float(by_layer[layer]), elsewhere, median, by_layer.tolist(), held)
