"""The figures of kiya/self."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.experiments.base import Arm, Drawing
from sinkjax.experiments.captions import origin
from sinkjax.experiments.kiya.config import SelfOnly
from sinkjax.experiments.summary import Measure, Measured, Table
from sinkjax.report.figures import attention, grid, layers
from sinkjax.report.figures.scatter import Cloud, scatter

if TYPE_CHECKING:
    import xarray

TOKENS = 20  # drawn of the prompt, so that a tick is legible


@dataclass(frozen=True)
class Results:
    """What the figures are drawn from.

    sweep: the arms, no edit first, then every position for each of `sets`. maps: the store of attention maps. table: the summary.
    sets: names of the sets of layers, by group, in the order of the arms. curves: those drawn by depth. measured: sinks and
    activations at the edited position. other: the same of the queries that see one other key, float[draw]. unedited: name of a
    measure -> float[position], the unedited run, mean over prompts.
    """

    config: SelfOnly
    sweep: Measured
    maps: xarray.Dataset
    table: Table
    sets: Mapping[str, Sequence[str]]
    curves: Sequence[str]
    measured: tuple[Measure, Measure]
    other: tuple[NDArray, NDArray]
    unedited: Mapping[str, NDArray]

    @property
    def count(self) -> int:
        """Prompts."""
        return int(self.sweep.data.sizes["prompt"])

    def arms(self, where: str) -> list[Arm]:
        """The arms of a set of layers, position by position."""
        names = [name for group in self.sets.values() for name in group]
        start = 1 + names.index(where) * len(self.config.positions)
        return list(self.sweep.arms[start : start + len(self.config.positions)])

    def means(self, where: str, measure: Measure) -> list[float]:
        """A measure at each position, mean over prompts."""
        return [self.table[arm.edit.label, measure.name].value.mean or 0 for arm in self.arms(where)]


def drawings(found: Results) -> tuple[Drawing, ...]:
    """Every figure, in the order of the page."""
    return (attention_maps(found), by_place(found), by_depth(found), together(found))


def attention_maps(found: Results) -> Drawing:
    """Maps of one prompt before and after."""
    values = found.maps["attention"].isel(prompt=0).mean("head").values
    tokens = found.sweep.data.attrs["study"]["token_texts"][0][:TOKENS]
    _, *edited = (str(label).partition(" in ")[2] for label in found.maps["edit"].values)
    caption = (
        f"Attention maps of one prompt, mean over heads, first {len(tokens)} tokens, on one colour scale; grey: keys that a query"
        f" cannot see. Below the unedited run, the query at position {found.config.shown} sees only itself in the layers named. A"
        f" bright column is a sink. {origin(found.sweep.data)}."
    )
    rows = ["no edit", *(f"alone: {where}" for where in edited)]
    figure = attention.maps(values, rows, found.maps["attention_layer"].values.tolist(), tokens)
    return Drawing("attention-maps", figure, caption)


def by_place(found: Results) -> Drawing:
    """The map of where a sink can be placed: positions against sets of layers."""
    single, *rest = found.sets.values()
    joint = [name for group in rest for name in group]
    columns = [
        grid.Column("alone in one layer", [name.removeprefix("layer ") for name in single], "edited layer (0-based)"),
        grid.Column("in several", ["none", *(_short(name) for name in joint)], "edited layers"),
    ]
    sink, activation = found.measured
    rows = [
        grid.Row(_values(found, (single, joint), sink), "heads that sink on\nthe position (%)", limits=(0, _most(found, sink))),
        grid.Row(_values(found, (single, joint), activation), "largest |h| at\nthe position", log=True),
    ]
    caption = (
        "Where a sink can be placed: heads that sink on the position whose query sees only itself (top) and the largest |h| there"
        f" (bottom), by edited layers. Mean over {found.count} prompts; the column none is the unedited run."
        f" {origin(found.sweep.data)}."
    )
    figure = grid.grids(columns, rows, [str(place) for place in found.config.positions], "position")
    return Drawing("sink-by-position-and-layers", figure, caption)


def _values(found: Results, columns: Sequence[Sequence[str]], measure: Measure) -> list[NDArray]:
    """Means over prompts, float[set of layers, position] for each column; the second begins with the unedited run."""
    single, joint = (np.array([found.means(where, measure) for where in column]) for column in columns)
    return [single, np.vstack([found.unedited[measure.name], joint])]


def _most(found: Results, measure: Measure) -> float:
    return max(1.0, max(row.value.mean or 0 for (_, name), row in found.table.items() if name == measure.name))


def _short(where: str) -> str:
    """A set of first layers as a tick."""
    return where.removeprefix("layers ").replace(" to ", "–").removesuffix(" layers")


def by_depth(found: Results) -> Drawing:
    """In which layers the sink and the activation are, for a few sets of edited layers."""
    data = found.sweep.data

    def panel(title: str, ylabel: str, name: str, axis: str, log: bool, scale: float) -> layers.Panel:
        values = data[name].values[:, :, -data.sizes["layer"] :] * scale  # depth l + 1 is the stream after layer l
        none = np.stack([values[0][..., place] for place in found.config.positions]).mean(axis=0)
        lines = [_line(found, "no edit", none)]
        for where in found.curves:
            first = 1 + [entry for group in found.sets.values() for entry in group].index(where) * len(found.config.positions)
            of_set = [values[first + number][..., place] for number, place in enumerate(found.config.positions)]
            lines.append(_line(found, f"alone in {where}", np.mean(of_set, axis=0)))
        return layers.Panel(title, ylabel, lines, log=log)

    figure = layers.lines(
        [
            [panel("", "heads of the layer that\nsink on the position (%)", "sinking_heads", "key", False, 100.0)],
            [panel("", "largest |h| after the layer\nat the position", "resid_max", "position", True, 1.0)],
        ],
        "layer (0-based)",
        legend_above=True,
    )
    caption = (
        "Where the sink (top) and the activation (bottom) of the edited position are, mean over the"
        f" {len(found.config.positions)} positions. Bands: bootstrap 95 % intervals over {found.count} prompts. {origin(data)}."
    )
    return Drawing("by-depth", figure, caption)


def _line(found: Results, name: str, values: NDArray) -> layers.Line:
    """A line over layers of float[prompt, layer]."""
    return layers.Line(name, range(values.shape[-1]), list(intervals.intervals(values, axis=0, seed=found.config.seed)))


def together(found: Results) -> Drawing:
    """Each edit's sink against its activation."""
    sink, activation = found.measured
    clouds = [
        Cloud(
            name,
            np.concatenate([found.means(where, sink) for where in group]),
            np.concatenate([found.means(where, activation) for where in group]),
        )
        for name, group in found.sets.items()
    ]
    clouds.append(Cloud("one other key, all layers", *found.other))
    caption = (
        "Each edit: heads that sink on the position whose query sees only itself, or only one random other key, against the"
        f" largest |h| there, mean over prompts. {origin(found.sweep.data)}."
    )
    top = 1.05 * max(10.0, *(float(cloud.x.max()) for cloud in clouds))
    figure = scatter({"": clouds}, sink.name, activation.name, log="y", limits=((-0.03 * top, top), None))
    return Drawing("sink-against-activation", figure, caption)
