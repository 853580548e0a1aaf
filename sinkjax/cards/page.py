"""The page of a card, and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkjax.analysis.estimates import constant
from sinkjax.cards.card import Card
from sinkjax.cards.cost import PROCESSORS
from sinkjax.cards.files import NAMES, PAGE, PREFIX, USE, mask_program, put
from sinkjax.cards.ground import signed
from sinkjax.cards.purpose import KINDS, Purpose
from sinkjax.cards.where import STANDS_OUT, SinkPlaces
from sinkjax.report.figures.heatmaps import heads
from sinkjax.report.figures.lines import Line, Panel, lines
from sinkjax.report.figures.style import HALF
from sinkjax.report.page import page
from sinkjax.report.section import Block, Drawing, Section

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_page(card: Card, folder: str | Path) -> Path:
    """Save a card (`Card.save`) with its page, and return the page's path."""
    section = as_section(card)
    return put(folder, card.files() | {PAGE: page([section], section.title).encode()}, card.identity) / PAGE


def as_section(card: Card) -> Section:
    """Return a card as a section of a report."""
    rows = card.lines()
    return Section(
        study="card",
        title=f"Sink card of {card.model['name']}",
        question=f"What to do: {'; '.join(card.advice()) or 'no remedy that was measured here helps enough'}.",
        findings=(rows[0][1][:1].upper() + rows[0][1][1:], *(f"{name}: {text}" for name, text in rows[1:])),
        rows=(),
        featured=(),
        drawings=tuple(drawings(card.where, card.prompts)),
        blocks=tuple(blocks(card)),
        notes=(
            "Attention to a key is the mean over the queries that see it; a head sinks on a key above 0.3 (Gu et al. 2025).",
            "A sink is still there under an edit with at least half of its unedited strength.",
            f"An activation stands out at {STANDS_OUT:g} times the activation of later positions.",
            f"Costs have two digits and an interval: {PROCESSORS}.",
            f"Files next to this page: {', '.join(name for name in NAMES if name != PREFIX or card.prefix)}.",
        ),
        provenance={**card.model, **card.prompts, "bos": card.bos["policy"]},
    )


def blocks(card: Card) -> list[Block]:
    """Make the tables of heads, activation, costs and mask, and print the mask's program."""
    places, use, costs = card.where, card.purpose, card.cost
    rows = tuple((row.setting, signed(row.loss, " nats") if row.loss else row.reason) for row in costs.rows)
    shown = [
        Block("What the heads that sink do", "Head numbers by layer and kind (Fesser et al.).", *_by_head(places, use)),
        Block(f"The activation at position {places.position}", "Mean after each layer where it stands out.", *_by_layer(places)),
        Block(
            "Costs",
            f"On {costs.measured_on}. Bits: of weights, activations, keys and values, with a scale per tensor, channel or token.",
            ("setting", "loss added"),
            rows,
        ),
        Block(
            "Which tokens are sinks",
            f"On {costs.measured_on}. Precision: share of the marked tokens that are a head's sink. Recall: share of all sinks "
            "that are marked.",
            ("mark", "precision", "recall"),
            _by_mark(card),
        ),
        Block("The mask in your program", "It needs numpy only.", code=f"{mask_program()}\n\n{USE}"),
    ]
    return [block for block in shown if block.lines or block.code]


def _by_head(places: SinkPlaces, use: Purpose | None) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return columns and lines of the heads that sink, by layer and kind."""
    kinds = {(layer, head): kind for layer, head, kind in use.by_head} if use else {}
    columns = (*KINDS, "too weak to classify")
    rows: dict[int, dict[str, list[str]]] = {}
    for layer, head, _ in places.heads:
        rows.setdefault(layer, {name: [] for name in columns})[kinds.get((layer, head), columns[-1])].append(str(head))
    return ("layer", *columns), tuple((str(layer), *map(", ".join, row.values())) for layer, row in rows.items())


def _by_layer(places: SinkPlaces) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Return columns and lines of an activation that stands out: its dims in each layer."""
    large = places.activation
    columns = ("layer", "largest |h|", *(f"dim {dim}" for dim in large.dims))
    rows = [(layer, (large.by_layer[layer], *large.held[layer])) for layer in large.layers if large.stands_out]
    return columns, tuple((str(layer), *(f"{value:,.4g}" for value in row)) for layer, row in rows)


def _by_mark(card: Card) -> tuple[tuple[str, ...], ...]:
    """Return precision and recall of the mask, of the sinks' position, and of each token."""
    mask, position, count = card.mask, card.where.position, len(card.cause.tokens)
    content = (
        f"{count} token{'s' * (count != 1)} of the file" if count else f"position {position}" if card.where.sinks else "nothing"
    )
    marks = [(f"sink_tokens.json: {content}", mask), (f"position {position}", mask["by_position"])]
    marks += [(f"token {token['token']}, {token['text']!r}, anywhere", token) for token in mask["by_token"]]
    shares = ("precision", "recall")
    return tuple((name, *("-" if of[share] is None else f"{of[share]:.1%}" for share in shares)) for name, of in marks)


def drawings(places: SinkPlaces, prompts: Mapping[str, Any]) -> list[Drawing]:
    """Draw attention to the sink by layer and head, and the largest activation there by layer."""
    at, on = f"position {places.position}", f"{prompts['number']} prompts of {prompts['length']} tokens."
    drawn = heads(np.asarray(places.by_head), f"{len(places.heads)} of {places.of} heads sink on {at}", f"attention to {at}")
    peak = f"Largest |h| at {at} after each layer, and the largest at later positions in the layer where it peaks (dashed). {on}"
    return [
        Drawing("card-heads", drawn, f"Mean attention of each head to {at}. {on}", half=True),
        Drawing("card-activation", draw_activation(places), peak, half=True),
    ]


def draw_activation(places: SinkPlaces) -> Figure:
    """Draw the largest activation at the sink by layer."""
    large = places.activation
    values = [constant(largest) for largest in large.by_layer]
    line = Line(f"position {places.position}", range(len(values)), values, large.elsewhere, "later positions")
    panel = Panel(f"dim {large.dim}, largest after layer {large.layer}", "largest |h|", [line], log=True)
    return lines([[panel]], "layer", width=HALF[0], height=HALF[1])
