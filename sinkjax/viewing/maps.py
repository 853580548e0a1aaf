"""Interactive maps for pages and notebooks, without a network or a library.

The page contains every map, packed as 8-bit codes on one scale per panel, so values are accurate to about 2%. `viewer.js` draws
them.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.errors import SinkjaxError

MISSING = 255  # the code of NaN; values use the codes below it
DECADES = 1e4  # the range of a logarithmic scale, as in the figures
MOST = 8_000_000  # maximum cells of all maps, so that a notebook with them still opens
# Pixels, as in `viewer.js`: widest grid of tokens, alone and next to another; its largest cell; title, legend and labels.
ALONE, BESIDE, CELL, AROUND = 600, 440, 28, 215


@dataclass(frozen=True)
class MapPanel:
    """One quantity as a map per run and choice, all on one colour scale.

    values: float[run, *choices, row, column], at least 0, NaN if missing. quantity: the meaning of the colour. choices: name ->
    labels of the axes between; panels with the same name share the choice, and "prompt" also chooses the tokens. row, column:
    names of the axes; one that contains "token" is labelled with token texts, any other counts upwards from 0.
    """

    title: str
    quantity: str
    values: NDArray
    choices: Mapping[str, Sequence[str]]
    row: str
    column: str
    log: bool = False


@dataclass(frozen=True)
class Maps:
    """Panels of several runs, two of them side by side; a notebook displays it as a cell's last expression.

    runs: their names. tokens: the text of each position, one list per prompt. said: the caption. start: choice -> index of the
    label shown first, 0 by default. name: unique on a page.
    """

    runs: Sequence[str]
    tokens: Sequence[Sequence[str]]
    panels: Sequence[MapPanel]
    said: str = ""
    start: Mapping[str, int] = field(default_factory=dict)
    name: str = "maps"

    def __post_init__(self) -> None:
        for panel in self.panels:
            sizes = (len(self.runs), *map(len, panel.choices.values()))
            if panel.values.shape[:-2] != sizes:
                raise SinkjaxError(f"{panel.title} has values of shape {panel.values.shape}, but runs and choices of {sizes}")

    def __repr__(self) -> str:
        titles = ", ".join(panel.title for panel in self.panels)
        return f"Maps({', '.join(self.runs)}: {titles}; {max(map(len, self.tokens))} tokens)"

    def _repr_html_(self) -> str:
        wide = ALONE if len(self.runs) == 1 else BESIDE
        grids = (min(wide, CELL * panel.values.shape[-2]) if "token" in panel.row else BESIDE // 2 for panel in self.panels)
        height = 80 + sum(AROUND + grid for grid in grids)
        words = f"{repr(self)[5:-1]}. To view these interactive maps, open and trust this notebook in Jupyter, Colab or VS Code."
        return (
            f'<iframe sandbox="allow-scripts" srcdoc="{escape(self.html())}" style="width: 100%; height: {height}px; border: 0">'
            f"{escape(words)}</iframe>"
        )

    def html(self) -> str:
        """Return a page with only these maps.

        Raises:
            SinkjaxError: The maps have too many cells for a notebook.
        """
        cells = sum(panel.values.size for panel in self.panels)
        if cells > MOST:
            raise SinkjaxError(f"these maps have {cells:,} cells, more than {MOST:,}: choose fewer layers or tokens")
        page = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>sinkjax</title><style>{asset("viewer.css")}</style>'
        return f'{page}<body class="alone">{self.figure()}{script()}</body></html>'

    def figure(self) -> str:
        """Return the maps for a page with the style `viewer.css` and `script`."""
        return _figure(self.name, self.contents(), self.said)

    def contents(self) -> dict[str, Any]:
        """Return the data that `viewer.js` draws, for JSON."""
        choices: dict[str, Sequence[str]] = reduce(lambda met, panel: met | {**panel.choices}, self.panels, {})
        return {
            "runs": list(self.runs),
            "tokens": [*map(list, self.tokens)],
            "choices": [
                {"name": name, "labels": [*map(str, labels)], "start": self.start.get(name, 0)}
                for name, labels in choices.items()
            ],
            "panels": [*map(_packed, self.panels)],
        }


@dataclass(frozen=True)
class KeptMaps:
    """Maps as a run kept them for its page. drawn: what `Maps.contents` returned."""

    name: str
    said: str
    drawn: Mapping[str, Any]

    def contents(self) -> Mapping[str, Any]:
        """Return the data that `viewer.js` draws."""
        return self.drawn

    def figure(self) -> str:
        """Return the maps for a page, as `Maps.figure`."""
        return _figure(self.name, self.drawn, self.said)


def _figure(name: str, contents: Mapping[str, Any], said: str) -> str:
    """Return maps as an element of a page; their text is escaped so it cannot act as markup."""
    data = json.dumps(contents, ensure_ascii=False).replace("<", "\\u003c")
    return (
        f'<figure class="maps" id="{escape(name)}"><div class="place">This page\'s script draws the maps.</div>'
        f'<script type="application/json">{data}</script><figcaption>{escape(said)}</figcaption></figure>\n'
    )


def asset(name: str) -> str:
    """Return the text of `viewer.js` or `viewer.css`."""
    return files("sinkjax").joinpath("viewing", name).read_text(encoding="utf-8")


def script() -> str:
    """Return the elements at the end of a page that draw its maps."""
    return f'<div id="tip" hidden></div><script type="module">\n{asset("viewer.js")}\nwatch();\n</script>'


def strongest(attention: NDArray) -> int:
    """Find the layer where a single key receives the most attention from all queries; attention: [layer, head, query, key]."""
    return int(np.nansum(attention.mean(axis=1), axis=1).max(axis=1).argmax())


def _packed(panel: MapPanel) -> dict[str, Any]:
    codes, low, high = encode(panel.values, panel.log)
    rows, columns = codes.shape[-2:]
    shown = {name: getattr(panel, name) for name in ("title", "quantity", "row", "column", "log")}
    shown |= {"choices": list(panel.choices), "rows": rows, "columns": columns, "low": low, "high": high}
    return shown | {"data": base64.b64encode(zlib.compress(codes.tobytes(), 9)).decode()}


def encode(values: NDArray, log: bool) -> tuple[NDArray[np.uint8], float, float]:
    """Encode values (at least 0) as 8-bit codes on one scale, and return its ends. NaN becomes MISSING.

    A linear scale has code = 254 sqrt(value / high), so that small values keep their differences; log: 254 log(value / low) /
    log(high / low) over at most DECADES; smaller values share the code 0.
    """
    finite = np.isfinite(values)
    high = max(float(values[finite].max(initial=0)), float(np.finfo(np.float32).tiny))
    low = 0.0
    if log:
        low = max(float(values[finite & (values > 0)].min(initial=high)), high / DECADES)
        low = low if low < high else high / 10
        share = np.log(np.maximum(np.where(finite, values, high), low) / low) / np.log(high / low)
    else:
        share = np.sqrt(np.where(finite, values, 0) / high)
    return np.where(finite, np.rint(share * (MISSING - 1)), MISSING).astype(np.uint8), low, high
