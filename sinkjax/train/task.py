"""The interface between the trainer and a task."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np

from sinkjax.checkpoints.tokenizer import Tokenizer
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.train.config import Training


class Task(Hashable, Protocol):
    """A model and its loss. Must be hashable, as a static argument of the jitted step; all methods except `init` are traced.

    Its data are generated on the device (`DeviceDataTask`) or read on the host (`HostDataTask`). name: folder name of its
    trainings. config: the training's config. variants: at least one name; variants are differences between runs other than seed
    and learning rate, and their parameters have the same shapes. Methods receive a variant as int32 [], its index in `variants`.
    """

    @property
    def name(self) -> str: ...

    @property
    def config(self) -> Training: ...

    @property
    def variants(self) -> tuple[str, ...]: ...

    def init(self, seed: int) -> Params:
        """Draw parameters from a seed."""

    def loss(self, params: Params, batch: Any, variant: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the loss before the update, float [], and whether the run reached its goal on this batch, bool []."""

    def evaluate(self, params: Params, batch: Any, variant: jax.Array) -> dict[str, jax.Array]:
        """Return an evaluation's values to log: name -> float [] or a small array."""


@runtime_checkable
class DeviceDataTask(Protocol):
    """A task whose data are generated on the device; both methods are traced."""

    def batch(self, key: jax.Array) -> Any:
        """Return the training batch of one step, a pytree; `key` comes from (data seed, run, step)."""

    def held_out(self, key: jax.Array) -> Any:
        """Return the held-out batch; `key` comes from the data seed."""


@runtime_checkable
class DescribedTask(Protocol):
    """A task that describes the data that it generates. card: as for `DataSource`."""

    @property
    def card(self) -> dict[str, Any]: ...


@runtime_checkable
class SteppedTask(Protocol):
    """A task whose loss depends on the step."""

    def at_step(self, batch: Any, step: jax.Array) -> Any:
        """Return the batch for the update after `step` others, int32 []; traced."""


class DataSource(Protocol):
    """Data on the host. card: their description as JSON; a training can be resumed only with data of the same card."""

    @property
    def card(self) -> dict[str, Any]: ...

    def batch(self, seed: int, k: int, rows: np.ndarray | None = None) -> Any:
        """Return batch k of a run with this seed: a pytree of NumPy arrays that depends only on these and the config.

        rows: requested rows of the batch, int [n]; None for all.
        """

    def held_out(self) -> Any:
        """Return the held-out batch."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the text, or None for data that are not text."""


@runtime_checkable
class HostDataTask(Protocol):
    """A task whose data are read on the host."""

    def open(self, say: Callable[[str], None]) -> DataSource:
        """Prepare the data. say: called with a line of text before slow steps."""

    def batch_shapes(self) -> Any:
        """Return the shapes and dtypes of a training batch."""


@runtime_checkable
class SummarisingTask(Protocol):
    """A task whose evaluations are reduced on the host before they are logged."""

    def summarise(self, measured: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Return log entries from the values of `evaluate` for one run."""


@runtime_checkable
class ModelTask(Protocol):
    """A task that trains sinkjax models, which can be saved one by one."""

    def model(self, variant: str) -> Config:
        """Return the architecture of a variant's runs."""
