"""The figures of reports, for notebooks: each function takes arrays and gives a matplotlib figure."""

from sinkjax.report.figures.activations import activations
from sinkjax.report.figures.attention import by_layer, maps
from sinkjax.report.figures.causal import causal
from sinkjax.report.figures.curves import Axis, Bundle, curves
from sinkjax.report.figures.lines import Line, Panel, lines
from sinkjax.report.figures.picture import picture

__all__ = ["Axis", "Bundle", "Line", "Panel", "activations", "by_layer", "causal", "curves", "lines", "maps", "picture"]
