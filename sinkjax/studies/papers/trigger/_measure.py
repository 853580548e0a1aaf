"""What is measured on trained models: attention masses, losses, maps, and the loss under edits.

A mass is a mean over sequences and over rows of one kind: the trigger's row, or those of all other ordinary tokens but the first
of a sequence, which sees only itself. "weight" is what was used, "share" its part of the row's absolute weight, for rows that do
not sum to 1. "bos" is the first key, BOS or not; "anchors" what else stands before the ordinary tokens, "elsewhere" all these.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.edits.edit import Edit
from sinkjax.edits.site import Site
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.probes.probe import Probe
from sinkjax.studies.papers.trigger import _lab as lab
from sinkjax.studies.papers.trigger._lab import DIVERGED, EVERY, IDENTITY, OTHERS, TRIGGER, Lab
from sinkjax.studies.study import NO_EDIT, TrainingSpec
from sinkjax.tasks.trigger.config import Trigger, TriggerTraining
from sinkjax.tasks.trigger.data import sample
from sinkjax.tasks.trigger.task import model
from sinkjax.train.log import read
from sinkjax.train.trained import Trained

if TYPE_CHECKING:
    import xarray

BLOCK = 1000  # sequences whose maps are held at a time
ROWS, TARGETS = (TRIGGER, OTHERS), ("bos", "anchors", "elsewhere")
SMALL = 1e-8  # added to a row's sum, so that a row without weight has no shares (Gu et al. 2025)

MASSES = ("rows", "target", "layer", "head")
MAP = ("layer", "head", "query", "key")
DIMS: dict[str, tuple[str, ...]] = {
    "weight": MASSES,
    "share": MASSES,
    "uneven": ("layer", "head"),
    "loss": ("error_rows",),
    "largest_error": (),
    "null_loss": (),
    "map_mean": MAP,
    "map_std": MAP,
    "map_example": MAP,
    "edited_loss": ("edit", "error_rows"),
}


def measure(config: Lab, moves: tuple[int, ...], trained: Trained) -> xarray.Dataset:
    """Attention masses, losses and maps of every run on held-out sequences, how it learned, and its losses under edits.

    moves: places to which BOS is moved by the last edits; without any there are no edits. All of a run that diverged is NaN.
    """
    import xarray

    stated = cast(TriggerTraining, trained.config)
    trigger, architecture = stated.data, model(stated)
    data = held_out(trigger, config.sequences, config.seed)
    maps = held_out(trigger, config.map_sequences, config.seed, config.trigger_position)
    chosen = edits(trigger, config.trigger_position, moves) if moves else []
    parts = []
    for ended in trained.runs:
        params = trained.of(ended.run.run)
        found = on_sequences(params, architecture, data, trigger) | on_maps(params, architecture, maps[0])
        if chosen:
            found |= on_edits(params, architecture, maps, trigger, chosen)
        lost = np.nan if ended.outcome == DIVERGED else 1.0
        parts.append({name: lost * np.asarray(array, np.float64) for name, array in found.items()})
    variables: dict[str, tuple[tuple[str, ...], NDArray]] = {
        name: (("run", *DIMS[name]), np.stack([part[name] for part in parts])) for name in parts[0]
    }
    variables |= {name: (("run", "evaluation"), array) for name, array in curves(trained).items()}
    variables["steps"] = (("run",), np.array([ended.steps for ended in trained.runs]))
    variables["outcome"] = (("run",), np.array([ended.outcome for ended in trained.runs]))
    labels = {"rows": list(ROWS), "target": list(TARGETS), "error_rows": [*ROWS, EVERY]}
    labels |= {"edit": [edit.label for edit in chosen]} if chosen else {}
    return xarray.Dataset(variables, {"run": [ended.run.seed for ended in trained.runs], **labels})


def curves(trained: Trained) -> dict[str, NDArray]:
    """What the training logged of each run: step, loss and, mean over layers and heads, weight on and share of BOS in the other
    rows; float [run, evaluation], NaN after the last one of a run."""
    lines = read(trained.folder)[1]
    each = [[line for line in lines if line["run"] == number] for number in range(len(trained.runs))]
    names = {"curve_step": "step", "curve_loss": "loss", "curve_bos": "bos", "curve_share": "bos_share"}
    found = {name: np.full((len(each), max(map(len, each))), np.nan) for name in names}
    for run, logged in enumerate(each):
        for place, line in enumerate(logged):
            for name, key in names.items():
                found[name][run, place] = np.nan if line[key] is None else np.mean(line[key])
    return found


def key_of(seed: int, name: str) -> jax.Array:
    """The random key of (seed, name)."""
    return jax.random.fold_in(jax.random.key(seed), zlib.crc32(name.encode()))


def held_out(trigger: Trigger, count: int, seed: int, position: int | None = None) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Sequences that no training sees: inputs [count, L, n], targets of the same shape, positions of the trigger [count]."""
    return sample(key_of(seed, f"held out, trigger at {position}"), trigger, count, position)


def on_sequences(params: Params, config: Config, data: Sequence[jax.Array], trigger: Trigger) -> dict[str, NDArray]:
    """Masses and losses of one model over held-out sequences.

    uneven: the largest difference of the trigger row's weights on the tokens that it averages from 1 / their number. loss: mean
    squared error over coordinates and the rows of each kind, or every row. largest_error: L-infinity. null_loss: of a model that
    writes nothing.
    """
    count = len(data[0])
    blocks = [tuple(array[start : start + BLOCK] for array in data) for start in range(0, count, BLOCK)]
    parts = [jax.device_get(_block(params, *block, config=config, trigger=trigger)) for block in blocks]
    weights = [len(block[0]) / count for block in blocks]
    found = {name: np.tensordot(weights, np.stack([part[name] for part in parts]), 1) for name in parts[0]}
    return found | {"largest_error": np.max([part["largest_error"] for part in parts])}


@partial(jax.jit, static_argnames=("config", "trigger"))
def _block(params: Params, x: jax.Array, y: jax.Array, j: jax.Array, *, config: Config, trigger: Trigger) -> dict[str, jax.Array]:
    """`on_sequences` of a few sequences."""
    output, weights = _run(params, x, config)  # weights: [B, layer, head, T, T]
    size = jnp.abs(weights)
    rows = row_kinds(j, trigger)
    token = jnp.arange(trigger.length)
    averaged = (token >= trigger.specials) & (token <= j[:, None])
    own = jnp.take_along_axis(weights, j[:, None, None, None, None], axis=3)[..., 0, :]  # the trigger's row
    even = 1 / (j - trigger.specials + 1)[:, None, None, None]
    still = x if config.residual else jnp.zeros_like(x)
    return {
        "weight": _masses(weights, rows, trigger),
        "share": _masses(size / (size.sum(axis=-1, keepdims=True) + SMALL), rows, trigger),
        "uneven": jnp.where(averaged[:, None, None], jnp.abs(own - even), 0).max(axis=-1).mean(axis=0),
        "loss": _errors(output, y, rows),
        "largest_error": jnp.abs(output - y).max(),
        "null_loss": jnp.square(still - y).mean(),
    }


def _run(params: Params, x: jax.Array, config: Config) -> tuple[jax.Array, jax.Array]:
    """Outputs [B, T, n] and the attention of all layers [B, layer, head, T, T]."""
    out = sinkjax.forward(params, x, config, probe=Probe(attention=tuple(range(config.layers))), logits=False)
    assert out.output is not None  # a model without a vocabulary
    return out.output, out.record["attention"]


def row_kinds(j: jax.Array, trigger: Trigger) -> jax.Array:
    """Which rows are the trigger's, and which are those of other ordinary tokens but the first of all: bool [2, B, T]."""
    token = jnp.arange(trigger.length)
    own = token == j[:, None]
    return jnp.stack([own, ~own & (token >= max(trigger.specials, 1))])


def _masses(weights: jax.Array, rows: jax.Array, trigger: Trigger) -> jax.Array:
    """Mean weight on each target, over sequences and the rows of each kind: [rows, target, layer, head]."""
    ends = (1, max(trigger.specials, 1))
    parts = (weights[..., : ends[0]], weights[..., ends[0] : ends[1]], weights[..., ends[1] :])
    masses = jnp.stack([part.sum(axis=-1) for part in parts])
    kinds = rows.astype(weights.dtype)
    return jnp.einsum("tblhq,rbq->rtlh", masses, kinds, precision="highest") / kinds.sum(axis=(1, 2))[:, None, None, None]


def _errors(output: jax.Array, y: jax.Array, rows: jax.Array) -> jax.Array:
    """Mean squared error over the rows of each kind, and over every row: [rows + 1]."""
    error = jnp.square(output - y).mean(axis=-1)
    by_kind = jnp.where(rows, error, 0).sum(axis=(1, 2)) / rows.sum(axis=(1, 2))
    return jnp.append(by_kind, error.mean())


def on_maps(params: Params, config: Config, x: jax.Array) -> dict[str, NDArray]:
    """Mean and standard deviation of attention over sequences, and the maps of the first one: [layer, head, query, key]."""
    maps = np.asarray(_maps(params, x, config=config), np.float64)
    return {"map_mean": maps.mean(axis=0), "map_std": maps.std(axis=0), "map_example": maps[0]}


@partial(jax.jit, static_argnames="config")
def _maps(params: Params, x: jax.Array, *, config: Config) -> jax.Array:
    return _run(params, x, config)[1]


MASKED = "BOS's key masked"
WEIGHT_OFF, RENORMALISED = "BOS's weight removed", "BOS's weight removed, rows renormalised"
VALUE_OFF = "BOS's value removed"


def moved(place: int) -> str:
    """The label of an edit: BOS changes places with a later token. Positions count from 0."""
    return f"BOS moved to position {place}"


def other_masked(key: int) -> str:
    """The label of a control: the key of another token is masked."""
    return f"key {key} masked"


def other_value(key: int) -> str:
    """The label of a control: the value of another token is removed."""
    return f"value {key} removed"


def edits(trigger: Trigger, position: int, moves: Sequence[int]) -> list[Edit]:
    """No edit, the edits of BOS, and their controls: the same done to every other token but the trigger, at `position`."""
    later = slice(1, trigger.length)
    weight_off = partial(sinkjax.edit, Site.WEIGHTS, "set", 0.0, queries=later, keys=0)
    others = [key for key in range(1, trigger.length) if key != position]
    return [
        sinkjax.compose(label=NO_EDIT),
        sinkjax.add_logit(0, 0.0).named(IDENTITY),
        sinkjax.mask_key(0).named(MASKED),
        weight_off(label=WEIGHT_OFF),
        weight_off(label=RENORMALISED, renormalise=True),
        sinkjax.edit(Site.VALUE, "set", 0.0, keys=0, label=VALUE_OFF),
        *(sinkjax.swap_embeddings(0, place).named(moved(place)) for place in moves),
        *(sinkjax.mask_key(key).named(other_masked(key)) for key in others),
        *(sinkjax.edit(Site.VALUE, "set", 0.0, keys=key, label=other_value(key)) for key in others),
    ]


def on_edits(
    params: Params, config: Config, data: Sequence[jax.Array], trigger: Trigger, chosen: Sequence[Edit]
) -> dict[str, NDArray]:
    """The loss under each edit, over the rows of each kind and over every row: edited_loss [edit, rows + 1].

    Where an edit moves embeddings, the targets move with them, so that a residual stream is compared with its own input.
    """
    x, y, j = data
    rows = row_kinds(j, trigger)
    losses = []
    for edit in chosen:
        output = sinkjax.forward(params, x, config, edits=edit, probe=Probe(), logits=False).output
        assert output is not None  # a model without a vocabulary
        losses.append(np.asarray(_errors(output, _moved_targets(y, edit), rows)))
    return {"edited_loss": np.stack(losses)}


def _moved_targets(y: jax.Array, edit: Edit) -> jax.Array:
    """Targets after the swaps of an edit."""
    for term in edit.terms:
        if term.op == "swap":
            i, j = (int(place) for place in term.value)
            y = y.at[:, jnp.array([i, j])].set(y[:, jnp.array([j, i])])
    return y


def training_spec(config: Lab, form: lab.Model, moves: Sequence[int] = ()) -> TrainingSpec:
    """The training of one model and what is measured on it; with `moves`, under edits too (`edits`)."""
    stated = lab.training(config, form.changes)
    stated.data.check_position(config.trigger_position)
    return TrainingSpec(form.name, stated, model(stated), partial(measure, config, tuple(moves)))
