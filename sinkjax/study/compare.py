"""Sweeps of the same edits side by side, in two stores or two folders: another model, another precision, other prompts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import sentence
from sinkjax.analysis.finite import only_finite, quietly, sentences
from sinkjax.analysis.intervals import Interval
from sinkjax.analysis.summary import Row
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import write
from sinkjax.config_files.places import Place
from sinkjax.errors import SinkjaxError
from sinkjax.report.figures.lines import Line, Panel
from sinkjax.report.figures.lines import lines as line_figure
from sinkjax.report.page import page
from sinkjax.report.section import Drawing, Report, Section
from sinkjax.runtime import extras
from sinkjax.study import facts
from sinkjax.study import folder as results
from sinkjax.study.choice import STORE_SUFFIX
from sinkjax.study.measures import Measure
from sinkjax.study.numbers import CONTROLS, TWIN
from sinkjax.study.parts import NOOP
from sinkjax.study.sweep_file import SHOWN, measures_of
from sinkjax.study.views import TEXTS

if TYPE_CHECKING:
    import xarray

A, B, DIFFERENCE = "A", "B", "B - A"
APART = (NOOP, "maps", TEXTS)  # stores of a run next to its study's sweeps
Values = dict[tuple[str, str, str], Interval]  # (edit, measure, A or B or their difference) -> mean over prompts


def carry_out(first: Place, second: Place) -> tuple[Section | Report, Place]:
    """Compare two stores, or the sweeps that two folders of results share.

    Returns the results, and the folder next to the first with the page, summary and figures.
    Errors: see `compare`; one is a store and the other a folder; the folders share no sweep.
    """
    extras.require("the page of a comparison", "report")
    stores = [path.suffix == STORE_SUFFIX for path in (first, second)]
    if stores[0] != stores[1]:
        raise SinkjaxError(f"{first} and {second} are a store and a folder; name two stores, or two folders of results")
    if all(stores):
        section = compare(results.open_store(first), results.open_store(second), {A: str(first), B: str(second)})
        folder = first.with_name(f"{first.stem}-and-{second.resolve().parent.name}-{second.stem}")
        results.write_results(section, folder)
        return section, folder
    folder = first.with_name(f"{first.resolve().name}-and-{second.resolve().name}")
    report = _of_folders(first, second)
    for section in report.sections:
        results.write_results(section, folder / section.title.partition(":")[0])
    write(folder / results.PAGE, page(report.sections, report.title, report.skipped))
    return report, folder


def _of_folders(first: Place, second: Place) -> Report:
    """Compare the sweeps that two folders share; sweeps that do not fit together are left out, with the reason."""
    ours, theirs = ({path.stem: path for path in folder.glob(f"*{STORE_SUFFIX}")} for folder in (first, second))
    for folder, found in ((first, ours), (second, theirs)):
        refuse(not found, f"{folder} holds no stores, so it is not the folder of a run")
    sections: list[Section] = []
    skipped: dict[str, str] = {}
    for name in sorted(name for name in ours.keys() & theirs.keys() if name not in APART and not name.endswith((CONTROLS, TWIN))):
        paths = {A: str(ours[name]), B: str(theirs[name])}
        try:
            section = compare(results.open_store(ours[name]), results.open_store(theirs[name]), paths)
        except SinkjaxError as error:
            skipped[name] = str(error)
        else:
            sections.append(dataclasses.replace(section, title=f"{name}: {section.title}"))
    if not sections:
        why = next(iter(skipped.values()), f"A has {', '.join(sorted(ours))}, and B {', '.join(sorted(theirs))}")
        raise SinkjaxError(f"{first} and {second} share no sweep of the same edits: {why}")
    return Report(f"{first.resolve().name} and {second.resolve().name}", tuple(sections), skipped)


def compare(first: xarray.Dataset, second: xarray.Dataset, paths: Mapping[str, str]) -> Section:
    """Compute every measure that both stores allow, for every edit, in A, in B and as their difference.

    Differences are paired by prompt if both stores have the same prompts; otherwise there are none.
    Errors: the stores have no edits, different edits, or no common statistic that has a measure.
    """
    edits, stores = _edits(first, second, paths), {A: first, B: second}
    measures = _measures(first, second)
    paired = all(
        name in first and name in second and np.array_equal(first[name].values, second[name].values)
        for name in ("tokens", "length")
    )
    clusters = {name: data.attrs.get("study", {}).get("documents") for name, data in stores.items()}
    over = facts.over((first, second))
    values: Values = {}
    for measure in measures:
        with quietly():
            table = {name: only_finite(measure.of(data), data) for name, data in stores.items()}
        columns = {name: intervals.intervals(numbers, clusters=clusters[name]) for name, numbers in table.items()}
        if paired:
            columns[DIFFERENCE] = intervals.paired_differences(table[B], table[A], clusters=clusters[A])
        values |= {
            (edit, measure.name, name): column[number] for name, column in columns.items() for number, edit in enumerate(edits)
        }
    findings = [sentence(_finding(measure.name, edits, values)) for measure in measures] if paired else []
    if paired and all(_equal(first[name], second[name]) for name in SHOWN if name in first and name in second):
        findings = ["A and B are equal: the same prompts, and the same value of every statistic for every edit."]
    provenance = {f"{name}: {fact}": value for name, data in stores.items() for fact, value in facts.provenance(data).items()}
    return Section(
        study="compare",
        title=f"{len(edits)} edits in two stores",
        question=f"A is {paths[A]}. B is {paths[B]}.",
        findings=(*sentences(stores), *findings),
        rows=tuple(
            Row(edit, name, f"{measure.name}: {name}", values[edit, measure.name, name])
            for edit in edits
            for measure in measures
            for name in columns
        ),
        featured=tuple(edits),
        drawings=(_drawing(edits, measures, values, over),),
        notes=(
            f"Values are means with 95% intervals over {over}.",
            "Both stores hold the same prompts, so differences (B minus A) are paired by prompt."
            if paired
            else "The stores hold different prompts, so there are no paired differences: compare the intervals.",
        ),
        provenance=provenance,
        over=over,
    )


def _equal(one: xarray.DataArray, other: xarray.DataArray) -> bool:
    return one.shape == other.shape and np.array_equal(one.values, other.values, equal_nan=True)


def _edits(first: xarray.Dataset, second: xarray.Dataset, paths: Mapping[str, str]) -> list[str]:
    for name, data in ((A, first), (B, second)):
        if "edit" not in data.dims:
            raise SinkjaxError(f"{paths[name]} holds no edits, so there is nothing to compare edit by edit")
    ours, theirs = ([str(label) for label in data["edit"].values] for data in (first, second))
    for name, one, other in ((A, ours, theirs), (B, theirs, ours)):
        if odd := [label for label in one if label not in other]:
            raise SinkjaxError(f"the stores hold different edits: {odd[0]!r} is only in {paths[name]}")
    if ours != theirs:
        raise SinkjaxError("the stores hold the same edits in different orders")
    return ours


def _measures(first: xarray.Dataset, second: xarray.Dataset) -> list[Measure]:
    """Return the measures of a sweep's summary, with the key and threshold of A's study, if it has them."""
    stated = {"key": 0, "eps": 0.3} | first.attrs.get("study", {}).get("config", {})
    shared = [name for name in SHOWN if name in first and name in second]
    found = [measure for name in shared for measure in measures_of(name, stated["key"], stated["eps"])]
    if not found:
        raise SinkjaxError(f"the stores have none of the statistics {', '.join(SHOWN)} in common, so there are no measures")
    return found


def _finding(measure: str, edits: list[str], values: Values) -> str:
    """Describe in how many edits the two stores differ, and where they differ most."""
    differences = {edit: values[edit, measure, DIFFERENCE] for edit in edits}
    apart = [
        edit for edit, one in differences.items() if one.low is not None and one.high is not None and not one.low <= 0 <= one.high
    ]
    if not apart:
        return f"{measure}: no edit has a paired difference whose interval excludes zero."
    largest = max(apart, key=lambda edit: abs(differences[edit].mean or 0))
    return (
        f"{measure}: the interval of the paired difference excludes zero for {len(apart)} of {len(edits)} edits; the largest is"
        f" {differences[largest]}, for {largest!r}."
    )


def _drawing(edits: list[str], measures: list[Measure], values: Values, over: str) -> Drawing:
    grid = []
    for measure in measures:
        found = {name: [values[edit, measure.name, name] for edit in edits] for name in (A, B)}
        lines = [Line(name, range(len(edits)), means) for name, means in found.items()]
        grid.append([Panel("", measure.name, lines, log=measure.name.startswith("largest |h|"))])
    caption = f"Each edit in both stores, in the order of the table; bands: 95% intervals over {over}."
    return Drawing("by-edit", line_figure(grid, "edit (number in the list, from 0)"), caption)
