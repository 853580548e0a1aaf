"""What the trainer has to know of a task."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol

import jax

from sinkjax.model.params import Params


class Task(Hashable, Protocol):
    """A model, its data and its loss. Hashable, being a static argument of the jitted step; all methods but `init` are traced.

    variants: names of what differs between runs beside seed and learning rate, on parameters of one shape; at least one.
    A variant arrives as int32 [], its place in `variants`.
    """

    @property
    def variants(self) -> tuple[str, ...]: ...

    def init(self, seed: int) -> Params:
        """Parameters drawn from a seed."""

    def batch(self, key: jax.Array) -> Any:
        """The training batch of one step, a pytree; `key` is that of (data seed, run, step)."""

    def held_out(self, key: jax.Array) -> Any:
        """The held-out batch; `key` is that of the data seed."""

    def loss(self, params: Params, batch: Any, variant: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The loss, float [], and whether the run has reached its goal on this batch, bool []; before the update."""

    def evaluate(self, params: Params, batch: Any, variant: jax.Array) -> dict[str, jax.Array]:
        """What an evaluation logs: name -> float [] or a small array."""
