"""The identity edit: an edit of a recipe's own kind that must change nothing, beside the run without an edit.

It shows that an effect comes from what an edit changes, and not from the program that makes the edit. It lies in a store of its
own, which a recipe names in EXTRAS; a recipe that has one among its arms says what it did by `finding`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.experiments.base import TEXT, Arm, Batch, Inputs, Job, Section, unedited
from sinkjax.experiments.summary import Row
from sinkjax.studies.config import StudyConfig
from sinkjax.sweeps.job import CELLS

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model
    from sinkjax.edits.edit import Edit
    from sinkjax.probes.probe import Probe

STORE, GROUP = "identity", "identity edit"
PROMPTS = 8  # the first of all
LARGEST = "largest change of any statistic (millionths of its largest value)"


def job(
    config: StudyConfig,
    probe: Probe,
    edits: Mapping[str, Edit],
    *,
    inputs: Inputs = TEXT,
    prepare: Callable[[Model, Batch], Mapping[str, Edit]] | None = None,
) -> Job:
    """No edit, and edits that change nothing, on the first prompts, by all statistics of a recipe.

    edits: what each does, in words -> the edit. prepare: gives them where they hold values of the loaded model; `edits` then are
    stand-ins, as for `Job`.
    """

    def arms(edits: Mapping[str, Edit]) -> tuple[Arm, ...]:
        return (*unedited(), *(Arm(edit.named(f"identity ({what})"), GROUP) for what, edit in edits.items()))

    def prepared(model: Model, batch: Batch) -> tuple[Arm, ...]:
        return arms(prepare(model, batch) if prepare else edits)

    return Job(STORE, arms(edits), probe, min(PROMPTS, config.prompts), inputs, prepared if prepare else None)


def checked(section: Section, stores: Mapping[str, xarray.Dataset]) -> Section:
    """A section with what the identity edit of its extra stores did; without that store, as it is."""
    if STORE not in stores:
        return section
    data = stores[STORE].load()
    labels = [str(label) for label in data["edit"].values[1:]]
    largest = 1e6 * np.max(list(changes(data, labels).values()), axis=0)
    rows = (Row(label, GROUP, LARGEST, value) for label, value in zip(labels, intervals.intervals(largest), strict=True))
    return dataclasses.replace(section, findings=(*section.findings, finding(data, labels)), rows=(*section.rows, *rows))


def changes(data: xarray.Dataset, labels: Sequence[str]) -> dict[str, NDArray]:
    """Statistic -> its largest change from the first edit, as a part of its largest value there: float[label, prompt].

    A number that is undefined (NaN) in one of the two runs only counts as infinitely far.
    """
    found = {}
    for name, values in data.data_vars.items():
        if values.dims[:2] != ("edit", "prompt") or name in CELLS:
            continue
        plain = np.asarray(values.isel(edit=0), np.float64)
        edited = np.asarray(values.sel(edit=list(labels)), np.float64)
        same = (edited == plain) | (np.isnan(edited) & np.isnan(plain))
        with np.errstate(invalid="ignore"):
            gaps = np.nan_to_num(np.where(same, 0.0, np.abs(edited - plain)), nan=np.inf)
        size = np.max(np.abs(plain), where=np.isfinite(plain), initial=0.0)
        found[str(name)] = gaps.reshape(*gaps.shape[:2], -1).max(axis=-1) / (size or 1.0)
    return found


def finding(data: xarray.Dataset, labels: Sequence[str]) -> str:
    """What identity edits did, in a sentence. labels: theirs, in a store whose first edit is none."""
    largest = {name: float(change.max()) for name, change in changes(data, labels).items()}
    cells = float(data["cells_addressed"].sel(edit=list(labels)).sum("prompt").min())
    what = "; ".join(label.removeprefix("identity (").removesuffix(")") for label in labels)
    several = len(labels) > 1
    subject = f"The identity edit{'s' * several} ({what}){f', {cells:,.0f} cells' * (cells > 0)}"
    change, prompts = f"change{'s' * (not several)} no number", f"on {data.sizes['prompt']} prompts"
    worst = max(largest, key=lambda name: largest[name])
    if largest[worst] == 0:
        return f"{subject}, {change}: {', '.join(largest)} are bit for bit those without an edit, {prompts}."
    return f"{subject}, {change} by more than {largest[worst]:.1e} of its statistic's largest value ({worst}), {prompts}."
