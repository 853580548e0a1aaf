"""The files of a card for other programs: the card, where sinks are, and where an activation may be held."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkjax.config_files.files import write

if TYPE_CHECKING:
    from sinkjax.cards.card import Card

VERSION = "sinkjax-card/1"
NAMES = CARD, SINKS, CLAMP = ("card.json", "sink_tokens.json", "clamp.json")


def save(card: Card, folder: Path) -> Path:
    """Write the files of a card into a folder, which is made if it does not exist. Errors: no permission, no space."""
    folder.mkdir(parents=True, exist_ok=True)
    about = {"version": VERSION, **dataclasses.asdict(card), "advice": card.advice()}
    for name, content in ((CARD, about), (SINKS, sinks_of(card)), (CLAMP, clamp_of(card))):
        write(folder / name, json.dumps(content, indent=1, allow_nan=False) + "\n")
    return folder


def sinks_of(card: Card) -> dict[str, Any]:
    """Return where sinks are, for `sink_mask`: positions, or token ids that are sinks at any position."""
    tokens = [token for token, _ in card.hangs.tokens]
    positions = [card.where.position] if card.where.sinks and not tokens else []
    return {"version": VERSION, "positions": positions, "tokens": tokens}


def clamp_of(card: Card) -> dict[str, Any]:
    """Return the layer after which, the position and the dim at which, and the |h| that may be held; {} if none stands out."""
    found = card.where.activation
    if not found.stands_out:
        return {}
    return {
        "version": VERSION,
        "layer": found.layer,
        "position": card.where.position,
        "dim": found.dim,
        "largest": found.largest,
    }


def sink_mask(tokens: ArrayLike, sinks: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return which tokens are sinks, bool [..., T], for token ids int [..., T] and the content of sink_tokens.json.

    It needs numpy only, so that it may be copied into other programs.
    """
    tokens = np.asarray(tokens)
    mask = np.isin(tokens, sinks["tokens"])
    mask[..., [position for position in sinks["positions"] if position < tokens.shape[-1]]] = True
    return mask
