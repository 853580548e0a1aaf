"""Premises and identities as words: a paper's own conditions for its claims, and equalities that the code must satisfy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sinkjax.analysis import activations
from sinkjax.analysis.estimates import three_digits
from sinkjax.studies.declaration import Identity, Premise
from sinkjax.studies.grids import At
from sinkjax.studies.readings import Readings
from sinkjax.studies.scope import Measure
from sinkjax.studies.words import as_tuple

if TYPE_CHECKING:
    from sinkjax.model.config import Config

MASSIVE_SIZE = activations.THRESHOLD  # the part of Sun et al.'s definition (2024, section 2) on the size of one activation
CHAT = ("<|im_start|>",)  # tokens that start a chat turn; they did not separate documents in pretraining
# All other positions are added to scores.
POSITIONS = {"Rope": "rotary", "LayerRopes": "rotary", "Learned": "added", "Sinusoidal": "added", "NoPosition": "none"}


def kind_of_positions(architecture: Config) -> str:
    """Return how a model encodes positions: "rotary", "added" (to the embedding), "scores" (added to scores) or "none".

    Args:
        architecture: The model's config, or its plain fields from a store.

    Returns:
        The kind.
    """
    position = architecture.position
    name = "Rope" if isinstance(position, dict) else str(position).partition("(")[0]
    return POSITIONS.get(name, "scores")


@Premise.define()
def reaches(read: Readings, measure: Measure, grid: str, least: object) -> tuple[bool, str]:
    """The mean of a measure over documents, without an edit, is at least a cut-off that a paper states."""
    return _unedited(read, measure, grid, read.scope.get(least), 1)


@Premise.define()
def exceeds(read: Readings, measure: Measure, grid: str, other: Measure) -> tuple[bool, str]:
    """The mean of a measure over documents, without an edit, is above the mean of another, such as the strongest other key's."""
    one, another = (float(read.raw(of, read.store(grid), grid, ())[0].mean()) for of in (measure, other))
    text = f"{read.name(measure)} is {three_digits(one)}, and must be above {three_digits(another)}, the {read.name(other)}"
    return one > another, text


@Premise.define()
def below(read: Readings, measure: Measure, grid: str, most: object) -> tuple[bool, str]:
    """The mean of a measure over documents, without an edit, is below a cut-off that a paper states."""
    return _unedited(read, measure, grid, read.scope.get(most), -1)


def _unedited(read: Readings, measure: Measure, grid: str, cut: float, sign: int) -> tuple[bool, str]:
    mean = float(read.raw(measure, read.store(grid), grid, ())[0].mean())
    holds = mean >= cut if sign > 0 else mean < cut
    return holds, f"{read.name(measure)} is {three_digits(mean)}, and must be {'at least' if sign > 0 else 'below'} {cut:g}"


@Premise.define()
def separates_documents(read: Readings, grid: str) -> tuple[bool, str]:
    """A grid's BOS separated documents in pretraining: the config names it, or it does not start a chat turn."""
    number, text = read.results[read.store(grid)].attrs["study"]["first_tokens"][0]
    named = isinstance(read.scope.config.bos, int)
    return named or text not in CHAT, f"BOS is {text!r} (token {number}), which must have separated documents in pretraining"


@Premise.define()
def without_bos(read: Readings, grid: str) -> tuple[bool, str]:
    """The prompts of a grid have no BOS, so their first tokens differ."""
    bos = read.results[read.store(grid)].attrs["study"]["bos"]
    return bos == "none", f"every prompt must begin with a token of its own, but bos is {bos}"


def _plain_keys(architecture: Config) -> bool:
    return getattr(architecture, "qk_norm", None) is None  # a store omits unstated fields


@Premise.define(architecture=_plain_keys)
def keys_without_norm(read: Readings) -> tuple[bool, str]:
    """Keys have no norm of their own, so that their lengths can differ."""
    return _plain_keys(read.scope.architecture), "keys must have no norm of their own, as one makes them about equally long"


def _of_kinds(architecture: Config, kinds: tuple[str, ...]) -> bool:
    return kind_of_positions(architecture) in kinds


@Premise.define(architecture=_of_kinds)
def positions_are(read: Readings, kinds: tuple[str, ...]) -> tuple[bool, str]:
    """Positions are of some kinds: "rotary", "added" (to the embedding), "scores" (added to these) or "none"."""
    found = kind_of_positions(read.scope.architecture)
    return _of_kinds(read.scope.architecture, kinds), f"positions are {found}, and must be {' or '.join(kinds)}"


def unnormed(architecture: Config) -> bool:
    """Return whether no norm comes between head outputs and the residual stream."""
    place = getattr(architecture, "norm_place", "pre")  # a store omits defaults
    return place not in ("sandwich", "output") and getattr(architecture, "head_norm", None) is None


@Premise.define(architecture=unnormed)
def attention_unnormed(read: Readings) -> tuple[bool, str]:
    """No norm comes between head outputs and the residual stream, so a change of only their size can have an effect."""
    return unnormed(read.scope.architecture), "no norm may follow head outputs or W_O, as it undoes a scaling of head outputs"


@Premise.define()
def all_of(read: Readings, premises: Premise) -> tuple[bool, str]:
    """Several premises hold; the first one that fails is reported."""
    found = [one.evaluate(read) for one in as_tuple(premises)]
    return next((one for one in found if not one[0]), (True, "; ".join(text for _, text in found)))


@Identity.define()
def same(read: Readings, measure: Measure, one: At, other: At, within: object) -> tuple[bool, str]:
    """A measure is the same under two choices of conditions, up to rounding.

    Args:
        read: The stores.
        measure: The compared measure, in every document.
        one: Some conditions.
        other: The same number of others.
        within: The largest difference that rounding explains, in the unit of the measure.
    """
    apart = float(np.abs(read.edited(measure, one) - read.edited(measure, other)).max())
    return apart <= read.scope.get(within), f"largest difference in {read.name(measure, one)}: {apart:.2g}"


@Identity.define()
def unchanged(read: Readings, measure: Measure, where: At, within: object) -> tuple[bool, str]:
    """An edit leaves a measure unchanged, up to rounding.

    Args:
        read: The stores.
        measure: The measure that cannot change, in every document.
        where: The conditions.
        within: The largest difference that rounding explains, in the unit of the measure (for a size, of its logarithm).
    """
    apart = float(np.abs(read.edited(measure, where) - read.edited(measure, where, edited=False)).max())
    return apart <= read.scope.get(within), f"largest change of {read.name(measure, where)}: {apart:.2g}"
