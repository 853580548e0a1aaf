"""One style for every figure: colours that colour-blind readers can distinguish, and legible sizes."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np
from numpy.typing import NDArray

from sinkjax.runtime import extras

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure
    from matplotlib.ft2font import FT2Font
    from matplotlib.image import AxesImage

P = ParamSpec("P")

# Okabe and Ito's palette, in the order of the series.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
MAP, SIGNED_MAP, MISSING = "viridis", "RdBu_r", "#eeeeee"
MISSING_SIGNED = "#cccccc"  # darker than the nearly white 0 of SIGNED_MAP
WIDTH = 9.0  # inches, of a figure as wide as the page's text
HALF = 4.4, 3.4  # inches, of a figure that shares a line with another on a wide screen
DPI = 160
MOST_COLUMNS = 3  # with more small panels, ticks would be illegible
HEADS = 10.0  # minimum upper end, in %, of an axis for a share of heads
LETTERS, MARK = 112, 7  # width in characters of a legend as wide as a figure, and of a mark


@cache
def _settings() -> Any:
    """Return every setting of a figure: matplotlib's defaults, and the common style over them."""
    import matplotlib

    style = matplotlib.rc_params_from_file(Path(__file__).with_name("figures.mplstyle"), use_default_template=False)
    defaults = {name: value for name, value in matplotlib.rcParamsDefault.items() if not name.startswith("backend")}
    return defaults | style


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Apply the common style to a drawing function, whatever the user's matplotlib settings, and write its texts literally."""

    @wraps(draw)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Figure:
        extras.require("a figure", "report", "matplotlib")
        import matplotlib

        with matplotlib.rc_context(_settings()):
            figure = draw(*args, **kwargs)
            _write_literally(figure)
        return figure

    return wrapper


def _write_literally(figure: Figure) -> None:
    """Make a figure draw every text as it is: a token may contain mathtext, control characters, or any script.

    Only the tick labels of logarithmic axes, which matplotlib writes, stay mathtext.
    """
    from matplotlib.font_manager import FontProperties, findfont, get_font
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter, LogFormatter

    font, powers = get_font(findfont(FontProperties())), set()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        names = axis.get_major_formatter()
        if isinstance(names, FuncFormatter):  # they are written again whenever the figure is drawn
            axis.set_major_formatter(FuncFormatter(lambda *tick, names=names: legible(names(*tick), font)))
        for formatter, ticks in ((names, axis.get_major_ticks()), (axis.get_minor_formatter(), axis.get_minor_ticks())):
            if isinstance(formatter, LogFormatter):
                powers |= {label for tick in ticks for label in (tick.label1, tick.label2)}
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_text(legible(text.get_text(), get_font(findfont(text.get_fontproperties()))))
        text.set_parse_math(text in powers)


def legible(text: str, font: FT2Font) -> str:
    """Replace characters that a font lacks, among them control characters, by U+FFFD."""
    return "".join(letter if letter == "\n" or font.get_char_index(ord(letter)) else "\ufffd" for letter in text)


def canvas(width: float, height: float) -> Figure:
    """Make a figure of this many inches whose axes are fitted into it."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def panels(rows: int, columns: int, height: float, width: float = WIDTH, **options: Any) -> tuple[Figure, Any]:
    """Make a figure, by default as wide as the page, with axes [rows, columns]. height: inches per row."""
    figure = canvas(width, rows * height)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def form(number: int) -> tuple[str, str]:
    """Return the colour and the marker of a series by index."""
    return COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]


def draw_map(panel: Axes, values: NDArray, scale: Normalize, signed: bool = False, **options: Any) -> AxesImage:
    """Draw values as a map without a frame; NaN is grey. options: other arguments of `imshow`."""
    from matplotlib import colormaps

    colours = colormaps[SIGNED_MAP if signed else MAP].with_extremes(bad=MISSING_SIGNED if signed else MISSING)
    panel.spines[:].set_visible(False)
    return panel.imshow(values, cmap=colours, norm=scale, interpolation="nearest", **options)


def reach(label: str) -> float:
    """Return the minimum upper end of a quantity's axis, so that small values look small: HEADS for "heads ... (%)", else 0."""
    return HEADS if label.startswith("heads ") and label.endswith("(%)") else 0.0


def wrapped(text: str, width: int) -> str:
    """Wrap a text at this many characters."""
    return "\n".join(textwrap.fill(line, width) for line in text.splitlines())


def leave_empty(axes: Any, used: int) -> None:
    """Hide the panels after the first `used`; the panels above them then show their columns' ticks."""
    columns = axes.shape[1]
    for panel in axes.flat[used:]:
        panel.set_axis_off()
    for panel in axes.flat[max(used - columns, 0) : used]:
        panel.tick_params(labelbottom=True)


def legend_above(figure: Figure, axes: Axes) -> None:
    """Draw one panel's legend above all panels, in as many columns as the figure's width allows."""
    handles, names = axes.get_legend_handles_labels()

    def letters(columns: int) -> int:
        return sum(max(len(name) + MARK for name in column) for column in np.array_split(names, columns))  # as in matplotlib

    columns = next((count for count in range(len(names), 1, -1) if letters(count) <= LETTERS), 1)
    figure.legend(handles, names, loc="outside upper center", ncols=columns)


def logarithmic(axes: Axes, name: str) -> None:
    """Make the axis "x" or "y" logarithmic, with plain numbers as ticks; their number depends on the data drawn so far."""
    axes.set(**{f"{name}scale": "log"})
    plain_ticks(axes.xaxis if name == "x" else axes.yaxis)


def spaced_ticks(axis: Axis, most: int = 10, **options: Any) -> None:
    """Put at most this many evenly spaced ticks. options: further arguments of matplotlib's MaxNLocator."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(most, **options))


def plain_ticks(axis: Axis) -> None:
    """Put ticks of a logarithmic axis at 1, 2 and 5 times each power of ten, as plain numbers.

    There are more if it spans less than a power of ten, and evenly spaced ones below a factor of 3.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = sorted(axis.get_view_interval())
    few = LogLocator(subs=(1, 2, 5) if high > 10 * low else (1, 1.5, 2, 3, 5, 7))
    axis.set_major_locator(few if high > 3 * low else MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def render(figure: Figure, kind: str) -> bytes:
    """Render a figure as the bytes of an "svg" or "png" file, reproducibly."""
    import matplotlib

    with matplotlib.rc_context(_settings()), io.BytesIO() as buffer:
        _write_literally(figure)  # it may come from a study's own function
        figure.savefig(buffer, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else {"Software": None})
        return buffer.getvalue()
