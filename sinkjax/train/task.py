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
    """A model and its loss. Hashable, as it is a static argument of the jitted step; all methods but `init` are traced.

    Its data are generated on the device (`DeviceDataTask`) or read on the host (`HostDataTask`).
    name: folder name of its trainings. config: the training's. variants: at least one name; variants are the differences
    between runs besides seed and learning rate, with parameters of the same shape. Methods receive a variant as int32 [], its
    index in `variants`.
    """

    @property
    def name(self) -> str: ...

    @property
    def config(self) -> Training: ...

    @property
    def variants(self) -> tuple[str, ...]: ...

    def init(self, seed: int) -> Params:
        """Parameters drawn from a seed."""

    def loss(self, params: Params, batch: Any, variant: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The loss, float [], and whether the run has reached its goal on this batch, bool []; before the update."""

    def evaluate(self, params: Params, batch: Any, variant: jax.Array) -> dict[str, jax.Array]:
        """Logged values of an evaluation: name -> float [] or a small array."""


@runtime_checkable
class DeviceDataTask(Protocol):
    """A task whose data are generated on the device; both methods are traced."""

    def batch(self, key: jax.Array) -> Any:
        """The training batch of one step, a pytree; `key` comes from (data seed, run, step)."""

    def held_out(self, key: jax.Array) -> Any:
        """The held-out batch; `key` comes from the data seed."""


@runtime_checkable
class SteppedTask(Protocol):
    """A task whose loss depends on the step."""

    def at_step(self, batch: Any, step: jax.Array) -> Any:
        """The batch as the loss takes it in an update after `step` others, int32 []; traced."""


class DataSource(Protocol):
    """Data on the host. card: their description, as JSON; a training is resumed only with data of the same card."""

    @property
    def card(self) -> dict[str, Any]: ...

    def batch(self, seed: int, k: int, rows: np.ndarray | None = None) -> Any:
        """Batch k of a run with this seed, a pytree of numpy arrays that depends only on the two and the config.

        rows: of the batch that are wanted, int [n]; None: all.
        """

    def held_out(self) -> Any:
        """The held-out batch."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the text; None for data that are not text."""


@runtime_checkable
class HostDataTask(Protocol):
    """A task whose data are read on the host."""

    def open(self, say: Callable[[str], None]) -> DataSource:
        """Prepare the data. say: called with a line of text before slow steps."""

    def batch_shapes(self) -> Any:
        """Shapes and dtypes of a training batch."""


@runtime_checkable
class SummarisingTask(Protocol):
    """A task whose evaluations are reduced on the host before they are logged."""

    def summarise(self, measured: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The entries of the log, from the values of `evaluate` for one run."""


@runtime_checkable
class ModelTask(Protocol):
    """A task that trains models of this library, which can be saved one by one."""

    def model(self, variant: str) -> Config:
        """The architecture of a variant's runs."""


@runtime_checkable
class TokenTask(Protocol):
    """A task whose speed is reported in tokens per second."""

    def tokens_per_step(self) -> int:
        """Tokens of one run in a step."""

    def flops_per_token(self) -> float:
        """FLOPs of a training step, for each of its tokens."""
