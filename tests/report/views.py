"""Views for tests: attention whose values say where they stand, and activations over many decades."""

from __future__ import annotations

import numpy as np

from sinkjax.report.section import Section, View

EDITS, PROMPTS, LAYERS, HEADS, T = ("no edit", "<b>masked</b>"), 2, 3, 2, 6
TOKENS = (["It", " was", " the", "\n", " <b>best", "</script>"], ["She", " wrote", " to", " her", " & ", "'q'"])


def attention() -> View:
    """Attention that differs in every cell and map; keys after the query are missing."""
    shape = (len(EDITS), PROMPTS, LAYERS, HEADS, T, T)
    values = np.linspace(0, 1, int(np.prod(shape))).reshape(shape)
    values = np.where(np.tri(T, dtype=bool), values, np.nan)
    choices = {
        "edit": EDITS,
        "prompt": [str(prompt) for prompt in range(PROMPTS)],
        "layer": [str(layer) for layer in range(LAYERS)],
        "head": [str(head) for head in range(HEADS)],
    }
    return View("attention", "A caption with <angle>.", "attention", values, choices, TOKENS, "query", "key")


def activations() -> View:
    """|h| from 1e-3 to 1e4 by depth and position."""
    values = np.geomspace(1e-3, 1e4, 2 * 4 * T).reshape(2, 4, T)
    choices = {"prompt": ["0", "1"]}
    return View(
        "activation", "By depth.", "largest |h|", values, choices, TOKENS, "depth", "position", row_tokens=False, log=True
    )


def section() -> Section:
    """A section with both views and nothing else."""
    return Section("paper/views", "Views", "A claim.", (), (), (), (), views=(attention(), activations()))
