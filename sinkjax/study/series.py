"""One study on every checkpoint of a series, or on several models: each in its folder, all on one page and in one table."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sinkjax
from sinkjax.analysis.summary import COLUMNS, summary_csv
from sinkjax.checkpoints.architectures import architectures
from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.checkpoints.model import Model
from sinkjax.checkpoints.series import Member, members_of, to_fetch, trim
from sinkjax.checkpoints.settings import Settings
from sinkjax.config_files import documents
from sinkjax.config_files.files import ends_all, write
from sinkjax.config_files.places import Place
from sinkjax.config_files.tables import csv_rows, csv_text
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.model.fingerprint import fingerprint
from sinkjax.report.figures.dots import Mark, points
from sinkjax.report.figures.lines import Line, Panel, lines
from sinkjax.report.page import page
from sinkjax.report.section import Drawing, Report, Section
from sinkjax.runtime.hardware import Hardware
from sinkjax.runtime.progress import silent
from sinkjax.study import folder as results
from sinkjax.study import rebuild, run
from sinkjax.study.choice import SIZES, Chosen, by_name, choose, claim
from sinkjax.study.config import Series
from sinkjax.study.registry import Own, config_type
from sinkjax.study.suite import REFUSED, refusals

MEASURES, EDITS = 2, 5  # in the figure of all checkpoints
TABLE = "series.csv"  # the summaries of all checkpoints, one below the other


def members(config: Series) -> tuple[Member, ...]:
    """The checkpoints, in their order. Errors: as for `sinkjax.sweep_models`."""
    if config.checkpoints is not None:
        return members_of(config.checkpoints)
    return members_of(config.models[0], config.revisions) if config.revisions else members_of(config.models)


def study_on(config: Series, member: Member, own: Own | None = None) -> Chosen:
    """The study on one checkpoint. Errors: an unknown study; one that takes no model; settings that do not fit it.

    own: the study, if it is a user's.
    """
    shipped = by_name(config.study)
    if shipped.suite or not hasattr(shipped.config, "model"):
        raise SinkjaxError(f"{config.study} is not a study of a given model, so it has no series")
    stated = {"model": member.source, "revision": member.revision, "dtype": config.dtype}
    values = {**documents.fields(shipped.config), **config.settings, **stated}
    built: Settings = documents.build(config_type(shipped.experiment), values, config.study)
    return Chosen(shipped.experiment, built, own=own, unstated=SIZES - config.settings.keys())


def place(member: Member, out: Place) -> Place:
    """The folder of a checkpoint in its series' folder."""
    return out / member.label.replace("/", "-").strip(".")


def carry_out(chosen: Chosen, out: Place, machine: run.Machine = run.HERE, log: Callable[[str], None] = silent) -> Report:
    """Run the study on every checkpoint, and write one page and one table of them all. Finished work is not repeated.

    Parameters are arguments of the compiled programs, so checkpoints of one architecture share their programs. One that the study
    refuses, or that has the weights of an earlier one, is listed with the reason, and the others run. Arguments and errors as for
    `run.carry_out`.
    """
    config = chosen.config
    every = members(config)
    study_on(config, every[0])  # settings that do not fit refuse every checkpoint
    claim(out, chosen)
    seen, refused, sections = dict[str, str](), dict[str, str](), dict[str, Section]()
    for number, member in enumerate(every, 1):
        log(f"{member.label} ({number} of {len(every)})")
        fetched = machine.trim and to_fetch(member)
        try:
            sections[member.label] = run.carry_out(
                study_on(config, member, chosen.own), place(member, out), machine, log, _once(member, seen)
            )
        except SinkjaxError as error:
            if ends_all(error):
                raise
            refused[member.label] = str(error)
            log(f"{member.label} does not run: {error}")
        if fetched:
            trim(member)
    write(out / REFUSED, documents.dump(refused))
    return _write(config, out, sections, refused)


def plans(
    chosen: Chosen, hardware: Hardware | None = None, attention_impl: str = "auto"
) -> Iterator[tuple[str, list[run.Work] | str]]:
    """(study and checkpoint, its `run.work`, or the sentence that refuses it), once for all of one architecture."""
    config = chosen.config
    names = {entry.hub: name for name, entry in architectures().items()}  # which can be planned without a hub
    alike: dict[Config, list[Member]] = {}
    ignored = tuple(config.settings.get("ignore_keys", ()))
    for member in members(config):
        if member.revision is None:
            member = dataclasses.replace(member, source=names.get(member.source, member.source))
        try:
            architecture = open_checkpoint(member.source, member.revision, ignored, weights=False).config
            alike.setdefault(architecture, []).append(member)
        except SinkjaxError as error:
            yield f"{config.study} on {member.label}", str(error)
    for first, *others in alike.values():
        name = f"{config.study} on {first.label}" + (f", as on {len(others)} more of its architecture" if others else "")
        try:
            yield name, list(run.work(run.fitted(study_on(config, first)), hardware, attention_impl=attention_impl))
        except SinkjaxError as error:
            yield name, str(error)


def build(chosen: Chosen, out: Place) -> Report:
    """Rebuild the page and the table of finished checkpoints from their stores; the models are not needed."""
    config, skipped, refused = chosen.config, dict[str, str](), refusals(out)
    sections: dict[str, Section] = {}
    for member in members(config):
        try:
            folder = place(member, out)
            made = choose(str(folder), chosen.own) if folder.is_dir() else study_on(config, member, chosen.own)
            sections[member.label] = rebuild.build(made, folder)
        except SinkjaxError as error:
            skipped[member.label] = refused.get(member.label, str(error))
    return _write(config, out, sections, skipped)


def _write(config: Series, out: Place, sections: Mapping[str, Section], skipped: Mapping[str, str]) -> Report:
    named = [dataclasses.replace(section, study=f"{config.study} on {label}") for label, section in sections.items()]
    report = Report(f"{config.study} on {len(named)} models", tuple(named), skipped)
    shown = [dataclasses.replace(section, views=(), samples=()) for section in named]  # these are on the page of each
    write(out / results.PAGE, page(shown, report.title, skipped, _along(members(config), sections)))
    write(out / TABLE, table(members(config), sections))
    return report


def _along(every: tuple[Member, ...], sections: Mapping[str, Section]) -> Drawing | None:
    """The first measures, without an edit and with each, against the step; None where there is nothing to compare."""
    there = [member for member in every if member.label in sections and sections[member.label].rows]
    if len(there) < 2:
        return None
    found = [{(row.measure, row.condition): row for row in sections[member.label].rows} for member in there]
    first = sections[there[0].label]
    common = [key for key in found[0] if all(key in one for one in found)]
    conditions = list(dict.fromkeys([first.rows[0].condition, *first.featured]))[:EDITS]
    measures = list(dict.fromkeys(measure for measure, _ in common))[:MEASURES]
    shown = {
        measure: {label: [one[measure, label].value for one in found] for label in conditions if (measure, label) in common}
        for measure in measures
    }
    steps = [member.step for member in there if member.step is not None]
    if len(steps) == len(there) and len({member.run for member in there}) == 1:
        courses = {measure: [Line(label, steps, one) for label, one in of.items()] for measure, of in shown.items()}
        panels = [Panel("", textwrap.fill(name, 30), found, signed=_negative(found)) for name, found in courses.items()]
        figure = lines([panels], "step", "above", share="none")
    else:
        columns = {
            measure: [
                Mark(member.label, one, label) for label, ones in of.items() for member, one in zip(there, ones, strict=True)
            ]
            for measure, of in shown.items()
        }
        figure = points(columns, "", shared=False)
    caption = f"{' and '.join(measures)}: means with 95% intervals over {first.over}, for each edit."
    return Drawing("along", figure, caption[0].upper() + caption[1:])


def _negative(courses: list[Line]) -> bool:
    """Return whether some mean of a measure is below 0."""
    return any(one.mean is not None and one.mean < 0 for line in courses for one in line.values)


def table(every: tuple[Member, ...], sections: Mapping[str, Section]) -> str:
    """The summaries below each other as CSV, after the columns checkpoint and step (empty where a label states none)."""
    subject = next((section.subject for section in sections.values()), "edit")
    rows: list[list[Any]] = [["checkpoint", "step", subject, *COLUMNS]]
    for member in every:
        if member.label in sections:
            _, *own = csv_rows(summary_csv(sections[member.label].rows))
            rows += [[member.label, "" if member.step is None else member.step, *row] for row in own]
    return csv_text(rows)


def _once(member: Member, seen: dict[str, str]) -> Callable[..., Model]:
    """`sinkjax.load` that refuses weights of an earlier checkpoint by its name."""

    def load(source: str, **options: Any) -> Model:
        model = sinkjax.load(source, **options)
        if source != member.source:  # the untrained twin, which checkpoints share
            return model
        first = seen.setdefault(fingerprint(model.params), member.label)
        if first != member.label:
            raise SinkjaxError(f"{member.label} has the same weights as {first}: leave one of the two out")
        return model

    return load
