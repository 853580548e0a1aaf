"""Figures of explanations: estimates against exact effects, and the parts of a score as a waterfall."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sinkjax.errors import SinkjaxError, one_of
from sinkjax.report.figures.scatter import Cloud, scatter
from sinkjax.report.figures.style import COLOURS, panels, styled

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

ROW = 0.26  # inches of a bar
FAINT = 300  # nodes beyond which they are drawn small and grey
WHOLES = ("score", "value_norm", "logit")


def draw_attribution(found: xarray.Dataset, names: int = 6) -> Figure:
    """Draw each node's estimate against its exact effect, both as means over prompts.

    Args:
        found: The result of `sinkjax.attribute`.
        names: How many nodes are named: those whose estimates miss by the most.

    Returns:
        A matplotlib figure.

    Raises:
        SinkjaxError: This is not such a result, or no node in it was checked.
    """
    if not {"estimate", "exact", "gap"} <= set(found):
        raise SinkjaxError("draw_attribution takes the result of sinkjax.attribute")
    means = found[["estimate", "exact", "gap"]].mean("prompt")
    checked = np.flatnonzero(means.exact.notnull().values)
    if not checked.size:
        raise SinkjaxError("no node of this attribution was checked; attribute with exact=...")
    means = means.isel(node=checked)
    missed = np.argsort(-np.abs(means.gap.values), kind="stable")[:names]
    clouds = [Cloud("nodes", means.estimate.values, means.exact.values, faint=checked.size > FAINT)]
    of_missed = means.isel(node=missed)
    labels = [str(node) for node in of_missed.node.values]
    clouds.append(Cloud("largest gaps", of_missed.estimate.values, of_missed.exact.values, names=labels))
    method = {"first-order": "first-order estimate", "integrated": f"integrated gradients, {found.attrs.get('steps')} steps"}
    agreement = ", ".join(
        f"{name.capitalize()} {found.attrs[name]:.2f}" for name in ("spearman", "pearson") if name in found.attrs
    )
    figure = scatter({agreement: clouds}, method[found.attrs["method"]], "exact effect on the metric")
    axes = figure.axes[0]
    axes.axline((0, 0), slope=1, color="#666666", linewidth=0.8, linestyle="--", zorder=0)  # where an estimate is exact
    return figure


def draw_parts(
    found: xarray.Dataset, layer: int | None = None, head: int | None = None, prompt: int | None = None, count: int = 10
) -> Figure:
    """Draw the parts of one score, value or logit as a waterfall, in the order of writing.

    Args:
        found: The result of `sinkjax.explain_score`, `explain_value` or `explain_logit`.
        layer: The layer, for a score or value.
        head: The head, as `layer`.
        prompt: Which prompt; None: the mean over prompts.
        count: How many parts have a bar, by size; all others are one bar.

    Returns:
        A matplotlib figure.

    Raises:
        SinkjaxError: This is not such a result; it lacks the layer, head or prompt, or one of them is to be named.
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
    return waterfall(rows, float(chosen[whole]), whole.replace("_", " "), "" if layer is None else f"head {layer}.{head}")


@styled
def waterfall(rows: list[tuple[str, float]], whole: float, unit: str, title: str) -> Figure:
    """Bars from the running sum before each part to the one after it, downwards, and the whole below."""
    figure, axes = panels(1, 1, ROW * (len(rows) + 4))
    panel: Any = axes[0, 0]
    ends = np.cumsum([value for _, value in rows])
    starts = ends - [value for _, value in rows]
    heights = np.arange(len(rows) + 1)
    colours = [COLOURS[0] if value >= 0 else COLOURS[1] for _, value in rows]
    panel.barh(heights[:-1], ends - starts, left=starts, color=colours, height=0.7)
    panel.barh(heights[-1], whole, color="#666666", height=0.7)
    for height, (start, (_, value)) in enumerate(zip(starts, rows, strict=True)):
        panel.annotate(
            f"{value:+.3g}", (max(start, start + value), height), (4, 0), textcoords="offset points", va="center", fontsize=8
        )
    panel.annotate(f"{whole:.3g}", (max(whole, 0), heights[-1]), (4, 0), textcoords="offset points", va="center", fontsize=8)
    panel.set_yticks(heights, [*(name for name, _ in rows), f"whole {unit}"])
    panel.invert_yaxis()
    panel.axvline(0, color="black", linewidth=0.6)
    panel.use_sticky_edges = False  # bars to the left of 0 have a margin too
    panel.margins(x=0.08)
    panel.set(xlabel=unit, title=title)
    return figure
