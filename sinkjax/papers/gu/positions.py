"""gu/positions: does the first position make the sink of one token repeated (Table 7)?

Learned position vectors are replaced or exchanged as in the paper, rotary indices in the same way. Controls give another, random
token the same position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sinkjax import Edit, compose, edit, set_positions
from sinkjax.analysis.estimates import Absent
from sinkjax.config_files.checks import positions
from sinkjax.errors import SinkjaxError
from sinkjax.model.positions import AddedPosition
from sinkjax.study import *
from sinkjax.study import kind_of_positions, positions_are, strongest_other_sink, without_bos


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Sinks):
    prompts: int = 64
    places: tuple[int, ...] = (1, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 29, 32, 36, 40)
    """positions that the repeated first token gets"""
    text_places: tuple[int, ...] = (4, 9, 14, 19, 24, 29)
    """positions that the first token of natural text gets"""
    repeat_prompts: int = 16
    """prompts of one token repeated"""

    def check(self) -> None:
        positions(self, "places", "text_places")


def study(lab: Lab, s: Settings) -> None:
    """Positions exchanged between tokens."""
    lab.needs("scores without positions")
    sink, at_place = sink_rate(0, s.eps), own("position", partial(sink_rate, eps=s.eps))
    columns = (sink, at_place, strongest_other_sink(0, s.eps), largest_activation(0))
    vectors = lab.donor("vectors", partial(position_vectors, lab), no_vectors(lab))

    def move(i: int, j: int, swap: bool) -> Edit:
        return exchanged(lab, {i: j, j: i} if swap else {i: j}, vectors)

    def sweep(swap: bool, repeats: bool) -> Sweep:
        def another_token(rng: np.random.Generator, case: Layers) -> Edit:
            return move(lab.random_position(rng, but=(0, case["position"]), least=1), case["position"], swap)

        name, title = ("swapped", "0 swapped with") if swap else ("taken", "0 becomes")
        edits = {ALL.at(position=place): move(0, place, swap) for place in (s.places if repeats else s.text_places)}
        if not repeats:
            return lab.sweep(f"text-{name}", edits, columns, title=f"natural text, {title}")
        inputs = {"inputs": "repeat", "prompts": s.repeat_prompts}
        return lab.sweep(name, edits, columns, another_token, title=f"one token repeated, {title}", **inputs)

    becomes, exchange, text_taken, text_swapped = (sweep(swap, repeats) for repeats in (True, False) for swap in (False, True))
    lab.noop(move(0, 0, swap=True))

    source, learned = "Gu et al. 2025, Table 7", positions_are("added")
    sinks = is_sink(attention_to(0, lab.half), exchange, strongest_other_attention(0, lab.half))
    premise = all_of(learned, without_bos(exchange), sinks)
    lab.claim("replaced", source, effect(sink, becomes.every), premise, sign=-1, took=WRITTEN)
    lab.claim("leaves", source, effect(sink, exchange.every), premise, sign=-1, took=WRITTEN)
    lab.claim("moves", source, moved(sink, at_place, exchange.every), premise, took=WRITTEN)
    lab.identity("alike", "Gu et al. 2025, Propositions 1 to 4", lambda read: alike(read, exchange, 1e-4))

    for drawn in (exchange, becomes, text_swapped, text_taken):
        lab.draw(lines_along, "position", (sink, at_place), over=drawn)


# Positions exchanged between tokens: learned vectors as in Table 7, or rotary indices.


def no_vectors(lab: Lab) -> NDArray[np.float32]:
    """Placeholders of `position_vectors`."""
    added = kind_of_positions(lab.architecture) == "added"
    return np.zeros((lab.settings.length, lab.architecture.width) if added else (0, 0), np.float32)


def position_vectors(lab: Lab, run: Unedited) -> NDArray[np.float32]:
    """The vectors that a model adds to the embedding: float[position, width]; empty if it adds none."""
    blank = no_vectors(lab)
    if not blank.size:
        return blank
    model = run.model
    assert isinstance(model.config.position, AddedPosition)
    return np.asarray(model.config.position.vectors(len(blank), blank.shape[1], model.params), np.float32)


def exchanged(lab: Lab, changed: Mapping[int, int], vectors: NDArray[np.float32]) -> Edit:
    """Give tokens other positions; the causal mask does not change.

    Args:
        lab: The lab.
        changed: Position of a token -> the position that it gets.
        vectors: `position_vectors` of the model.
    """
    kind = kind_of_positions(lab.architecture)
    if kind == "rotary":
        indices = np.arange(lab.settings.length)
        indices[list(changed)] = list(changed.values())
        return set_positions(query=indices, key=indices)
    if kind != "added":
        raise SinkjaxError(f"positions are {kind}, and only rotary ones or vectors added to the embedding can be exchanged")
    return compose(*(edit("embed", "add", vectors[j] - vectors[i], queries=i) for i, j in changed.items()))


def alike(read: Numbers, sweep: Sweep, within: float) -> tuple[bool, str]:
    """If one token is repeated, the largest |h| is the same at all positions and under every exchange of rotary indices.

    Args:
        read: The stores.
        sweep: The sweep.
        within: The largest relative difference that rounding explains.

    Raises:
        Absent: Positions are not rotary, or a BOS makes the first token another one.
    """
    data, kind = read[read.store(sweep)], kind_of_positions(read.architecture)
    if kind != "rotary" or data.attrs["study"]["bos"] != "none":
        raise Absent(f"positions are {kind} and bos is {data.attrs['study']['bos']}, and must be rotary and none")
    largest = data["resid_max"].max("depth").values  # edit, prompt, position
    apart = float((largest.max(axis=(0, 2)) / largest.min(axis=(0, 2)) - 1).max())
    return apart <= within, f"largest relative difference of the largest |h| between positions and exchanges: {apart:.2g}"
