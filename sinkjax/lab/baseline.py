"""The unedited model on a study's prompts, for the numbers that a study knows before its sweeps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.finite import overflowed
from sinkjax.lab.measures import Measure, covers, merged
from sinkjax.lab.numbers import read_measure
from sinkjax.lab.places import Place, each

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model
    from sinkjax.lab.work import Batch

HALF = 0.5  # a quantity along depth counts as formed above this share of its largest value


@dataclass(frozen=True)
class Unedited:
    """The unedited model on a few prompts.

    Attributes:
        model: The loaded model; None if only a store is left.
        batch: The prompts.
        stored: The data of a sweep whose first condition has no edit; None to run the model.
        prompts: Number of prompts to use, from the first.
        asks: The probe of the next sweep. Statistics that it has are measured with it, so both share a compiled program.
    """

    model: Model | None
    batch: Batch | None
    stored: xarray.Dataset | None = None
    prompts: int | None = None
    asks: sinkjax.Probe | None = None

    @property
    def loaded(self) -> tuple[Model, Batch]:
        """The model and the prompts. Raises Absent if only a store is left."""
        if self.model is None or self.batch is None:
            raise Absent("it is measured on the model, and only a store is left")
        return self.model, self.batch

    def data(self, probe: sinkjax.Probe, edit: sinkjax.Edit | None = None) -> xarray.Dataset:
        """Return a probe's statistics for one condition (no edit, or an edit that no store has), over the prompts to use."""
        few = slice(self.prompts)
        if self.stored is not None and edit is None:
            return self.stored.isel(edit=[0], prompt=few)
        model, batch = self.loaded
        lengths = batch.lengths[few]
        if self.asks is not None and not self.asks.capture and covers(self.asks, probe):
            probe = self.asks
        sweep = functools.partial(sinkjax.sweep, model, batch.tokens[few], probe=probe, lengths=lengths, progress=False)
        if edit is not None:
            return sweep([edit])
        key, found = (model, self.prompts, probe), batch.measured
        if key not in found:
            found[key] = sweep([sinkjax.compose()])
        return found[key]

    def captured(self, *captures: sinkjax.Capture, edit: sinkjax.Edit | None = None) -> dict[str, NDArray]:
        """Return raw values of all prompts, with or without an edit, by capture name: [layer, prompt, ...]."""
        (model, batch), edits = self.loaded, () if edit is None else edit
        probe = sinkjax.Probe(capture=captures)
        found = sinkjax.forward(model.params, batch.tokens, model.config, edits, probe, batch.lengths, logits=False).record
        return {one.name: np.moveaxis(np.asarray(found[one.name]), 1, 0) for one in captures}


def finite(data: xarray.Dataset) -> xarray.Dataset:
    """Return the prompts of one condition that did not overflow. Raises Absent if all did."""
    out = overflowed(data)
    if out is None or not out.any():
        return data
    if out.all():
        raise Absent("every prompt overflows, so nothing can be known from them")
    return data.isel(prompt=~out[0])


def onset(run: Unedited, layers: int, measure: Callable[[Place], Measure]) -> int:
    """Return the first layer where a measure exceeds half of its maximum over all layers; the last one if it is 0 in all."""
    measures = [measure(one) for one in each(layers)]
    data = finite(run.data(functools.reduce(merged, (one.asks for one in measures))))
    values = np.array([np.nanmean(read_measure(one, data)[0]) for one in measures])
    return int(np.argmax(values > HALF * values.max())) if values.max() > 0 else len(values) - 1
