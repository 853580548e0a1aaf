"""kiya/figures: the paper's figures 1 to 9 on one model, in its order, with its layers, which it counts from 1.

The other studies judge what the figures show; here they are drawn as the paper draws them, and its four numbers of the first keys
stand beside those that are found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax import Edit, add_logit, attend_self, edit, mask_key, swap_embeddings
from sinkjax.analysis.summary import Row
from sinkjax.config_files.checks import positions
from sinkjax.papers.kiya._first_keys import (
    BOS,
    MEAN,
    NORM_VARIABLES,
    SCORE_VARIABLES,
    Scored,
    first_keys,
    first_scores,
    key_cosines,
    key_norms,
    score_maps,
)
from sinkjax.report.figures import heatmaps
from sinkjax.report.section import Drawing
from sinkjax.study import *
from sinkjax.study import strongest_other_sink
from sinkjax.study.views import TOKENS, drawn_layers, map_data, maps_probe

COUNT_FROM = 1  # the paper's first layer is layer 1
SIZE, DIRECTION = {BOS: 26.155, MEAN: 100.611}, {BOS: 0.521, MEAN: 0.010}  # section 3: norms, and cosines with the mean query
ROUNDED = 0.0005  # half of the last published decimal
SCALE = "All figures here share a colour scale. Layers are counted from 1, as in the paper, and positions from 0."
UNEDITED, SWAPPED = "no edit", "BOS swapped"
MASK_LAYERS, ALONE_LAYERS = (0, 1), (0, 1, 2)  # layers that are edited on their own in Figs. 4 and 8, and 5 and 9


@dataclass(frozen=True, kw_only=True)
class Settings(Sinks, Mapped, Scored):
    prompts: int = 4
    """passages; the maps are of the first one, the activations are means"""
    position: int = 8
    """the position that BOS is swapped with, and whose query sees only itself; the paper does not name its own"""

    def check(self) -> None:
        positions(self, "position")


def study(lab: Lab, s: Settings) -> None:
    """The paper's figures."""
    lab.needs("rotary positions", "plain embedding", "norm", "norm before attention", "softmax")
    lab.needs("rotation after all norms", "queries without growth")
    lab.needs_bos()
    layers, p = drawn_layers(s.map_layers, lab.layers), s.position
    swapped = {SWAPPED: swap_embeddings(0, p)}
    masked = _edits("first key masked", partial(mask_key, 0), MASK_LAYERS, lab.layers)
    alone = _edits(f"position {p} sees only itself", partial(attend_self, p), ALONE_LAYERS, lab.layers)

    sink, size = sink_rate(0, s.eps), largest_activation(0)
    moved_sink, moved_size = sink_rate(p, s.eps), largest_activation(p)
    columns = (sink, moved_sink, strongest_other_sink(0, s.eps), size, moved_size)
    edits = {Layers(label): edit for label, edit in {**swapped, **masked, **alone}.items()}
    of_attention = lab.sweep("figures", edits, columns, bos="own", probe=maps_probe(s.length, layers))
    lab.noop(swap_embeddings(p, p), add_logit(0, 0.0), edit("logits", "add", 0.0, queries=p, relation="others"))
    keys = lab.calculate("keys", partial(first_keys, s, s.special), NORM_VARIABLES, declared={"first_keys": s.special})
    given = (s.indices, 0, s.special)
    scores = lab.calculate("scores", partial(first_scores, s, *given), SCORE_VARIABLES, declared={"first_scores": list(given)})
    lab.describe("direction", "Kiya et al. 2026, section 3", lambda read: beside_the_paper(key_cosines(read, keys), DIRECTION))
    lab.describe("size", "Kiya et al. 2026, section 3", lambda read: beside_the_paper(key_norms(read, keys), SIZE))

    def draw(number: int, figures: str, edits: Iterable[str] = ()) -> None:
        lab.draw(maps_of, of_attention.name, f"{number}", figures, tuple(edits), layers)
        lab.draw(activations_of, of_attention.name, f"{number}", figures, tuple(edits))

    draw(1, "Figs. 1a, 6")
    draw(2, "Figs. 2, 7", swapped)
    lab.draw(score_maps, scores)
    draw(4, "Figs. 4, 8", masked)
    draw(5, "Figs. 5, 9", alone)


def _edits(what: str, make: partial[Edit], single: tuple[int, ...], layers: int) -> dict[str, Edit]:
    """An edit in all layers and in single ones, by a label that counts layers as the paper does."""
    one = {f"{what} in layer {layer + COUNT_FROM}": make(layers=(layer,)) for layer in single if layer < layers}
    return {f"{what} in all layers": make(), **one}


def beside_the_paper(rows: Iterable[Row], published: Mapping[str, float]) -> list[Row]:
    """Numbers of the first keys by each convention for grouped keys, and whether they equal the published ones."""
    found = []
    for row in rows:
        number, value = published[row.condition], row.value.mean
        equal = value is not None and abs(value - number) < ROUNDED
        label = f"{row.condition} (in the paper {number:.3f}, {'equal' if equal else 'not equal'})"
        found.append(replace(row, condition=label, rank=None))
    return found


def maps_of(read: Numbers, store: str, number: str, figures: str, labels: tuple[str, ...], layers: tuple[int, ...]) -> Drawing:
    """Attention maps of the first prompt, mean over heads, without an edit and under some, in the paper's layers."""
    data = read[store]
    shown = map_data(data)
    chosen = [UNEDITED, *labels]
    texts = data.attrs["study"]["token_texts"][0][: min(TOKENS, shown.sizes["query"])]
    ticks = [text if text.isprintable() else repr(text)[1:-1] for text in texts]
    values = shown.sel(edit=chosen).isel(prompt=0).sel(layer=list(layers)).mean("head").values
    if labels:
        figure = heatmaps.maps(values, chosen, layers, ticks, COUNT_FROM)
    else:
        figure = heatmaps.by_layer(values[0], layers, ticks, COUNT_FROM)
    caption = f"{figures}: attention maps of one prompt, mean over heads. {SCALE}"
    return read.drawing(f"{number}-attention", figure, caption, store, bands=False)


def activations_of(read: Numbers, store: str, number: str, figures: str, labels: tuple[str, ...]) -> Drawing:
    """The largest |h| by depth and position, mean over prompts, without an edit and under some."""
    every: NDArray[Any] = read[store]["resid_max"].mean("prompt").values[..., :TOKENS]
    names = [*map(str, read[store]["edit"].values)]
    chosen = [UNEDITED, *labels]
    values = np.stack([every[names.index(label)] for label in chosen])
    figure = heatmaps.activations(values, chosen, heatmaps.colour_limits(every), COUNT_FROM)
    caption = f"{figures}: largest |h| by depth and position, mean over prompts. {SCALE}"
    return read.drawing(f"{number}-activations", figure, caption, store, bands=False)
