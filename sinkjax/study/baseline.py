"""The numbers that a study knows of its model before its sweeps, measured without an edit on its prompts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.finite import overflowed
from sinkjax.edits.edit import Edit
from sinkjax.edits.site import Site
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.probes.probe import Capture, Probe
from sinkjax.study.measures import Measure, covers, probe_of, read_measure
from sinkjax.study.places import Place, each

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model
    from sinkjax.study.work import Batch

Value = TypeVar("Value")
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
    asks: Probe | None = None

    @property
    def loaded(self) -> tuple[Model, Batch]:
        """The model and the prompts. Raises Absent if only a store is left."""
        if self.model is None or self.batch is None:
            raise Absent("it is measured on the model, and only a store is left")
        return self.model, self.batch

    def data(self, probe: Probe, edit: Edit | None = None) -> xarray.Dataset:
        """Return a probe's statistics for one condition (no edit, or an edit that no store has), over the prompts to use."""
        few = slice(self.prompts)
        if self.stored is not None and edit is None:
            return self.stored.isel(edit=[0], prompt=few)
        model, batch = self.loaded
        lengths = batch.lengths[few]
        if self.asks is not None and not self.asks.capture and covers(self.asks, probe):
            probe = self.asks
        prompts, memory = batch.tokens[few], batch.memory
        sweep = functools.partial(sinkjax.sweep, model, prompts, probe=probe, lengths=lengths, memory=memory, progress=False)
        if edit is not None:
            return sweep([edit])
        key, found = (model, self.prompts, probe), batch.measured
        if key not in found:
            found[key] = sweep([sinkjax.compose()])
        return found[key]

    def captured(self, *captures: Capture, edit: Edit | None = None) -> dict[str, NDArray[Any]]:
        """Return raw values of all prompts, with or without an edit, by capture name: [layer, prompt, ...]."""
        (model, batch), edits = self.loaded, () if edit is None else edit
        probe = Probe(capture=captures)
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
    data = finite(run.data(probe_of(measures)))
    values = np.array([np.nanmean(read_measure(one, data)[0]) for one in measures])
    return int(np.argmax(values > HALF * values.max())) if values.max() > 0 else len(values) - 1


@dataclass(eq=False)
class Baseline:
    """Numbers of the unedited model that a study has before its sweeps: placeholders in a plan, measured in a run, then stored.

    Attributes:
        architecture: The model's config; on stores, its plain fields; None for a study that trains its own models.
        settings: The study's settings.
        values: Name -> number that was measured on the model.
        unedited: The loaded model, where `value` may measure; None for placeholders.
        edited: The model whose activations are edited, such as the untrained twin; None for the same model.
        prompts: Number of prompts of placeholders.
        donors: Name -> values that edits patch in.
        needs_model: Whether it has values or donors, which only a loaded model gives.
        missing: Names of the values that are still placeholders.
    """

    architecture: Config
    settings: Any
    values: dict[str, Any] = field(default_factory=dict)
    unedited: Unedited | None = None
    edited: Unedited | None = None
    prompts: int = 1
    donors: dict[str, Any] = field(default_factory=dict)
    needs_model: bool = False
    missing: set[str] = field(default_factory=set)

    @property
    def layers(self) -> int:
        """Number of layers of the model."""
        return int(self.architecture.layers)

    @property
    def half(self) -> int:
        """The layer at half depth, as layer 14 of Llama-3.2-3B's 28, counted from 1 (Kiya et al. 2026, Figs. 4, 5 and 8)."""
        return max(self.layers // 2 - 1, 0)

    def value(self, name: str, function: Callable[[Unedited], Value], placeholder: Value) -> Value:
        """Return a number that is measured on the model before the sweeps; only such numbers may decide what a study does.

        Args:
            name: Its name in the run.
            function: Measures it.
            placeholder: Stands for it in a plan.
        """
        self.needs_model = True
        if name not in self.values:
            self.missing.add(name)
            if self.unedited is None:
                return placeholder
            try:
                self.values[name] = function(self.unedited)
            except (SinkjaxError, KeyError):
                if self.unedited.model is not None:
                    raise
                return placeholder  # the store does not have it
            self.missing.remove(name)
        found: Value = self.values[name]
        return found

    def onset(self, name: str, measure: Callable[[Place], Measure]) -> int:
        """Return `onset` of a measure, measured before the sweeps.

        Args:
            name: Name of the value.
            measure: Layer -> measure.
        """

        return self.value(name, lambda run: onset(run, self.layers, measure), self.layers - 1)

    def steepest(self, name: str, statistic: str, position: int, edit: Edit | None = None) -> int:
        """Return the layer where a statistic of the residual stream grows most at a position, in its mean over the prompts.

        Args:
            name: Name of the value.
            statistic: Name of a statistic with the axes prompt, depth and position, such as "resid_max" or "resid_norm".
            position: The position.
            edit: The edit during the measurement, or None.
        """

        def found(run: Unedited) -> int:
            values = finite(run.data(Probe.of(statistic), edit))[statistic].isel(edit=0, position=position)
            return int(np.diff(values.mean("prompt").values).argmax())

        return self.value(name, found, 0)

    def captured(self, name: str, edit: Edit, sites: Sequence[str]) -> Mapping[str, NDArray[Any]]:
        """Return raw values of all prompts under an edit: site -> [layer, prompt, position, ...]; zeros in a plan and on stores.

        Args:
            name: Their name.
            edit: The edit.
            sites: Names of sites with a value at each position.
        """
        one, L, length = self.architecture, self.layers, self.settings.length
        sizes = {"key": (one.kv_heads, one.head_dim), "value": (one.kv_heads, one.head_dim), "query": (one.heads, one.head_dim)}
        shapes = {site: (L, self.prompts, length, *sizes.get(site, (one.width,))) for site in sites}
        zeros = {site: np.broadcast_to(np.float32(0), shape) for site, shape in shapes.items()}

        def capture(run: Unedited) -> Mapping[str, NDArray[Any]]:
            found = run.captured(*(Capture(Site(site), name=f"{name}_{site}") for site in sites), edit=edit)
            return {site: found[f"{name}_{site}"] for site in sites}

        return self.donor(name, capture, zeros, of_edited=True)

    def donor(self, name: str, function: Callable[[Unedited], Value], placeholder: Value, of_edited: bool = False) -> Value:
        """Return values of the model that edits put in. They may not decide what a study does, and are not kept in the run.

        Args:
            name: Their name.
            function: Measures them.
            placeholder: Stands for them in a plan and on stores, with their shapes.
            of_edited: Whether they are measured on the model whose activations are edited.
        """
        self.needs_model = True
        run = (self.edited or self.unedited) if of_edited else self.unedited
        if name not in self.donors:
            if run is None or run.model is None:
                return placeholder
            self.donors[name] = function(run)
        found: Value = self.donors[name]
        return found
