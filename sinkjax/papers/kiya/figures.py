"""kiya/figures: the paper's figures 1 to 9 on one model, in its order, with its layers, which it counts from 1.

The other studies judge what the figures show; here they are drawn as the paper draws them, and its four numbers of the first keys
stand beside those that are found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

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
    key_rows,
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
    keys = lab.calculate("keys", partial(first_keys, s), NORM_VARIABLES, declared={"first_keys": s.special})
    scores = lab.calculate("scores", partial(first_scores, s, 0), SCORE_VARIABLES, {"first_scores": [s.indices, 0, s.special]})
    section = "Kiya et al. 2026, section 3"
    lab.describe("direction", section, lambda read: beside_the_paper(key_rows(read, keys, "direction"), DIRECTION))
    lab.describe("size", section, lambda read: beside_the_paper(key_rows(read, keys, "size"), SIZE))

    def draw(number: int, figures: str, *labels: str) -> None:
        lab.draw(maps_and_activations, of_attention.name, number, figures, labels, layers)

    draw(1, "Figs. 1a, 6")
    draw(2, "Figs. 2, 7", *swapped)
    lab.draw(score_maps, scores)
    draw(4, "Figs. 4, 8", *masked)
    draw(5, "Figs. 5, 9", *alone)


def _edits(what: str, make: partial[Edit], single: tuple[int, ...], layers: int) -> dict[str, Edit]:
    """An edit in all layers and in single ones, by a label that counts layers as the paper does."""
    one = {f"{what} in layer {layer + COUNT_FROM}": make(layers=(layer,)) for layer in single if layer < layers}
    return {f"{what} in all layers": make(), **one}


def beside_the_paper(rows: Iterable[Row], published: Mapping[str, float]) -> list[Row]:
    """Numbers of the first keys by each convention for grouped keys, and whether they equal the published ones."""

    def beside(row: Row, number: float) -> Row:
        equal = row.value.mean is not None and abs(row.value.mean - number) < ROUNDED
        label = f"{row.condition} (in the paper {number:.3f}, {'equal' if equal else 'not equal'})"
        return replace(row, condition=label, rank=None)

    return [beside(row, published[row.condition]) for row in rows]


def maps_and_activations(
    read: Numbers, store: str, number: int, figures: str, labels: tuple[str, ...], layers: tuple[int, ...]
) -> list[Drawing]:
    """Attention maps of the first prompt in the paper's layers, and the largest |h|, without an edit and under some."""
    data, chosen = read[store], [UNEDITED, *labels]
    weights, sizes = map_data(data), data["resid_max"].mean("prompt")[..., :TOKENS]
    texts = data.attrs["study"]["token_texts"][0][: min(TOKENS, weights.sizes["query"])]
    ticks = [text if text.isprintable() else repr(text)[1:-1] for text in texts]
    maps = weights.sel(edit=chosen).isel(prompt=0).sel(layer=list(layers)).mean("head").values
    if labels:
        of_weights = heatmaps.maps(maps, chosen, layers, ticks, COUNT_FROM)
    else:
        of_weights = heatmaps.by_layer(maps[0], layers, ticks, COUNT_FROM)
    of_sizes = heatmaps.activations(sizes.sel(edit=chosen).values, chosen, heatmaps.colour_limits(sizes.values), COUNT_FROM)
    drawn = {
        "attention": (of_weights, "attention maps of one prompt, mean over heads"),
        "activations": (of_sizes, "largest |h| by depth and position, mean over prompts"),
    }
    return [
        read.drawing(f"{number}-{name}", figure, f"{figures}: {what}. {SCALE}", store, bands=False)
        for name, (figure, what) in drawn.items()
    ]
