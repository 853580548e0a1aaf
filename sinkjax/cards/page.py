"""The page of a card, and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkjax.cards.card import Card
from sinkjax.cards.files import NAMES, PREFIX
from sinkjax.cards.ground import signed
from sinkjax.cards.where import STANDS_OUT, SinkPlaces
from sinkjax.config_files.files import write
from sinkjax.report.figures.style import COLOURS, HALF, canvas, draw_map, logarithmic, spaced_ticks, styled
from sinkjax.report.page import page
from sinkjax.report.section import Drawing, Section

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

PAGE = "card.html"


def save_page(card: Card, folder: Path) -> Path:
    """Write the page of a card into a folder, and return its path."""
    path = folder / PAGE
    section = as_section(card)
    write(path, page([section], section.title))
    return path


def as_section(card: Card) -> Section:
    """Return a card as a section of a report."""
    lines = card.lines()
    costs = [f"{row.setting}: {signed(row.loss, ' nats') if row.loss else row.reason}" for row in card.cost.rows]
    return Section(
        study="card",
        title=f"Sink card of {card.model['name']}",
        question=f"What to do: {'; '.join(card.advice()) or 'no remedy that was measured here helps enough'}.",
        findings=(lines[0][1][:1].upper() + lines[0][1][1:], *(f"{name}: {text}" for name, text in lines[1:])),
        rows=(),
        featured=(),
        drawings=tuple(drawings(card.where, card.prompts)),
        notes=(
            "Attention to a key is the mean over the queries that see it; a head sinks on a key above 0.3 (Gu et al. 2025).",
            "A sink is still there under an edit with at least half of its unedited strength.",
            f"An activation stands out at {STANDS_OUT:g} times the activation of later positions.",
            *(f"Loss added on {card.cost.measured_on}, {text}" for text in costs),
            f"Files beside this page: {', '.join(name for name in NAMES if name != PREFIX or card.prefix)}.",
        ),
        provenance={**card.model, **card.prompts, "bos": card.bos["policy"]},
    )


def drawings(found: SinkPlaces, prompts: Mapping[str, Any]) -> list[Drawing]:
    """Draw attention to the sink by layer and head, and the largest activation there by layer."""
    on = f"{prompts['number']} prompts of {prompts['length']} tokens."
    heads = f"Mean attention of each head to position {found.position}. {on}"
    activation = (
        f"Largest |h| at position {found.position} after each layer, and the largest at later positions in the layer where it "
        f"peaks (dashed). {on}"
    )
    return [
        Drawing("card-heads", draw_heads(found), heads, half=True),
        Drawing("card-activation", draw_activation(found), activation, half=True),
    ]


@styled
def draw_heads(found: SinkPlaces) -> Figure:
    """Draw attention to the sink by layer and head."""
    from matplotlib.colors import Normalize

    figure, panel = _half()
    image = draw_map(panel, np.asarray(found.by_head).T, Normalize(0, 1), aspect="auto")
    panel.set_xlabel("layer")
    panel.set_ylabel("head")
    panel.set_title(f"{len(found.heads)} of {found.of} heads sink on position {found.position}")
    figure.colorbar(image, ax=panel, pad=0.02).set_label(f"attention to position {found.position}")
    _whole(panel.xaxis, panel.yaxis)
    return figure


@styled
def draw_activation(found: SinkPlaces) -> Figure:
    """Draw the largest activation at the sink by layer."""
    activation = found.activation
    figure, panel = _half()
    panel.plot(range(len(activation.by_layer)), activation.by_layer, color=COLOURS[0], marker="o")
    panel.axhline(activation.elsewhere, color=COLOURS[1], linestyle="--")
    logarithmic(panel, "y")
    panel.annotate(
        "later positions",
        (1, activation.elsewhere),
        (0, 3),
        xycoords=panel.get_yaxis_transform(),
        textcoords="offset points",
        ha="right",
        color=COLOURS[1],
    )
    panel.set_xlabel("layer")
    panel.set_ylabel(f"largest |h| at position {found.position}")
    panel.set_title(f"dim {activation.dim}, largest after layer {activation.layer}")
    _whole(panel.xaxis)
    return figure


def _half() -> tuple[Figure, Axes]:
    figure = canvas(*HALF)
    return figure, figure.add_subplot()


def _whole(*axes: Axis) -> None:
    """Put ticks at integers."""
    for axis in axes:
        spaced_ticks(axis, integer=True)
