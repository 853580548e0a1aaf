"""The results of a study: its stores as a section with summary, verdicts, findings, figures, maps, texts and notes."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import Absent, present, sentence
from sinkjax.analysis.evidence import Evidence, Judgement
from sinkjax.analysis.finite import NON_FINITE, lost, sentences
from sinkjax.analysis.judgement import identity, judge, not_applicable, not_taken
from sinkjax.analysis.summary import Column, Row, Table, column_rows, ranks_among
from sinkjax.analysis.verdicts import Verdict, said, verdicts_csv
from sinkjax.config_files import documents
from sinkjax.config_files.files import write
from sinkjax.config_files.locations import Location
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.report import stored
from sinkjax.report.section import Section
from sinkjax.study import sweep_file, trained, views
from sinkjax.study.contrasts import Check, Contrast, Parts
from sinkjax.study.folder import CLAIMS, RunValues, open_store, store_path, write_results
from sinkjax.study.lab import Claim, Lab
from sinkjax.study.measures import Measure
from sinkjax.study.numbers import CONTROLS, DOCUMENTS, TRAINED_WITH, Numbers, bos_warning, labels, provenance, source
from sinkjax.study.parts import ABSENT, NOOP, Part, parts
from sinkjax.study.prose import Statement, filled, one_line
from sinkjax.study.registry import LISTED, STORE_SUFFIX, Chosen
from sinkjax.study.views import TEXTS
from sinkjax.study.work import Calculation, Sweep, TrainingSpec
from sinkjax.sweeps.computation import CELLS, unchanged

if TYPE_CHECKING:
    import xarray

    from sinkjax.viewing.maps import Maps

FEW_ROWS = 8  # maximum rows of described numbers in a table of claims
MOST_FEATURED = 12  # conditions in the short table, if a study does not choose them
NOOP_SERIES, LARGEST = "identity edit", "largest change of any statistic (millionths of its largest value)"
METHODS = {
    "t": "Student's t",
    "clustered t": "Student's t with cluster-robust errors",
    "BCa": f"bootstrap, BCa, {intervals.RESAMPLES:,} resamples",
    "percentile": f"bootstrap, percentiles of {intervals.RESAMPLES:,} resamples",
}


def assemble(lab: Lab, stores: Mapping[str, xarray.Dataset]) -> Section:
    """Build a study's section of results, without its model.

    Args:
        lab: The study, traced on the architecture of the stores.
        stores: Name -> finished store; optional stores and unfinished trainings may be missing.
    """
    numbers = on_stores(lab, stores)
    prose, settings, trains = lab.study.prose, vars(lab.settings), lab.study.trains
    table = summary(lab, numbers)
    exact = [*(trained.rows(lab, numbers) if trains else ()), *exact_rows(lab, numbers)]
    rows = [*table.values(), *{(row.condition, row.measure): row for row in exact}.values()]
    swept = [part.name for part in parts(lab) if isinstance(part, Part) and not part.optional and part.name in numbers]
    made = [store.attrs for store in numbers.trained.values() if TRAINED_WITH in store.attrs.get("study", {})]
    warned = [bos_warning(one["sweep"]["model"]["name"], one["study"]) for one in made if "model" in one.get("sweep", {})]
    findings = [*dict.fromkeys(warned), *(trained.status(lab, numbers) if trains else ())]
    findings += sentences({name: numbers[name] for name in swept})
    if not trains and NOOP in numbers:  # a training may have its name
        findings.append(noop_finding(numbers[NOOP]))
        rows += noop_rows(numbers[NOOP])
    drawn = present(lab.figures, numbers)
    drawings = [one for entry in drawn for one in (entry if isinstance(entry, list) else [entry])]
    models = [one.label for one in lab.trainings.values()] if lab.columns else []
    short = models if trains else featured(lab, numbers)
    notes = (*standard_notes(lab, numbers, table), *(filled(note, settings) for note in prose.notes))
    return Section(
        study=lab.name,
        title=filled(prose.title or lab.name, settings),
        question=one_line(filled(prose.question, settings)),
        findings=tuple(map(sentence, findings)),
        rows=tuple(rows),
        featured=tuple(dict.fromkeys(short)) or tuple(dict.fromkeys(row.condition for row in rows))[:MOST_FEATURED],
        drawings=tuple(drawing for drawing in drawings if drawing is not None),
        notes=tuple(map(one_line, notes)),
        provenance=trained.provenance(numbers) if trains else _provenance(numbers),
        verdicts=verdicts(lab, numbers),
        views=tuple(_maps(lab.name, numbers)),
        samples=views.samples(numbers[TEXTS]) if TEXTS in numbers else (),
        subject="model" if trains else "edit",
        over=numbers.over,
    )


def on_stores(lab: Lab, stores: Mapping[str, xarray.Dataset]) -> Numbers:
    """Return the numbers of a study's stores. lab: the study, traced on their architecture with the values of the run."""
    absent = {name: str(store.attrs[ABSENT]) for name, store in stores.items() if ABSENT in store.attrs}
    stores = {name: store for name, store in stores.items() if name not in absent}
    conditions = {part.name: part for part in parts(lab) if isinstance(part, Part)}
    unit = "seeds" if lab.study.trains else DOCUMENTS
    return Numbers(lab.settings, lab.architecture, stores, lambda store: conditions[store].of(lab), unit, absent)


# The summary.


def summary(lab: Lab, numbers: Numbers) -> Table:
    """Return the summary of all sweeps, (condition, name of the measure) -> row; of a shared label, the first sweep's row."""
    table: Table = {}
    for sweep in lab.sweeps.values():
        columns = [_column(numbers, sweep, measure) for measure in sweep.measures] if sweep.name in numbers else []
        for row in itertools.chain.from_iterable(zip(*columns, strict=True)):
            table.setdefault((row.condition, row.measure), row)
    return table


def _column(numbers: Numbers, sweep: Sweep, measure: Measure) -> list[Row]:
    """Return a row for each condition. The effect of a measure made for an axis is relative to no edit at the same value."""
    conditions, store, own = numbers.conditions(sweep.name), f"{sweep.name}{CONTROLS}", measure.make is not None
    cases = [condition.case for condition in conditions]
    values = np.stack([numbers.value(measure, sweep, case) for case in cases])
    baseline = np.stack([numbers.value(measure, sweep, case, edited=False) for case in cases]) if own else values[0]
    column, ranks = Column(values, baseline), None
    if drawn := numbers.drawn_rows(store):
        every = [numbers.every(measure, sweep, store, case) for case in drawn.values()]
        random = np.stack([one[row] for row, one in zip(drawn, every, strict=True)])
        of_random = np.stack([one[0] for one in every]) if own else baseline[: random.shape[1]]
        ranks = ranks_among(column.effects, cases, Column(random, of_random).effects, [*drawn.values()])
    named = [(sweep.row_label(condition), sweep.title or condition.series) for condition in conditions]
    rows = column_rows(named, measure.name, column, numbers.settings.seed, ranks, numbers.clusters(values.shape[1], sweep.name))
    out = lost(numbers[sweep.name])
    return [replace(row, overflowed=out.get(one.label, 0)) for row, one in zip(rows, conditions, strict=True)]


def exact_rows(lab: Lab, numbers: Numbers) -> list[Row]:
    """Make the summary rows of exact numbers; the table of claims gives the reason if a model has none."""
    rows: list[Row] = []
    for claim in lab.claims.values():
        of: Any = claim.of
        if claim.kind == "described":
            with contextlib.suppress(Absent):
                rows += of(numbers)
    return rows


def featured(lab: Lab, numbers: Numbers) -> list[str]:
    """Choose the short table: no edit, and the claims' conditions (without claims, all) with at most one value per axis."""
    labels: list[str] = []
    for name, sweep in lab.sweeps.items():
        if name in numbers:
            claimed = {case for claim in lab.claims.values() for case in claim.cases(name)} if lab.claims else {*sweep.edits}
            first: dict[object, str] = {}
            for condition in numbers.conditions(name):
                if (case := condition.case) is None or case in claimed:
                    first.setdefault(case and case.label, sweep.row_label(condition))
            labels += first.values()
    return labels


# Verdicts.


def verdicts(lab: Lab, numbers: Numbers) -> tuple[Verdict, ...]:
    """Judge every claim of a study on its stores: one verdict per claim, in order."""
    twin, settings, statements = replace(numbers, twin=True), vars(lab.settings), lab.study.prose.claims
    found = []
    for claim in lab.claims.values():
        statement = statements.get(claim.name, Statement())
        text = filled(statement.text, settings) or claim.name
        found.append(_verdict(claim, numbers, twin, (claim.name, text, claim.source, statement.paper)))
    return tuple(found)


def _verdict(claim: Claim, numbers: Numbers, twin: Numbers, about: tuple[str, str, str, str]) -> Verdict:
    """Judge a claim; "not applicable" if a sweep did not run, the paper's premise is not met or the edit did not take."""
    of: Any = claim.of
    if claim.kind == "described":
        return Verdict(*about, not_applicable(""), label=_listed(of, numbers), kind=claim.kind)
    try:
        if claim.kind == "identity":
            holds, text = of(numbers)
            return Verdict(*about, identity(holds), label=text, kind=claim.kind)
        holds, text = (True, "") if claim.premise is None else claim.premise.test(numbers)
        if not holds:
            return Verdict(*about, not_applicable(text))
        taken, took = True, claim.took
        if isinstance(took, Check):
            taken, took = took.test(numbers)
        elif took:
            took = f"the edit is its own check: {took}"
        if not taken:
            return Verdict(*about, not_taken(took), took=took)
        parts, judged = _judged(of, numbers, claim.sign, claim.stays)
    except Absent as error:
        return Verdict(*about, not_applicable(str(error)), kind=claim.kind)
    why = "" if parts.controls is not None else "a claim that something stays needs none" if claim.stays else parts.uncontrolled
    of_twin: Judgement | None = None
    with contextlib.suppress(Absent):
        of_twin = _judged(of, twin, claim.sign, claim.stays)[1]
    extra: dict[str, Any] = {"uncontrolled": why, "split": claim.split, "sign": claim.sign, "took": took}
    beside = tuple(_beside(claim, parts, numbers))
    return Verdict(*about, judged, of_twin, _compared(parts, claim.sign), parts.unit, beside, **extra)


def _judged(contrast: Contrast, numbers: Numbers, sign: int = 1, stays: bool = False) -> tuple[Parts, Judgement]:
    """Compute a contrast and judge it, clustered by the stores that it reads."""
    numbers = replace(numbers, seen={})
    parts = contrast(numbers)
    clusters = numbers.clusters(len(parts.contrast), *sorted(numbers.seen), genres=True)
    facts = (parts.range, clusters, numbers.over.partition(",")[0], parts.all_controls, parts.recovery)
    return parts, judge(Evidence(parts.contrast, parts.controls, parts.whole, *facts), sign=sign, stays=stays)


def _beside(claim: Claim, main: Parts, numbers: Numbers) -> Iterable[str]:
    """Format a claim's further readouts, one line each."""
    for contrast in claim.beside:
        with contextlib.suppress(Absent):
            parts, judged = _judged(contrast, numbers)
            if judged.D is not None:
                at = f", {parts.where.text}" if parts.where is not None and parts.where != main.where else ""
                yield f"{_compared(parts)}{at}: {said(judged.D, parts.unit)}"


def _compared(parts: Parts, sign: int = 1) -> str:
    """Name the number that is judged: the contrast, turned round if the sign is negative, less its controls."""
    log = parts.unit == "log"
    inverse = "" if sign > 0 else "inverse of the " if log else "minus the "
    controls = "over the geometric mean" if log else "less the mean"
    return f"{inverse}{parts.label}" + (f", {controls} of its controls" if parts.controls is not None else "")


def _listed(of: Any, numbers: Numbers) -> str:
    """Format the rows of described numbers."""
    try:
        rows: list[Row] = of(numbers)
    except Absent as error:
        return str(error)
    if len(rows) > FEW_ROWS:
        return f"{len(rows)} numbers in the summary"
    lines = []
    for row in rows:
        rank = "" if row.rank is None else f" (percentile {row.rank.percentile:.1f} of {row.rank.controls:,} random ones)"
        lines.append(f"{row.condition}, {row.measure}: {said(row.value, '')}{rank}")
    return "; ".join(lines)


# Text of the page.


def _provenance(numbers: Numbers) -> Mapping[str, object]:
    named = {"model", "revision", "dtype", "text", "split", "bos", "prompts", "length"}  # in the store's own facts
    named |= {name for name in ("ignore_keys", "tokenizer") if not getattr(numbers.settings, name, None)}
    stated = {name: value for name, value in vars(numbers.settings).items() if name not in named and value is not None}
    settings = ", ".join(f"{name} {documents.plain(value)}" for name, value in stated.items())
    return {**provenance(next(iter(numbers.trained.values()))), "settings": settings}


def standard_notes(lab: Lab, numbers: Numbers, table: Table) -> Iterator[str]:
    """Yield how a study's numbers were made: means and intervals, definitions of measures, and controls."""
    sweeps = [sweep for sweep in lab.sweeps.values() if sweep.name in numbers]
    if sweeps:
        prompts = dict.fromkeys(numbers[sweep.name].sizes["prompt"] for sweep in sweeps)
        used = {interval.method for row in table.values() for interval in (row.value, row.effect)}
        methods = "; ".join(text for method, text in METHODS.items() if method in used) or "none: too few"
        compared = any(len(numbers.conditions(sweep.name)) > 1 for sweep in sweeps)
        yield (
            f"Values are means with 95% intervals over {' or '.join(map(str, prompts))} {numbers.over} ({methods})"
            f"{'; effects (Δ) are mean differences from the first line, paired by prompt' * compared}."
        )
    measures = [measure for sweep in sweeps for measure in sweep.measures] or lab.columns
    for name in dict.fromkeys(measure.name for measure in measures if measure.make is not None):
        yield f"Effects on {name} are differences from a baseline of its own, not from the first line."
    yield from dict.fromkeys(measure.note for measure in measures if measure.note)
    for sweep in sweeps:
        store = f"{sweep.name}{CONTROLS}"
        if drawn := numbers.drawn_rows(store):  # a claim that this model can test needs them
            budgets = len({*drawn.values()})
            each = f"{len(drawn)} different random edits" + (f" of {budgets} budgets" if budgets > 1 else "")
            last = numbers.conditions(store)[max(drawn)].label
            yield (
                f"Controls: {each} on {numbers[store].sizes['prompt']} prompts, e.g. “{last}”."
                " An effect's percentile: the share of the controls of its budget with a smaller effect on the same prompts,"
                " ties counted half."
            )
    for name, data in numbers.trained.items():
        if name != NOOP and set(CELLS) <= set(data) and (same := unchanged(data)):
            shown = "; ".join(same[:MOST_FEATURED]) + f" and {len(same) - MOST_FEATURED} more" * (len(same) > MOST_FEATURED)
            yield f"Of the edits of {name}, these changed no cell in any prompt: {shown}."
    yield from dict.fromkeys(f"Some runs are missing: {why}." for why in numbers.absent.values())


def _maps(study: str, numbers: Numbers) -> list[Maps]:
    """Make attention and activation maps of the shown conditions, for each shown sweep."""
    stores = [store for store in numbers.trained if store == views.MAPS or store.startswith(f"{views.MAPS}-")]
    data = {f"{study}-{store}".replace("/", "-"): numbers[store] for store in stores}
    return [views.maps(name, store, about=source(store, bands=False)[0]) for name, store in data.items()]


def noop_rows(data: xarray.Dataset) -> list[Row]:
    """Make the summary rows from the store of the no-op edits."""
    largest = intervals.intervals(1e6 * np.max(list(changes(data).values()), axis=0))
    return [Row(label, NOOP_SERIES, LARGEST, value) for label, value in zip(labels(data)[1:], largest, strict=True)]


def changes(data: xarray.Dataset) -> dict[str, NDArray[np.floating]]:
    """Map each statistic to its largest change from the first edit, relative to its largest value there: float[edit, prompt].

    A number that is undefined (NaN) in only one of the two runs counts as an infinite change.
    """
    found = {}
    for name, values in data.data_vars.items():
        if values.dims[:2] != ("edit", "prompt") or name in (*CELLS, NON_FINITE):
            continue
        plain, edited = (np.asarray(values[rows], np.float64) for rows in (0, slice(1, None)))
        same = (edited == plain) | (np.isnan(edited) & np.isnan(plain))
        with np.errstate(invalid="ignore"):
            gaps = np.nan_to_num(np.where(same, 0.0, np.abs(edited - plain)), nan=np.inf)
        size = np.max(np.abs(plain), where=np.isfinite(plain), initial=0.0)
        found[str(name)] = gaps.reshape(*gaps.shape[:2], -1).max(axis=-1) / (size or 1.0)
    return found


def noop_finding(data: xarray.Dataset) -> str:
    """Describe the effect of no-op edits in one sentence. data: their store, whose first row has no edit."""
    largest = {name: float(change.max()) for name, change in changes(data).items()}
    edits = labels(data)[1:]
    cells = float(data["cells_addressed"][1:].sum("prompt").min())
    what = "; ".join(label.removeprefix("identity (").removesuffix(")") for label in edits)
    plural, on = len(edits) > 1, f"on {data.sizes['prompt']} prompts"
    subject = (
        f"The identity edit{'s' * plural} ({what}){f', {cells:,.0f} cells' * (cells > 0)}, change{'s' * (not plural)} no number"
    )
    worst = max(largest, key=largest.__getitem__)
    if largest[worst] == 0:
        return f"{subject}: {', '.join(largest)} are bit for bit those without an edit, {on}."
    return f"{subject} by more than {largest[worst]:.1e} of its statistic's largest value ({worst}), {on}."


# A run's folder.


def build(chosen: Chosen, folder: Location) -> Section:
    """Rebuild the summary, figures and page of a run from its stores; the model is not needed."""
    section = section_of(chosen, folder)
    if section.verdicts:
        write(folder / CLAIMS, verdicts_csv(section.study, section.verdicts, getattr(chosen.config, "model", "")))
    write_results(section, folder)
    if chosen.own:
        stored.keep(section, folder)
    return section


def section_of(chosen: Chosen, folder: Location) -> Section:
    """Return the results of a run, from its stores; nothing is written. Errors: a store that must be there and is not."""
    study, config = chosen.study, chosen.config
    if study.trains:
        lab = study.trace(config, None)
        return assemble(lab, stores_of(trained.specs(lab, config), folder))
    if chosen.store is not None:
        data = open_store(chosen.store)
        return assemble(study.trace(_config_of(data), architecture_of(data)), {LISTED: data})
    there = sorted(folder.glob(f"*{STORE_SUFFIX}"))
    if not there:
        raise SinkjaxError(f"{folder} holds no results yet; run the study first")
    lab = study.trace(config, architecture_of(open_store(there[0], finished=False)), values=dict(RunValues(folder)))
    found = {part.name: part for part in parts(lab)}
    optional = {name: part.optional for name, part in found.items()} | {TEXTS: True}
    paths = {name: store_path(folder, name) for name in optional}
    stores = {name: open_store(path) for name, path in paths.items() if path.exists() or not optional[name]}
    for name, store in stores.items():
        _check(store, paths[name], config, found.get(name))
    return assemble(lab, stores)


def architecture_of(data: xarray.Dataset) -> Config:
    """Return the plain fields of the architecture that a store was made with: `layers`, `heads`, `width`, ..."""
    return cast("Config", SimpleNamespace(**data.attrs["sweep"]["config"]))


def _check(store: xarray.Dataset, path: Location, config: Any, part: object) -> None:
    """Raise for a store with other settings than `config` states, as after an edit of config.yaml, or of an earlier version."""
    made, now = store.attrs.get("study", {}).get("config", {}), documents.plain(documents.fields(config))
    for name in documents.decides(config):
        if name in made and made[name] != now[name]:
            raise SinkjaxError(
                f"{path} was made with {name} {made[name]!r}, and its config.yaml says {now[name]!r}: restore that value, or"
                " run the study into another folder"
            )
    if isinstance(part, Calculation) and (lost := ", ".join(sorted(set(part.variables) - set(store.variables)))):
        raise SinkjaxError(f"{path} has no {lost}: an earlier version of the study made it; delete it and run again")


def _config_of(data: xarray.Dataset) -> Any:
    """Return the config of a sweep from Python, as far as a section needs it: its edits by their labels, and its probe."""
    if "edit" not in data.dims:
        raise SinkjaxError("this store holds no edits, so there is nothing to summarise")
    edits = tuple({"compose": [], "label": str(label)} for label in data["edit"].values)
    probe = tuple(name for name in sweep_file.SHOWN if name in data)
    return sweep_file.Settings(probe=probe, edits=edits, prompts=data.sizes["prompt"])


def stores_of(specs: Sequence[TrainingSpec], folder: Location) -> Mapping[str, xarray.Dataset]:
    """Return the stores of the trainings that have run by name; of an unfinished one, its results so far.

    Errors: none has run.
    """
    stores = {}
    for spec in specs:
        path = store_path(folder, spec.name)
        if path.exists():
            stores[spec.name] = open_store(path)
        elif spec.so_far is not None and (data := spec.so_far(folder / spec.name)) is not None:
            stores[spec.name] = data
    if not stores and all(spec.so_far is None for spec in specs):
        raise SinkjaxError(f"there is no store of a training in {folder}; run the study first")
    return stores
