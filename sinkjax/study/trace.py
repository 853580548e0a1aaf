"""The lab: the argument of a study.

A study is a plain function `study(lab, settings)`. It is traced, as JAX traces a program: on placeholders for a plan, with a
loaded model for a run, and on stores for a page. Each time it lists its sweeps, calculations or trainings, its claims and its
figures. No sweep runs while it is called. Only on a loaded model does it run what it asks of the unedited model or of a donor
(`value`, `onset`, `steepest`, `captured`, `donor`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from sinkjax.analysis import intervals
from sinkjax.checkpoints.model import Model
from sinkjax.edits.edit import Edit
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.report.section import Drawing
from sinkjax.study.baseline import Baseline, Unedited
from sinkjax.study.claims import Claim, Figure, Rows, TrainedModels
from sinkjax.study.contrasts import Contrast
from sinkjax.study.measures import Measure
from sinkjax.study.numbers import Deferred, Reading, Traced
from sinkjax.study.places import Case, Place
from sinkjax.study.premises import Premise, Test, needs
from sinkjax.study.prose import Prose
from sinkjax.study.settings import Trains, own_bos
from sinkjax.study.took import Check
from sinkjax.study.views import still_maps
from sinkjax.study.work import TEXT, Batch, Calculation, Control, Inputs, Sweep, TrainingSpec, Where

if TYPE_CHECKING:
    import xarray

Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Program:
    """A study: its function, its settings and its text.

    Attributes:
        name: "paper/study".
        study: The function.
        settings: The dataclass of its settings.
        prose: Its text.
        trains: Whether it trains its own models.
        digest: Digest of its source. A store with values that only the model gives is taken up without measuring them again if
            it is the same.
    """

    name: str
    study: Callable[[Lab, Any], None]
    settings: type
    prose: Prose
    trains: bool
    digest: str

    @classmethod
    def of(cls, module: ModuleType, name: str, prose: Mapping[str, Any], what: str) -> Program:
        """Read a study from a module with a function `study` and a dataclass `Settings`. prose, what: as in `Prose.read`."""
        title = (module.study.__doc__ or name).strip().partition("\n")[0].rstrip(".")
        digest = hashlib.sha256(inspect.getsource(module).encode()).hexdigest()
        trains = issubclass(module.Settings, Trains)
        return cls(name, module.study, module.Settings, Prose.read(prose, title, what), trains, digest)

    def named(self, name: str) -> Program:
        """Return the same study by another name. Its random controls depend on the name."""
        return dataclasses.replace(self, name=name)

    def trace(self, settings: Any, architecture: Config | None, **of_model: Any) -> Lab:
        """Call the study, and collect its sweeps, claims and figures on an architecture. of_model: `values`, ... of `Lab`."""
        lab = Lab(architecture, settings, program=self, **of_model)  # type: ignore[arg-type]
        self.study(lab, settings)
        return lab


@dataclass(eq=False)
class Lab(Baseline):
    """What a study does on one architecture, as it is collected while the study is called.

    Attributes:
        program: The study.
    """

    program: Program = field(kw_only=True)
    sweeps: dict[str, Sweep] = field(default_factory=dict)
    calculations: dict[str, Calculation] = field(default_factory=dict)
    trainings: dict[str, TrainedModels] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    shown: list[Where] = field(default_factory=list)
    noops: tuple[Edit, ...] = ()
    noop_inputs: Inputs = TEXT
    columns: tuple[Measure, ...] = ()

    @property
    def name(self) -> str:
        """ "paper/study"."""
        return self.program.name

    def needs(self, *parts: str) -> None:
        """Refuse a model that lacks one of these parts (`sinkjax.study.premises`)."""
        if isinstance(self.architecture, Config):
            needs(self.name, self.architecture, *parts)

    def needs_bos(self) -> None:
        """Refuse a model for which neither the settings nor its files name a BOS token. Its weights are not read."""
        if isinstance(self.architecture, Config):
            own_bos(self.settings)

    def again(self, **of_model: Any) -> Lab:
        """Return the study traced once more. of_model: `values`, `prompts`, ... of the new lab."""
        return self.program.trace(self.settings, self.architecture, **of_model)

    def on(self, model: Model, batch: Batch, edited: Model | None = None, probe: Probe | None = None) -> Lab:
        """Return the study traced on a loaded model; the same lab if nothing in it depends on weights.

        Args:
            model: The model that numbers are measured on.
            batch: The prompts, and the values of the run.
            edited: The model whose activations are edited, if it is another one.
            probe: The probe of the next sweep.
        """
        if not self.needs_model:
            return self
        few = getattr(self.settings, "control_prompts", None)
        runs = [Unedited(one, batch, None, few, probe) for one in (model, edited or model)]
        return self.again(unedited=runs[0], edited=runs[1], values=batch.values)

    # What runs.

    def sweep(
        self,
        name: str,
        edits: Mapping[Place, Edit] | Mapping[Case, Edit] | None = None,
        measures: Sequence[Measure] = (),
        control: Control | None = None,
        **inputs: Any,
    ) -> Sweep:
        """Add a sweep of edits.

        Args:
            name: Its name.
            edits: Place (or place with further axes) -> edit; None for the unedited model alone.
            measures: The columns of its summary.
            control: Draws a random edit of the size of a condition's, from random numbers and its case.
            **inputs: The prompts, the title of its rows, and more: further attributes of `Sweep`.

        Returns:
            The sweep, whose conditions are chosen by place: `masks[ALL]`.
        """
        cases = {place if isinstance(place, Case) else place.at(): edit for place, edit in (edits or {}).items()}
        made = Sweep(name, cases, tuple(measures), control, layers=self.layers, **inputs)
        self._add(self.sweeps, name, made)
        return made

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
        """Add numbers that no sweep of edits gives.

        Args:
            name: Its name.
            compute: Computes them from the model and a batch of `prompts` prompts.
            variables: The variables of its dataset.
            declared: The settings that it depends on, as plain values; a store that was made with others is refused.
            prompts: Number of prompts.
            inputs: Kind of prompts.
            twin: Whether the untrained twin is the model. A calculation that a claim reads has its twin anyway.
        """
        made = Calculation(name, compute, tuple(variables), prompts, inputs, twin, declared=declared)
        self._add(self.calculations, name, made)
        return made

    def train(self, name: str, spec: TrainingSpec | None, label: str = "", **facts: Any) -> TrainedModels:
        """Add models to be trained. facts: `paper` and `compared` of `TrainedModels`."""
        made = TrainedModels(name, spec, label or name, **facts)
        self._add(self.trainings, name, made)
        return made

    def _add(self, table: dict[str, Any], name: str, made: object) -> None:
        if name in {*self.sweeps, *self.calculations, *self.trainings}:
            raise SinkjaxError(f"{self.name} has two parts named {name!r}")
        table[name] = made

    def rng(self, name: str) -> np.random.Generator:
        """Return the random numbers of a name, which depend on the study's seed and on nothing else."""
        return intervals.generator(self.settings.seed, name)

    def random_position(self, rng: np.random.Generator, but: Sequence[int] = (), least: int = 0, below: int | None = None) -> int:
        """Draw a position that some later one sees, from `least` on, below `below`, and none of `but`."""
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
        """Claim that a contrast is above 0 (`sign` -1: below; `stays`: unchanged). Arguments as of `Claim`.

        took: Required where the contrast reads an edited run: `removed` or `planted` of what the edit manipulates, or a sentence
            that says why the edit is its own check, such as a masked key.
        split: Printed beside the share and never judged. Equal keys share attention: where a first token that is still a sink has
            a share a of a row, k equal tokens get a / (1 + k a) each and leave it as much. `split` is this over a for a row that
            it has whole, 1 / (k + 1); where it has less, equal tokens get somewhat more than `split`.
        """
        if split is not None and not 0 < split <= 1:
            raise SinkjaxError(f"{self.name}: claim {name}: split is a share of the whole above 0 and at most 1, not {split}")
        traced = Traced(self.settings, self.architecture)
        parts = self._try(lambda: contrast(traced))
        if stays and parts is not None and parts.whole is None:
            raise SinkjaxError(f"{self.name}: claim {name}: a claim that something stays needs a whole, and this one has none")
        self._check_took(name, took, traced.read)
        for other in beside:
            self._try(lambda other=other: other(traced))  # type: ignore[misc]
        judged = len(traced.read)
        if premise is not None:
            self._try(lambda: premise.test(traced))
        if isinstance(took, Check):
            took.test(traced)
        # The conditions of a premise or of a manipulation check need neither a twin nor controls of their own.
        asked = [one._replace(how="premise") if one.how in ("value", "drawn") else one for one in traced.read[judged:]]
        possible, read = premise is None or premise.fits(self.architecture), (*traced.read[:judged], *asked)
        self._claim(Claim(name, source, contrast, "claim", sign, stays, premise, took, tuple(beside), split, read, possible))

    def _check_took(self, name: str, took: Check | str, read: Sequence[Reading]) -> None:
        """Refuse a claim on an edited run without a manipulation check, or with one that reads the claim's own measure."""
        what = f"{self.name}: claim {name}"
        if not took and any(one.how == "value" and one.case is not None for one in read):
            raise SinkjaxError(
                f"{what} reads an edited run, so it needs took=: removed(measure, where) or planted(measure, where) of what the"
                " edit manipulates, or a sentence that says why the edit is its own check"
            )
        if isinstance(took, Check) and any(one.measure is not None and one.measure.name == took.measure.name for one in read):
            raise SinkjaxError(
                f"{what}: took reads {took.measure.name}, the claim's own measure; it must read what is manipulated"
            )

    def identity(self, name: str, source: str, test: Test) -> None:
        """Claim what the edit or a theorem forces in every model, and so check the code."""
        traced = Traced(self.settings, self.architecture)
        self._try(lambda: test(traced))
        self._claim(Claim(name, source, test, "identity", read=tuple(traced.read)))

    def describe(self, name: str, source: str, rows: Rows) -> None:
        """Add exact numbers, such as functions of the weights, which become rows of the summary without a test."""
        self._claim(Claim(name, source, rows, "described"))

    def _claim(self, claim: Claim) -> None:
        if claim.name in self.claims:
            raise SinkjaxError(f"{self.name} has two claims named {claim.name!r}")
        self.claims[claim.name] = claim

    @staticmethod
    def _try(read: Callable[[], Value]) -> Value | None:
        """Trace a reading; None if it needs numbers whose shape only a calculation or a training gives."""
        try:
            return read()
        except Deferred:
            return None

    def claims_on(self, name: str) -> list[Claim]:
        """Return the claims that read a sweep or a calculation."""
        return [claim for claim in self.claims.values() if any(one.name == name for one in claim.read)]

    def judged_on(self, name: str) -> bool:
        """Return whether a claim whose premise can hold reads a sweep or a calculation."""
        return any(claim.kind == "claim" and claim.possible for claim in self.claims_on(name))

    def measures_on(self, sweep: Sweep) -> list[Measure]:
        """Return every measure that reads a sweep: in its summary, in claims and in figures."""
        read = [one.measure for claim in self.claims.values() for one in claim.read if one.name == sweep.name and one.measure]
        return list(dict.fromkeys([*sweep.measures, *read, *self.drawn_on(sweep)]))

    def drawn_on(self, sweep: Sweep) -> list[Measure]:
        """Return the measures of the figures that draw a sweep."""
        return [measure for figure in self.figures for measure in figure.measures(sweep)]

    def draw(self, figure: Callable[..., Drawing | list[Drawing] | None], *arguments: Any, **options: Any) -> None:
        """Add a figure, which is called with the numbers and these arguments once the results are there."""
        for one in (*arguments, *options.values()):
            for chosen in [one] if isinstance(one, Where) else one if isinstance(one, list) else []:
                if isinstance(chosen, Where):
                    _ = chosen.cases  # a sweep without these conditions is refused before it runs
        self.figures.append(Figure(figure, arguments, options))

    def maps(self, *conditions: Where) -> None:
        """Show attention maps, activations and continuations of some conditions beside the unedited model's."""
        self.shown += conditions
        self.draw(still_maps, *conditions)

    def summary(self, *measures: Measure) -> None:
        """Choose the columns of the summary of a study that trains its own models."""
        self.columns = measures
