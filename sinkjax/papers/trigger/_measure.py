"""Measurements on trained models: attention masses, losses, maps, and the loss under edits.

A mass is a mean over sequences and over rows of one kind: the trigger's row, or the rows of all other ordinary tokens except the
first of a sequence, which sees only itself. "weight" is the attention weight itself, "share" its fraction of the row's absolute
weight, for rows that do not sum to 1. Keys: "bos" is the first one, BOS or not; "anchors" are the other ones before the ordinary
tokens, "elsewhere" are these. "written" is the norm of the first key's part in the other rows, over the norm of all that the
head writes in a row, the trigger's or another, whichever is more (`first_key_norms`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from numpy.typing import NDArray

import sinkjax
from sinkjax.edits.edit import Edit
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.model.site import Site
from sinkjax.papers.trigger._config import Changes, Trials, training
from sinkjax.papers.trigger._outcomes import EVERY, IDENTITY, OTHERS, TRIGGER
from sinkjax.probes.probe import Capture, Probe
from sinkjax.probes.record import Record
from sinkjax.runtime.settings import random_key
from sinkjax.study import NO_EDIT, Lab, TrainedModels, TrainingSpec
from sinkjax.tasks.language_model.task import FIRST_KEY, TINY, first_key_norms
from sinkjax.tasks.trigger.config import Trigger, TriggerTraining
from sinkjax.tasks.trigger.data import sample
from sinkjax.tasks.trigger.task import model
from sinkjax.train.config import DIVERGED
from sinkjax.train.log import read
from sinkjax.train.trained import Trained

BLOCK = 1000  # sequences whose maps are in memory at a time
ROWS, TARGETS = (TRIGGER, OTHERS), ("bos", "anchors", "elsewhere")
SMALL = 1e-8  # added to a row's sum, so that a row without weight has no shares (Gu et al. 2025)

MASSES = ("rows", "target", "layer", "head")
MAP = ("layer", "head", "query", "key")
DIMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("weight", "share"), MASSES),
    **dict.fromkeys(("uneven", "written"), ("layer", "head")),
    **dict.fromkeys(("largest_error", "null_loss"), ()),
    **dict.fromkeys(("map_mean", "map_std", "map_example"), MAP),
    "gate": ("rows", "layer", "head"),
    "loss": ("error_rows",),
    "edited_loss": ("edit", "error_rows"),
}


def measure(config: Trials, edited: bool, trained: Trained) -> xarray.Dataset:
    """Attention masses, losses, maps and learning curves of every run on held-out sequences, and (edited) losses under edits.

    Everything is NaN for a run that diverged.
    """
    stated = cast(TriggerTraining, trained.config)
    trigger, architecture = stated.data, model(stated)
    data = held_out(trigger, config.sequences, config.seed)
    maps = held_out(trigger, config.map_sequences, config.seed, config.trigger_position)
    chosen = edits(trigger, config.trigger_position, config.moves) if edited else []
    parts = []
    for ended in trained.runs:
        params = trained.of(ended.run.run)
        arrays = on_sequences(params, architecture, data, trigger) | on_maps(params, architecture, maps[0])
        arrays |= on_edits(params, architecture, maps, trigger, chosen)
        lost = np.nan if ended.outcome == DIVERGED else 1.0
        parts.append({name: lost * np.asarray(array, np.float64) for name, array in arrays.items()})
    variables: dict[str, Any] = {name: (("run", *DIMS[name]), np.stack([part[name] for part in parts])) for name in parts[0]}
    variables |= learned(trained)
    labels = {"rows": list(ROWS), "target": list(TARGETS), "error_rows": [*ROWS, EVERY]}
    labels |= {"edit": [edit.label for edit in chosen]} if chosen else {}
    return xarray.Dataset(variables, {"run": [ended.run.seed for ended in trained.runs], **labels})


def learned(trained: Trained) -> dict[str, tuple[tuple[str, ...], NDArray[Any]]]:
    """Learning curves, steps and outcome of each run.

    Curves, float [run, evaluation], NaN after a run's last evaluation: step, loss and, mean over layers and heads, weight on and
    share of BOS in the other rows.
    """
    lines = read(trained.folder)[1]
    each = [[line for line in lines if line["run"] == number] for number in range(len(trained.runs))]
    longest = max(map(len, each))

    def curve(key: str) -> NDArray[Any]:
        means = [[np.nan if line[key] is None else np.mean(line[key]) for line in logged] for logged in each]
        return np.array([run + [np.nan] * (longest - len(run)) for run in means])

    keys = {"curve_step": "step", "curve_loss": "loss", "curve_bos": "bos", "curve_share": "bos_share"}
    found: dict[str, Any] = {name: (("run", "evaluation"), curve(key)) for name, key in keys.items()}
    return found | {what: (("run",), np.array([getattr(end, what) for end in trained.runs])) for what in ("steps", "outcome")}


def held_out(trigger: Trigger, count: int, seed: int, position: int | None = None) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Sequences that no training sees: inputs [count, L, n], targets of the same shape, positions of the trigger [count]."""
    stream = zlib.crc32(f"held out, trigger at {position}".encode())
    x, y, j = sample(jax.random.fold_in(random_key(seed), stream), trigger, count, position)
    return x, y, j


def in_blocks(data: Sequence[jax.Array], of: Callable[..., dict[str, jax.Array]]) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
    """Values of a function (of inputs, targets and triggers) on blocks of sequences, and each block's fraction of all."""
    blocks = [tuple(array[start : start + BLOCK] for array in data) for start in range(0, len(data[0]), BLOCK)]
    parts = [jax.device_get(of(*block)) for block in blocks]
    found = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    return np.array([len(block[0]) for block in blocks]) / len(data[0]), found


def on_sequences(params: Params, config: Config, data: Sequence[jax.Array], trigger: Trigger) -> dict[str, NDArray[Any]]:
    """Masses and losses of one model over held-out sequences.

    uneven: the largest deviation of the trigger row's weights on the tokens to be averaged from 1 / their number. loss: mean
    squared error over coordinates and the rows of each kind, or all rows. largest_error: L-infinity. null_loss: if the model
    writes nothing. gate: mean gate of the rows of each kind, of one layer with a gate.
    """
    fractions, parts = in_blocks(data, partial(_block, params, config=config, trigger=trigger))
    found: dict[str, NDArray[Any]] = {name: np.tensordot(fractions, part, 1) for name, part in parts.items()}
    from_first, of_head = (found.pop(name) for name in ("first_writes", "head_writes"))
    part = from_first[ROWS.index(OTHERS)] / (of_head.max(axis=0) + TINY)
    return found | {"written": part, "largest_error": parts["largest_error"].max()}


@partial(jax.jit, static_argnames=("config", "trigger"))
def _block(params: Params, x: jax.Array, y: jax.Array, j: jax.Array, *, config: Config, trigger: Trigger) -> dict[str, jax.Array]:
    """`on_sequences` of one block."""
    output, record = _run(params, x, config, FIRST_KEY)
    weights = record["attention"]  # [B, layer, head, T, T]
    from_first, of_head = first_key_norms(record, params)
    size = jnp.abs(weights)
    rows = row_kinds(j, trigger)
    token = jnp.arange(trigger.length)
    averaged = (token >= trigger.specials) & (token <= j[:, None])
    own = jnp.take_along_axis(weights, j[:, None, None, None, None], axis=3)[..., 0, :]  # the trigger's row
    even = 1 / (j - trigger.specials + 1)[:, None, None, None]
    still = x if config.residual else jnp.zeros_like(x)
    gate = {}
    if config.gate is not None and config.layers == 1:  # a later layer's gate reads the stream, not the tokens
        logits = jnp.einsum("btd,ldh->blht", x, params["layers"]["head_gate"], precision="highest")
        gate = {"gate": _over(jax.nn.sigmoid(logits), rows)}
    return gate | {
        "weight": _masses(weights, rows, trigger),
        "share": _masses(size / (size.sum(axis=-1, keepdims=True) + SMALL), rows, trigger),
        "uneven": jnp.where(averaged[:, None, None], jnp.abs(own - even), 0).max(axis=-1).mean(axis=0),
        "first_writes": _over(from_first, rows),
        "head_writes": _over(of_head, rows),
        "loss": _errors(output, y, rows),
        "largest_error": jnp.abs(output - y).max(),
        "null_loss": jnp.square(still - y).mean(),
    }


def _run(params: Params, x: jax.Array, config: Config, capture: tuple[Capture, ...] = ()) -> tuple[jax.Array, Record]:
    """Outputs [B, T, n], and a record with the attention of all layers [B, layer, head, T, T]."""
    out = sinkjax.forward(params, x, config, probe=Probe(attention=tuple(range(config.layers)), capture=capture), logits=False)
    assert out.output is not None  # a model without a vocabulary
    return out.output, out.record


def row_kinds(j: jax.Array, trigger: Trigger) -> jax.Array:
    """The trigger's rows, and the rows of other ordinary tokens but the first of all: bool [2, B, T]."""
    token = jnp.arange(trigger.length)
    own = token == j[:, None]
    return jnp.stack([own, ~own & (token >= max(trigger.specials, 1))])


def _masses(weights: jax.Array, rows: jax.Array, trigger: Trigger) -> jax.Array:
    """Mean weight on each target, over sequences and the rows of each kind: [rows, target, layer, head]."""
    parts = jnp.split(weights, (1, max(trigger.specials, 1)), axis=-1)
    return jnp.stack([_over(part.sum(axis=-1), rows) for part in parts], axis=1)


def _over(values: jax.Array, rows: jax.Array) -> jax.Array:
    """Mean of [B, layer, head, T] over sequences and the rows of each kind: [rows, layer, head]."""
    kinds = rows.astype(values.dtype)
    return jnp.einsum("blhq,rbq->rlh", values, kinds, precision="highest") / kinds.sum(axis=(1, 2))[:, None, None]


def _errors(output: jax.Array, y: jax.Array, rows: jax.Array) -> jax.Array:
    """Mean squared error over the rows of each kind, and over every row: [rows + 1]."""
    error = jnp.square(output - y).mean(axis=-1)
    return jnp.append((jnp.where(rows, error, 0).sum(axis=(1, 2)) / rows.sum(axis=(1, 2))), error.mean())


def on_maps(params: Params, config: Config, x: jax.Array) -> dict[str, NDArray[Any]]:
    """Mean and standard deviation of attention over sequences, and the maps of the first one: [layer, head, query, key]."""
    maps = np.asarray(_run(params, x, config)[1]["attention"], np.float64)
    return {"map_mean": maps.mean(axis=0), "map_std": maps.std(axis=0), "map_example": maps[0]}


def edits(trigger: Trigger, position: int, moves: Sequence[int]) -> list[Edit]:
    """No edit, the edits of BOS, and their controls: the same edits of every other token except the trigger, at `position`."""
    weight_off = partial(sinkjax.edit, Site.WEIGHTS, "set", 0.0, queries=slice(1, trigger.length), keys=0)
    others = [key for key in range(1, trigger.length) if key != position]
    return [
        sinkjax.compose(label=NO_EDIT),
        sinkjax.add_logit(0, 0.0).named(IDENTITY),
        sinkjax.mask_key(0).named("BOS's key masked"),
        weight_off(label="BOS's weight removed"),
        weight_off(label="BOS's weight removed, rows renormalised", renormalise=True),
        sinkjax.edit(Site.VALUE, "set", 0.0, keys=0, label="BOS's value removed"),
        *(sinkjax.swap_embeddings(0, place).named(f"BOS moved to position {place}") for place in moves),
        *(sinkjax.mask_key(key).named(f"key {key} masked") for key in others),
        *(sinkjax.edit(Site.VALUE, "set", 0.0, keys=key, label=f"value {key} removed") for key in others),
    ]


def on_edits(
    params: Params, config: Config, data: Sequence[jax.Array], trigger: Trigger, chosen: Sequence[Edit]
) -> dict[str, NDArray[Any]]:
    """The loss under each edit, over the rows of each kind and over every row: edited_loss [edit, rows + 1].

    Targets move with embeddings that an edit swaps, so that a residual stream is compared with its own input.
    """
    x, y, j = data
    rows = row_kinds(j, trigger)
    losses = []
    for edit in chosen:
        output = sinkjax.forward(params, x, config, edits=edit, probe=Probe(), logits=False).output
        assert output is not None  # a model without a vocabulary
        losses.append(np.asarray(_errors(output, _moved_targets(y, edit), rows)))
    return {"edited_loss": np.stack(losses)} if losses else {}


def _moved_targets(y: jax.Array, edit: Edit) -> jax.Array:
    """Targets after the swaps of an edit."""
    for places in (np.array(term.value, int) for term in edit.terms if term.op == "swap"):
        y = y.at[:, places].set(y[:, places[::-1]])
    return y


# Trainings of the trigger task: the settings that their studies share, and what differs between their models.


NEVER = 1e-12  # a tolerance that no run meets, so that all steps are made
SOFTMAX, RELU = "softmax", "relu"
LABELS = {SOFTMAX: "softmax", RELU: "ReLU / max(i, 1)"}
NORMALISERS: dict[str, Changes] = {SOFTMAX: {"normalisers": ("softmax",)}, RELU: {"normalisers": ("relu-index",)}}


def train(lab: Lab, s: Trials, name: str, label: str, changes: Changes, edited: bool = False) -> TrainedModels:
    """Add models of the trigger task, and their measurements.

    Args:
        lab: The lab.
        s: The study's settings.
        name: Name of the training.
        label: Label for readers.
        changes: Fields of the training that differ from the settings (`sinkjax/tasks/trigger/config.py`).
        edited: Whether the loss under edits of BOS is measured too.
    """
    stated = training(s, changes)
    stated.data.check_position(s.trigger_position)
    return lab.train(name, TrainingSpec(name, stated, model(stated), partial(measure, s, edited)), label)
