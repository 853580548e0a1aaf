"""Maps for tests: attention whose values say where they stand, and activations over many decades."""

from __future__ import annotations

import json

import numpy as np

from sinkjax.report.section import Section
from sinkjax.viewing.maps import MapPanel, Maps

EDITS, PROMPTS, LAYERS, HEADS, T = ("no edit", "<b>masked</b>", "third"), 2, 3, 2, 6
TOKENS = (["It", " was", " the", "\n", " <b>best", "</script>"], ["She", " wrote", " to", " her", " & ", "'q'"])
NUMBERS = {
    name: [str(index) for index in range(size)] for name, size in (("prompt", PROMPTS), ("layer", LAYERS), ("head", HEADS))
}


def attention() -> MapPanel:
    """Attention that differs in every cell and map; keys after the query are missing."""
    shape = (len(EDITS), PROMPTS, LAYERS, HEADS, T, T)
    values = np.linspace(0, 1, int(np.prod(shape))).reshape(shape)
    values = np.where(np.tri(T, dtype=bool), values, np.nan)
    return MapPanel("Attention", "attention weight", values, NUMBERS, "query token", "key token")


def activations() -> MapPanel:
    """|h| from 1e-3 to 1e4 by depth and position."""
    values = np.geomspace(1e-3, 1e4, len(EDITS) * PROMPTS * 4 * T).reshape(len(EDITS), PROMPTS, 4, T)
    return MapPanel("Activation", "largest |h|", values, {"prompt": NUMBERS["prompt"]}, "depth", "token", log=True)


def shown(name: str = "maps") -> Maps:
    """Both panels, which share the choice of a prompt."""
    return Maps(EDITS, TOKENS, (attention(), activations()), "A caption with <angle>.", {"layer": 1}, name)


def section(*names: str) -> Section:
    """A section with maps and nothing else."""
    return Section("paper/views", "Views", "A claim.", (), (), (), (), views=tuple(map(shown, names or ("maps",))))


def chosen(browser) -> dict[str, int]:
    """The choices of the first maps of a page, as soon as they are drawn."""
    from selenium.webdriver.support.ui import WebDriverWait

    script = "return document.querySelector('.maps').dataset.ready"
    return json.loads(WebDriverWait(browser, 60).until(lambda driver: driver.execute_script(script)))
