"""Sweeps of the same edits side by side, in two stores or two folders: another model, another precision, other prompts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import sentence
from sinkjax.analysis.finite import only_finite, quietly, sentences
from sinkjax.analysis.intervals import Intervals
from sinkjax.analysis.summary import Row
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import write
from sinkjax.config_files.locations import Location
from sinkjax.errors import SinkjaxError
from sinkjax.report.figures.lines import Line, Panel
from sinkjax.report.figures.lines import lines as line_figure
from sinkjax.report.page import page
from sinkjax.report.section import Drawing, Report, Section
from sinkjax.runtime import extras
from sinkjax.study.folder import PAGE, open_store, write_results
from sinkjax.study.numbers import CONTROLS, TWIN, labels
from sinkjax.study.numbers import over as over_of
from sinkjax.study.numbers import provenance as provenance_of
from sinkjax.study.parts import NOOP
from sinkjax.study.registry import STORE_SUFFIX
from sinkjax.study.sweep_file import SHOWN, measures_of
from sinkjax.study.views import TEXTS

if TYPE_CHECKING:
    import xarray

A, B, DIFFERENCE = "A", "B", "B - A"
APART = (NOOP, "maps", TEXTS)  # stores of a run next to its study's sweeps


def carry_out(first: Location, second: Location) -> tuple[Section | Report, Location]:
    """Compare two stores, or the sweeps that two folders of results share.

    Returns the results, and the folder next to the first with the page, summary and figures.
    Errors: see `compare`; one is a store and the other a folder; the folders share no sweep.
    """
    extras.require("the page of a comparison", "report")
    stores = [path.suffix == STORE_SUFFIX for path in (first, second)]
    if stores[0] != stores[1]:
        raise SinkjaxError(f"{first} and {second} are a store and a folder; name two stores, or two folders of results")
    if all(stores):
        section = compare(open_store(first), open_store(second), {A: str(first), B: str(second)})
        folder = first.with_name(f"{first.stem}-and-{second.resolve().parent.name}-{second.stem}")
        write_results(section, folder)
        return section, folder
    folder = first.with_name(f"{first.resolve().name}-and-{second.resolve().name}")
    report = _of_folders(first, second)
    for section in report.sections:
        write_results(section, folder / section.title.partition(":")[0])
    write(folder / PAGE, page(report.sections, report.title, report.skipped))
    return report, folder


def _of_folders(first: Location, second: Location) -> Report:
    """Compare the sweeps that two folders share; sweeps that do not fit together are left out, with the reason."""
    ours, theirs = ({path.stem: path for path in folder.glob(f"*{STORE_SUFFIX}")} for folder in (first, second))
    for folder, stores in ((first, ours), (second, theirs)):
        refuse(not stores, f"{folder} holds no stores, so it is not the folder of a run")
    sections: list[Section] = []
    skipped: dict[str, str] = {}
    for name in sorted(ours.keys() & theirs.keys()):
        if name not in APART and not name.endswith((CONTROLS, TWIN)):
            try:
                section = compare(open_store(ours[name]), open_store(theirs[name]), {A: str(ours[name]), B: str(theirs[name])})
                sections.append(dataclasses.replace(section, title=f"{name}: {section.title}"))
            except SinkjaxError as error:
                skipped[name] = str(error)
    if not sections:
        why = next(iter(skipped.values()), f"A has {', '.join(sorted(ours))}, and B {', '.join(sorted(theirs))}")
        raise SinkjaxError(f"{first} and {second} share no sweep of the same edits: {why}")
    return Report(f"{first.resolve().name} and {second.resolve().name}", tuple(sections), skipped)


def compare(first: xarray.Dataset, second: xarray.Dataset, paths: Mapping[str, str]) -> Section:
    """Compute every measure that both stores allow, for every edit, in A, in B and as their difference.

    Differences are paired by prompt if both stores have the same prompts; otherwise there are none.
    Errors: the stores have no edits, different edits, or no common statistic that has a measure.
    """
    edits, stores, over = _edits(first, second, paths), {A: first, B: second}, over_of((first, second))

    def same(name: str) -> bool:
        if name not in first or name not in second:
            return False
        return np.array_equal(first[name].values, second[name].values, equal_nan=first[name].dtype.kind == "f")

    paired = same("tokens") and same("length")
    shared = [name for name in SHOWN if name in first and name in second]
    stated = {"key": 0, "eps": 0.3} | first.attrs.get("study", {}).get("config", {})  # of A's study, if it has them
    measures = [measure for name in shared for measure in measures_of(name, stated["key"], stated["eps"])]
    if not measures:
        raise SinkjaxError(f"the stores have none of the statistics {', '.join(SHOWN)} in common, so there are no measures")
    clusters = {name: data.attrs.get("study", {}).get("documents") for name, data in stores.items()}
    rows: dict[str, dict[str, Intervals]] = {}  # measure -> A, B and their difference -> mean for each edit
    for measure in measures:
        with quietly():
            values = {name: only_finite(measure.of(data), data) for name, data in stores.items()}
        rows[measure.name] = {name: intervals.intervals(numbers, clusters=clusters[name]) for name, numbers in values.items()}
        if paired:
            rows[measure.name][DIFFERENCE] = intervals.paired_differences(values[B], values[A], clusters=clusters[A])
    findings = [sentence(_finding(name, edits, columns[DIFFERENCE])) for name, columns in rows.items()] if paired else []
    if paired and all(map(same, shared)):
        findings = ["A and B are equal: the same prompts, and the same value of every statistic for every edit."]
    panels = [
        [Panel("", name, [Line(of, range(len(edits)), [*columns[of]]) for of in (A, B)], log=name.startswith("largest |h|"))]
        for name, columns in rows.items()
    ]
    caption = f"Each edit in both stores, in the order of the table; bands: 95% intervals over {over}."
    alike = "Both stores hold the same prompts, so differences (B minus A) are paired by prompt."
    apart = "The stores hold different prompts, so there are no paired differences: compare the intervals."
    return Section(
        study="compare",
        title=f"{len(edits)} edits in two stores",
        question=f"A is {paths[A]}. B is {paths[B]}.",
        findings=(*sentences(stores), *findings),
        rows=tuple(
            Row(edit, of, f"{name}: {of}", column[number])
            for number, edit in enumerate(edits)
            for name, columns in rows.items()
            for of, column in columns.items()
        ),
        featured=tuple(edits),
        drawings=(Drawing("by-edit", line_figure(panels, "edit (number in the list, from 0)"), caption),),
        notes=(f"Values are means with 95% intervals over {over}.", alike if paired else apart),
        provenance={f"{name}: {fact}": value for name, data in stores.items() for fact, value in provenance_of(data).items()},
        over=over,
    )


def _edits(first: xarray.Dataset, second: xarray.Dataset, paths: Mapping[str, str]) -> list[str]:
    for name, data in ((A, first), (B, second)):
        if "edit" not in data.dims:
            raise SinkjaxError(f"{paths[name]} holds no edits, so there is nothing to compare edit by edit")
    ours, theirs = labels(first), labels(second)
    for name, own, others in ((A, ours, theirs), (B, theirs, ours)):
        if odd := [label for label in own if label not in others]:
            raise SinkjaxError(f"the stores hold different edits: {odd[0]!r} is only in {paths[name]}")
    if ours != theirs:
        raise SinkjaxError("the stores hold the same edits in different orders")
    return ours


def _finding(measure: str, edits: list[str], differences: Intervals) -> str:
    """Describe in how many edits the two stores differ, and where they differ most."""
    apart = [number for number, one in enumerate(differences) if one.low is not None and not one.low <= 0 <= (one.high or 0)]
    if not apart:
        return f"{measure}: no edit has a paired difference whose interval excludes zero."
    largest = max(apart, key=lambda number: abs(differences[number].mean or 0))
    return (
        f"{measure}: the interval of the paired difference excludes zero for {len(apart)} of {len(edits)} edits; the largest is"
        f" {differences[largest]}, for {edits[largest]!r}."
    )
