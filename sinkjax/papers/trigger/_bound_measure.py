"""Measurements of trigger/bound: loss and BOS mass of trained layers, unedited, with the mass held and with the logit shifted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax.edits.edit import Edit
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.papers.trigger._config import Trials
from sinkjax.papers.trigger._measure import held_out, in_blocks, learned
from sinkjax.probes.probe import Probe
from sinkjax.tasks.trigger.capped import held, run_others, shifted
from sinkjax.tasks.trigger.config import Trigger, TriggerTraining
from sinkjax.tasks.trigger.task import model
from sinkjax.train.config import DIVERGED
from sinkjax.train.trained import Trained

Change = Callable[[Any, Any], Edit]  # `held` or `shifted`

Found = dict[str, NDArray[Any]]


def free(config: Trials, caps: Sequence[float], shifts: Sequence[float], trained: Trained) -> xarray.Dataset:
    """Each run without an edit, with its mass held (held_*) and with BOS's logit shifted (shifted_*), and its learning curves."""
    plain = _each(config, trained, shifted, [(0.0,)] * len(trained.runs))
    variables: dict[str, object] = {name: (("run",), array[:, 0]) for name, array in plain.items()}
    for axis, edit, values in (("held", held, caps), ("shifted", shifted, shifts)):
        found = _each(config, trained, edit, [values] * len(trained.runs))
        variables |= {f"{axis}_{name}": (("run", axis), array) for name, array in found.items()}
    variables |= learned(trained)
    seeds = [ended.run.seed for ended in trained.runs]
    return xarray.Dataset(variables, {"run": seeds, "held": list(caps), "shifted": list(shifts)})


def capped(config: Trials, caps: Sequence[float], seeds: int, trained: Trained) -> xarray.Dataset:
    """Each run with the clamped mass of its training."""
    masses = [(float(ended.run.variant),) for ended in trained.runs]  # in the order of caps, each with all its seeds
    shape = (len(caps), seeds)
    found = _each(config, trained, held, masses) | {"outcome": np.array([ended.outcome for ended in trained.runs])}
    first = [ended.run.seed for ended in trained.runs[:seeds]]
    variables = {name: (("cap", "run"), array.reshape(shape)) for name, array in found.items()}
    return xarray.Dataset(variables, {"cap": list(caps), "run": first})


def _each(config: Trials, trained: Trained, edit: Change, values: Sequence[Sequence[float]]) -> Found:
    """`on_sequences` of each run under an edit, for each of its values: name -> [run, value], NaN for runs that diverged."""
    data = held_out(Trigger(width=config.width, length=config.length), config.sequences, config.seed)
    architecture = model(cast(TriggerTraining, trained.config))
    found: list[list[dict[str, float]]] = []
    for ended, own in zip(trained.runs, values, strict=True):
        params = trained.of(ended.run.run)
        found.append([on_sequences(params, architecture, data, edit, value) for value in own])
    lost = np.array([[np.nan if ended.outcome == DIVERGED else 1.0] for ended in trained.runs])
    return {name: lost * np.array([[one[name] for one in row] for row in found]) for name in found[0][0]}


def on_sequences(params: Params, config: Config, data: Sequence[jax.Array], edit: Change, value: float) -> dict[str, float]:
    """One layer on held-out sequences under `held` or `shifted` with a value.

    loss: mean squared error. bos: mean BOS mass over sequences and all rows but BOS's and the trigger's. first: the largest BOS
    mass of row 1 in any sequence.
    """
    fractions, parts = in_blocks(data, partial(_block, params, value=jnp.float32(value), config=config, edit=edit))
    mean = {name: float(fractions @ parts[name].astype(np.float64)) for name in ("loss", "bos")}
    return mean | {"first": float(parts["first"].max())}


@partial(jax.jit, static_argnames=("config", "edit"))
def _block(
    params: Params, x: jax.Array, y: jax.Array, j: jax.Array, *, value: jax.Array, config: Config, edit: Change
) -> dict[str, jax.Array]:
    """`on_sequences` of one block."""
    output, record = run_others(params, x, j, edit, value, config, Probe(attention=(0,)))
    mass = record["attention"][:, 0, 0, :, 0]
    row = jnp.arange(x.shape[1])
    others = (row > 0) & (row != j[:, None])
    bos = jnp.where(others, mass, 0).sum() / others.sum()
    return {"loss": jnp.square(output - y).mean(), "bos": bos, "first": mass[:, 1].max()}
