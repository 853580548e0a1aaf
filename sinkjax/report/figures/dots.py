"""Dots: one quantity against another, single numbers with intervals next to their names, and the figures of explanations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis.intervals import Interval
from sinkjax.errors import SinkjaxError, one_of
from sinkjax.report.figures.style import COLOURS, form, legend_above, logarithmic, panels, reach, styled, wrapped

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 3.4  # inches of a scatter plot
DRAWN = 2000  # most dots that are elements of an SVG file
NAME = (42.0, 8.5)  # width and height of a name, in points
ROW, MARGINS = 0.3, 1.2  # inches of a line with a name, and of the space above and below lines
DODGE, SPAN = 0.24, 0.6  # shares of the distance between lines: between two points of one name, and across all of them
MANY = 6  # from this many, points of one name are drawn small
WHOLES = {"score": "attention score", "value_norm": "norm of the value", "logit": "logit"}


@dataclass(frozen=True)
class Cloud:
    """Dots of one kind. x, y: float[dot]. names: text next to each dot, or None. faint: small and grey, for the many."""

    name: str
    x: NDArray[Any]
    y: NDArray[Any]
    names: Sequence[str] | None = None
    faint: bool = False


@dataclass(frozen=True)
class Mark:
    """A number with its interval. name: its line. kind: determines its colour and marker, and appears in the legend."""

    name: str
    value: Interval
    kind: str


@styled
def scatter(
    columns: Mapping[str, Sequence[Cloud]],
    xlabel: str,
    ylabel: str,
    log: bool | Literal["x", "y"] = False,
    limits: tuple[tuple[float, float] | None, tuple[float, float] | None] = (None, None),
) -> Figure:
    """Draw panels side by side on the same scales.

    Args:
        columns: Title -> the dots of a panel.
        xlabel: The name of x.
        ylabel: The name of y.
        log: The logarithmic axes, one or both.
        limits: Ends of x and of y, by default the dots' range.

    Returns:
        A matplotlib figure.
    """
    figure, axes = panels(1, len(columns), HEIGHT, sharex=True, sharey=True)
    for panel, (title, clouds) in zip(axes[0], columns.items(), strict=True):
        forms = iter(map(form, range(len(clouds))))
        for cloud in clouds:
            look: dict[str, Any] = {"color": "#999999", "marker": ".", "s": 9, "alpha": 0.45}
            if not cloud.faint:
                look = dict(zip(("color", "marker"), next(forms), strict=True)) | {"s": 20, "alpha": 0.7}
            pixels = cloud.faint or len(cloud.x) > DRAWN  # as elements of an SVG file, those of a vocabulary take 28 MB
            panel.scatter(cloud.x, cloud.y, label=cloud.name, linewidths=0, rasterized=pixels, **look)
            if cloud.names:
                panel.margins(x=0.1)  # space for them
        panel.set(title=wrapped(title, 44), xlabel=xlabel)
        for axis, ends, set_limits in zip("xy", limits, (panel.set_xlim, panel.set_ylim), strict=True):
            if log in (True, axis):
                logarithmic(panel, axis)
            if ends:
                set_limits(*ends)
        for cloud in clouds:
            _write_names(panel, cloud)
    axes[0, 0].set_ylabel(ylabel)
    if max(map(len, columns.values())) > 1:
        legend_above(figure, axes[0, 0])
    return figure


def _write_names(panel: Axes, cloud: Cloud) -> None:
    """Write names next to their dots, from bottom to top; a name whose place is taken moves up, with a line to its dot."""
    points = panel.transData.transform(np.column_stack([cloud.x, cloud.y])) * 72 / panel.figure.dpi
    taken: list[tuple[float, float]] = []
    for number in np.argsort(points[:, 1]) if cloud.names else ():
        assert cloud.names
        x, y = points[number]
        up = max([0.0, *(other + NAME[1] - y for place, other in taken if abs(place - x) < NAME[0])])
        taken.append((x, y + up))
        thread = {"arrowstyle": "-", "linewidth": 0.5, "color": "#666666", "shrinkA": 0, "shrinkB": 2}
        offset: dict[str, Any] = {"xytext": (5, up), "textcoords": "offset points", "fontsize": 7.5, "va": "center"}
        at = (float(cloud.x[number]), float(cloud.y[number]))
        panel.annotate(cloud.names[number], at, **offset, arrowprops=thread if up > NAME[1] / 2 else None)


@styled
def points(
    columns: Mapping[str, Sequence[Mark]],
    xlabel: str,
    limits: tuple[float, float] | None = None,
    least: float | None = None,
    shared: bool = True,
) -> Figure:
    """Draw panels side by side with the same names down; a name may lack a point in a panel.

    Points of one name that share a panel are drawn next to its line, in order.

    Args:
        columns: Title -> the points of a panel.
        xlabel: The name of the numbers.
        limits: Ends of the scale.
        least: Makes the scale logarithmic, and is its smallest drawn value.
        shared: Whether the panels share the horizontal scale.

    Returns:
        A matplotlib figure.
    """
    names = list(dict.fromkeys(point.name for column in columns.values() for point in column))
    kinds = list(dict.fromkeys(point.kind for column in columns.values() for point in column))
    figure, axes = panels(1, len(columns), MARGINS + ROW * len(names), sharex=shared, sharey=True)
    for panel, (title, column) in zip(axes[0], columns.items(), strict=True):
        for point, place in _dodged(column, names):
            mean, low, high = (end and max(end, least or end) for end in (point.value.mean, point.value.low, point.value.high))
            colour, marker = form(kinds.index(point.kind))
            if low is not None:
                panel.plot([low, high], [place, place], color=colour, linewidth=1.6)
            many = sum((other.name, other.kind) == (point.name, point.kind) for other in column) >= MANY
            size, order = (3, 2) if many else (6, 3)  # make one stand out among many random ones
            panel.plot(mean, place, color=colour, marker=marker, markersize=size, linestyle="none", zorder=order)
        panel.set_title(wrapped(title, 60 // len(columns)))
        panel.set_yticks(range(len(names)), names)
        panel.tick_params(axis="y", length=0)
        panel.grid(axis="y", color="#dddddd", linewidth=0.6)
        panel.set_axisbelow(True)
        if limits:
            panel.set_xlim(*limits)
        if least is not None:
            panel.set_xscale("log")
    low, high = axes[0, 0].get_xlim()
    if high < reach(xlabel):
        axes[0, 0].set_xlim(min(low, -0.03 * reach(xlabel)), reach(xlabel))
    axes[0, 0].set_ylim(len(names) - 0.5, -0.5)
    figure.supxlabel(xlabel, fontsize=10)
    if len(kinds) > 1:
        for number, kind in enumerate(kinds):
            colour, marker = form(number)
            axes[0, 0].plot([], [], color=colour, marker=marker, ls="none", label=kind)
        figure.legend(loc="outside upper center", ncols=len(kinds))
    return figure


def _dodged(column: Sequence[Mark], names: Sequence[str]) -> list[tuple[Mark, float]]:
    """Return each number that exists with its height: near the line of its name, so that no point hides another."""
    places = []
    for height, name in enumerate(names):
        same = [point for point in column if point.name == name]
        step = min(DODGE, SPAN / max(len(same) - 1, 1))
        places += [(point, height + step * (number - (len(same) - 1) / 2)) for number, point in enumerate(same)]
    return [(point, place) for point, place in places if point.value.mean is not None]


def draw_attribution(found: xarray.Dataset, names: int = 8) -> Figure:
    """Draw the exact effects of the largest nodes next to their estimates, both as means over prompts.

    Args:
        found: The result of `sinkjax.attribute`.
        names: Number of nodes to draw, chosen by their largest effect or estimate.

    Returns:
        A matplotlib figure.

    Raises:
        SinkjaxError: `found` is not such a result, or none of its nodes was checked.
    """
    if not {"estimate", "exact"} <= set(found):
        raise SinkjaxError("draw_attribution takes the result of sinkjax.attribute")
    means = found[["estimate", "exact"]].mean("prompt").dropna("node", subset=["exact"])
    count = means.sizes["node"]
    if not count:
        raise SinkjaxError("no node of this attribution was checked; attribute with exact=...")
    size = np.maximum(np.abs(means.estimate.values), np.abs(means.exact.values))
    largest = means.isel(node=np.argsort(-size, kind="stable")[:names])
    method = {"first-order": "first-order estimate", "integrated": f"integrated gradients, {found.attrs.get('steps')} steps"}
    agreement = [f"{name.capitalize()} {found.attrs[name]:.2f}" for name in ("spearman", "pearson") if name in found.attrs]
    agreement += [f"completeness gap {found.attrs[name]:.1%}" for name in ("completeness_gap",) if name in found.attrs]
    title = f"all {count} nodes: {', '.join(agreement)}" if agreement else ""
    values = {"exact effect": largest.exact.values, method[found.attrs["method"]]: largest.estimate.values}
    return dumbbells([str(node) for node in largest.node.values], values, "effect on the metric", title)


@styled
def dumbbells(names: Sequence[str], values: Mapping[str, NDArray[Any]], unit: str, title: str) -> Figure:
    """Draw two numbers per name, connected by a line: the first filled, the second hollow."""
    figure, panel = _named(names, unit, title)
    heights = np.arange(len(names))
    panel.hlines(heights, *values.values(), color="#c9d1d9", linewidth=3, zorder=1)
    for colour, face, (name, numbers) in zip(COLOURS, (COLOURS[0], "white"), values.items(), strict=False):
        panel.plot(numbers, heights, "o", color=colour, markerfacecolor=face, markeredgewidth=1.6, markersize=7, label=name)
    legend_above(figure, panel)
    return figure


def _named(names: Sequence[str], xlabel: str, title: str) -> tuple[Figure, Any]:
    """Make a panel with a line at 0 and names down."""
    figure, axes = panels(1, 1, ROW * (len(names) + 4))
    panel = axes[0, 0]
    panel.axvline(0, color="black", linewidth=0.6, zorder=0)
    panel.set_yticks(range(len(names)), names)
    panel.tick_params(axis="y", length=0)
    panel.set(xlabel=xlabel, title=title, ylim=(len(names) - 0.4, -0.6))
    return figure, panel


def draw_parts(
    found: xarray.Dataset, layer: int | None = None, head: int | None = None, prompt: int | None = None, count: int = 10
) -> Figure:
    """Draw the parts of one score, value or logit as a waterfall, in the order of writing.

    Args:
        found: The result of `sinkjax.explain_score`, `explain_value` or `explain_logit`.
        layer: The layer, for a score or value.
        head: The head, for a score or value.
        prompt: Index of the prompt; None for the mean over prompts.
        count: Number of parts with their own bar, the largest ones; all others share one bar.

    Returns:
        A matplotlib figure.

    Raises:
        SinkjaxError: `found` is not such a result; it lacks the layer, head or prompt; a layer or head must be given.
    """
    whole = next((name for name in WHOLES if name in found), None)
    if whole is None or "contribution" not in found:
        raise SinkjaxError("draw_parts takes the result of sinkjax.explain_score, explain_value or explain_logit")
    chosen = found[["contribution", whole]]
    for axis, value in (("layer", layer), ("head", head), ("prompt", prompt)):
        if axis in found.dims and (axis != "prompt" or value is not None):
            one_of(axis, value, [int(label) for label in found[axis].values])
            chosen = chosen.sel({axis: value})
    if prompt is None:
        chosen = chosen.mean("prompt")
    values, names = chosen.contribution.values, [str(part) for part in found.part.values]
    largest = np.sort(np.argsort(-np.abs(values), kind="stable")[:count])
    rows = [(names[number], float(values[number])) for number in largest]
    if rest := len(values) - len(largest):
        rows.append((f"{rest} others", float(np.delete(values, largest).sum())))
    of = "" if layer is None else f" of head {layer}.{head}"
    return waterfall(rows, float(chosen[whole]), WHOLES[whole], f"Parts of the {WHOLES[whole]}{of}")


@styled
def waterfall(rows: Sequence[tuple[str, float]], whole: float, unit: str, title: str) -> Figure:
    """Draw bars downwards, each from the running sum before a part to the one after it, with the whole at the bottom."""
    names, values = [*(name for name, _ in rows), "whole"], np.array([value for _, value in rows])
    figure, panel = _named(names, f"{unit}, summed from above", title)
    starts, widths = np.append(np.cumsum(values) - values, 0.0), np.append(values, whole)
    colours = [*(COLOURS[int(value < 0)] for value in values), "#666666"]
    panel.barh(range(len(names)), widths, left=starts, color=colours, height=0.7)
    for height, (start, width) in enumerate(zip(starts, widths, strict=True)):
        text = f"{width:+.3g}" if height < len(rows) else f"{width:.3g}"
        at = (max(start, start + width, 0), height)
        panel.annotate(text.replace("-", "−"), at, (5, 0), textcoords="offset points", va="center", fontsize=9)
    panel.use_sticky_edges = False  # also leave a margin for bars to the left of 0
    panel.margins(x=0.08)
    panel.set_ylim(len(names) - 0.4, -0.6)  # margins move it
    return figure
