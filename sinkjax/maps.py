"""Maps to step through in a notebook: a page of its own in a frame, kept with the notebook, without a network or a library."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.errors import SinkjaxError

MISSING = 255  # the code of NaN; values have the codes below
DECADES = 1e4  # the range of a logarithmic scale, as in the figures
MOST = 8_000_000  # cells of all maps, so that a notebook with them still opens
HEAD, LINE, TITLES = 60, 74, 90  # pixels of the choices, of each run's line of tokens, of each panel's title and legend
SIDE = 380  # pixels, the widest that a map is drawn


@dataclass(frozen=True)
class Panel:
    """One quantity, as a map for each run and choice, all on one colour scale.

    values: float[run, *choices, row, column], at least 0, NaN where there is nothing. choices: name -> labels, for the axes
    between; panels that share a name share the choice. row, column: names of the axes; one that contains "token" has the texts of
    tokens. upwards: whether row 0 is at the bottom.
    """

    title: str
    values: NDArray
    choices: Mapping[str, Sequence[str]]
    row: str
    column: str
    log: bool = False
    upwards: bool = False


@dataclass(frozen=True)
class Maps:
    """Panels of several runs side by side; a notebook draws it where a cell ends with it.

    runs: a name for each. tokens: the text of each position. panels: the measurements. said: a line below the maps.
    """

    runs: Sequence[str]
    tokens: Sequence[str]
    panels: Sequence[Panel]
    said: str = ""

    def __repr__(self) -> str:
        return f"Maps({', '.join(self.runs)}: {', '.join(panel.title for panel in self.panels)}; {len(self.tokens)} tokens)"

    def _repr_html_(self) -> str:
        height = (
            HEAD + LINE * len(self.runs) + sum(TITLES + (SIDE if "token" in panel.row else SIDE // 2) for panel in self.panels)
        )
        words = f"{repr(self)[5:-1]}. To step through these maps, open and trust this notebook in Jupyter, Colab or VS Code."
        return (
            f'<iframe sandbox="allow-scripts" srcdoc="{escape(self.html())}" style="width: 100%; height: {height}px; border: 0">'
            f"{escape(words)}</iframe>"
        )

    def html(self) -> str:
        """The page: its data as JSON, and the script that draws it. No text of a model becomes markup or ends the script.

        Raises:
            SinkjaxError: The maps hold more cells than a notebook should.
        """
        cells = sum(panel.values.size for panel in self.panels)
        if cells > MOST:
            raise SinkjaxError(f"these maps have {cells:,} cells, more than {MOST:,}: choose fewer layers or tokens")
        data = json.dumps(self._contents(), ensure_ascii=False).replace("<", "\\u003c")
        folder = files("sinkjax").joinpath("assets")
        style, script = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("maps.css", "maps.js"))
        return (
            f'<!doctype html><meta charset="utf-8"><title>sinkjax</title><style>{style}</style><main></main>'
            f'<script type="application/json">{data}</script><script>{script}</script>'
        )

    def _contents(self) -> dict[str, Any]:
        return {"runs": list(self.runs), "tokens": list(self.tokens), "said": self.said, "panels": [*map(_packed, self.panels)]}


def _packed(panel: Panel) -> dict[str, Any]:
    codes, scale = encode(panel.values, panel.log)
    return {
        "title": panel.title,
        "choices": [{"name": name, "labels": [*map(str, labels)]} for name, labels in panel.choices.items()],
        "rows": codes.shape[-2],
        "columns": codes.shape[-1],
        "row": panel.row,
        "column": panel.column,
        "upwards": panel.upwards,
        "scale": scale,
        "data": packed(codes),
    }


def packed(codes: NDArray[np.uint8]) -> str:
    """Codes as text that a page unpacks."""
    return base64.b64encode(zlib.compress(codes.tobytes(), 9)).decode()


def encode(values: NDArray, log: bool) -> tuple[NDArray[np.uint8], dict[str, Any]]:
    """Values, at least 0, as codes of 8 bits on one scale, and that scale. NaN becomes MISSING.

    A linear scale has code = 254 sqrt(value / high), so that small values keep their differences; log: 254 log(value / low) /
    log(high / low) over at most DECADES; smaller values share the code 0. The scale holds low, high and ticks, [code, value].
    """
    finite = np.isfinite(values)
    high = max(float(values[finite].max(initial=0)), float(np.finfo(np.float32).tiny))
    low = 0.0
    if log:
        low = max(float(values[finite & (values > 0)].min(initial=high)), high / DECADES)
        low = low if low < high else high / 10
        share = np.log(np.maximum(np.where(finite, values, high), low) / low) / np.log(high / low)
        marks = 10.0 ** np.arange(np.ceil(np.log10(low)), np.floor(np.log10(high)) + 1)
        places = np.log(marks / low) / np.log(high / low)
    else:
        share = np.sqrt(np.where(finite, values, 0) / high)
        marks = high * np.array([0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1])
        places = np.sqrt(marks / high)
    codes = np.where(finite, np.rint(share * (MISSING - 1)), MISSING).astype(np.uint8)
    ticks = [[round(place * (MISSING - 1), 2), mark] for place, mark in zip(places.tolist(), marks.tolist(), strict=True)]
    return codes, {"log": log, "low": low, "high": high, "ticks": ticks}
