"""Links between an isolated token and its sink: edits that isolate it, and that put one run's values into another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax import Capture, Edit, Site, edit
from sinkjax.model.config import Config
from sinkjax.papers.li._neurons import Neuron
from sinkjax.study import Unedited

LINKS = ("variance", "neurons", "disparity", "keys")  # in the order of the chain
KINDS = ("self", "one other key", "even", "all but the first")
WINDOWS = ("early", "middle", "until it forms", "after it forms", "all")
Values = Mapping[str, NDArray[Any]]  # link -> its values at each position, [layer or neuron, prompt, position, ...]


@dataclass(frozen=True)
class Chain:
    """The chain from a token's isolation to its sink.

    Attributes:
        at: The token.
        seen: The key that it sees where it is isolated by one other key.
        early: The last of the early layers. If the activation forms by then, they end before the layer in which it does.
        forms: The layer in which the activation forms.
        layers: Number of layers of the model.
        neurons: The super neurons.
        dim: The dim of the massive activation.
    """

    at: int
    seen: int
    early: int
    forms: int
    layers: int
    neurons: Sequence[Neuron]
    dim: int

    def isolated(self, kind: str = "self", window: str = "all") -> Edit:
        """Isolate the token in some layers.

        Args:
            kind: "self" (it sees only itself), "one other key" (only `seen`), "even" (all keys get the same weight) or "all
                but the first" (key 0 is hidden from it).
            window: "early" (layers 0 to `early`), "middle" (from there to the one where the activation forms), "until it forms",
                "after it forms" or "all".
        """
        early = min(self.early, max(self.forms - 1, 0))
        layers = {
            "early": range(early + 1),
            "middle": range(min(early + 1, self.forms), self.forms + 1),
            "until it forms": range(self.forms + 1),
            "after it forms": self._after(),
            "all": range(self.layers),
        }
        keys = {
            "self": range(self.at),
            "one other key": [key for key in range(self.at + 1) if key != self.seen],
            "even": range(self.at + 1),
            "all but the first": [0],
        }
        score = 0.0 if kind == "even" else -np.inf
        return edit("logits", "set", score, queries=self.at, keys=keys[kind], layers=layers[window])

    def _after(self) -> range:
        return range(min(self.forms + 1, self.layers - 1), self.layers)

    def under(self, run: Unedited, made: Edit) -> Values:
        """Return each link's values at every position under an edit.

        Returns:
            "variance": head outputs, float[layer, prompt, position, head, dim]. "neurons": float[neuron, prompt, position].
            "disparity": `dim` of the stream after each layer, float[layer, prompt, position, 1]. "keys": before the rotation,
            float[layer, prompt, position, key-value head, dim].
        """
        heads, keys = Capture(Site.HEAD_OUT, name="variance"), Capture(Site.KEY, name="keys")
        neurons = {f"neuron {layer} {number}": (layer, number) for layer, number in self.neurons}
        each = [Capture(Site.NEURON, layers=(at[0],), dims=(at[1],), name=name) for name, at in neurons.items()]
        found = run.captured(heads, keys, Capture(Site.RESID, dims=(self.dim,), name="disparity"), *each, edit=made)
        return found | {"neurons": np.stack([found.pop(name)[0, :, :, 0] for name in neurons])}

    def blank(self, architecture: Config, prompts: int, length: int) -> Values:
        """Return zeros of the shapes of `under`."""
        here, dim = (self.layers, prompts, length), architecture.head_dim
        shapes = (*here, architecture.heads, dim), (len(self.neurons), *here[1:]), (*here, 1), (*here, architecture.kv_heads, dim)
        return {link: np.broadcast_to(np.float32(0), shape) for link, shape in zip(LINKS, shapes, strict=True)}

    def put(self, link: str, run: Values, source: NDArray[np.intp] | None = None) -> list[Edit]:
        """Return the edits that put a link's values of a run at the token.

        Args:
            link: One of `LINKS`.
            run: `under` an edit.
            source: The position whose values each prompt gets; None for the token.
        """
        every = run[link]
        values = every[:, :, self.at] if source is None else every[:, np.arange(every.shape[1]), source]
        if link == "variance":
            return [edit("head_out", "set", values, layers=range(self.forms + 1), queries=self.at)]
        if link == "neurons":
            put = partial(edit, "neuron", "set", queries=self.at)
            each = zip(values, self.neurons, strict=True)
            return [put(value[:, None], layers=layer, dims=[number]) for value, (layer, number) in each]
        if link == "disparity":
            return [edit("resid", "set", values, layers=range(self.forms, self.layers), dims=[self.dim], queries=self.at)]
        return [edit("key", "set", values, layers=self._after(), keys=self.at)]
