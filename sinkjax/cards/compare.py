"""Cards side by side: one column for each model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sinkjax.analysis.summary import NOT_COMPARED
from sinkjax.cards.card import Card
from sinkjax.cards.cost import TENSOR, TOKEN
from sinkjax.cards.ground import signed
from sinkjax.cards.maker import Maker
from sinkjax.cards.purpose import LOSSES
from sinkjax.cards.shared import read_card
from sinkjax.config_files.checks import refuse
from sinkjax.report.figures.dots import Mark, points
from sinkjax.report.figures.heatmaps import MapRow, heatmaps
from sinkjax.report.figures.style import WIDTH, wrapped
from sinkjax.report.section import Block, Drawing, Section

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

NOT = "not measured"
MOST = 4  # maps in a line
NVFP4 = "NVFP4"


def _loss(found: Any) -> str:
    return signed(found) if found else NOT


def _place(card: Card) -> str:
    places = card.where
    return f"position {places.position}" + (f", {places.token!r}" if places.token is not None else "")


def _activation(card: Card) -> str:
    large = card.where.activation
    if not large.stands_out:
        return "none stands out"
    ratio = large.largest / max(large.elsewhere, 1e-30)
    return f"{large.largest:,.4g} after layer {large.layer}, dim {large.dim} ({ratio:,.3g} times later positions)"


def _maker(card: Card) -> str:
    maker = card.maker
    if not isinstance(maker, Maker):
        return "nothing to make"
    neurons = f", neurons {', '.join(map(str, maker.neurons[:4]))}" if maker.neurons and maker.part == "MLP" else ""
    return f"{maker.part} of layer {maker.layer}{neurons}" + ("" if maker.confirmed else " (not confirmed)")


def _remedy(card: Card) -> str:
    if not any(row.saved for row in card.cost.rows if row.setting != TOKEN):
        return NOT
    left = [(loss["mean"], name, loss) for name, loss in card.cost.remedies() if name != TOKEN]
    return f"{signed(min(left)[2])} ({min(left)[1].removeprefix(f'{TENSOR}, ')})" if left else "none saves enough"


def _without(name: str, card: Card) -> str:
    return _loss(card.purpose and card.purpose.loss.get(name))


def _kinds(card: Card) -> str:
    return NOT if card.purpose is None else ", ".join(f"{share:.0%} {kind}" for kind, share in card.purpose.kinds.items())


QUANTITIES: dict[str, Callable[[Card], str]] = {
    "heads that sink": lambda card: f"{len(card.where.heads)} of {card.where.of}",
    "on": _place,
    "depends on": lambda card: card.cause.kind,
    "vocabulary that qualifies alone": lambda card: NOT if card.cause.qualifies is None else f"{card.cause.qualifies:.1%}",
    "activation": _activation,
    "made by": _maker,
    "heads and prompts whose sink is a": _kinds,
    **{f"loss with {text}": partial(_without, name) for name, text in LOSSES.items()},
    "loss in 8 bits, a scale per tensor": lambda card: _loss(card.cost.of(TENSOR)),
    "the same with the best remedy": _remedy,
    "loss in 8 bits, a scale per token": lambda card: _loss(card.cost.of(TOKEN)),
    "loss in NVFP4": lambda card: _loss(card.cost.of(NVFP4)),
    "measured on": lambda card: (
        f"{card.prompts['number']} prompts of {card.prompts['length']} tokens, {card.prompts['text'].partition(' (')[0]}"
    ),
}


def compare_cards(*cards: Card | str | Path) -> pandas.DataFrame:
    """Compare the cards of several models.

    Args:
        *cards: Cards, folders of cards, or card.json files.

    Returns:
        A table of text: a row for each quantity, a column for each model. Losses are added nats per token, with 95% intervals.

    Raises:
        SinkjaxError: There is no card, or one that cannot be read (`read_card`).
    """
    import pandas

    found = read_all(cards)
    names = short_names(found)
    return pandas.DataFrame(
        {name: [of(card) for of in QUANTITIES.values()] for name, card in zip(names, found, strict=True)}, [*QUANTITIES]
    )


def read_all(cards: Sequence[Card | str | Path]) -> list[Card]:
    """Return cards, read from their files where they are paths. Errors: none; see `read_card`."""
    refuse(not cards, "there is no card to compare")
    return [card if isinstance(card, Card) else read_card(card) for card in cards]


def short_names(cards: Sequence[Card]) -> list[str]:
    """Return the last part of each model's name, numbered where two are the same."""
    names = [Path(str(card.model["name"])).name.removesuffix(".gguf") for card in cards]
    return [f"{name} ({names[:number].count(name) + 1})" if names.count(name) > 1 else name for number, name in enumerate(names)]


def as_section(cards: Sequence[Card]) -> Section:
    """Return cards as one section of a report: a table, the maps of their heads, and their costs as dots."""
    table, names = compare_cards(*cards), short_names(cards)
    lines = tuple((str(quantity), *row) for quantity, row in zip(table.index, table.values.tolist(), strict=True))
    scale = "Mean attention of each head (across) of each layer (upwards) to the sink's position. Grey: no such layer or head."
    return Section(
        study="card",
        title=f"Sink cards of {' and '.join(names)}" if len(names) < 3 else f"Sink cards of {len(names)} models",
        question="The same measurements in each model.",
        findings=(),
        rows=(),
        featured=(),
        drawings=(
            Drawing("heads", draw_heads(cards), scale),
            Drawing("costs", draw_costs(cards), "Loss added, in nats per token, with 95% intervals."),
        ),
        blocks=(Block("Side by side", "Losses are added nats per token, with 95% intervals.", ("", *names), lines),),
        notes=("Each column is one card; numbers of cards on different texts compare models and texts at once.",),
    )


def draw_heads(cards: Sequence[Card]) -> Figure:
    """Draw the attention of every head to the sink, a map for each model."""
    heads = [np.asarray(card.where.by_head) for card in cards]
    largest = np.max([each.shape for each in heads], axis=0)
    maps = [np.pad(each, [*zip((0, 0), largest - each.shape, strict=True)], constant_values=np.nan) for each in heads]
    rows = [MapRow(maps[start : start + MOST], "attention to the sink", (0, 1)) for start in range(0, len(maps), MOST)]
    width = 80 // len(rows[0].values)
    titles = [wrapped(name.replace("-", "- "), width).replace("- ", "-") for name in short_names(cards)]
    return heatmaps(rows, (WIDTH, 2.9 * len(rows)), titles, ("head", "layer"), square=False)


def draw_costs(cards: Sequence[Card]) -> Figure:
    """Draw the losses that the sink's removal and few bits add, a panel for each, a dot for each model."""
    names = short_names(cards)
    shown: dict[str, Callable[[Card], Any]] = {
        "key hidden": lambda card: card.purpose and card.purpose.loss.get("key hidden"),
        "values set to 0": lambda card: card.purpose and card.purpose.loss.get("values zeroed"),
        "8 bits, scale per tensor": lambda card: card.cost.of(TENSOR),
    }
    columns: dict[str, list[Mark]] = {}
    for title, of in shown.items():
        for name, card in zip(names, cards, strict=True):
            if found := of(card):
                columns.setdefault(title, []).append(
                    Mark(name, dataclasses.replace(NOT_COMPARED, note="", **found), "loss added")
                )
    return points(columns, "loss added (nats per token)", shared=False)
