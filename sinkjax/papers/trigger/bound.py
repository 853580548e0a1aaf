"""trigger/bound: what softmax without a sink costs. Layers whose BOS mass is held, in training or after it, and lower bounds.

The bounds and their derivation: `docs/results/trigger-bounds.md` and `_bounds.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.summary import Row
from sinkjax.config_files.checks import at_least, refuse
from sinkjax.edits.edit import Edit
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.papers._shared import Arrays
from sinkjax.papers.trigger import _bounds
from sinkjax.papers.trigger._bounds import Shape
from sinkjax.papers.trigger._config import Trials, training
from sinkjax.papers.trigger._figures import SMALLEST_LOSS
from sinkjax.papers.trigger._measure import NEVER, held_out, in_blocks, learned
from sinkjax.papers.trigger._outcomes import MILLION
from sinkjax.probes.probe import Probe
from sinkjax.report.figures.lines import Axis, Bundle, curves
from sinkjax.report.section import Drawing
from sinkjax.study import Lab, Numbers, TrainedModels, TrainingSpec, from_results
from sinkjax.tasks.trigger.capped import held, run_others, shifted
from sinkjax.tasks.trigger.config import CappedTraining, Trigger, TriggerTraining
from sinkjax.tasks.trigger.task import model
from sinkjax.train.config import DIVERGED
from sinkjax.train.trained import Trained


@dataclass(frozen=True, kw_only=True)
class Settings(Trials):
    caps: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99, 0.997, 0.999, 1.0)
    """masses on BOS that are held in the rows other than BOS's and the trigger's"""
    cap_seeds: int = 4
    """runs of each mass that is held in training"""
    cap_steps: int = 5000
    """training steps of each of these runs"""
    shifts: tuple[float, ...] = (-2.0, -4.0, -6.0, -8.0, -10.0, -12.0)
    """added to BOS's logit in those rows of the trained layers"""

    def check(self) -> None:
        super().check()
        at_least(self, cap_seeds=1, cap_steps=1)
        for name in ("caps", "shifts"):
            refuse(not getattr(self, name), f"{name} is empty")
        wrong = list(self.caps) != sorted(set(self.caps)) or not 0 <= self.caps[0] <= self.caps[-1] <= 1
        refuse(wrong, f"caps must rise from 0 to 1 at most, not {list(self.caps)}")


def study(lab: Lab, s: Settings) -> None:
    """What softmax without a sink costs."""
    stated = training(s, {})
    free = TrainingSpec("free", stated, model(stated), partial(of_free, s, s.caps, s.shifts))
    held = CappedTraining(**vars(training(s, {"seeds": s.cap_seeds, "steps": s.cap_steps, "tolerance": NEVER})), caps=s.caps)
    capped = TrainingSpec("capped", held, model(held), partial(of_capped, s, s.caps, s.cap_seeds))
    layers = lab.train("free", free, "free to sink"), lab.train("capped", capped, "mass held in training")

    lab.identity("bounds", "docs/results/trigger-bounds.md, on Ran-Milo 2026, Theorem 1", above_bounds(*layers))
    lab.describe("losses", "ours", lambda read: held_losses(read, *layers))
    lab.draw(loss_and_mass, *layers)


# trigger/bound: losses of trained layers next to the lower bounds of docs/results/trigger-bounds.md.


KINDS = ("mass held in training", "free to sink", "while learning", "mass held after training", "logit shifted after training")
MORE = (0.9997, 0.9999, 0.99997, 0.99999)  # further masses for bounds, because trained layers reach them
ANY_MEAN, ANY_FIRST, BLIND, EVEN = "A: mean of rows", "B: row 1", "C: blind weights", "even weights (attained)"


def shape_of(read: Numbers) -> Shape:
    return Shape.of(Trigger(width=read.settings.width, length=read.settings.length))


def masses(capped: xarray.Dataset) -> tuple[float, ...]:
    """The masses below 1 where bounds are computed, in rising order."""
    return tuple(sorted({float(cap) for cap in (*capped["cap"].values, *MORE) if cap < 1}))


def bounds(shape: Shape, caps: Sequence[float] | NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The bounds, and the loss that even weights attain, at some masses: float[cap]."""
    return {
        ANY_MEAN: np.array([_bounds.flags(cap, shape) for cap in caps]),
        ANY_FIRST: np.array([_bounds.first_row(cap, shape) for cap in caps]),
        BLIND: np.array([_bounds.blind(cap, shape, each=True) for cap in caps]),
        EVEN: np.array([_bounds.even(np.full(shape.length, 1 - cap), shape) for cap in caps]),
    }


def points(free: xarray.Dataset, capped: xarray.Dataset) -> dict[str, NDArray[Any]]:
    """All layers: kind -> float[layer, (loss, mean BOS mass, largest BOS mass of row 1)], NaN if not measured."""

    def of(data: xarray.Dataset, prefix: str = "") -> NDArray[Any]:
        return np.stack([data[prefix + name].values.ravel() for name in ("loss", "bos", "first")], axis=-1)

    learning = np.stack([free[f"curve_{name}"].values.ravel() for name in ("loss", "bos")], axis=-1)
    learning = np.pad(learning, ((0, 0), (0, 1)), constant_values=np.nan)
    found = dict(zip(KINDS, (of(capped), of(free), learning, of(free, "held_"), of(free, "shifted_")), strict=True))
    return {kind: array[np.isfinite(array[:, :2]).all(axis=1)] for kind, array in found.items()}


def distances(shape: Shape, known: Sequence[float], layers: NDArray[Any]) -> NDArray[Any]:
    """Loss of each layer over the larger of the bounds A and B for its masses; inf at a full sink. layers: as in `points`.

    Bound A is interpolated between the computed masses (`known`), in the logarithms of bound and mass off BOS.
    """
    falling = list(known)[::-1]
    off, curve = np.log1p(-np.array(falling)), np.log([_bounds.flags(cap, shape) for cap in falling])
    rest = 1 - layers[:, 1]
    mean = np.where(rest > 0, np.exp(np.interp(np.log(np.maximum(rest, 1e-300)), off, curve)), 0)
    least = np.maximum(mean, [0.0 if np.isnan(mass) else _bounds.first_row(float(min(mass, 1)), shape) for mass in layers[:, 2]])
    return np.asarray(np.divide(layers[:, 0], least, out=np.full(len(least), np.inf), where=least > 0))


@from_results
def above_bounds(read: Numbers, free: TrainedModels, capped: TrainedModels) -> tuple[bool, str]:
    """Return the identity that the loss of every layer is above bounds A and B for its masses on BOS."""
    stores = read.data(free.name), read.data(capped.name)
    known, shape = masses(stores[1]), shape_of(read)
    least = {kind: float(distances(shape, known, layers).min()) for kind, layers in points(*stores).items()}
    said = "; ".join(f"{kind} {ratio:.4g}" for kind, ratio in least.items())
    return all(ratio > 1 for ratio in least.values()), f"smallest ratio of a loss to the larger of bounds A and B: {said}"


def held_losses(read: Numbers, of_free: TrainedModels, of_capped: TrainedModels) -> list[Row]:
    """For each mass: losses over runs, held in training and after it, and the best one over each bound."""
    free, capped = read.data(of_free.name), read.data(of_capped.name)
    caps = capped["cap"].values
    curves = bounds(shape_of(read), caps)
    found = []
    for place, cap in enumerate(caps):
        learned = MILLION * capped["loss"].values[place]
        after = MILLION * free["held_loss"].values[:, place]
        values = {"loss, mass held in training (millionths)": learned, "loss, mass held after training (millionths)": after}
        smallest = np.nanmin(learned) / MILLION
        values |= {f"best loss over {name}": np.array([smallest / curve[place]]) for name, curve in curves.items() if cap < 1}
        found += [Row(f"BOS mass {cap:g}", "held", measure, read.interval(each)) for measure, each in values.items()]
    met = 100.0 * (free["outcome"].values == "converged")
    found.append(Row("free to sink", "held", "runs that met the stopping rule (%)", intervals.interval(met)))
    return found


def loss_and_mass(read: Numbers, of_free: TrainedModels, of_capped: TrainedModels) -> list[Drawing]:
    """Losses against the mass off BOS: held in training, next to the bounds; and held after training, next to the first kind."""
    free, capped = read.data(of_free.name), read.data(of_capped.name)
    caps, known = capped["cap"].values, masses(capped)
    lower, dots = bounds(shape_of(read), known), partial(Bundle, kind="dots")
    inner = caps < 1  # a logarithmic axis does not show a mass of 1
    off, losses, after = 1 - caps[inner], capped["loss"].values[inner], free["held_loss"].values[:, inner]
    best, offs = np.nanmin(losses, axis=1), np.tile(off, len(after))
    lines = [Bundle(name, 1 - np.array(known), values, kind="line") for name, values in lower.items()]
    trained = dots("mass held in training", np.repeat(off, losses.shape[1]), losses.ravel())
    mass, loss = "mass off BOS, other rows (1 - c)", "held-out mean squared error"
    sizes = f"n = {read.settings.width}, L = {read.settings.length}"
    here = [known.index(float(cap)) for cap in caps if cap < 1]
    ratios = [Bundle(name, off, best / values[here], kind="line") for name, values in lower.items()]
    path = dots("free to sink, while learning", 1 - free["curve_bos"].values.ravel(), free["curve_loss"].values.ravel())
    ended = dots("free to sink, at the end", 1 - free["bos"].values, free["loss"].values)
    forced = dots("mass held after training", offs, after.ravel())
    shifted = dots("logit shifted after training", 1 - free["shifted_bos"].values.ravel(), free["shifted_loss"].values.ravel())
    less = dots("mass held after training", offs, (after / best).ravel())
    lowest = max(float(np.nanmin(capped["loss"].values[-1])), SMALLEST_LOSS)
    at_full = "not measured" if inner.all() else f"{lowest:.1e}"

    def drawing(name: str, layers: list[Bundle], title: str, compared: list[Bundle], caption: str) -> Drawing:
        panels = Axis("loss", mass, loss, [*lines, trained, *layers], "xy"), Axis(title, mass, "ratio", compared, "xy")
        return Drawing(name, curves([panels], height=4.2), caption)

    in_training = f"""Left: layers with their mass held in training ({losses.shape[1]} runs per mass) and {len(after)} layers
        free to sink, with the bounds (docs/results/trigger-bounds.md). Right: the best loss at each mass over each line.
        {sizes}. At a mass of 1 on BOS, which a logarithmic axis does not show, the best loss is {at_full}."""
    afterwards = f"""Loss against the mass off BOS of layers trained free to sink and then edited without further training (the
        mass held in the other rows, or a number added to BOS's logit there), next to layers trained with the mass held.
        {sizes}."""
    return [
        drawing("bounds", [path, ended], "best loss with the mass held, over each line", ratios, in_training),
        drawing("forced", [forced, shifted], "loss over the best learned with the mass held", [less], afterwards),
    ]


# Measurements of trigger/bound: loss and BOS mass of trained layers, unedited, with the mass held and with the logit shifted.


Change = Callable[[Any, Any], Edit]  # `held` or `shifted`


def of_free(config: Trials, caps: Sequence[float], shifts: Sequence[float], trained: Trained) -> xarray.Dataset:
    """Each run without an edit, with its mass held (held_*) and with BOS's logit shifted (shifted_*), and its learning curves."""
    plain = _each(config, trained, shifted, [(0.0,)] * len(trained.runs))
    variables: dict[str, object] = {name: (("run",), array[:, 0]) for name, array in plain.items()}
    for axis, edit, values in (("held", held, caps), ("shifted", shifted, shifts)):
        found = _each(config, trained, edit, [values] * len(trained.runs))
        variables |= {f"{axis}_{name}": (("run", axis), array) for name, array in found.items()}
    variables |= learned(trained)
    seeds = [ended.run.seed for ended in trained.runs]
    return xarray.Dataset(variables, {"run": seeds, "held": list(caps), "shifted": list(shifts)})


def of_capped(config: Trials, caps: Sequence[float], seeds: int, trained: Trained) -> xarray.Dataset:
    """Each run with the clamped mass of its training."""
    masses = [(float(ended.run.variant),) for ended in trained.runs]  # in the order of caps, each with all its seeds
    shape = (len(caps), seeds)
    found = _each(config, trained, held, masses) | {"outcome": np.array([ended.outcome for ended in trained.runs])}
    first = [ended.run.seed for ended in trained.runs[:seeds]]
    variables = {name: (("cap", "run"), array.reshape(shape)) for name, array in found.items()}
    return xarray.Dataset(variables, {"cap": list(caps), "run": first})


def _each(config: Trials, trained: Trained, edit: Change, values: Sequence[Sequence[float]]) -> Arrays:
    """`on_sequences` of each run under an edit, for each of its values: name -> [run, value], NaN for runs that diverged."""
    data = held_out(Trigger(width=config.width, length=config.length), config.sequences, config.seed)
    architecture = model(cast(TriggerTraining, trained.config))
    pairs = [(trained.of(ended.run.run), of_run) for ended, of_run in zip(trained.runs, values, strict=True)]
    measured = [[on_sequences(params, architecture, data, edit, value) for value in of_run] for params, of_run in pairs]
    lost = np.array([[np.nan if ended.outcome == DIVERGED else 1.0] for ended in trained.runs])
    return {name: lost * np.array([[one[name] for one in row] for row in measured]) for name in measured[0][0]}


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
