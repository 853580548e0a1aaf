"""The effect of an edit of a study's own kind that must change nothing, next to the run without an edit.

A no-op edit runs the same program, so it shows that an effect comes from the intervention and not from its code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.finite import NON_FINITE
from sinkjax.analysis.summary import Row
from sinkjax.studies.specs import NOOP_SERIES
from sinkjax.sweeps.computation import CELLS

if TYPE_CHECKING:
    import xarray

LARGEST = "largest change of any statistic (millionths of its largest value)"


def noop_rows(data: xarray.Dataset) -> list[Row]:
    """The rows of the summary, from the store of the no-op edits."""
    labels = [str(label) for label in data["edit"].values[1:]]
    largest = 1e6 * np.max(list(changes(data, labels).values()), axis=0)
    return [Row(label, NOOP_SERIES, LARGEST, value) for label, value in zip(labels, intervals.intervals(largest), strict=True)]


def changes(data: xarray.Dataset, labels: Sequence[str]) -> dict[str, NDArray]:
    """Statistic -> its largest change from the first edit, as a part of its largest value there: float[label, prompt].

    A number that is undefined (NaN) in one of the two runs only counts as infinitely far.
    """
    found = {}
    for name, values in data.data_vars.items():
        if values.dims[:2] != ("edit", "prompt") or name in (*CELLS, NON_FINITE):
            continue
        plain = np.asarray(values.isel(edit=0), np.float64)
        edited = np.asarray(values.sel(edit=list(labels)), np.float64)
        same = (edited == plain) | (np.isnan(edited) & np.isnan(plain))
        with np.errstate(invalid="ignore"):
            gaps = np.nan_to_num(np.where(same, 0.0, np.abs(edited - plain)), nan=np.inf)
        size = np.max(np.abs(plain), where=np.isfinite(plain), initial=0.0)
        found[str(name)] = gaps.reshape(*gaps.shape[:2], -1).max(axis=-1) / (size or 1.0)
    return found


def noop_finding(data: xarray.Dataset, labels: Sequence[str]) -> str:
    """One sentence on the effect of no-op edits. labels: their labels, in a store whose first row has no edit."""
    largest = {name: float(change.max()) for name, change in changes(data, labels).items()}
    cells = float(data["cells_addressed"].sel(edit=list(labels)).sum("prompt").min())
    what = "; ".join(label.removeprefix("identity (").removesuffix(")") for label in labels)
    several = len(labels) > 1
    subject = f"The identity edit{'s' * several} ({what}){f', {cells:,.0f} cells' * (cells > 0)}"
    change, prompts = f"change{'s' * (not several)} no number", f"on {data.sizes['prompt']} prompts"
    worst = max(largest, key=largest.__getitem__)
    if largest[worst] == 0:
        return f"{subject}, {change}: {', '.join(largest)} are bit for bit those without an edit, {prompts}."
    return f"{subject}, {change} by more than {largest[worst]:.1e} of its statistic's largest value ({worst}), {prompts}."
