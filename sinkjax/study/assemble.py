"""Build a study's section from its stores: summary, verdicts, findings, figures, maps, texts and notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import present, sentence
from sinkjax.analysis.finite import NON_FINITE, sentences
from sinkjax.analysis.summary import Row, Table
from sinkjax.config_files import documents
from sinkjax.report.section import Section
from sinkjax.study import trained, views
from sinkjax.study.facts import TRAINED_WITH, bos_warning, provenance, source
from sinkjax.study.numbers import CONTROLS, Stored
from sinkjax.study.parts import NOOP, NOOP_SERIES, Part, parts
from sinkjax.study.prose import filled, one_line
from sinkjax.study.results import exact_rows, featured, summary, traced, verdicts
from sinkjax.study.trace import Lab
from sinkjax.study.views import MAPS, TEXTS, samples
from sinkjax.sweeps.computation import CELLS, unchanged

if TYPE_CHECKING:
    import xarray

    from sinkjax.viewing.maps import Maps


MOST_FEATURED = 12  # conditions in the short table, if a study does not choose them


def assemble(lab: Lab, stores: Mapping[str, xarray.Dataset]) -> Section:
    """Build a study's section of results, without its model.

    Args:
        lab: The study, traced on the architecture of the stores.
        stores: Name -> finished store; optional stores and unfinished trainings may be missing.
    """
    lab, read = traced(lab, stores)
    prose, settings, trains = lab.program.prose, vars(lab.settings), lab.program.trains
    table = summary(lab, read)
    exact = [*(trained.rows(lab, read) if trains else ()), *exact_rows(lab, read)]
    rows = [*table.values(), *{(row.condition, row.measure): row for row in exact}.values()]
    swept = [part.name for part in parts(lab) if isinstance(part, Part) and not part.optional and part.name in read]
    findings = [*(trained.status(lab, read) if trains else ()), *sentences({name: read[name] for name in swept})]
    made = [store.attrs for store in read.stores.values() if TRAINED_WITH in store.attrs.get("study", {})]
    warned = [bos_warning(one["sweep"]["model"]["name"], one["study"]) for one in made if "model" in one.get("sweep", {})]
    findings = [*dict.fromkeys(warned), *findings]
    if not trains and NOOP in read:  # a training may have its name
        findings.append(noop_finding(read[NOOP], read.labels(NOOP)[1:]))
        rows += noop_rows(read[NOOP])
    drawn = present(lab.figures, read)
    drawings = [one for entry in drawn for one in (entry if isinstance(entry, list) else [entry])]
    labels = ([one.label for one in lab.trainings.values()] if lab.columns else []) if trains else featured(lab, read)
    notes = (*standard_notes(lab, read, table), *(filled(note, settings) for note in prose.notes))
    return Section(
        study=lab.name,
        title=filled(prose.title or lab.name, settings),
        question=one_line(filled(prose.question, settings)),
        findings=tuple(map(sentence, findings)),
        rows=tuple(rows),
        featured=tuple(dict.fromkeys(labels)) or tuple(dict.fromkeys(row.condition for row in rows))[:MOST_FEATURED],
        drawings=tuple(drawing for drawing in drawings if drawing is not None),
        notes=tuple(map(one_line, notes)),
        provenance=trained.provenance(read) if trains else _provenance(read),
        verdicts=verdicts(lab, read),
        views=tuple(_maps(lab.name, read)),
        samples=samples(read[TEXTS]) if TEXTS in read else (),
        subject="model" if trains else "edit",
        over=read.over,
    )


def _provenance(read: Stored) -> Mapping[str, object]:
    named = {"model", "revision", "dtype", "text", "split", "bos", "prompts", "length"}  # in the store's own facts
    named |= {name for name in ("ignore_keys", "tokenizer") if not getattr(read.settings, name, None)}
    stated = {name: value for name, value in vars(read.settings).items() if name not in named and value is not None}
    settings = ", ".join(f"{name} {documents.plain(value)}" for name, value in stated.items())
    return {**provenance(next(iter(read.stores.values()))), "settings": settings}


def standard_notes(lab: Lab, read: Stored, table: Table) -> list[str]:
    """Describe how a study's numbers were made: means and intervals, definitions of measures, and controls."""
    notes = []
    sweeps = [sweep for sweep in lab.sweeps.values() if sweep.name in read]
    if sweeps:
        prompts = dict.fromkeys(read[sweep.name].sizes["prompt"] for sweep in sweeps)
        compared = any(len(read.points(sweep.name)) > 1 for sweep in sweeps)
        notes.append(
            f"Values are means with 95% intervals over {' or '.join(map(str, prompts))} {read.over} ({_methods(table)})"
            f"{'; effects (Δ) are mean differences from the first line, paired by prompt' * compared}."
        )
    measures = [measure for sweep in sweeps for measure in sweep.measures] or lab.columns
    notes += dict.fromkeys(
        f"Effects on {measure.name} are differences from a baseline of its own, not from the first line."
        for measure in measures
        if measure.make is not None
    )
    notes += dict.fromkeys(measure.note for measure in measures if measure.note)
    for sweep in sweeps:
        store = f"{sweep.name}{CONTROLS}"
        drawn = [point for point in read.points(store) if point.draw >= 0] if store in read else []
        if drawn:  # a claim that this model can test needs them
            conditions = len({point.case for point in drawn})
            each = f"{len(drawn)} different random edits" + (f" of {conditions} budgets" if conditions > 1 else "")
            notes.append(
                f"Controls: {each} on {read[store].sizes['prompt']} prompts, e.g. “{drawn[-1].label}”."
                " An effect's percentile: the share of the controls of its budget with a smaller effect on the same prompts,"
                " ties counted half."
            )
    for name, data in read.stores.items():
        if name != NOOP and set(CELLS) <= set(data) and (labels := unchanged(data)):
            shown = "; ".join(labels[:MOST_FEATURED]) + f" and {len(labels) - MOST_FEATURED} more" * (len(labels) > MOST_FEATURED)
            notes.append(f"Of the edits of {name}, these changed no cell in any prompt: {shown}.")
    notes += dict.fromkeys(f"Some runs are missing: {why}." for why in read.absent.values())
    return notes


def _methods(table: Table) -> str:
    """Describe how the summary's intervals were made."""
    words = {
        "t": "Student's t",
        "clustered t": "Student's t with cluster-robust errors",
        "BCa": f"bootstrap, BCa, {intervals.RESAMPLES:,} resamples",
        "percentile": f"bootstrap, percentiles of {intervals.RESAMPLES:,} resamples",
    }
    used = {row.value.method for row in table.values()} | {row.effect.method for row in table.values()}
    return "; ".join(text for method, text in words.items() if method in used) or "none: too few"


def _maps(study: str, read: Stored) -> list[Maps]:
    """Make attention and activation maps of the shown conditions, for each shown sweep."""
    stores = [store for store in read.stores if store == MAPS or store.startswith(f"{MAPS}-")]
    names = {f"{study}-{store}".replace("/", "-"): read[store] for store in stores}
    return [views.maps(name, data, about=source(data, bands=False)[0]) for name, data in names.items()]


LARGEST = "largest change of any statistic (millionths of its largest value)"


def noop_rows(data: xarray.Dataset) -> list[Row]:
    """Make the summary rows from the store of the no-op edits."""
    labels = [str(label) for label in data["edit"].values[1:]]
    largest = 1e6 * np.max(list(changes(data, labels).values()), axis=0)
    return [Row(label, NOOP_SERIES, LARGEST, value) for label, value in zip(labels, intervals.intervals(largest), strict=True)]


def changes(data: xarray.Dataset, labels: Sequence[str]) -> dict[str, NDArray[np.floating]]:
    """Map each statistic to its largest change from the first edit, relative to its largest value there: float[label, prompt].

    A number that is undefined (NaN) in only one of the two runs counts as an infinite change.
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
    """Describe the effect of no-op edits in one sentence. labels: their labels, in a store whose first row has no edit."""
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
