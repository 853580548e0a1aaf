"""The rule that judges every claim: numbers in, one word out. docs/judgements.md explains it and its error rates."""

from __future__ import annotations

import csv
import dataclasses
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from sinkjax.analysis.evidence import Array, Evidence, Judgement, Rank, Word
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.mean_bounds import FEWEST_BOUNDED, LEVEL, Ratio
from sinkjax.errors import SinkjaxError

LARGE, SMALL = 1 / 2, 1 / 10  # shares of the whole: the only constants of the rule
FEWEST_CONTROLS = 20  # fewer controls decide only if no more exist
T_ERRORS = Path(__file__).with_name("t_errors.csv")  # written by scripts/simulate_judgement.py


def identity(holds: bool) -> Judgement:
    """Judge an identity: a fact forced by the code or the edit, a theorem or a proposition."""
    return Judgement("holds" if holds else "fails")


def untested(reason: str) -> Judgement:
    """Judge a claim that this model cannot test, such as one about an object that its architecture lacks."""
    return Judgement("untested", reason=reason)


def with_twin(judgement: Judgement, twin: Judgement) -> Judgement:
    """Set `untrained` if the claim replicates and the untrained twin also shows it.

    That means S above 1/2 in the twin, or the same word if there is no S or the claim says that something stays."""
    same = twin.S.low is not None and twin.S.low > LARGE if twin.S and not judgement.stays else twin.word == "replicates"
    return dataclasses.replace(judgement, untrained=judgement.word == "replicates" and same)


def word_of(d: int, s: Callable[[float], int] | None, stays: bool = False) -> Word:
    """Apply the rule.

    Args:
        d: 1 if D is above 0, -1 if its interval is below 0, 0 otherwise.
        s: A function from c to 1 if S's interval is above c, -1 if it is below, 0 if it includes c; None if there is no W.
        stays: Whether the claim says that something stays.

    Returns:
        The first word that matches.
    """

    def inside(c: float) -> bool:
        return s is not None and s(-c) > 0 > s(c)

    if stays:
        beyond = s is not None and (s(LARGE) > 0 or s(-LARGE) < 0)
        return "replicates" if inside(SMALL) else "weaker" if inside(LARGE) else "differs" if beyond else "undecided"
    if d > 0 and (s is None or s(LARGE) > 0):
        return "replicates"
    if d < 0 or inside(SMALL):
        return "differs"
    if d > 0:  # S has the sign of D, because W is above 0
        return "weaker" if s is not None and s(LARGE) < 0 else "shown"
    return "undecided"


def judge(evidence: Evidence, *, sign: int = 1, stays: bool = False) -> Judgement:
    """Judge a claim.

    Args:
        evidence: The numbers.
        sign: 1 or -1, the sign that the paper gives to the contrast.
        stays: Whether the claim says that something stays; it needs `evidence.whole`.

    Returns:
        The word and the numbers that decided it.

    Raises:
        SinkjaxError: Shapes do not fit, a number is outside its range, the sign is neither 1 nor -1, or a claim that something
            stays has no whole.
    """
    if sign not in (1, -1):
        raise SinkjaxError(f"sign must be 1 or -1, not {sign}")
    if stays and evidence.whole is None:
        raise SinkjaxError('a claim that something stays needs a whole: "stays" means that S is small')
    contrast, controls, whole = _arrays(evidence)
    d = sign * (contrast if controls is None else contrast - controls.mean(0))
    rank = None if controls is None else _rank([_by_cluster(sign * one, evidence.clusters) for one in (contrast, *controls)])
    d_support, w_support, s_support = supports(evidence, sign, d, whole)
    total, one = int(np.asarray(evidence.contrast).size), np.where(np.isfinite(d), 1.0, np.nan)
    grouped = [_by_cluster(found, evidence.clusters) for found in (d, one if whole is None else whole, one)]
    size = 0.0 if whole is None else float(np.abs(whole).max(initial=0.0, where=np.isfinite(whole)))
    ratios = {"D": Ratio(grouped[0], grouped[2], d_support, size)}
    if whole is not None:
        ratios |= {"W": Ratio(grouped[1], grouped[2], w_support), "S": Ratio(grouped[0], grouped[1], s_support, size)}
    found: dict[str, Any] = {"D": _interval(ratios["D"], d, total)}
    n = min(grouped[0].shape)
    counted = _counted(evidence, d.shape, ratios["D"].d.shape[0])
    said = Judgement("undecided", rank=rank, n=n, stays=stays, **_described(ratios, evidence, counted, n))
    if whole is not None:
        found["W"] = _interval(ratios["W"], whole, total)
        if found["W"].low is None or found["W"].low <= 0:
            why = f"The whole, {found['W']}, is not shown to be above 0, so nothing can be a share of it."
            return dataclasses.replace(said, word="untested", D=found["D"], W=found["W"], reason=why)
        found["S"] = _interval(ratios["S"], d, total)
    D, S = found["D"], found.get("S")
    above = _side(D, 0.0)
    lacking = "" if rank is None or above <= 0 else _lacking(rank, evidence.all_controls)
    word = word_of(0 if lacking else above, None if S is None else lambda c: _side(S, c), stays)
    reasons = [_reason(word, D, S, lacking, counted, stays), _no_spread(ratios["S" if stays else "D"], counted, n)]
    return dataclasses.replace(said, word=word, reason=" ".join(filter(None, reasons)), **found)


def _side(found: Interval, c: float) -> int:
    if found.low is None or found.high is None:
        return 0
    return int(found.low > c) - int(found.high < c)


def _arrays(evidence: Evidence) -> tuple[Array, Array | None, Array | None]:
    """Return contrast, controls and whole in the documents that count, with NaN in all wherever one is not finite."""
    contrast: Any = np.asarray(evidence.contrast, np.float64)
    if contrast.ndim not in (1, 2):
        raise SinkjaxError(f"a contrast is float[n] or float[n, p], not an array of shape {contrast.shape}")
    whole: Any = None if evidence.whole is None else np.asarray(evidence.whole, np.float64)
    if whole is not None and whole.shape != contrast.shape:
        raise SinkjaxError(f"the whole has shape {whole.shape}, the contrast {contrast.shape}")
    if evidence.clusters is not None and np.shape(evidence.clusters) != contrast.shape[:1]:
        raise SinkjaxError(f"{len(contrast)} {evidence.samples} need as many clusters, not shape {np.shape(evidence.clusters)}")
    controls: Any = None if evidence.controls is None else np.asarray(evidence.controls, np.float64)
    if controls is not None:
        if controls.ndim != contrast.ndim + 1 or controls.shape[2:] != contrast.shape[1:] or controls.shape[1] > len(contrast):
            raise SinkjaxError(f"controls of shape {controls.shape} do not fit a contrast of shape {contrast.shape}")
        if not len(controls):
            raise SinkjaxError("there are no controls: pass None")
        contrast, whole = (None if found is None else found[: controls.shape[1]] for found in (contrast, whole))
    parts = [contrast, *([] if whole is None else [whole]), *([] if controls is None else controls)]
    finite = np.all([np.isfinite(part) for part in parts], axis=0)
    contrast, controls, whole = (
        None if found is None else np.where(finite, found, np.nan) for found in (contrast, controls, whole)
    )
    return contrast, controls, whole


def _rank(samples: list[Array]) -> Rank:
    """Return the rank of the first mean among the others."""
    mean, *rest = (found.mean(where=np.isfinite(found)) if found.size else math.nan for found in samples)
    others = np.array(rest)
    tied = np.isclose(others, mean, rtol=1e-12, atol=0.0)
    apart = others - others.mean()
    spread = (float(apart.min()), float(apart.max())) if np.isfinite(apart).all() else None
    return Rank(int(((others < mean) & ~tied).sum()), int(tied.sum()), len(others), spread)


def _lacking(rank: Rank, all_controls: bool) -> str:
    """Describe what the controls do not rule out; "" if the contrast is above them."""
    if rank.of < FEWEST_CONTROLS and not all_controls:
        return f"there are {rank.of} controls, and fewer than {FEWEST_CONTROLS} show nothing"
    return "" if rank.above else f"the contrast lies above {rank.below} of {rank.of} controls, and {rank.needed} are needed"


def supports(evidence: Evidence, sign: int, d: Array, whole: Array | None) -> list[Callable[[float], tuple[float, float]] | None]:
    """Return the ranges of D - c, W - c and D - c W.

    Args:
        evidence: The range of the measure, of the whole and of the contrast.
        sign: 1 or -1, the sign that the paper gives to the contrast.
        d, whole: Samples of D and W, of any one shape.

    Returns:
        For each of the three, a function from c to the lowest and highest possible value; None without a range.

    Raises:
        SinkjaxError: A sample is outside its range.
    """
    if evidence.range is None:
        return [None, None, None]
    low, high = evidence.range
    largest = high - low  # maximum size of a contrast, and of a contrast minus its controls, which share the unedited value
    ends = evidence.whole_range or (low, high)
    relative = evidence.relative and evidence.controls is None and whole is not None
    edited = [] if not relative else [("the edited value", sign * d + whole, low, high)]
    ranges = [("D", d, -largest, largest), *([] if whole is None else [("the whole", whole, *ends)]), *edited]
    for name, values, least, most in ranges:
        if np.any((values < least - 1e-6 * (high - low)) | (values > most + 1e-6 * (high - low))):
            raise SinkjaxError(
                f"{name} has values from {np.nanmin(values):.4g} to {np.nanmax(values):.4g}, outside [{least}, {most}]"
            )

    def of_share(c: float) -> tuple[float, float]:
        if relative:  # D - c W = sign * edited - (sign + c) * unedited
            corners = [sign * edited - (sign + c) * unedited for edited in (low, high) for unedited in (low, high)]
        else:
            corners = [size - c * end for size in (-largest, largest) for end in ends]
        return min(corners), max(corners)

    return [lambda c: (-largest - c, largest - c), lambda c: (ends[0] - c, ends[1] - c), of_share]


def _by_cluster(values: Array, clusters: Array | None) -> Array:
    """Return independent samples: means of clusters that have a finite value (rows or columns, if crossed)."""
    if clusters is not None:
        names = np.asarray(clusters)[: len(values)]
        rows = [values[names == name] for name in np.unique(names)]
        sums = np.array([np.where(np.isfinite(row), row, 0.0).sum(0) for row in rows])
        counts = np.array([np.isfinite(row).sum(0) for row in rows])
        values = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    if values.ndim == 1:
        return values[np.isfinite(values)]
    finite = np.isfinite(values)
    return values[finite.any(1)][:, finite.any(0)]


def _interval(ratio: Ratio, samples: Array, total: int) -> Interval:
    n = int(np.isfinite(samples).sum())
    mean = None if not ratio.d.size or math.isnan(ratio.value) else ratio.value
    method = ratio.method
    low, high = (None, None) if method == "none" else ratio.ends()
    note = "" if method != "none" else "no finite samples" if not n else "one sample" if ratio.d.size == 1 else "no spread"
    return Interval(mean, low, high, n, total - n, LEVEL, method, note, samples.ravel())


def _described(ratios: dict[str, Ratio], evidence: Evidence, counted: str, n: int) -> dict[str, Any]:
    """Describe the methods as text; also return the simulated error of t."""
    methods = dict.fromkeys(ratio.method for name, ratio in ratios.items() if name != "W" and ratio.method != "none")
    if not methods:
        return {"method": f"no interval from {counted}"}
    measure = "unbounded" if evidence.range is None else "bounded"
    error = next((t_error(method, measure, n) for method in methods if method != "betting"), None)
    return {"method": f"{LEVEL:.0%} {' and '.join(methods)} interval, {counted}", "error": error}


def _counted(evidence: Evidence, shape: tuple[int, ...], n: int) -> str:
    """Describe the independent samples as text, such as "10 clusters of 64 documents"."""
    noun = evidence.samples if evidence.clusters is None else f"clusters of {shape[0]} {evidence.samples}"
    return f"{n} {noun}" + (f" x {shape[1]} positions" if len(shape) == 2 else "")


def _no_spread(ratio: Ratio, counted: str, n: int) -> str:
    """Note, as a sentence, that the few samples do not differ, so bets judge instead of t; otherwise ""."""
    if ratio.method != "betting" or n >= FEWEST_BOUNDED:
        return ""
    return f"The samples do not differ ({counted}), so Student's t has no spread to use, and bets judge."


@cache
def t_error(method: str, measure: str, n: int) -> tuple[float, float] | None:
    """Return the simulated rates of false words when Student's t judges.

    Args:
        method: "t" or "two-way t".
        measure: "bounded" or "unbounded".
        n: Independent samples.

    Returns:
        The rates on normal samples and on the least favourable shape, each at its least favourable edge, for the largest
        simulated number of samples up to n; None below the smallest.
    """
    with T_ERRORS.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if (row["method"], row["measure"]) == (method, measure)]
    row = max((row for row in rows if int(row["n"]) <= n), key=lambda row: int(row["n"]), default=None)
    return None if row is None else (float(row["normal"]), float(row["worst"]))


def _reason(word: Word, D: Interval, S: Interval | None, lacking: str, counted: str, stays: bool) -> str:
    """Describe the deciding number and the bound that it met or missed; "" for "replicates"."""
    decisive = S if stays else D
    if word == "replicates":
        return ""
    if word == "undecided" and decisive is not None and decisive.low is None:
        return f"There is no interval: {decisive.note}{f' among {counted}' if decisive.note == 'no spread' else ''}."
    if stays:
        where = {"weaker": f"inside ±{LARGE:g}, but not inside ±{SMALL:g}", "differs": f"wholly beyond ±{LARGE:g}"}
        return f"S, {S}, lies {where.get(word, f'neither inside nor beyond {LARGE:g}')}."
    if word == "differs":
        return f"The interval of D, {D}, lies below 0." if _side(D, 0.0) < 0 else f"S, {S}, lies inside ±{SMALL:g}."
    if word == "weaker":
        return f"D is above 0, but S, {S}, lies below {LARGE:g}."
    if word == "shown":
        return f"D is above 0, but S, {S}, is not shown to lie above or below {LARGE:g}."
    return f"D is above 0, but {lacking}." if lacking else f"The interval of D, {D}, includes 0."
