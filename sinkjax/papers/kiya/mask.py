"""kiya/mask: mask the logits of all later queries towards the first key, in some layers or heads (Figs. 4 and 8).

Controls mask another, random key in the same layers, or the key in as many random heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax import Edit, add_logit, edit, mask_key
from sinkjax.config_files.checks import positions, refuse
from sinkjax.report.figures import heatmaps
from sinkjax.report.figures.heatmaps import MapColumn, MapRow
from sinkjax.report.section import Drawing
from sinkjax.study import *
from sinkjax.study import LAYERS, Head, below, drawable, finite, unchanged


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Sinks, Mapped):
    key: int = 0
    """the key that is masked; its sink is expected at key + 1 afterwards"""
    head_shares: tuple[float, ...] = (0.1, 0.5)
    """shares of all heads that are masked as a set"""

    def check(self) -> None:
        positions(self, "key", plus=1)


def study(lab: Lab, s: Settings) -> None:
    """Masking the logits towards a key."""
    L, H, keys = lab.layers, lab.architecture.heads, (s.key, s.key + 1)
    sink, sink_next = (sink_rate(key, s.eps) for key in keys)
    seen, seen_next = (attention_to(key, lab.half) for key in keys)
    size, size_next = map(largest_activation, keys)
    large, large_next = (largest_activation(key, layer(lab.half)) for key in keys)
    columns = (sink, sink_next, size, size_next, seen, seen_next)

    forms = upto(lab.onset("forms", lambda layers: largest_activation(s.key, layers)), "the one in which it forms")
    places = [*each(L), *prefixes(L), ALL, forms]

    def another_key(rng: np.random.Generator, case: Layers) -> Edit:
        return mask_key(lab.random_position(rng, but=keys), layers=case.layers)

    masks = lab.sweep("masks", {place: mask_key(s.key, layers=place.layers) for place in places}, columns, another_key)

    def attention_by_head(run: Unedited) -> np.ndarray:
        return np.asarray(finite(run.data(sink.asks))["attention_received"].isel(edit=0).sel(key=s.key).mean("prompt").values)

    sets = head_sets(np.asarray(lab.value("attention", attention_by_head, np.zeros((L, H)))), s.head_shares)

    def random_heads(rng: np.random.Generator, case: Layers) -> Edit:
        drawn = sorted(divmod(int(one), H) for one in rng.choice(L * H, len(case.heads or ()), replace=False))
        return hide_from_heads(s.key, drawn, L, H)

    heads = lab.sweep("heads", {one: hide_from_heads(s.key, one.heads or (), L, H) for one in sets}, columns, random_heads)
    lab.noop(add_logit(s.key, 0.0))

    sinks, massive = is_sink(seen, masks, strongest_other_attention(s.key, lab.half)), reaches(large, masks, MASSIVE_SIZE)
    first, second, third = (attention_to(s.key, number) for number in range(3))
    at_once = reaches(first, masks, 100 * s.eps)
    in_third = all_of(below(first, masks, 100 * s.eps), below(second, masks, 100 * s.eps), reaches(third, masks, 100 * s.eps))
    second_layer = moved(seen, seen_next, masks[layer(1)])

    def moves(name: str, place: Layers, source: str, *premises: Premise) -> None:
        """The next token gains the masked one's attention in the paper's mean map; the share of heads stands beside it."""
        gain, beside = moved(seen, seen_next, masks[place]), [effect(sink_next, masks[place])]
        lab.claim(name, source, gain, all_of(sinks, *premises), beside, took=MASKED)

    moves("all", ALL, "Kiya et al. 2026, Figs. 4a, 8a")
    moves("first", layer(0), "Kiya et al. 2026, Fig. 4b", at_once)
    lab.claim("second-stays", "Kiya et al. 2026, Fig. 4c", second_layer, all_of(sinks, at_once), stays=True, took=MASKED)
    lab.claim("second-moves", "Kiya et al. 2026, Fig. 8c", second_layer, all_of(sinks, in_third), took=MASKED)
    moves("forms", forms, "ours, on Kiya et al. 2026, Fig. 8, conclusion", massive)
    lab.claim("activation", "Kiya et al. 2026, Figs. 4, 8", moved(large, large_next, masks[ALL]), massive, took=MASKED)
    lab.identity("kept", "Kiya et al. 2026, Figs. 4, 8", unchanged(size, masks[ALL], 1e-4))

    lab.draw(lines, (sink, sink_next), (size, size_next), over=masks)
    lab.maps(masks[forms], masks[ALL])
    lab.draw(received, *keys, over=masks)
    lab.draw(activations, masks[layer(0)], masks[forms], masks[ALL])
    lab.draw(dots, sink, sink_next, over=heads)


def received(read: Numbers, *keys: int, over: Sweep) -> Drawing:
    """Draw the attention that keys receive in each layer (up), against the edited layers (across)."""
    data = read[over.name]["attention_received"]
    series, rows, L = drawable(read, over), read.rows(over.name), data.sizes["layer"]

    def columns(key: int, chosen: Sequence[Layers]) -> np.ndarray:
        """Make one column per layer, NaN where no condition ends."""
        drawn = np.full((L, L), np.nan)
        values = data.isel(edit=[rows[case] for case in chosen]).sel(key=key).mean(["prompt", "head"]).values
        drawn[[case.x for case in chosen]] = values
        return drawn

    bar = "attention received, mean over heads and prompts"
    shown = [MapRow([columns(key, chosen) for chosen in series.values()], bar, (0, 1), title=f"key {key}") for key in keys]
    across = [MapColumn(title, list(map(str, range(L))), LAYERS) for title in series]
    figure = heatmaps.grids(across, shown, list(map(str, range(L))), "layer where it is read", height=3.3)
    caption = "Attention that keys receive in each layer, against the edited layers. A masked layer gives the masked key none."
    return read.drawing("attention-by-layer", figure, caption, over.name, bands=False)


def hide_from_heads(key: int, heads: Sequence[Head], layers: int, count: int) -> Edit:
    """Hide a key from some heads only.

    Args:
        key: The key.
        heads: (layer, head) of each.
        layers: Number of layers of the model.
        count: Number of heads in a layer.
    """
    value = np.zeros((layers, 1, count), np.float32)  # adding 0 to a logit changes nothing
    for layer, head in heads:
        value[layer, 0, head] = -np.inf
    return edit("logits", "add", value, keys=key, relation="others", layers=sorted({layer for layer, _ in heads}))


def head_sets(scores: NDArray[Any], shares: Sequence[float]) -> list[Layers]:
    """Return sets of heads: those that attend most to the key, and as many of the first layers.

    Args:
        scores: Attention to the key, float[layer, head].
        shares: Shares of all heads, between 0 and 1, rounded to whole layers, but neither none nor all of them.
    """
    (layers, heads), order = scores.shape, np.argsort(-scores.ravel(), kind="stable")
    for share in shares:
        refuse(not 0 < share < 1, f"a share of heads must lie between 0 and 1, not {share:g}")
    sizes = sorted({heads * min(max(round(share * layers), 1), max(layers - 1, 1)) for share in shares})
    top = [_heads(f"the {size} heads with the largest attention", order[:size], heads) for size in sizes]
    return top + [_heads(f"the {size} heads of {upto(size // heads - 1).label}", np.arange(size), heads) for size in sizes]


def _heads(label: str, numbers: NDArray[np.intp], heads: int) -> Layers:
    """Return the heads with numbers layer * H + head."""
    chosen = tuple(divmod(int(number), heads) for number in numbers)
    return Layers(label, tuple(sorted({layer for layer, _ in chosen})), chosen, x=len(chosen))
