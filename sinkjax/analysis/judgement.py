"""The rule that judges every claim: numbers in, one verdict out. docs/judgements.md explains it and its error rates."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from sinkjax.analysis.evidence import NOT_TAKEN, Array, ContrastRank, Evidence, Judgement, Word
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.mean_bounds import LEVEL, Ratio
from sinkjax.config_files.checks import refuse
from sinkjax.errors import SinkjaxError

SMALL = 1 / 10  # a share of the whole: the only constant of the rule
FEWEST_CONTROLS = 20  # fewer controls decide only if no more exist


def identity(holds: bool) -> Judgement:
    """Judge an identity: a fact forced by the code or the edit, a theorem or a proposition."""
    return Judgement("holds" if holds else "fails")


def not_applicable(reason: str) -> Judgement:
    """Judge a claim whose premise or object this model lacks, such as a sink that could move."""
    return Judgement("not applicable", reason=reason)


def not_taken(reason: str) -> Judgement:
    """Judge a claim whose edit did not do what its sentence says, by the manipulation check in the edited run."""
    return Judgement(NOT_TAKEN, reason=reason)


def with_twin(judgement: Judgement, twin: Judgement) -> Judgement:
    """Set `untrained` if the claim replicates and the untrained twin also shows it.

    That means S above 1/10 in the twin, or the same word if there is no S or the claim says that something stays."""
    same = twin.S.low is not None and twin.S.low > SMALL if twin.S and not judgement.stays else twin.word == "replicates"
    return dataclasses.replace(judgement, untrained=judgement.word == "replicates" and same)


def word_of(low: float, high: float, share: bool = True, stays: bool = False, beyond: tuple[bool, bool] = (True, True)) -> Word:
    """Apply the rule.

    Args:
        low, high: The interval of S, or of D if there is no W.
        share: Whether there is a W.
        stays: Whether the claim says that something stays.
        beyond: Whether the contrast is above its controls, and whether it is below them.

    Returns:
        The word.
    """
    line = SMALL if share else 0.0
    above, below, inside = low > line, high < -line, share and -line < low and high < line
    if stays:
        return "replicates" if inside else "moves" if above or below else "undecided"
    if above and beyond[0]:
        return "replicates"
    if below and beyond[1]:
        return "opposite"
    return "absent" if inside else "undecided"


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
    refuse(sign not in (1, -1), f"sign must be 1 or -1, not {sign}")
    refuse(stays and evidence.whole is None, 'a claim that something stays needs a whole: "stays" means that S is small')
    contrast, controls, whole = _arrays(evidence)
    d = sign * (contrast if controls is None else contrast - controls.mean(0))
    rank = None if controls is None else _rank([_by_cluster(sign * one, evidence.clusters) for one in (contrast, *controls)])
    total, ones = int(np.asarray(evidence.contrast).size), np.where(np.isfinite(d), 1.0, np.nan)
    D, W, one = (_by_cluster(found, evidence.clusters) for found in (d, ones if whole is None else whole, ones))
    largest = largest_contrast(evidence, d)
    size = 0.0 if whole is None else float(np.abs(whole).max(initial=0.0, where=np.isfinite(whole)))
    found: dict[str, Any] = {"D": _interval(Ratio(D, one, largest, size), d, total)}
    counted = _counted(evidence, d.shape, len(D))
    judged = Judgement("undecided", rank=rank, n=min(D.shape), stays=stays)
    if whole is not None:
        found["W"] = _interval(Ratio(W, one, largest), whole, total)
        if found["W"].low is None or found["W"].low <= 0:
            word: Word = "nothing to undo" if evidence.recovery else "not applicable"
            why = f"The whole, {found['W']}, is not shown to be above 0, so nothing can be a share of it."
            return dataclasses.replace(judged, word=word, reason=why, method=_method(found, counted), **found)
        found["S"] = _interval(Ratio(D, W, largest, size), d, total)
    decisive = found["D"] if whole is None else found["S"]
    if decisive.low is None:
        reason = f"There is no interval: {decisive.note}{f' among {counted}' if decisive.note == 'no spread' else ''}."
    else:
        lacking = ["", ""]  # for the contrast, and for its mirror image
        if rank is not None and not stays:
            mirrored = dataclasses.replace(rank, below=rank.of - rank.below - rank.tied)
            lacking = [_lacking(one, evidence.all_controls) for one in (rank, mirrored)]
        word = word_of(decisive.low, decisive.high, whole is not None, stays, (not lacking[0], not lacking[1]))
        judged = dataclasses.replace(judged, word=word)
        reason = _reason(word, decisive, whole is not None, lacking)
    return dataclasses.replace(judged, reason=reason, method=_method(found, counted), **found)


def _arrays(evidence: Evidence) -> tuple[Array, Array | None, Array | None]:
    """Return contrast, controls and whole in the documents that count, with NaN in all wherever one is not finite."""
    contrast, whole, controls = map(_array, (evidence.contrast, evidence.whole, evidence.controls))
    shape, clusters = contrast.shape, np.shape(() if evidence.clusters is None else evidence.clusters)
    refuse(len(shape) not in (1, 2), f"a contrast is float[n] or float[n, p], not an array of shape {shape}")
    refuse(whole is not None and whole.shape != shape, f"the whole has shape {np.shape(whole)}, the contrast {shape}")
    wrong = evidence.clusters is not None and clusters != shape[:1]
    refuse(wrong, f"{shape[0]} {evidence.samples} need as many clusters, not shape {clusters}")
    if controls is not None:
        wrong = controls.ndim != len(shape) + 1 or controls.shape[2:] != shape[1:] or controls.shape[1] > shape[0]
        refuse(wrong, f"controls of shape {controls.shape} do not fit a contrast of shape {shape}")
        refuse(not len(controls), "there are no controls: pass None")
        contrast, whole = (None if part is None else part[: controls.shape[1]] for part in (contrast, whole))
    parts = [contrast, *([] if whole is None else [whole]), *([] if controls is None else controls)]
    finite = np.all([np.isfinite(part) for part in parts], axis=0)
    found: Any = tuple(None if part is None else np.where(finite, part, np.nan) for part in (contrast, controls, whole))
    return found


def _array(values: Array | None) -> Any:
    return None if values is None else np.asarray(values, np.float64)


def _rank(samples: list[Array]) -> ContrastRank:
    """Return the rank of the first mean among the others."""
    mean, *rest = (found.mean(where=np.isfinite(found)) if found.size else math.nan for found in samples)
    others = np.array(rest)
    tied = np.isclose(others, mean, rtol=1e-12, atol=0.0)
    apart = others - others.mean()
    spread = (float(apart.min()), float(apart.max())) if np.isfinite(apart).all() else None
    return ContrastRank(int(((others < mean) & ~tied).sum()), int(tied.sum()), len(others), spread)


def _lacking(rank: ContrastRank, all_controls: bool) -> str:
    """Describe what the controls do not rule out; "" if the contrast is beyond them."""
    if rank.of < FEWEST_CONTROLS and not all_controls:
        return f"there are {rank.of} controls, and fewer than {FEWEST_CONTROLS} show nothing"
    return "" if rank.above else f"the contrast lies beyond {rank.below} of {rank.of} controls, and {rank.needed} are needed"


def largest_contrast(evidence: Evidence, d: Array) -> float | None:
    """Return the largest possible size of a contrast, or of one minus its controls, which share the unedited value.

    Args:
        evidence: The range of the measure.
        d: Samples of D.

    Returns:
        The size; None without a range.

    Raises:
        SinkjaxError: A sample is larger.
    """
    if evidence.range is None:
        return None
    largest = evidence.range[1] - evidence.range[0]
    if np.any(np.abs(d) > largest * (1 + 1e-6)):
        raise SinkjaxError(f"D has values from {np.nanmin(d):.4g} to {np.nanmax(d):.4g}, outside [{-largest}, {largest}]")
    return largest


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


def _method(found: dict[str, Interval], counted: str) -> str:
    """Describe the intervals of D and S as text."""
    methods = dict.fromkeys(found[name].method for name in ("D", "S") if name in found and found[name].method != "none")
    return f"{LEVEL:.0%} {' and '.join(methods)} interval, {counted}" if methods else f"no interval from {counted}"


def _counted(evidence: Evidence, shape: tuple[int, ...], n: int) -> str:
    """Describe the independent samples as text, such as "10 clusters of 64 documents"."""
    noun = evidence.samples if evidence.clusters is None else f"clusters of {shape[0]} {evidence.samples}"
    return f"{n} {noun}" + (f" x {shape[1]} positions" if len(shape) == 2 else "")


def _reason(word: Word, found: Interval, share: bool, lacking: list[str]) -> str:
    """Describe the deciding interval and the bounds that it met or did not meet; "" for "replicates"."""
    mean, low, high = (math.nan if one is None else one for one in (found.mean, found.low, found.high))
    name, line = ("S", SMALL) if share else ("D", 0.0)
    if word == "replicates":
        return ""
    if word == "absent":
        return f"S, {found}, lies inside ±{SMALL:g}."
    if word != "undecided":
        return f"{name}, {found}, lies {'above' if low > line else 'below'} {line if low > line else -line:g}."
    for beyond, why, way in ((low > line, lacking[0], "above"), (high < -line, lacking[1], "below")):
        if beyond and why:
            return f"{name}, {found}, lies {way} {line if way == 'above' else -line:g}, but {why}."
    if mean > line or (not share and mean >= 0):
        return f"The lower end of {name}, {found}, is not above {line:g}."
    if mean < -line or not share:
        return f"The upper end of {name}, {found}, is not below {-line:g}."
    missed = ["lower end is not above -0.1"] * (low <= -line) + ["upper end is not below 0.1"] * (high >= line)
    return f"S, {found}, is not inside ±{SMALL:g}: its {' and its '.join(missed)}."
