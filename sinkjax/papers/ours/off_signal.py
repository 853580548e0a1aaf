"""ours/off-signal: what tells a token that it is not the first?

A token gets attention weights that do not fit its content: the mean of other texts' rows, another text's row, its own row
permuted. The converse gives the first token the attention output of ordinary tokens. Shams write the same kind of thing where it
should not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray
from numpy.typing import NDArray

from sinkjax import Edit, compose, edit
from sinkjax.config_files.checks import positions
from sinkjax.papers._shared import after, hide_behind
from sinkjax.papers.kiya.predictions import rows_at
from sinkjax.study import *
from sinkjax.study import SIZES, later_attention_to, percentage, strongest_later_attention, without_bos

MEAN, OTHER, OWN = "mean of other texts", "of another text", "own"
PERMUTED, BEHIND_FIRST, ONE_ORDER = "permuted", "permuted but for keys 0 and itself", "permuted alike in all heads"
EVEN, DRAWN = "even", "random"
ROWS = (MEAN, OTHER, PERMUTED, BEHIND_FIRST, ONE_ORDER, EVEN, DRAWN, OWN)
ORDINARY, NOTHING, FIRSTS, AWAY = "ordinary mean", "nothing", "mean of other first tokens", "random direction"
OUTPUTS = (ORDINARY, NOTHING, FIRSTS, AWAY)
CLAIMED = {"mean": MEAN, "other": OTHER, "permuted": PERMUTED, "middle": BEHIND_FIRST, "even": EVEN, "drawn": DRAWN}
SET, ADD = "set", "add"


@dataclass(frozen=True, kw_only=True)
class Settings(Judged, Sinks, Mapped):
    prompts: int = 16
    positions: tuple[int, ...] = (4, 8, 16, 24, 42)
    """tokens whose attention weights are replaced"""
    ends: tuple[int, ...] = (0, 1, 2, 5, 10)
    """last layers of the sets of first layers that are edited together"""
    doses: tuple[float, ...] = (0.25, 0.5, 0.75)
    """weights of the mean of other texts' rows in a mixture with the token's own"""

    def check(self) -> None:
        positions(self, "positions")


def study(lab: Lab, s: Settings) -> None:
    """What tells a token that it is not the first."""
    lab.needs("softmax", "causal mask")
    config = lab.architecture
    blank = np.full((config.layers, lab.prompts, config.heads, len(s.positions), s.length), np.float32(1 / s.length))
    weights = lab.donor("weights", partial(rows_at, s.positions), blank, of_edited=True)
    outputs = lab.captured("outputs", compose(), ("attn_out",))["attn_out"]

    here, first = own("position", partial(later_attention_to, layer=lab.half)), later_attention_to(0, lab.half)
    size, size_0 = own("position", largest_activation), largest_activation(0)
    columns = [here, first, size, size_0]

    forms = lab.onset("forms", lambda layers: largest_activation(0, layers))
    early, late = upto(forms, "the one in which it forms"), after(forms, lab.layers, "the one in which it forms")
    sets = [*prefixes(lab.layers, s.ends), early, late]

    def row(kind: str, number: int, dose: float = 1.0) -> NDArray[Any]:
        """Return the weights of a query in each layer, prompt and head, of one kind: float32[layer, prompt, head, key]."""
        rng = lab.rng(f"{kind}, position {s.positions[number]}")
        replaced = replacement(kind, weights[..., number, :], s.positions[number], rng)
        return dose * replaced + np.float32(1 - dose) * weights[..., number, :]

    def blind(kind: str, number: int, where: Layers = ALL, dose: float = 1.0, alone: bool = True) -> Edit:
        """Give a token a row of one kind, with key 0 hidden from the queries behind it, or not."""
        at, label = s.positions[number], f"{kind} row"
        made = edit("weights", "set", row(kind, number, dose), queries=at, layers=where.layers, label=label)
        return compose(made, hide_behind(0, at)) if alone else made

    at = [*enumerate(s.positions)]
    kinds = [(kind, number, position) for kind in ROWS for number, position in at]
    hidden = {ALL.at(row=kind, position=p): blind(kind, n) for kind, n, p in kinds}
    seen = {ALL.at(row=kind, position=p): blind(kind, n, alone=False) for kind, n, p in kinds}
    rows = lab.sweep("rows", hidden, columns, title="attention rows replaced, key 0 hidden behind them")
    visible = lab.sweep("visible", seen, columns, title="attention rows replaced")
    early_rows = {where.at(row=kind, position=p): blind(kind, n, where) for where in sets for kind in (MEAN, EVEN) for n, p in at}
    by_depth = lab.sweep("depth", early_rows, columns, title="in some layers")
    mixed = {ALL.at(dose=dose, position=p): blind(MEAN, n, dose=dose) for dose in s.doses for n, p in at}
    doses = lab.sweep("doses", mixed, columns, title="mixed with the own row")

    heir, other = inherited(0), strongest_later_attention(0, lab.half)
    written = {kind: output_of(kind, outputs, lab.rng(f"output, {kind}")) for kind in OUTPUTS}

    def give(kind: str, way: str, where: Layers) -> Edit:
        """Set the first token's attention output to one of these, or add it."""
        return edit("attn_out", way, written[kind], queries=0, layers=where.layers, label=f"{way} {kind}")

    measures = [first, other, size_0, heir]
    ways = {early.at(output=kind, way=way): give(kind, way, early) for kind in OUTPUTS for way in (SET, ADD)}
    converse = lab.sweep("converse", ways, measures, title="the first token's attention output")
    places = {where: give(ORDINARY, SET, where) for where in (*each(lab.layers), *sets, ALL)}
    by_layer = lab.sweep("layers", places, measures, title="the ordinary mean as the first token's attention output")
    lab.noop(edit("attn_out", "add", 0.0, queries=0))

    def in_layers(where: Layers) -> Contrast:
        """The gain of a token with the mean row in some layers, over its own row."""
        return difference(here, by_depth[where.at(row=MEAN)], rows.at(row=OWN), first)

    def output(kind: str, way: str = SET) -> Selection:
        return converse.at(output=kind, way=way)

    sinks = is_sink(attention_to(0, lab.half), rows, strongest_other_attention(0, lab.half))
    for name, kind in CLAIMED.items():
        gain, both_seen = (difference(here, sweep.at(row=kind), sweep.at(row=OWN), first) for sweep in (rows, visible))
        lab.claim(name, "ours", gain, sinks, [both_seen, effect(size, rows.at(row=kind), size_0)], took=WRITTEN)
    shallow = [in_layers(where) for where in prefixes(lab.layers, s.ends)]
    lab.claim("early", "ours", in_layers(early), sinks, shallow, took=WRITTEN)
    lab.claim("late", "ours", in_layers(late), sinks, stays=True, took=WRITTEN)
    heirs = [effect(size_0, output(ORDINARY)), effect(heir, output(ORDINARY))]
    lab.claim("converse", "ours", effect(first, output(ORDINARY)), sinks, heirs, sign=-1, took=WRITTEN)
    for name, less in {"zero": output(NOTHING), "added": output(ORDINARY, ADD), "direction": output(AWAY)}.items():
        falls = difference(first, output(ORDINARY), less, first)
        lab.claim(name, "ours", falls, sinks, [effect(first, less)], sign=-1, took=WRITTEN)
    differ = all_of(sinks, without_bos(converse))  # where all texts begin alike, the edit sets what is there
    lab.claim("firsts", "ours", effect(first, output(FIRSTS)), differ, stays=True, took=WRITTEN)

    lab.maps(rows[ALL.at(row=MEAN, position=s.positions[0])], output(ORDINARY))
    lab.draw(lines_along, "position", here, over=rows, by="row")
    lab.draw(lines_along, "dose", here, over=doses)
    lab.draw(dots, first, heir, over=converse)
    lab.draw(lines, first, size_0, over=by_layer)


def replacement(kind: str, weights: NDArray[Any], position: int, rng: np.random.Generator) -> NDArray[Any]:
    """Return other attention weights for a query.

    Args:
        kind: One of `ROWS`.
        weights: Its own, float[layer, prompt, head, key].
        position: Its position.
        rng: For the order of permuted keys and for random weights.

    Returns:
        float32 of the same shape, 0 for keys that the query does not see.
    """
    replaced, seen = weights.copy(), slice(0, position + 1)
    if kind == MEAN:
        replaced = left_out(weights)
    elif kind == OTHER:
        replaced = np.roll(weights, 1, axis=1)
    elif kind == PERMUTED:
        replaced[..., seen] = rng.permuted(weights[..., seen], axis=-1)
    elif kind == BEHIND_FIRST:
        replaced[..., 1:position] = rng.permuted(weights[..., 1:position], axis=-1)
    elif kind == ONE_ORDER:
        order = np.argsort(rng.random((weights.shape[1], position + 1)), axis=-1)[None, :, None]
        replaced[..., seen] = np.take_along_axis(weights[..., seen], order, axis=-1)
    elif kind == EVEN:
        replaced[..., seen] = 1 / (position + 1)
    elif kind == DRAWN:
        replaced[..., seen] = rng.dirichlet(np.ones(position + 1), weights.shape[:-1])
    return np.asarray(replaced, np.float32)


def output_of(kind: str, outputs: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """Return attention outputs for the first token.

    Args:
        kind: One of `OUTPUTS`.
        outputs: Attention outputs of the unedited model, float[layer, prompt, position, width].
        rng: For the random direction.

    Returns:
        float32[layer, prompt, width]; means are over the other prompts.
    """
    of = left_out(np.nanmean(outputs[:, :, slice(1) if kind == FIRSTS else slice(1, None)], axis=2))
    if kind == AWAY:
        drawn, size = rng.standard_normal(of.shape), np.linalg.norm(of, axis=-1, keepdims=True)
        return np.asarray(drawn * size / np.linalg.norm(drawn, axis=-1, keepdims=True), np.float32)
    return np.zeros_like(of) if kind == NOTHING else of


def left_out(values: NDArray[Any]) -> NDArray[Any]:
    """Return the mean over all other prompts: float32 of the shape of `values`, [layer, prompt, ...]."""
    return np.asarray((values.sum(axis=1, keepdims=True) - values) / max(values.shape[1] - 1, 1), np.float32)


def inherited(position: int) -> Measure:
    """Return whether another token has more than half of a token's unedited activation, in per cent of the texts."""

    def of(data: xarray.Dataset) -> NDArray[Any]:
        sizes = data["resid_max"].values.max(axis=-2)
        return np.asarray(100.0 * (np.nanmax(np.delete(sizes, position, -1), axis=-1) > sizes[:1, :, position] / 2))

    return percentage(f"texts in which another token has half of the activation of position {position} (%)", of, SIZES)
