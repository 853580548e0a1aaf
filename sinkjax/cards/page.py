"""The page of a card, and its figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sinkjax.cards.card import Card
from sinkjax.cards.files import NAMES, PREFIX
from sinkjax.cards.where import STANDS_OUT
from sinkjax.config_files.files import write
from sinkjax.report.figures.style import COLOURS, draw_map, panels, styled
from sinkjax.report.page import page
from sinkjax.report.section import Drawing, Section

if TYPE_CHECKING:
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
    costs = [
        f"{row.setting}: {row.loss['mean']:+.4g} nats" if row.loss else f"{row.setting}: {row.reason}" for row in card.cost.rows
    ]
    return Section(
        study="card",
        title=f"Sink card of {card.model['name']}",
        question="Where does this model sink, on what does it hang, who makes it, what is it for, and what does it cost?",
        findings=(lines[0][1][:1].upper() + lines[0][1][1:], *(f"{name}: {text}" for name, text in lines[1:])),
        rows=(),
        featured=(),
        drawings=(Drawing("card", draw(card), said(card)),),
        notes=(
            "Attention to a key is the mean over the queries that see it; a head sinks on a key above 0.3 (Gu et al. 2025).",
            "A sink is still there under an edit with at least half of its unedited strength.",
            f"An activation stands out at {STANDS_OUT:g} times the activation of later positions.",
            *(f"Loss added on {card.cost.measured_on}, {text}" for text in costs),
            f"Files beside this page: {', '.join(name for name in NAMES if name != PREFIX or card.prefix)}.",
        ),
        provenance={**card.model, **card.prompts, "bos": card.bos["policy"]},
    )


def said(card: Card) -> str:
    """Return the caption of the figure."""
    found = card.where
    return (
        f"Left: mean attention of each head to position {found.position}. Right: largest |h| at that position after each layer, "
        "and the largest at later positions in the layer where it peaks (dashed). "
        f"{card.prompts['number']} prompts of {card.prompts['length']} tokens."
    )


@styled
def draw(card: Card) -> Figure:
    """Draw attention to the sink by layer and head, and the activation there by layer."""
    from matplotlib.colors import Normalize
    from matplotlib.ticker import MaxNLocator

    found, activation = card.where, card.where.activation
    figure, axes = panels(1, 2, 3.4)
    image = draw_map(axes[0, 0], np.asarray(found.by_head).T, Normalize(0, 1), aspect="auto")
    axes[0, 0].set_xlabel("layer")
    axes[0, 0].set_ylabel("head")
    axes[0, 0].set_title(f"{len(found.heads)} of {found.of} heads sink")
    figure.colorbar(image, ax=axes[0, 0], pad=0.02).set_label(f"attention to position {found.position}")
    right = axes[0, 1]
    right.plot(range(len(activation.by_layer)), activation.by_layer, color=COLOURS[0], marker="o")
    right.axhline(activation.elsewhere, color=COLOURS[1], linestyle="--")
    right.set_yscale("log")
    right.set_xlabel("layer")
    right.set_ylabel(f"largest |h| at position {found.position}")
    right.set_title(f"dim {activation.dim}, largest after layer {activation.layer}")
    for axis in (axes[0, 0].xaxis, axes[0, 0].yaxis, right.xaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    return figure
