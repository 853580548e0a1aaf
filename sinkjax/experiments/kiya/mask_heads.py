"""The part of kiya/mask on sets of heads: the first key masked in the heads that sink most, in all heads of the first layers, and
in as many random heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.checkpoints.model import Model
from sinkjax.edits.edit import Edit
from sinkjax.edits.site import Site
from sinkjax.experiments.base import Arm, Batch, Drawing, Job
from sinkjax.experiments.kiya.config import Mask
from sinkjax.experiments.summary import Measure, Measured, Row, Table, summarise
from sinkjax.experiments.words import effect
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.report.figures.points import Point, points

if TYPE_CHECKING:
    import xarray

STORES = ("heads", "head-controls")
NONE, MOST, EARLY, CONTROL = "no edit", "heads that sink most", "heads of the first layers", "control"
CHOSEN, RANDOM = "chosen heads", "random heads, as many"


@dataclass(frozen=True)
class Part:
    """What sets of heads add to the section of kiya/mask; fields as there."""

    findings: tuple[str, ...]
    rows: tuple[Row, ...]
    featured: tuple[str, ...]
    drawing: Drawing
    note: str


def jobs(config: Mask, architecture: Config, probe: Probe) -> tuple[Job, ...]:
    """The sets of heads on all prompts, chosen once the model is loaded, and random ones on some."""
    L, H = architecture.layers, architecture.heads

    def prepare(model: Model, batch: Batch) -> tuple[Arm, ...]:
        none = [sinkjax.compose(label=NONE)]
        data = sinkjax.sweep(model, batch.tokens, none, probe=probe, lengths=batch.lengths, progress=False)
        return arms(config, strength(config, data))

    few = min(config.control_prompts, config.prompts)
    stand_ins = arms(config, np.zeros((L, H)))
    return (
        Job("heads", stand_ins, probe, config.prompts, prepare=prepare),
        Job("head-controls", controls(config, L, H), probe, few),
    )


def strength(config: Mask, data: xarray.Dataset) -> NDArray:
    """Attention that the key receives from each head, mean over prompts, of the first edit in `data`: float[L, H]."""
    return data["attention_received"].isel(edit=0).sel(key=config.key).mean("prompt").values


def sizes(config: Mask, L: int, H: int) -> list[int]:
    """How many heads are masked: those of whole layers nearest to each of `head_shares`, at least one layer and not all."""
    layers = {min(max(round(share * L), 1), max(L - 1, 1)) for share in config.head_shares}
    return [H * count for count in sorted(layers)]


def arms(config: Mask, received: NDArray) -> tuple[Arm, ...]:
    """No edit and, for each size, the heads that sink most and those of the first layers. received: `strength`, float[L, H]."""
    L, H = received.shape
    order = np.argsort(-received, axis=None, kind="stable")
    chosen = [Arm(sinkjax.compose(label=NONE), NONE)]
    for size in sizes(config, L, H):
        chosen.append(Arm(masked(config, order[:size], (L, H)).named(most(size)), MOST, budget=size))
        chosen.append(Arm(masked(config, np.arange(size), (L, H)).named(early(size, H)), EARLY, budget=size))
    return tuple(chosen)


def controls(config: Mask, L: int, H: int) -> tuple[Arm, ...]:
    """As many random heads of all layers, for each size."""
    rng = intervals.generator(config.seed, "kiya/mask heads")
    return tuple(
        Arm(
            masked(config, rng.choice(L * H, size, replace=False), (L, H)).named(f"control {draw}: {size} random heads"),
            CONTROL,
            budget=size,
        )
        for size in sizes(config, L, H)
        for draw in range(config.controls)
    )


def most(size: int) -> str:
    """The label of the arm that masks the heads that sink most."""
    return f"the {size} heads that sink most"


def early(size: int, H: int) -> str:
    """The label of the arm that masks whole first layers."""
    last = size // H - 1
    return f"the {size} heads of layer{f's 0 to {last}' if last else ' 0'}"


def masked(config: Mask, heads: NDArray, shape: tuple[int, int]) -> Edit:
    """The mask of kiya/mask in some heads. heads: int[n], each layer * H + head. shape: (L, H)."""
    value = np.zeros(shape, np.float32)
    value.flat[heads] = -np.inf
    layers = np.flatnonzero((value < 0).any(axis=1)).tolist()
    return sinkjax.edit(Site.LOGITS, "add", value[:, None, :], layers=layers, keys=config.key, relation="others")


def part(config: Mask, stores: Mapping[str, xarray.Dataset], measured: Sequence[Measure], origin: str) -> Part:
    """What the stores of sets of heads say. measured: the measures of kiya/mask; its second is the sink on the next key."""
    data, random = (stores[name].load() for name in STORES)
    L, H = data.sizes["layer"], data.sizes["head"]
    sets = Measured(data, arms(config, np.zeros((L, H))))
    drawn = Measured(random, controls(config, L, H))
    table = summarise(sets, measured, config.seed, drawn)
    return Part(
        findings=(_spread(config, data), *(_compared(config, table, measured[1].name, size, H) for size in sizes(config, L, H))),
        rows=tuple(row for row in table.values() if row.arm != NONE),
        featured=tuple(arm.edit.label for arm in sets.arms if arm.group != NONE),
        drawing=_drawing(config, table, drawn, measured[:2], origin),
        note=(
            f"Sets of heads: the heads of any layer that give key {config.key} most attention on these prompts, and all heads of"
            f" the first layers. Their controls mask key {config.key} in as many heads, {config.controls} draws of random ones."
        ),
    )


def _spread(config: Mask, data: xarray.Dataset) -> str:
    """Where the heads that sink most are; ranked as for `arms`, on the same prompts."""
    received = strength(config, data)
    L, H = received.shape
    size = sizes(config, L, H)[0]
    layers = np.argsort(-received, axis=None, kind="stable")[:size] // H
    low, high = (int(np.quantile(layers, share, method="nearest")) for share in (0.25, 0.75))
    return (
        f"The {size} heads that sink most on key {config.key} lie in layers {layers.min()} to {layers.max()}, the middle half of"
        f" them in layers {low} to {high}."
    )


def _compared(config: Mask, table: Table, measure: str, size: int, H: int) -> str:
    """The first layers against the heads that sink most, at one size."""

    def say(label: str) -> str:
        return effect(table[label, measure], controls="random sets of as many")

    return (
        f"With key {config.key} masked in {early(size, H)}, the percentage of heads that sink on key {config.key + 1} changes by"
        f" {say(early(size, H))}; with the mask in {most(size)}, by {say(most(size))}."
    )


def _drawing(config: Mask, table: Table, random: Measured, rates: Sequence[Measure], origin: str) -> Drawing:
    """Sinks on both keys with sets of heads masked; each random set has a mark of its own. rates: sinks on the two keys."""
    H = random.data.sizes["head"]
    columns = {}
    for key, rate in zip((config.key, config.key + 1), rates, strict=True):
        of_random = rate.of(random.data).mean(axis=1)
        column = [Point(NONE, table[NONE, rate.name].value, CHOSEN)]
        for size in sorted({arm.budget for arm in random.arms if arm.budget}):
            column += [Point(label, table[label, rate.name].value, CHOSEN) for label in (most(size), early(size, H))]
            draws = [value for arm, value in zip(random.arms, of_random, strict=True) if arm.budget == size]
            column += [Point(f"{size} random heads", intervals.interval([value]), RANDOM) for value in draws]
        columns[f"key {key}{' (masked)' if key == config.key else ''}"] = column
    caption = (
        f"Heads that sink on key {config.key}, which is masked in some of them, and on the next key. Chosen sets: mean over"
        f" prompts and bootstrap 95 % interval; each random set: mean over {random.data.sizes['prompt']} prompts. {origin}."
    )
    return Drawing("sink-by-masked-heads", points(columns, "heads that sink on the key (% of all heads)", (-2, 100)), caption)
