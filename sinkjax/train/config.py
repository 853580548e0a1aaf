"""The configs that trainings share. This module imports no JAX, so that help and errors are immediate.

As for studies, a config holds everything that determines the numbers and nothing else; the config type of a task adds its fields.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from sinkjax.config_files.checks import above, at_least, each_once, last_seed, only_for, refuse, without_repeats
from sinkjax.config_files.documents import CHOICE, LATER, typed
from sinkjax.errors import SinkjaxError
from sinkjax.model.names import Dtype

KIND = "training"  # the key in a config file that names its task
SAVE_EVERY = 30.0  # maximum seconds of work that an interruption may cost
SPAN = 100  # ratio of the last to the first (after step 0) log-spaced checkpoint step
CONVERGED, DIVERGED, ALL_STEPS = "converged", "diverged", "all steps"  # outcomes of a run


@dataclass(frozen=True, kw_only=True)
class Training:
    """Runs of one task: every combination of seed, learning rate and task variant."""

    seed: int = 0
    """seed of the first run's initialisation and data (later runs count up)"""
    seeds: int = 1
    """runs per learning rate and variant"""
    learning_rates: tuple[float, ...] = (1e-3,)
    """constant learning rates of Adam"""
    beta1: float = 0.9
    """Adam's decay of the mean gradient"""
    beta2: float = 0.95
    """Adam's decay of the mean squared gradient"""
    steps: int = 50_000
    """updates per run, unless it stops earlier"""
    batch: int = 128
    """sequences per step"""
    eval_every: int = 100
    """steps between evaluations on held-out data, which run in one call"""
    eval_batch: int = 256
    """held-out sequences"""
    data_seed: int = 0
    """seed of the data, combined with the seed of the run"""
    shared_data: bool = False
    """use the same data for all runs; intervals over runs are then over initialisations only"""
    random_bits: Literal["hash", "threefry"] = "hash"
    """generator of the data's random numbers: a 32-bit hash of a counter, which costs less, or JAX's threefry"""
    together: Literal["auto", "vmap", "map"] = "auto"
    """how the runs of one device are computed: together (vmap) or in sequence (map); auto: map on CPUs, vmap elsewhere"""
    dtype: Dtype = "float32"
    """dtype of the parameters and activations; not float16, where Adam's epsilon is 0"""
    checkpoints: int | tuple[int, ...] = field(default=0, metadata=LATER)
    """models to save per run: a list of steps, or a count (the initial and final models, and log-spaced steps between them,
    starting at 1% of training); each is also evaluated"""

    @property
    def summary(self) -> str:
        """A short description of the model and its training."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        typed(self)
        at_least(self, seed=0, seeds=1, steps=1, batch=1, eval_every=1, eval_batch=1, data_seed=0)
        last_seed(self)
        if self.dtype == "float16":
            raise SinkjaxError('dtype "float16" cannot be trained: Adam\'s epsilon is 0 in it; choose bfloat16 or float32')
        kept = (self.checkpoints,) if isinstance(self.checkpoints, int) else self.checkpoints
        without_repeats("checkpoints", kept)
        for step in kept:
            refuse(not 0 <= step <= self.steps, f"checkpoints must lie between 0 and steps ({self.steps}), not at {step}")
        each_once(self, "learning_rates")
        for rate in self.learning_rates:
            refuse(not 0 < rate < float("inf"), f"learning_rates must be positive numbers, not {rate}")
        for name in ("beta1", "beta2"):
            refuse(not 0 <= getattr(self, name) < 1, f"{name} must be at least 0 and below 1, not {getattr(self, name)}")

    @property
    def kept(self) -> tuple[int, ...]:
        """Steps whose models are kept, in ascending order, without repeats from log spacing."""
        if not isinstance(self.checkpoints, int):
            return tuple(sorted(self.checkpoints))
        count = self.checkpoints - 1  # in addition to the initialised model
        spaced = (math.ceil(self.steps * SPAN ** (number / max(1, count - 1) - 1)) for number in range(count - 1))
        return tuple(sorted({0, *spaced, self.steps})) if count > 0 else (self.steps,) * self.checkpoints

    def next_stop(self, step: int) -> int:
        """Return where a call that starts at `step` ends: at the next evaluation, the next kept model or the last step."""
        evaluation = (step // self.eval_every + 1) * self.eval_every
        return min(evaluation, self.steps, *(stop for stop in self.kept if stop > step))


@dataclass(frozen=True, kw_only=True)
class AdamWTraining(Training):
    """A training by AdamW, with weight decay on all parameters, including norms and embeddings."""

    learning_rates: tuple[float, ...] = (4e-4,)
    """learning rates of AdamW, after the warm-up"""
    weight_decay: float = 0.1
    """decoupled, on all parameters"""
    warmup: int = 100
    """updates with a linearly rising learning rate"""
    schedule: Literal["constant", "cosine"] = "constant"
    """schedule of the learning rate after the warm-up"""
    lowest: float = 0.1
    """final value of the cosine schedule, as a fraction of the learning rate"""
    micro_batch: int | None = None
    """sequences per gradient computation, accumulated over the batch; if none, all"""
    mesh: tuple[int, int] = field(default=(1, 1), metadata=CHOICE)
    """devices of one run: the number that share the sequences of a (micro-)batch, and the number that share the matrices; where
    several processes are joined, all devices share the sequences of a text by default"""
    clip: float | None = 1.0
    """clip the global gradient norm to this value"""
    optimiser: Literal["adamw", "sgd", "muon", "orthoadam"] = field(default="adamw", metadata=LATER)
    """AdamW; SGD with momentum; Muon for the matrices of attention and MLP, beside AdamW for all else, both with Nesterov
    momentum as in optax; or OrthoAdam, AdamW with its moments in a rotated basis. Each with the rate, schedule, weight decay and
    clipping above"""
    momentum: float = field(default=0.9, metadata=LATER)
    """momentum of SGD; Muon uses beta2"""
    edits: str = field(default="", metadata=LATER)
    """edits active in training steps but not in evaluations: YAML with a list `edits` (on the command line, its file)"""
    from_step: int = field(default=0, metadata=LATER)
    """first step with the edits"""
    until: int | None = field(default=None, metadata=LATER)
    """first step without the edits again; if none, never"""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, weight_decay=0, warmup=0, lowest=0, micro_batch=1, from_step=0, until=1)
        only_for(self, "momentum", self.optimiser == "sgd", "the optimiser 'sgd'")
        for name in ("from_step", "until"):
            only_for(self, name, bool(self.edits), "edits, and there are none")
        refuse(not 0 <= self.momentum < 1, f"momentum must be at least 0 and below 1, not {self.momentum}")
        before = self.until is not None and self.until <= self.from_step
        refuse(before, f"until must be after from_step ({self.from_step}), not {self.until}")
        refuse(self.lowest > 1, f"lowest must be at most 1, not {self.lowest}")
        above(self, clip=0)
        wrong = min(self.mesh) < 1 or (self.micro_batch or self.batch) % self.mesh[0] > 0
        refuse(wrong, f"mesh must be two numbers of at least 1, the first a divisor of a (micro-)batch, not {list(self.mesh)}")
        if self.micro_batch is not None and self.batch % self.micro_batch:
            raise SinkjaxError(f"micro_batch must divide batch ({self.batch}), not {self.micro_batch}")
