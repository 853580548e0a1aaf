"""One edit at every site, of one position, with a strength."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sinkjax import Edit, Site, compose, edit
from sinkjax.model.site import BEFORE_BLOCKS, SITES

# Site -> operation, a strength that shows, and the neutral one.
STRENGTH: dict[Site, tuple[str, Any, Any]] = dict.fromkeys(Site, ("add", 0.4, 0.0)) | {
    Site.POSITION: ("shift", 2, 0),
    Site.LOGITS: ("add", 0.9, 0.0),
    Site.WEIGHTS: ("scale", 0.6, 1.0),
    Site.ROUTER: ("scale", -1.5, 1.0),
    **dict.fromkeys((Site.K_IN, Site.KEY, Site.HEAD_OUT, Site.NEURON), ("scale", 1.7, 1.0)),
}
# The sites of a model with rotary positions and without experts, and those of them whose strength is continuous.
DENSE = tuple(site for site in Site if site not in (Site.POSITION_VECTOR, Site.ROUTER))
CONTINUOUS = tuple(site for site in DENSE if site != Site.POSITION)


def at(site: Site, position: int, strength: Any = None, layer: int | None = None, **further: Any) -> Edit:
    """The edit of STRENGTH at one position; at LOGITS and WEIGHTS, of that query's weight on key 1."""
    op, default, _ = STRENGTH[site]
    where: dict[str, Any] = {"queries": position} if "queries" in SITES[site].positions else {"keys": position}
    if site in (Site.LOGITS, Site.WEIGHTS):
        where["keys"] = 1
    if site not in BEFORE_BLOCKS:
        where["layers"] = layer
    return edit(site, op, default if strength is None else strength, **where | further)


def at_all(position: int, strengths: Sequence[Any]) -> Edit:
    """One edit at each of CONTINUOUS, with strengths of their own."""
    return compose(*(at(site, position, strength) for site, strength in zip(CONTINUOUS, strengths, strict=True)))
