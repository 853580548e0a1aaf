"""Known numbers, measured on the unedited model before a study's sweeps, such as the layer where an activation forms."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.finite import overflowed, quietly
from sinkjax.studies.places import layer
from sinkjax.studies.readouts import HALF, probe_of, read_measure
from sinkjax.studies.scope import EditWord, Known, Measure, Scope

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model
    from sinkjax.studies.study import Batch


@dataclass(frozen=True)
class Unedited:
    """The unedited model on a few prompts.

    Attributes:
        model: The loaded model; None if only a store is left.
        batch: The prompts.
        stored: The data of a sweep whose first condition has no edit; None to run the model.
        prompts: Number of prompts to use, from the first.
    """

    model: Model | None
    batch: Batch | None
    stored: xarray.Dataset | None = None
    prompts: int | None = None

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


def by_layer(scope: Scope, run: Unedited, measure: Measure) -> NDArray:
    """Return a measure in each layer, averaged over prompts: float[layer]."""
    data = finite(run.data(probe_of([measure], scope)))
    each = [measure.but(layers=layer(number)) for number in range(scope.architecture.layers)]
    with quietly():
        return np.array([np.nanmean(read_measure(one, scope, data)[0]) for one in each])


def zero(scope: Scope, prompts: int) -> int:
    """Return the placeholder for the index of a layer or a dim."""
    return 0


@Known.define(blank=lambda scope, prompts: scope.architecture.layers - 1)
def onset(scope: Scope, run: Unedited, measure: Measure) -> int:
    """The first layer where a measure exceeds half of its maximum over all layers; the last layer if it is 0 in all."""
    values = by_layer(scope, run, measure)
    return int(np.argmax(values > HALF * values.max())) if values.max() > 0 else len(values) - 1


@Known.define(blank=zero)
def steepest(scope: Scope, run: Unedited, statistic: str, position: object, edit: EditWord | None = None) -> int:
    """The layer where a residual-stream statistic grows most at a position, by its mean over the prompts.

    Args:
        scope: The study's scope.
        run: The unedited model.
        statistic: Name of a statistic with the axes prompt, depth and position, such as "resid_max" or "resid_norm".
        position: The position.
        edit: The edit during the measurement, or None.
    """
    data = finite(run.data(sinkjax.Probe.of(statistic), scope.get(edit)))
    values = data[statistic].isel(edit=0, position=scope.get(position))
    return int(np.diff(values.mean("prompt").values).argmax())


@Known.define(blank=lambda scope, prompts: np.zeros(scope.architecture.layers * scope.architecture.heads))
def attention_by_head(scope: Scope, run: Unedited, key: object) -> NDArray:
    """The attention that a key receives from each head, averaged over prompts: float[layer * head]."""
    data = finite(run.data(sinkjax.Probe(attention_received=True)))
    return np.asarray(data["attention_received"].isel(edit=0).sel(key=scope.get(key)).mean("prompt").values.ravel())


def blank(known: Mapping[str, Known], scope: Scope, prompts: int) -> dict[str, object]:
    """Make a placeholder for each known number, with its shape."""
    return {name: word.meaning.facts["blank"](scope, prompts) for name, word in known.items()}


def measured(known: Mapping[str, Known], scope: Scope, run: Unedited, edited: Unedited | None = None) -> dict[str, object]:
    """Measure each known number, in order of declaration; later ones may name earlier ones.

    Args:
        known: Name -> word.
        scope: The study's scope.
        run: The model of the study.
        edited: The model whose activations are edited, such as the untrained twin; words that were defined with
            `of_edited=True` are measured on it. None: `run`.

    Returns:
        Name -> number or array.
    """
    found: dict[str, object] = {}
    for name, word in known.items():
        scope = Scope(scope.config, scope.architecture, {**scope.known, **found})
        found[name] = word.evaluate(scope, edited if edited is not None and word.meaning.facts.get("of_edited") else run)
    return found
