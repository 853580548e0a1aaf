"""The lab: the argument of a study.

A study is a plain function `study(lab, settings)`. It is traced, as JAX traces a program: on placeholders for a plan, with a
loaded model for a run, and on stores for a page. Each time it lists its sweeps, calculations or trainings, its claims and its
figures. No sweep runs while it is called. Measurements of the unedited model or of a donor (`value`, `onset`, `steepest`,
`captured`, `donor`) run only once a model is loaded.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import Absent
from sinkjax.analysis.finite import overflowed
from sinkjax.analysis.summary import Row
from sinkjax.checkpoints.model import Model
from sinkjax.edits.edit import Edit, compose
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.model.site import Site
from sinkjax.probes.probe import Capture, Probe
from sinkjax.report.section import Drawing
from sinkjax.study.contrasts import Check, Contrast
from sinkjax.study.layers import ALL, Layers, each
from sinkjax.study.measures import Measure, covers, probe_of, read_measure
from sinkjax.study.numbers import Deferred, Numbers, Reading
from sinkjax.study.premises import Premise, Test, needs
from sinkjax.study.prose import Prose
from sinkjax.study.settings import Trains, own_bos
from sinkjax.study.views import still_maps
from sinkjax.study.work import TEXT, Batch, Calculation, Control, Inputs, Selection, Sweep, TrainedModels, TrainingSpec
from sinkjax.sweeps.run import sweep
from sinkjax.transformer.forward import forward

if TYPE_CHECKING:
    import xarray

Value = TypeVar("Value")
Made = TypeVar("Made", Sweep, Calculation, TrainedModels)
Rows = Callable[[Numbers], list[Row]]
Drawn = Drawing | list[Drawing] | None
HALF = 0.5  # a quantity along depth counts as formed above this share of its largest value


@dataclass(frozen=True)
class Unedited:
    """The unedited model on the first prompts of a batch.

    Attributes:
        model: The model.
        batch: The prompts.
        prompts: Number of prompts to use, from the first; None for all.
        asks: The probe of the next sweep. Its statistics are measured with this probe, so both share a compiled program.
    """

    model: Model
    batch: Batch
    prompts: int | None = None
    asks: Probe | None = None

    def data(self, probe: Probe, edit: Edit | None = None) -> xarray.Dataset:
        """Return a probe's statistics for one condition (no edit, or an edit that no store has), over the prompts to use."""
        batch, few = self.batch, slice(self.prompts)
        if self.asks is not None and not self.asks.capture and covers(self.asks, probe):
            probe = self.asks
        key = (self.model, self.prompts, probe)
        if edit is not None or key not in batch.measured:
            prompts, lengths, edits = batch.tokens[few], batch.lengths[few], [compose() if edit is None else edit]
            data = sweep(self.model, prompts, edits, probe, lengths=lengths, memory=batch.memory, progress=False)
            if edit is not None:
                return data
            batch.measured[key] = data
        return batch.measured[key]

    def captured(self, *captures: Capture, edit: Edit | None = None) -> dict[str, NDArray[Any]]:
        """Return raw values of all prompts, with or without an edit, by capture name: [layer, prompt, ...]."""
        model, batch, probe = self.model, self.batch, Probe(capture=captures)
        output = forward(model.params, batch.tokens, model.config, edit or (), probe, batch.lengths, logits=False)
        return {capture.name: np.moveaxis(np.asarray(output.record[capture.name]), 1, 0) for capture in captures}


def finite(data: xarray.Dataset) -> xarray.Dataset:
    """Return the prompts of one condition that did not overflow. Raises Absent if all did."""
    out = overflowed(data)
    if out is not None and out.all():
        raise Absent("every prompt overflows, so nothing can be measured")
    return data if out is None or not out.any() else data.isel(prompt=~out[0])


def onset(run: Unedited, layers: int, measure: Callable[[Layers], Measure]) -> int:
    """Return the first layer where a measure exceeds half of its maximum over all layers; the last one if it is 0 in all."""
    measures = [measure(one) for one in each(layers)]
    data = finite(run.data(probe_of(measures)))
    values = np.array([np.nanmean(read_measure(one, data)[0]) for one in measures])
    return int(np.argmax(values > HALF * values.max())) if values.max() > 0 else layers - 1


@dataclass(frozen=True, eq=False)
class Claim:
    """A claim about one figure, table or theorem of a paper.

    Attributes:
        name: Name, under which its statement is in the study's config file.
        source: Paper and figure, table or section.
        of: A contrast to judge, the test of an identity, or exact rows.
        kind: Which of these it is.
        sign: 1 if the paper says that the contrast is above 0, -1 if below.
        stays: Whether the paper says that nothing changes.
        premise: The paper's own premise.
        took: The manipulation check of its edit, or why the edit is its own check; "" if nothing is edited.
        beside: Further readouts, shown but not judged.
        split: The share of the whole that a token as strong as a competitor gets, if that stays visible (`Lab.claim`).
        readings: What it reads.
        possible: Whether its premise can hold in this architecture.
    """

    name: str
    source: str
    of: Contrast | Test | Rows
    kind: Literal["claim", "identity", "described"] = "claim"
    sign: int = 1
    stays: bool = False
    premise: Premise | None = None
    took: Check | str = ""
    beside: tuple[Contrast, ...] = ()
    split: float | None = None
    readings: tuple[Reading, ...] = ()
    possible: bool = True

    def cases(self, name: str, how: str = "value") -> set[Layers | None]:
        """Return the conditions of a sweep that it reads in this way."""
        return {one.case for one in self.readings if one.name == name and one.how == how}


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure: the function that draws it, and its arguments after the numbers."""

    draw: Callable[..., Drawn]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]

    def __call__(self, numbers: Numbers) -> Drawn:
        return self.draw(numbers, *self.arguments, **self.options)

    def measures(self, sweep: Sweep) -> list[Measure]:
        """Return the measures among its arguments, if it draws a sweep; a function of layers returns one."""
        given = [*_flat([self.arguments, self.options])]
        if not any(one is sweep or (isinstance(one, Selection) and one.sweep is sweep) for one in given):
            return []
        made = [one(layers=ALL) for one in given if callable(one) and not isinstance(one, Measure)]
        return [one for one in given if isinstance(one, Measure)] + made


def _flat(given: Iterable[Any]) -> Iterator[Any]:
    """Yield the contents of nested lists, tuples and tables."""
    for one in given:
        if isinstance(one, Mapping):
            yield from _flat(one.values())
        elif isinstance(one, list | tuple) and not isinstance(one, Selection):
            yield from _flat(one)
        else:
            yield one


@dataclass(frozen=True, eq=False)
class Study:
    """A study: its function, its settings and its text.

    Attributes:
        name: "paper/study".
        function: The function of a lab and its settings.
        settings: The dataclass of its settings.
        prose: Its text.
        trains: Whether it trains its own models.
        digest: Digest of its source. A store with values that only the model gives is resumed without measuring them again if it
            is the same.
    """

    name: str
    function: Callable[[Lab, Any], None]
    settings: type
    prose: Prose
    trains: bool
    digest: str

    @classmethod
    def of(cls, module: ModuleType, name: str, prose: Mapping[str, Any], what: str) -> Study:
        """Read a study from a module with a function `study` and a dataclass `Settings`. prose, what: as in `Prose.read`."""
        title = (module.study.__doc__ or name).strip().partition("\n")[0].rstrip(".")
        digest = hashlib.sha256(inspect.getsource(module).encode()).hexdigest()
        trains = issubclass(module.Settings, Trains)
        return cls(name, module.study, module.Settings, Prose.read(prose, title, what), trains, digest)

    def trace(self, settings: Any, architecture: Config | None, **of_model: Any) -> Lab:
        """Call the study, and collect its sweeps, claims and figures on an architecture. of_model: `values`, ... of `Lab`."""
        lab = Lab(architecture, settings, self, **of_model)  # type: ignore[arg-type]
        self.function(lab, settings)
        return lab


@dataclass(eq=False)
class Lab:
    """The steps of a study on one architecture, collected while the study is called.

    Attributes:
        architecture: The model's config; on stores, its plain fields; None for a study that trains its own models.
        settings: The study's settings.
        study: The study.
        values: Name -> number measured on the model.
        unedited: The loaded model, on which `value` may measure; None for placeholders.
        edited: The model whose activations are edited, such as the untrained twin.
        prompts: Number of prompts of placeholders.
        missing: Names of the values that are still placeholders.
        donors: Name -> values that edits patch in, or their placeholders.
    """

    architecture: Config
    settings: Any
    study: Study
    values: dict[str, Any] = field(default_factory=dict)
    unedited: Unedited | None = None
    edited: Unedited | None = None
    prompts: int = 1
    missing: set[str] = field(default_factory=set)
    donors: dict[str, Any] = field(default_factory=dict)
    sweeps: dict[str, Sweep] = field(default_factory=dict)
    calculations: dict[str, Calculation] = field(default_factory=dict)
    trainings: dict[str, TrainedModels] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    shown: list[Selection] = field(default_factory=list)
    noops: tuple[Edit, ...] = ()
    noop_inputs: Inputs = TEXT
    columns: tuple[Measure, ...] = ()
    _latest: Lab | None = None

    @property
    def name(self) -> str:
        """ "paper/study"."""
        return self.study.name

    @property
    def layers(self) -> int:
        """Number of layers of the model."""
        return int(self.architecture.layers)

    @property
    def half(self) -> int:
        """The layer at half depth, like layer 14 of Llama-3.2-3B's 28, counted from 1 (Kiya et al. 2026, Figs. 4, 5 and 8)."""
        return max(self.layers // 2 - 1, 0)

    @property
    def needs_model(self) -> bool:
        """Whether it has values or donors, which need a loaded model."""
        return bool(self.missing or self.values or self.donors)

    def traced_with(
        self, values: dict[str, Any], prompts: int, unedited: Unedited | None = None, edited: Unedited | None = None
    ) -> Lab:
        """Return the study traced with the values of a run, on placeholders of some prompts or on a loaded model.

        The latest trace is kept, and serves as long as nothing that the study does depends on what differs.
        """
        latest = self._latest or self
        measured = latest.missing if unedited is not None else latest.missing & values.keys()
        before = (latest.prompts, latest.unedited and latest.unedited.batch, latest.edited and latest.edited.model)
        if measured or (latest.donors and before != (prompts, unedited and unedited.batch, edited and edited.model)):
            models = {"unedited": unedited, "edited": edited}
            self._latest = latest = self.study.trace(self.settings, self.architecture, values=values, prompts=prompts, **models)
        return latest

    def on(self, model: Model, batch: Batch, edited: Model | None = None, probe: Probe | None = None) -> Lab:
        """Return the study traced on a loaded model; the same lab if nothing in it depends on weights.

        Args:
            model: The model that numbers are measured on.
            batch: The prompts, and the values of the run.
            edited: The model whose activations are edited, if it is another one.
            probe: The probe of the next sweep.
        """
        few = getattr(self.settings, "control_prompts", None)
        runs = (Unedited(one, batch, few, probe) for one in (model, edited or model))
        return self.traced_with(batch.values, len(batch.lengths), *runs)

    # Numbers of the unedited model, before the sweeps.

    def value(self, name: str, function: Callable[[Unedited], Value], placeholder: Value) -> Value:
        """Return a number measured on the model before the sweeps; only such numbers may decide the steps of a study.

        Args:
            name: Name of the number in the run.
            function: Function that measures it.
            placeholder: Value that replaces it in a plan.
        """
        if name not in self.values:
            if self.unedited is None:
                self.missing.add(name)
                return placeholder
            self.values[name] = function(self.unedited)
        value: Value = self.values[name]
        return value

    def onset(self, name: str, measure: Callable[[Layers], Measure]) -> int:
        """Return the first layer where a measure exceeds half of its maximum over all layers, measured before the sweeps.

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

        def layer(run: Unedited) -> int:
            values = finite(run.data(Probe.of(statistic), edit))[statistic].isel(edit=0, position=position)
            return int(np.diff(values.mean("prompt").values).argmax())

        return self.value(name, layer, 0)

    def captured(self, name: str, edit: Edit, sites: Sequence[str]) -> Mapping[str, NDArray[Any]]:
        """Return raw values of all prompts under an edit: site -> [layer, prompt, position, ...]; zeros in a plan and on stores.

        Args:
            name: Name of the values.
            edit: The edit.
            sites: Names of sites with a value at each position.
        """
        config, shape = self.architecture, (self.layers, self.prompts, self.settings.length)
        sizes = {"key": (config.kv_heads, config.head_dim), "value": (config.kv_heads, config.head_dim)}
        sizes["query"] = (config.heads, config.head_dim)
        zeros = {site: np.broadcast_to(np.float32(0), (*shape, *sizes.get(site, (config.width,)))) for site in sites}

        def capture(run: Unedited) -> Mapping[str, NDArray[Any]]:
            values = run.captured(*(Capture(Site(site), name=f"{name}_{site}") for site in sites), edit=edit)
            return {site: values[f"{name}_{site}"] for site in sites}

        return self.donor(name, capture, zeros, of_edited=True)

    def donor(self, name: str, function: Callable[[Unedited], Value], placeholder: Value, of_edited: bool = False) -> Value:
        """Return values of the model for edits to patch in. They may not decide a study's steps, and are not kept in the run.

        Args:
            name: Name of the values.
            function: Function that measures them.
            placeholder: Arrays of their shapes, which replace them in a plan and on stores.
            of_edited: Whether they are measured on the model whose activations are edited.
        """
        if name not in self.donors:
            run = (self.edited or self.unedited) if of_edited else self.unedited
            self.donors[name] = placeholder if run is None else function(run)
        donor: Value = self.donors[name]
        return donor

    # What a study needs and runs.

    def needs(self, *parts: str) -> None:
        """Refuse a model that lacks one of these parts (`sinkjax.study.premises`)."""
        if isinstance(self.architecture, Config):
            needs(self.name, self.architecture, *parts)

    def needs_bos(self) -> None:
        """Refuse a model for which neither the settings nor its files name a BOS token. Its weights are not read."""
        if isinstance(self.architecture, Config):
            own_bos(self.settings)

    def sweep(
        self,
        name: str,
        edits: Mapping[Layers, Edit] | None = None,
        measures: Sequence[Measure] = (),
        control: Control | None = None,
        **inputs: Any,
    ) -> Sweep:
        """Add a sweep of edits.

        Args:
            name: Name of the sweep.
            edits: Layers (with further axes, if any) -> edit; None for only the unedited model.
            measures: The columns of the summary.
            control: Function that draws a random edit of the same size as a condition's, from a random generator and the
                condition's layers.
            **inputs: The prompts, the title of its rows, and more: further attributes of `Sweep`.

        Returns:
            The sweep, whose conditions are selected by layers: `masks[ALL]`.
        """
        return self._add(self.sweeps, Sweep(name, dict(edits or {}), tuple(measures), control, **inputs))

    def noop(self, *edits: Edit, inputs: Inputs = TEXT) -> None:
        """Add edits that must change no number."""
        self.noops, self.noop_inputs = edits, inputs

    def calculate(
        self,
        name: str,
        compute: Callable[[Model, Batch], xarray.Dataset],
        variables: Sequence[str],
        declared: object,
        prompts: int = 1,
        inputs: Inputs = TEXT,
        twin: bool = False,
    ) -> Calculation:
        """Add numbers that need no sweep of edits.

        Args:
            name: Name of the calculation.
            compute: Function that computes its dataset from the model and a batch of `prompts` prompts.
            variables: The variables of the dataset.
            declared: The settings on which it depends, as plain values; a store that was made with other settings is refused.
            prompts: Number of prompts.
            inputs: Kind of prompts.
            twin: Whether the model is the untrained twin. A calculation that a claim reads has its twin in any case.
        """
        made = Calculation(name, compute, tuple(variables), prompts, inputs, twin, declared=declared)
        return self._add(self.calculations, made)

    def train(self, name: str, spec: TrainingSpec | None, label: str = "", **attributes: Any) -> TrainedModels:
        """Add models to be trained. attributes: `paper` and `compared` of `TrainedModels`."""
        return self._add(self.trainings, TrainedModels(name, spec, label or name, **attributes))

    def _add(self, table: dict[str, Made], made: Made) -> Made:
        if made.name in {*self.sweeps, *self.calculations, *self.trainings}:
            raise SinkjaxError(f"{self.name} has two parts named {made.name!r}")
        table[made.name] = made
        return made

    def rng(self, name: str) -> np.random.Generator:
        """Return the random generator of a name, which depends only on the study's seed and the name."""
        return intervals.generator(self.settings.seed, name)

    def random_position(self, rng: np.random.Generator, but: Sequence[int] = (), least: int = 0, below: int | None = None) -> int:
        """Draw a position that a later one sees, from `least`, below `below`, and not in `but`."""
        length = self.settings.length
        last = min(length if below is None else below, length - 1)
        left = [position for position in range(least, last) if position not in but]
        if not left:
            raise SinkjaxError(f"no position below {last} is left for a control, as {tuple(but)} are left out")
        return int(rng.choice(left))

    # Statements on the results.

    def claim(
        self,
        name: str,
        source: str,
        contrast: Contrast,
        premise: Premise | None = None,
        beside: Sequence[Contrast] = (),
        sign: int = 1,
        stays: bool = False,
        split: float | None = None,
        took: Check | str = "",
    ) -> None:
        """Claim that a contrast is above 0 (`sign` -1: below; `stays`: unchanged). Further arguments: see `Claim`.

        took: Required if the contrast reads an edited run: `removed` or `planted` of the quantity that the edit manipulates, or a
            sentence that says why the edit is its own check, such as a masked key.
        split: A number printed next to the share and never judged. Equal keys share attention: if the first token is still a sink
            with a share a of a row, k equal tokens get a / (1 + k a) each and leave it the same. `split` is this divided by a for
            a = 1, 1 / (k + 1); for smaller a, equal tokens get somewhat more than `split`.
        """
        what = f"{self.name}: claim {name}"
        if split is not None and not 0 < split <= 1:
            raise SinkjaxError(f"{what}: split is a share of the whole above 0 and at most 1, not {split}")
        parts, judged = self._readings(contrast)
        if stays and parts is not None and parts.whole is None:
            raise SinkjaxError(f"{what}: a claim that something stays needs a whole, and this one has none")
        if not took and any(one.how == "value" and one.case is not None for one in judged):
            raise SinkjaxError(
                f"{what} reads an edited run, so it needs took=: removed(measure, where) or planted(measure, where) of what the"
                " edit manipulates, or a sentence that says why the edit is its own check"
            )
        if isinstance(took, Check) and any(one.measure is not None and one.measure.name == took.measure.name for one in judged):
            raise SinkjaxError(
                f"{what}: took reads {took.measure.name}, the claim's own measure; it must read what is manipulated"
            )
        for readout in beside:
            judged += self._readings(readout)[1]
        asked = [] if premise is None else self._readings(premise.test)[1]
        asked += self._readings(took.test)[1] if isinstance(took, Check) else []
        # The conditions of a premise or of a manipulation check need neither a twin nor controls of their own.
        asked = [one._replace(how="premise") if one.how in ("value", "drawn") else one for one in asked]
        possible = premise is None or premise.fits(self.architecture)
        readings = (*judged, *asked)
        self._claim(Claim(name, source, contrast, "claim", sign, stays, premise, took, tuple(beside), split, readings, possible))

    def identity(self, name: str, source: str, test: Test) -> None:
        """Claim a fact that the edit or a theorem forces in every model, as a check of the code."""
        self._claim(Claim(name, source, test, "identity", readings=tuple(self._readings(test)[1])))

    def describe(self, name: str, source: str, rows: Rows) -> None:
        """Add exact numbers, such as functions of the weights, which become rows of the summary without a test."""
        self._claim(Claim(name, source, rows, "described"))

    def _claim(self, claim: Claim) -> None:
        if claim.name in self.claims:
            raise SinkjaxError(f"{self.name} has two claims named {claim.name!r}")
        self.claims[claim.name] = claim

    def _readings(self, function: Callable[[Numbers], Value]) -> tuple[Value | None, list[Reading]]:
        """Return a function's result on placeholders and what it reads; None if it needs numbers whose shape is not known."""
        numbers = Numbers(self.settings, self.architecture)
        try:
            return function(numbers), numbers.readings
        except Deferred:
            return None, numbers.readings

    def claims_on(self, name: str) -> list[Claim]:
        """Return the claims that read a sweep or a calculation."""
        return [claim for claim in self.claims.values() if any(one.name == name for one in claim.readings)]

    def judged_on(self, name: str) -> bool:
        """Return whether a claim with a premise that can hold reads a sweep or a calculation."""
        return any(claim.kind == "claim" and claim.possible for claim in self.claims_on(name))

    def measures_on(self, sweep: Sweep) -> list[Measure]:
        """Return every measure that reads a sweep: in its summary, in claims and in figures."""
        readings = [one for claim in self.claims.values() for one in claim.readings if one.name == sweep.name]
        return list(dict.fromkeys([*sweep.measures, *(one.measure for one in readings if one.measure), *self.drawn_on(sweep)]))

    def drawn_on(self, sweep: Sweep) -> list[Measure]:
        """Return the measures of the figures that draw a sweep."""
        return [measure for figure in self.figures for measure in figure.measures(sweep)]

    def draw(self, figure: Callable[..., Drawn], *arguments: Any, **options: Any) -> None:
        """Add a figure: a function that is called with the numbers and these arguments once the results exist."""
        for selected in _flat([arguments, options]):
            if isinstance(selected, Selection):
                _ = selected.cases  # a sweep without these conditions is refused before it runs
        self.figures.append(Figure(figure, arguments, options))

    def maps(self, *conditions: Selection) -> None:
        """Show attention maps, activations and continuations under some conditions next to the unedited model's."""
        self.shown += conditions
        self.draw(still_maps, *conditions)

    def summary(self, *measures: Measure) -> None:
        """Choose the columns of the summary of a study that trains its own models."""
        self.columns = measures
