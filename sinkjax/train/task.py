"""What the trainer needs of a task: a model, its loss and its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import jax
import numpy as np

from sinkjax.checkpoints.tokenizer import Tokenizer
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.runtime.settings import random_key


class DataSource(Protocol):
    """Data on the host.

    card: their description as JSON; a training can be resumed only with data of the same card. tokenizer: of a text, or None.
    """

    card: dict[str, Any]
    tokenizer: Tokenizer | None

    def batch(self, seed: int, k: int, rows: np.ndarray | None = None) -> Any:
        """Return batch k of a run with this seed: a pytree of NumPy arrays that depends only on these and the config.

        rows: requested rows of the batch, int [n]; None for all.
        """

    def held_out(self) -> Any:
        """Return the held-out batch."""


class Task(Protocol):
    """The base class of tasks: frozen dataclasses, because a task is a static argument of the jitted step.

    `loss`, `evaluate`, `batch` and `held_out` are traced, with a variant as int32 [], its index in `variants`. The data are
    generated on the device, by `batch` and `held_out`, or `on_host` is true and `open` reads them.

    name: folder name of its trainings. config: the training's config. variants: at least one name; variants are differences
    between runs other than seed and learning rate, and their parameters have the same shapes.
    """

    name: ClassVar[str]
    config: Any
    on_host: ClassVar[bool] = False

    @property
    def variants(self) -> tuple[str, ...]: ...

    def model(self, variant: str) -> Config:
        """Return the architecture of a variant's runs."""

    def init(self, seed: int) -> Params:
        """Draw parameters from a seed."""

    def loss(self, params: Params, batch: Any, variant: jax.Array, step: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
        """Return the loss before the update, float [], and whether the run reached its goal on this batch, bool [].

        step: number of earlier updates, int32 []; None outside of training.
        """

    def evaluate(self, params: Params, batch: Any, variant: jax.Array) -> dict[str, jax.Array]:
        """Return an evaluation's values to log: name -> float [] or a small array."""

    def summarise(self, measured: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Return log entries from the values of `evaluate` for one run, on the host."""
        return dict(measured)

    def batch(self, key: jax.Array) -> Any:
        """Return the training batch of one step, a pytree; `key` comes from (data seed, run, step)."""
        return None

    def held_out(self, key: jax.Array) -> Any:
        """Return the held-out batch; `key` comes from the data seed."""
        return None

    @property
    def card(self) -> dict[str, Any]:
        """The description of data that are generated on the device, as for `DataSource`."""
        return {}

    def open(self, say: Callable[[str], None]) -> Any:
        """Prepare data on the host, a `DataSource`. say: called with a line of text before slow steps."""
        return None

    def batch_shapes(self) -> Any:
        """Return the shapes and dtypes of a training batch."""
        return jax.eval_shape(self.batch, random_key(0))
