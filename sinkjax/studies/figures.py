"""The figures that studies share, each a function of the results; captions say what is drawn, and from which data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sinkjax.checkpoints.presets import named
from sinkjax.report.section import Drawing
from sinkjax.studies import folder
from sinkjax.studies.specs import SWEEP

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure as Picture

    from sinkjax.studies.results import Results

Figure = Callable[["Results"], Drawing | None]
TOKENS, POSITIONS = 20, 24  # drawn of each prompt, so that a tick is legible and a column is visible


def drawn(
    name: str,
    picture: Callable[[Results], Picture | None],
    caption: str,
    store: str | Sequence[str] = SWEEP,
    bands: bool = True,
    text: bool = True,
    over: str = "prompt",
) -> Figure:
    """A figure that a study draws itself.

    Args:
        name: Of its files, unique in a study.
        picture: Results -> the figure of matplotlib, or None where there is nothing to draw.
        caption: What it shows and how to read it. Intervals, prompts, model, precision, BOS and text are said after it.
        store: One or several, those that exist are drawn.
        bands: Whether it has intervals.
        text: Whether the numbers depend on a text.
        over: The dimension that intervals are over.

    Returns:
        The figure, for `Study.figures`: results -> drawing, or None where there is nothing to draw.
    """

    def draw(results: Results) -> Drawing | None:
        figure = picture(results)
        if figure is None:
            return None
        stores = [store] if isinstance(store, str) else [one for one in store if one not in results.absent]
        first, *others = (results[one] for one in stores)
        return Drawing(name, figure, f"{' '.join(caption.split())} {source(first, bands, others, text, over)}")

    return draw


def activations(
    name: str,
    labels: Callable[[Results], Mapping[str, str]],
    store: str | Sequence[str] = SWEEP,
    positions: int = POSITIONS,
) -> Figure:
    """The largest |h| at each depth and position.

    Args:
        name: As for `drawn`.
        labels: Results -> label of rows -> title of its panel.
        store: Those of the sweeps, as for `drawn`.
        positions: How many are drawn at most, from the first one on.

    Returns:
        The figure, for `Study.figures`; the probe must ask for `resid_max`.
    """

    def picture(results: Results) -> Picture:
        from sinkjax.report.figures import layers

        chosen = labels(results)
        places = [results.place(label) for label in chosen]
        found = [results[sweep]["resid_max"].isel(edit=number).mean("prompt").values[..., :positions] for sweep, number in places]
        return layers.activations(np.stack(found), list(chosen.values()))

    caption = (
        f"Largest absolute value of the residual stream by depth and position (first {positions} positions at most), mean over"
        " prompts, one logarithmic colour scale."
    )
    return drawn(name, picture, caption, store, bands=False)


def source(
    data: xarray.Dataset,
    bands: bool = True,
    others: Sequence[xarray.Dataset] = (),
    text: bool = True,
    over: str = "prompt",
) -> str:
    """The end of a caption: intervals, prompts, model, precision, BOS (unless the stores differ in it) and text.

    others: further stores that are drawn. text: whether the numbers depend on a text. over: dimension that intervals are over.
    """
    made, study = data.attrs["sweep"], data.attrs.get("study", {})  # a store that Python made states no study
    counts = dict.fromkeys(str(one.sizes[over]) for one in (data, *others) if over in one.sizes)
    texts = dict.fromkeys(one.attrs["study"]["text"].partition(", because")[0] for one in (data, *others) if "study" in one.attrs)
    bos = f", BOS {study['bos']}" if study and all(one.attrs["study"]["bos"] == study["bos"] for one in others) else ""
    units = folder.over((data, *others)) if over == "prompt" else f"{over}s"
    prompts = f"{' or '.join(counts)} {units}"
    said = f"Bands: 95 % intervals over {prompts}. " if bands and counts else f"{prompts}. " * bool(counts)
    read = f"{bos}, {'; '.join(texts)}" if text and texts else ""
    return f"{said}{named(made['model'])} in {made['dtype']}{read}."
