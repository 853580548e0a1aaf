"""Known numbers, measured on the unedited model before a study's sweeps, such as the layer where an activation forms."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
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
        model: The loaded model; None where only a store is left.
        batch: The prompts.
        stored: The data of a sweep whose first condition has no edit; None: the model is run.
        prompts: How many of the first prompts count.
    """

    model: Model | None
    batch: Batch | None
    stored: xarray.Dataset | None = None
    prompts: int | None = None

    @property
    def loaded(self) -> tuple[Model, Batch]:
        """The model and the prompts, where they are loaded."""
        assert self.model is not None
        assert self.batch is not None
        return self.model, self.batch

    def data(self, probe: sinkjax.Probe, edit: sinkjax.Edit | None = None) -> xarray.Dataset:
        """The statistics of a probe, with one condition (no edit, or one that no store has), over the prompts that count."""
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
        """Raw values under an edit, or without one, of all prompts, by the name of their capture: [layer, prompt, ...]."""
        (model, batch), edits = self.loaded, () if edit is None else edit
        probe = sinkjax.Probe(capture=captures)
        found = sinkjax.forward(model.params, batch.tokens, model.config, edits, probe, batch.lengths, logits=False).record
        return {one.name: np.moveaxis(np.asarray(found[one.name]), 1, 0) for one in captures}


def by_layer(scope: Scope, run: Unedited, measure: Measure) -> NDArray:
    """A measure in each layer, mean over the prompts: float[layer]."""
    data = run.data(probe_of([measure], scope))
    each = [measure.but(layers=layer(number)) for number in range(scope.architecture.layers)]
    return np.array([read_measure(one, scope, data)[0].mean() for one in each])


def zero(scope: Scope, prompts: int) -> int:
    """The placeholder of the number of a layer or of a dim."""
    return 0


@Known.define(blank=lambda scope, prompts: scope.architecture.layers - 1)
def onset(scope: Scope, run: Unedited, measure: Measure) -> int:
    """The first layer where a measure exceeds half of its largest value over all layers; the last one if it is 0 in all."""
    values = by_layer(scope, run, measure)
    return int(np.argmax(values > HALF * values.max())) if values.max() > 0 else len(values) - 1


@Known.define(blank=zero)
def steepest(scope: Scope, run: Unedited, statistic: str, position: object, edit: EditWord | None = None) -> int:
    """The layer where a statistic of the residual stream grows most at a position, by its mean over the prompts that count.

    Args:
        scope: The study's scope.
        run: The unedited model.
        statistic: Name of a statistic with the axes prompt, depth and position, such as "resid_max" or "resid_norm".
        position: The position.
        edit: The edit during the measurement; None: without one.
    """
    data = run.data(sinkjax.Probe.of(statistic), scope.get(edit))
    values = data[statistic].isel(edit=0, position=scope.get(position))
    return int(np.diff(values.mean("prompt").values).argmax())


@Known.define(blank=lambda scope, prompts: np.zeros(scope.architecture.layers * scope.architecture.heads))
def attention_by_head(scope: Scope, run: Unedited, key: object) -> NDArray:
    """Attention that a key receives from each head, mean over prompts: float[layer * head]."""
    data = run.data(sinkjax.Probe(attention_received=True))
    return np.asarray(data["attention_received"].isel(edit=0).sel(key=scope.get(key)).mean("prompt").values.ravel())


def blank(known: Mapping[str, Known], scope: Scope, prompts: int) -> dict[str, object]:
    """A placeholder of each known number, of its shape."""
    return {name: word.meaning.facts["blank"](scope, prompts) for name, word in known.items()}


def measured(known: Mapping[str, Known], scope: Scope, run: Unedited, edited: Unedited | None = None) -> dict[str, object]:
    """Each known number, in order of declaration; later ones may name earlier ones.

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
        own = edited is not None and word.meaning.facts.get("of_edited", False)
        found[name] = word.evaluate(scope, edited if own else run)
    return found
