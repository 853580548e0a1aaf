"""From the stores of a study to its section: summary, verdicts, findings, figures, maps, texts and notes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import present, sentence
from sinkjax.analysis.finite import sentences
from sinkjax.config_files import documents
from sinkjax.report.section import Sample, Section
from sinkjax.studies import views
from sinkjax.studies.continuations import samples
from sinkjax.studies.figures import source
from sinkjax.studies.folder import provenance
from sinkjax.studies.noop import noop_finding, noop_rows
from sinkjax.studies.results import Results
from sinkjax.studies.settings import filled
from sinkjax.studies.specs import MAPS, NOOP, TEXTS
from sinkjax.studies.study import Study
from sinkjax.sweeps.computation import CELLS, unchanged

if TYPE_CHECKING:
    import xarray

    from sinkjax.studies.config import Settings
    from sinkjax.viewing.maps import Maps

MOST_FEATURED = 12  # conditions of the short table, where a study does not choose them


def assemble(study: Study, config: Settings, stores: Mapping[str, xarray.Dataset]) -> Section:
    """Build a study's section of results, without its model.

    Args:
        study: the declaration.
        config: its settings.
        stores: name -> finished store; optional stores and unfinished trainings may be missing.
    """
    results = Results(study, config, stores)
    architecture = results.architecture
    rows = [*results.table.values(), *results.own.values()]
    findings = [*study.status(results), *sentences({name: results[name] for name in results.sweeps})]
    if NOOP in results:
        data = results[NOOP]
        findings.append(noop_finding(data, results.labels(NOOP)[1:]))
        rows += noop_rows(data)
    drawn = present(study.figures(config, architecture), results)
    drawings = [one for entry in drawn for one in (entry if isinstance(entry, list) else [entry])]
    featured = study.featured(results) if study.featured else [row.condition for row in rows]
    return Section(
        study=study.name,
        title=filled(study.title, vars(config)),
        question=_line(filled(study.question, vars(config))),
        findings=tuple(map(sentence, findings)),
        rows=tuple(rows),
        featured=tuple(dict.fromkeys(featured))[: None if study.featured else MOST_FEATURED],
        drawings=tuple(drawing for drawing in drawings if drawing is not None),
        notes=tuple(map(_line, (*standard_notes(results), *study.notes(config, results)))),
        provenance=(study.provenance or _provenance)(results),
        verdicts=tuple(study.verdicts(results)) if study.verdicts else (),
        views=tuple(_maps(results)),
        samples=_samples(results),
        subject=study.subject,
        over=results.over,
    )


def _provenance(results: Results) -> Mapping[str, object]:
    named = {"model", "revision", "dtype", "text", "split", "bos", "prompts", "length"}  # these come from the store's own facts
    named |= {name for name in ("ignore_keys", "tokenizer") if not getattr(results.config, name, None)}
    stated = {name: value for name, value in vars(results.config).items() if name not in named and value is not None}
    settings = ", ".join(f"{name} {documents.plain(value)}" for name, value in stated.items())
    return {**provenance(next(iter(results.stores.values()))), "settings": settings}


def _line(text: str) -> str:
    """A text that is written over several lines as one."""
    return " ".join(text.split())


def standard_notes(results: Results) -> list[str]:
    """How the numbers of any study were made: means and intervals, definitions of its measures, its controls."""
    notes = []
    if results.sweeps:
        prompts = dict.fromkeys(results.size("prompt", sweep.name) for sweep in results.mains)
        compared = any(len(results.conditions(sweep.name)) > 1 for sweep in results.mains)
        notes.append(
            f"Values are means with 95% intervals over {' or '.join(map(str, prompts))} {results.over} ({_methods(results)})"
            f"{'; effects (Δ) are mean differences from the first line, paired by prompt' * compared}."
        )
    measures = [measure for sweep in results.mains for measure in sweep.measures]
    notes += dict.fromkeys(
        f"Effects on {measure.name} are differences from a baseline of its own, not from the first line."
        for measure in measures
        if measure.baseline is not None
    )
    notes += dict.fromkeys(measure.note for measure in measures if measure.note)
    for sweep in results.mains:
        for control in sweep.controls:
            if control.name in results:
                drawn = [condition for condition in results.conditions(control.name) if condition.budget is not None]
                if not drawn:  # no claim that this model tests needs one
                    continue
                budgets = len({condition.budget for condition in drawn})
                each = f"{len(drawn)} different random edits" + (f" of {budgets} budgets" if budgets > 1 else "")
                notes.append(
                    f"Controls: {each} on {results.size('prompt', control.name)} prompts, e.g. “{drawn[-1].label}”."
                    " An effect's percentile: the share of the controls of its budget with a smaller effect on the same prompts,"
                    " ties counted half."
                )
    for name, data in results.stores.items():
        if name != NOOP and set(CELLS) <= set(data) and (labels := unchanged(data)):
            shown = "; ".join(labels[:MOST_FEATURED]) + f" and {len(labels) - MOST_FEATURED} more" * (len(labels) > MOST_FEATURED)
            notes.append(f"Of the edits of {name}, these changed no cell in any prompt: {shown}.")
    notes += dict.fromkeys(f"Some runs are missing: {why}." for why in results.absent.values())
    return notes


def _methods(results: Results) -> str:
    """How the intervals of the summary were made, in words."""
    words = {
        "t": "Student's t",
        "clustered t": "Student's t with cluster-robust errors",
        "BCa": f"bootstrap, BCa, {intervals.RESAMPLES:,} resamples",
        "percentile": f"bootstrap, percentiles of {intervals.RESAMPLES:,} resamples",
    }
    used = {row.value.method for row in results.table.values()} | {row.effect.method for row in results.table.values()}
    return "; ".join(text for method, text in words.items() if method in used) or "none: too few"


def _maps(results: Results) -> list[Maps]:
    """Attention and activations of the conditions that the study shows, for each sweep that it shows."""
    stores = [store for store in results.stores if store == MAPS or store.startswith(f"{MAPS}-")]
    return [
        views.maps(
            f"{results.study.name}-{store}".replace("/", "-"),
            results[store],
            about=f" {source(results[store], bands=False)}",
        )
        for store in stores
    ]


def _samples(results: Results) -> tuple[Sample, ...]:
    return samples(results[TEXTS]) if TEXTS in results else ()
