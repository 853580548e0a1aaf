"""The figures of reports, for notebooks: each function takes arrays and returns a matplotlib figure."""

from sinkjax.report.figures.heatmaps import activations, by_layer, causal, maps
from sinkjax.report.figures.lines import Axis, Bundle, Line, Panel, curves, lines
from sinkjax.report.figures.picture import picture

__all__ = ["Axis", "Bundle", "Line", "Panel", "activations", "by_layer", "causal", "curves", "lines", "maps", "picture"]
