"""Find conditions and prompts whose activations overflowed, and exclude them from measures; refuse means of such losses.

A record counts the positions with an infinite or NaN activation in the residual stream, by prompt and depth (`non_finite`). No
number is estimated from a prompt that has one, because a maximum or a share of heads would describe only the rest of the model.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkjax.errors import SinkjaxError

NON_FINITE = "non_finite"
SAMPLES = {"edit": "conditions", "prompt": "prompts", "run": "runs"}
LISTED = 6  # maximum conditions named in a sentence


def overflowed(data: Any) -> NDArray[np.bool_] | None:
    """Return which prompts have an infinite or NaN activation at any depth.

    Args:
        data: Statistics by name: a record, or the dataset of a sweep.

    Returns:
        bool[..., prompt]; None if it was not counted, as in stores of earlier versions.
    """
    return np.asarray(np.asarray(data[NON_FINITE]).any(axis=-1)) if NON_FINITE in data else None


def only_finite(values: ArrayLike, data: Any, measure: object = "") -> NDArray[np.floating]:
    """Return a measure with NaN in prompts that overflowed.

    Args:
        values: float[edit, prompt] of a sweep's dataset, float[run] of trained models; without `measure`, of any shape.
        data: Source of the values, as for `overflowed`.
        measure: Name of the measure, for the error; "" skips the check of the shape.

    Returns:
        The values, float64.

    Raises:
        SinkjaxError: The values are not one real number per condition and prompt, or per run.
    """
    found = np.asarray(values)
    samples = ("run",) if "run" in data.sizes else ("edit", "prompt")
    axes = {axis: data.sizes[axis] for axis in samples if axis in data.sizes} if measure else {}
    if measure and (found.dtype.kind not in "biuf" or found.shape != tuple(axes.values())):
        wanted = " and ".join(f"{size} {SAMPLES[axis]}" for axis, size in axes.items())
        what = f"the measure {str(measure)!r} must return a real number for each of {wanted}"
        raise SinkjaxError(f"{what}, not {found.dtype} of shape {found.shape}")
    numbers, out = np.asarray(found, np.float64), overflowed(data)
    return numbers if out is None or out.shape != numbers.shape else np.where(out, np.nan, numbers)


def mean_loss(nll: ArrayLike, base: ArrayLike = 0.0) -> NDArray[np.floating]:
    """Return the mean over the last axis of losses, minus the same tokens' losses in `base`, which must all be finite.

    NaN marks a position without a predicted token. Errors: as for `refuse_infinite`.
    """
    nll, base = np.asarray(nll), base if np.ndim(base) == 0 else np.asarray(base)
    refuse_infinite(nll)
    refuse_infinite(base)
    return np.asarray(np.nanmean(nll - base, axis=-1))


def refuse_infinite(nll: ArrayLike) -> None:
    """Raise if a loss of a predicted token is not finite; the error counts them."""
    if wrong := int(np.isinf(nll).sum()):
        lost = f"the loss of {wrong:,} of {int((~np.isnan(nll)).sum()):,} predicted tokens is not finite, so it has no mean"
        raise SinkjaxError(f'{lost}: the model overflows, which a wider dtype prevents (load(..., dtype="float32"))')


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Compute a measure without NumPy's warnings about prompts that overflowed, which `only_finite` takes out."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "All-NaN|Mean of empty slice|Degrees of freedom", RuntimeWarning)
        yield


def lost(data: Any) -> dict[str, int]:
    """Count prompts that overflowed, by condition label, omitting zeros. data: dataset of a sweep."""
    out = overflowed(data)
    if out is None or out.ndim != 2:
        return {}
    return {str(label): int(count) for label, count in zip(np.asarray(data["edit"]), out.sum(axis=-1), strict=True) if count}


def sentences(stores: Mapping[str, Any]) -> list[str]:
    """Write one sentence per store that has a prompt that overflowed.

    Args:
        stores: Name -> dataset of a sweep.

    Returns:
        The sentences; empty if all numbers are finite.
    """
    found = []
    for name, data in stores.items():
        if not (labels := lost(data)):
            continue
        counts = np.asarray(data[NON_FINITE])
        first = int(np.flatnonzero(counts.any(axis=(0, 1)))[0])
        shown = [f"{label!r} ({count} of {counts.shape[1]} prompts)" for label, count in list(labels.items())[:LISTED]]
        more = f" and {len(labels) - LISTED} more conditions" if len(labels) > LISTED else ""
        where = f"after layer {first - 1}" if first else "in the embedding"
        states = f"{counts.sum(dtype=np.int64):,} hidden states, first {where}, under {', '.join(shown)}{more}"
        found.append(f"Not finite in the store {name}: {states}. No number is estimated from these prompts.")
    return found
