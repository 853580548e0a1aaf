"""Lower bounds on the loss of one layer of attention on the trigger task, as functions of its BOS mass.

This module imports no JAX. Numbers in brackets are equations of `docs/results/trigger-bounds.md`, which derives them. Rows and
positions count from 0: BOS is position 0, row i sees i tokens besides it, and row j has the trigger. A loss is a mean square over
rows and coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.config_files.checks import refuse
from sinkjax.tasks.trigger.config import Trigger

NOISE = 1 / 3  # variance of Uniform(-1, 1)
STEP = 1e-3  # perturbation of the parameters before a second minimisation
STARTS = 4  # a sum of squares is minimised from so many best nodes of a grid
DISTANCES, VALUES = np.linspace(0, 0.6, 13), np.array([0, 0.1, 0.5, 1])  # nodes for rho, and for omega / (1 - c)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(200)


@dataclass(frozen=True)
class Shape:
    """Sizes of the data: width n, length L, and the first and last position of the trigger, which is uniform in between."""

    width: int
    length: int
    first: int
    last: int

    def __post_init__(self) -> None:
        wrong, ends = not 2 <= self.first <= self.last < self.length, f"{self.first} and {self.last} of {self.length}"
        refuse(wrong, f"first and last must be positions of the trigger from 2 to length - 1, not {ends}")
        refuse(self.width < 4, f"width must be at least 4 (three flags and noise), not {self.width}")

    @classmethod
    def of(cls, data: Trigger) -> Shape:
        """The sizes of sequences. Errors: sequences that the bounds do not cover."""
        other = data.bos != "flag" or data.second_anchor or data.zero_token or data.residual or data.noise != 1
        refuse(other, "the bounds are for the paper's data: bos flag, noise 1, no second_anchor, zero_token or residual stream")
        return cls(data.width, data.length, *data.span)

    @property
    def noise(self) -> int:
        """Coordinates of noise, m."""
        return self.width - 3

    @cached_property
    def triggers(self) -> NDArray[Any]:
        """int[J], the positions of the trigger."""
        return np.arange(self.first, self.last + 1)

    @cached_property
    def shares(self) -> NDArray[Any]:
        """float[J], h = 1 / j: the weight of each token in the mean that the trigger's row copies."""
        return 1 / self.triggers

    @cached_property
    def rows(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """All pairs (row i, trigger j) of rows that are neither BOS's nor the trigger's: i and j, int[J (L - 2)] each."""
        j, i = np.meshgrid(self.triggers, np.arange(1, self.length), indexing="ij")
        return i[i != j], j[i != j]

    @property
    def cells(self) -> int:
        """Rows times coordinates, over which a loss is averaged."""
        return self.length * self.width


def off(cap: float) -> float:
    """The mass off BOS. Errors: a BOS mass that is not from 0 to 1."""
    refuse(not 0 <= cap <= 1, f"a BOS mass must be from 0 to 1, not {cap}")
    return 1 - cap


# Arbitrary weights, any value map, BOS mass capped in the mean


@cache
def flags(cap: float, shape: Shape) -> float:
    """(15): lower bound for layers whose BOS mass, in the mean over sequences and non-trigger rows, is at most `cap`."""
    quarter, circle = np.linspace(0, np.pi / 2, 4), np.linspace(0, 2 * np.pi, 49)[:-1]
    return _least(cap, shape, _trigger_row, quarter, quarter, circle)


def _least(cap: float, shape: Shape, trigger_row: Callable[..., NDArray[Any]], *angles: NDArray[Any]) -> float:
    """The least loss over values of tokens and BOS, and over the angles of the trigger's row, searched from nodes of these.

    (9): the other rows cost this much if values of tokens have at least this distance from 0 and BOS's value has this norm.
    """
    from scipy.optimize import minimize

    leak = off(cap)
    if leak == 0:
        return 0.0

    def total(point: NDArray[Any]) -> NDArray[Any]:
        distance, value, *turns = np.moveaxis(point, -1, 0)
        distance, value = np.abs(distance), leak * np.abs(value)
        others = (shape.length - 2) * np.maximum(leak * distance - cap * value, 0) ** 2
        return np.asarray(others + value**2 + trigger_row(np.maximum(distance, value), value, turns, shape))

    axes = (DISTANCES, VALUES, *angles)
    starts = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    order = np.argsort(total(starts))[:STARTS]
    options = {"xatol": 1e-8, "fatol": 1e-18, "maxfev": 1000}
    search: Callable[[NDArray[Any]], Any] = lambda start: minimize(total, start, method="Nelder-Mead", options=options)  # noqa: E731
    best = min((search(start) for start in starts[order]), key=lambda found: found.fun)
    # restart a collapsed simplex
    return float(min(search(best.x + change).fun for change in (0, STEP))) / shape.cells


def _trigger_row(upper: NDArray[Any], lower: NDArray[Any], angles: Sequence[NDArray[Any]], shape: Shape) -> NDArray[Any]:
    """(13): cost of the trigger's row if two directions of its output are confined to [-lower, upper] and [-lower, lower].

    angles: of the first direction, towards BOS's coordinate (psi), towards the noise (alpha) and between the flags (beta).
    """
    psi, alpha, beta_ = angles
    h = shape.shares
    seen = np.cos(psi) * np.cos(alpha)
    flag = seen[..., None] * (np.cos(beta_)[..., None] * h + np.sin(beta_)[..., None] * (1 - h))
    spread = np.abs(np.cos(psi) * np.sin(alpha))[..., None] * np.sqrt(NOISE * h)
    above, below = upper[..., None] - flag, flag + lower[..., None]
    confined = (_half(above, spread) + _half(below, spread)).mean(axis=-1) / 2
    return np.asarray(confined + np.maximum(np.sqrt(_smallest(shape)) * np.abs(np.sin(psi)) - lower, 0) ** 2)


def _half(room: NDArray[Any], spread: NDArray[Any]) -> NDArray[Any]:
    """(12): twice the least mean squared distance of a symmetric variable of this spread to a half-line with this room."""
    return np.asarray(np.where(room >= 0, np.maximum(spread - room, 0) ** 2, spread**2 + 2 * room**2))


def _smallest(shape: Shape) -> float:
    """(11): the smallest second moment of the target in any direction orthogonal to BOS's coordinate."""
    h = shape.shares
    target = np.stack([h, 1 - h])
    return float(min(NOISE * h.mean(), np.linalg.eigvalsh(target @ target.T / len(h))[0]))


# Arbitrary weights, any value map, BOS mass of the first row capped everywhere


def first_row(cap: float, shape: Shape) -> float:
    """(23): lower bound for layers whose BOS mass in row 1 is at most `cap` for every sequence."""
    leak = off(cap)
    if shape.noise - 3 < 1:
        return 0.0
    norms = np.linspace(0, np.sqrt(shape.noise), 4001)  # at the last one the trigger's row costs nothing
    rest = np.mean([np.maximum(_in_span(norms, int(j), shape), _in_test(norms, int(j), shape)) for j in shape.triggers], axis=0)
    own = NOISE * (leak * norms) ** 2
    # Between two nodes, row 1 (increasing) costs at least its left end, the trigger's row (decreasing) its right end.
    return float((own[:-1] + rest[1:]).min()) / shape.cells


def _in_span(norm: NDArray[Any], tokens: int, shape: Shape) -> NDArray[Any]:
    """(20): the trigger's row cannot leave the affine span of the values it sees."""
    rank = shape.noise - 3
    if tokens - 1 >= rank:
        return np.zeros_like(norm)
    left = rank * 2 / ((tokens + 1) * (tokens + 2)) - _largest(tokens, tokens - 1, shape.noise)
    return np.asarray(np.maximum(np.sqrt(max(left, 0)) - np.sqrt(NOISE / tokens) * norm, 0) ** 2)


def _in_test(norm: NDArray[Any], tokens: int, shape: Shape) -> NDArray[Any]:
    """(22): nor can its product with the mean exceed the best token's."""
    rank = shape.noise - 3
    reach = norm * (np.sqrt(rank + 2) / tokens + 1 - 1 / tokens)
    return np.asarray(NOISE * tokens / rank * np.maximum(rank / tokens - reach, 0) ** 2)


def _largest(tokens: int, count: int, coordinates: int) -> float:
    """(19): expected sum of the `count` largest of the variances that a common shift has in each of the coordinates."""
    from scipy import special, stats

    p = (NODES + 1) / 2
    variance = special.betaincinv(2, tokens - 1, p) ** 2 / 3
    density = sum(stats.beta.pdf(p, coordinates - rank, rank + 1) for rank in range(count))
    return float((WEIGHTS / 2 * variance * density).sum())


# Weights that do not look at the noise


def blind(cap: float, shape: Shape, each: bool) -> float:
    """(28): lower bound for layers whose weights do not depend on the noise.

    each: whether `cap` holds for the BOS mass of each non-trigger row; otherwise for their mean.
    """
    here, mean = _row_noise(np.full(shape.length, off(cap)) if each else leak_by_row(cap, shape), shape), shape.shares.mean()
    flags = _least(cap, shape, _blind_row, np.linspace(0, 2 * np.pi, 97)[:-1])  # (27), by the argument of (15)
    return float(shape.noise * NOISE * here * mean / (here + mean) / shape.cells + flags)


def leak_by_row(cap: float, shape: Shape) -> NDArray[Any]:
    """(26): float[L], the cheapest mass off BOS in each row if BOS's mass is `cap` on average: proportional to i, at most 1."""
    rows = np.arange(shape.length)
    counted = shape.rows[0]
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(1, middle * counted).mean() < 1 - cap else (low, middle)
    return np.asarray(np.minimum(1, high * rows))


def _row_noise(leak: NDArray[Any], shape: Shape) -> float:
    """(25): sum over non-trigger rows of leak^2 / i, mean over the trigger's positions."""
    rows = shape.rows[0]
    return float((leak[rows] ** 2 / rows).sum()) / len(shape.triggers)


def _blind_row(upper: NDArray[Any], lower: NDArray[Any], angles: Sequence[NDArray[Any]], shape: Shape) -> NDArray[Any]:
    """(27): like `_trigger_row`, in the plane of the two flags. angles: of the direction, between the flags."""
    (angle,), h = angles, shape.shares
    flag = np.cos(angle)[..., None] * h + np.sin(angle)[..., None] * (1 - h)
    above, below = flag - upper[..., None], -lower[..., None] - flag
    return np.asarray((np.maximum(above, 0) ** 2 + np.maximum(below, 0) ** 2).mean(axis=-1))


def even(leak: NDArray[Any], shape: Shape) -> float:
    """(29): the least loss with mass leak[i] off BOS in each non-trigger row and even weights over other keys; it is attained.

    leak: float[L]; entry 0 is not used. The trigger's row has weights 1 / j on tokens 1 to j.
    """
    i, j = shape.rows
    h = shape.shares
    q, w = leak[i], np.where(i > j, 1 / i, 0)
    others = np.stack([1 - q, q * w, q * (1 - w)], axis=1)  # values of BOS, trigger and bias channel, by rows
    own = np.stack([np.zeros_like(h), h, 1 - h], axis=1)
    count = len(h)
    design = np.concatenate([np.sqrt(count) * np.eye(3)[:1], others, own])
    target = np.concatenate([np.zeros((1 + len(others), 2)), own[:, 1:]])
    fitted = design @ np.linalg.lstsq(design, target, rcond=None)[0]
    here = _row_noise(leak, shape)
    copied = shape.noise * NOISE * here * h.mean() / (here + h.mean())
    return float((copied + float(((fitted - target) ** 2).sum()) / count) / shape.cells)


# Weights that are not normalised


def undivided(shape: Shape) -> float:
    """(30): lower bound for layers whose weight on a key depends only on query and key, as ReLU's without a divisor."""
    h, j = shape.shares, shape.triggers
    rest = np.mean((h - np.polynomial.Polynomial.fit(j, h, 1)(j)) ** 2)
    of_one = np.mean((j - 1) * (np.sum((j - 1) * h) / np.sum(j - 1) - h) ** 2)
    return float(2 * rest + NOISE * shape.noise * (of_one + rest)) / shape.cells
