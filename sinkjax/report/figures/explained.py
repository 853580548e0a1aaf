"""Figures of explanations: estimates next to exact effects, and the parts of a score as a waterfall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.errors import SinkjaxError, one_of
from sinkjax.report.figures.style import COLOURS, legend_above, panels, styled

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

ROW = 0.3  # inches of a bar
WHOLES = {"score": "attention score", "value_norm": "norm of the value", "logit": "logit"}


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
    means = found[["estimate", "exact"]].mean("prompt")
    checked = np.flatnonzero(means.exact.notnull().values)
    if not checked.size:
        raise SinkjaxError("no node of this attribution was checked; attribute with exact=...")
    means = means.isel(node=checked)
    size = np.maximum(np.abs(means.estimate.values), np.abs(means.exact.values))
    largest = means.isel(node=np.argsort(-size, kind="stable")[:names])
    method = {"first-order": "first-order estimate", "integrated": f"integrated gradients, {found.attrs.get('steps')} steps"}
    agreement = [f"{name.capitalize()} {found.attrs[name]:.2f}" for name in ("spearman", "pearson") if name in found.attrs]
    agreement += [f"completeness gap {found.attrs[name]:.1%}" for name in ("completeness_gap",) if name in found.attrs]
    title = f"all {checked.size} nodes: {', '.join(agreement)}" if agreement else ""
    values = {"exact effect": largest.exact.values, method[found.attrs["method"]]: largest.estimate.values}
    return dumbbells([str(node) for node in largest.node.values], values, "effect on the metric", title)


@styled
def dumbbells(names: Sequence[str], values: Mapping[str, NDArray[Any]], unit: str, title: str) -> Figure:
    """Draw two numbers per name, connected by a line: the first filled, the second hollow."""
    figure, axes = panels(1, 1, ROW * (len(names) + 4))
    panel: Any = axes[0, 0]
    heights = np.arange(len(names))
    panel.axvline(0, color="black", linewidth=0.6, zorder=0)
    panel.hlines(heights, *values.values(), color="#c9d1d9", linewidth=3, zorder=1)
    for colour, (name, numbers) in zip(COLOURS, values.items(), strict=False):
        face = colour if colour == COLOURS[0] else "white"
        panel.plot(numbers, heights, "o", color=colour, markerfacecolor=face, markeredgewidth=1.6, markersize=7, label=name)
    panel.set_yticks(heights, names)
    panel.tick_params(axis="y", length=0)
    panel.set(xlabel=unit, title=title, ylim=(len(names) - 0.4, -0.6))
    legend_above(figure, panel)
    return figure


def draw_parts(
    found: xarray.Dataset, layer: int | None = None, head: int | None = None, prompt: int | None = None, count: int = 10
) -> Figure:
    """Draw the parts of one score, value or logit as a waterfall, in the order of writing.

    Args:
        found: The result of `sinkjax.explain_score`, `explain_value` or `explain_logit`.
        layer: The layer, for a score or value.
        head: The head, as `layer`.
        prompt: Index of the prompt; None for the mean over prompts.
        count: Number of parts with their own bar, by size; all others share one bar.

    Returns:
        A matplotlib figure.

    Raises:
        SinkjaxError: `found` is not such a result; it lacks the layer, head or prompt, or one of them must be given.
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
def waterfall(rows: list[tuple[str, float]], whole: float, unit: str, title: str) -> Figure:
    """Draw bars downwards, each from the running sum before a part to the one after it, with the whole at the bottom."""
    figure, axes = panels(1, 1, ROW * (len(rows) + 4))
    panel: Any = axes[0, 0]
    ends = np.cumsum([value for _, value in rows])
    starts = ends - [value for _, value in rows]
    heights = np.arange(len(rows) + 1)
    colours = [COLOURS[0] if value >= 0 else COLOURS[1] for _, value in rows]
    panel.barh(heights[:-1], ends - starts, left=starts, color=colours, height=0.7)
    panel.barh(heights[-1], whole, color="#666666", height=0.7)
    labels = [(max(start, end, 0), f"{end - start:+.3g}") for start, end in zip(starts, ends, strict=True)]
    for height, (right, text) in enumerate([*labels, (max(whole, 0), f"{whole:.3g}")]):
        text = text.replace("-", "−")
        panel.annotate(text, (right, height), (5, 0), textcoords="offset points", va="center", fontsize=9)
    panel.set_yticks(heights, [*(name for name, _ in rows), "whole"])
    panel.tick_params(axis="y", length=0)
    panel.axvline(0, color="black", linewidth=0.6)
    panel.use_sticky_edges = False  # also leave a margin for bars to the left of 0
    panel.margins(x=0.08)
    panel.set(xlabel=f"{unit}, summed from above", title=title, ylim=(len(rows) + 0.6, -0.6))
    return figure
