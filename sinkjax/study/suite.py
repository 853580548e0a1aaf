"""Several runs on one page: every study of a paper (a suite), or one study on many models or checkpoints (a series)."""

from __future__ import annotations

import dataclasses
import functools
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from sinkjax.analysis.summary import COLUMNS, summary_csv
from sinkjax.checkpoints.architectures import architectures
from sinkjax.checkpoints.load import check_dtype, open_checkpoint
from sinkjax.checkpoints.load import load as load_model
from sinkjax.checkpoints.model import Model
from sinkjax.checkpoints.series import Member, members_of, to_fetch, trim
from sinkjax.checkpoints.settings import Settings
from sinkjax.config_files import documents
from sinkjax.config_files.files import ends_all, read_text, write
from sinkjax.config_files.locations import Location
from sinkjax.config_files.tables import csv_rows, csv_text
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.model.config import Config
from sinkjax.model.fingerprint import fingerprint
from sinkjax.report.figures.dots import Mark, points
from sinkjax.report.figures.lines import Line, Panel, lines
from sinkjax.report.page import page
from sinkjax.report.section import Drawing, Report, Section
from sinkjax.runtime import processes
from sinkjax.runtime.hardware import Hardware
from sinkjax.runtime.progress import silent
from sinkjax.study import run
from sinkjax.study.folder import PAGE
from sinkjax.study.registry import LISTED, SERIES, SIZES, Chosen, by_name, choose, claim, config_type, documented, studies, trains
from sinkjax.study.results import build as build_results
from sinkjax.study.results import section_of
from sinkjax.study.settings import All, AllTrained, Series

REFUSED = "refused.yaml"  # the runs that were refused last time, and why
TABLE = "series.csv"  # the summaries of all checkpoints, one below the other
MEASURES, EDITS = 2, 5  # in the figure of all checkpoints


@dataclass(frozen=True)
class SuiteRun:
    """One run of a suite or series: its name, the folder in that of the whole, how it is chosen, and its checkpoint, if any."""

    name: str
    folder: str
    choose: Callable[[], Chosen]
    member: Member | None = None


def runs(chosen: Chosen, layers: int = 0) -> list[SuiteRun]:
    """Return the runs of a suite or series, in order. layers: the number of layers of a suite's model. Errors: see `names`."""
    config = chosen.config
    if chosen.experiment == SERIES:
        return [
            SuiteRun(member.label, member.label.replace("/", "-").strip("."), functools.partial(_on, chosen, member), member)
            for member in members(config)
        ]
    within = f"{config.family}/" if config.family else ""
    return [
        SuiteRun(name, name.removeprefix(within), functools.partial(in_suite, config, name, layers)) for name in names(config)
    ]


def _layers(chosen: Chosen, weights: bool) -> int:
    """Return the number of layers of a suite's model. Errors: any fault outside a single run: model, dtype or family."""
    config = chosen.config
    runs(chosen)
    check_dtype(config.dtype)
    if not isinstance(config, All):
        return 0
    architecture = open_checkpoint(config.model, config.revision, config.ignore_keys, weights=weights).config
    run.check_inputs(config, architecture)
    return architecture.layers


def members(config: Series) -> tuple[Member, ...]:
    """Return the checkpoints, in their order. Errors: as for `sinkjax.sweep_models`."""
    if config.checkpoints is not None:
        return members_of(config.checkpoints)
    return members_of(config.models[0], config.revisions) if config.revisions else members_of(config.models)


def _on(chosen: Chosen, member: Member) -> Chosen:
    """Return the study of a series on one checkpoint. Errors: an unknown study, or settings that do not fit it."""
    config: Series = chosen.config
    shipped = by_name(config.study)
    if shipped.suite or not hasattr(shipped.config, "model"):
        raise SinkjaxError(f"{config.study} is not a study of a given model, so it has no series")
    stated = {"model": member.source, "revision": member.revision, "dtype": config.dtype}
    values = {**documents.fields(shipped.config), **config.settings, **stated}
    built: Settings = documents.build(config_type(shipped.experiment), values, config.study)
    return Chosen(shipped.experiment, built, own=chosen.own, unstated=SIZES - config.settings.keys())


def names(config: All | AllTrained) -> list[str]:
    """Return the studies of a suite, in order: all on one model, or all training their own. Errors: an unknown family, study."""
    trained = isinstance(config, AllTrained)
    alone = {*documented(), LISTED}  # tables of pretraining, which are run one by one, and lists of edits
    every = [name for name in studies() if name not in alone and trains(name) == trained]
    families = {name.partition("/")[0] for name in every}
    if config.family and config.family not in families:
        raise unknown("family", config.family, families)
    found = [name for name in every if config.family in ("", name.partition("/")[0])]
    first = config.order if isinstance(config, All) else ()
    if strange := [name for name in first if name not in found]:
        raise SinkjaxError(f"order: {unknown('study', strange[0], found)}")
    return [*first, *(name for name in found if name not in first)]


def in_suite(config: All | AllTrained, name: str, layers: int = 0) -> Chosen:
    """Return one study of a suite: its shipped config, on the suite's model, with the fields that the suite states.

    layers: the model's number of layers; the config's `map_layers` are drawn as far as the model has them.
    Errors: a field that does not fit the study.
    """
    fields = documents.fields(config).items()
    stated = {key: value for key, value in fields if key not in ("family", "order") and value is not None}
    values = {**documents.fields(by_name(name).config), **({"revision": None} if isinstance(config, All) else {}), **stated}
    if values.get("map_layers"):
        values["map_layers"] = [layer for layer in values["map_layers"] if layer < layers]
    return Chosen(name, documents.build(config_type(name), values, name), unstated=SIZES - stated.keys())


def carry_out(chosen: Chosen, out: Location, machine: run.Machine = run.HERE, log: Callable[[str], None] = silent) -> Report:
    """Carry out every run, each into its own folder below `out`, and write one page of them all. Finished work is not repeated.

    A run that is refused (a study needs a gate or a BOS that is not there, a checkpoint has the weights of an earlier one) is
    listed with the reason, and the others run. Checkpoints of one architecture share their programs. Arguments and errors as for
    `run.carry_out`.
    """
    run.require_extras(trains=isinstance(chosen.config, AllTrained))
    every, series, seen = runs(chosen, _layers(chosen, weights=True)), chosen.experiment == SERIES, dict[str, str]()
    if series:
        every[0].choose()  # settings that do not fit refuse every checkpoint
    processes.by_first(functools.partial(claim, out, chosen))
    load = functools.cache(load_model)
    refused, sections = dict[str, str](), dict[str, Section]()
    for number, one in enumerate(every, 1):
        log(f"{one.name} ({number} of {len(every)})")
        fetched = machine.trim and one.member and to_fetch(one.member)
        loader = _once(one.member, seen) if one.member else load
        try:
            sections[one.name] = run.carry_out(one.choose(), out / one.folder, machine, log, loader)
        except SinkjaxError as error:
            if ends_all(error) or processes.joined():  # with several processes, the others may be waiting for this one
                raise
            refused[one.name] = str(error)
            log(f"{one.name} does not run: {error}")
        if fetched and one.member:
            trim(one.member)
        if not series:
            jax.clear_caches()  # studies share few programs, and a compiled one keeps its memory
    processes.by_first(functools.partial(write, out / REFUSED, documents.dump(refused)))
    return _write(chosen, out, sections, refused)


def _once(member: Member, seen: dict[str, str]) -> Callable[..., Model]:
    """Return `sinkjax.load` that refuses weights of an earlier checkpoint by its name."""

    def load(source: str, **options: Any) -> Model:
        model = load_model(source, **options)
        if source == member.source:  # not the untrained twin, which checkpoints share
            first = seen.setdefault(fingerprint(model.params), member.label)
            if first != member.label:
                raise SinkjaxError(f"{member.label} has the same weights as {first}: leave one of the two out")
        return model

    return load


def plans(
    chosen: Chosen, hardware: Hardware | None = None, attention_impl: str = "auto"
) -> Iterator[tuple[str, list[run.Work] | str]]:
    """Yield the name of each run and its `run.work`, or the sentence that refuses it; of a series, one for each architecture."""
    series = chosen.experiment == SERIES
    every = _by_architecture(chosen) if series else [(one.name, one) for one in runs(chosen, _layers(chosen, weights=False))]
    for name, one in every:
        try:
            if isinstance(one, SinkjaxError):
                raise one
            yield name, list(run.work(run.fitted(one.choose()), hardware, attention_impl=attention_impl))
        except SinkjaxError as error:
            yield name, str(error)


def _by_architecture(chosen: Chosen) -> list[tuple[str, SuiteRun | SinkjaxError]]:
    """Return the first run of each architecture in a series, with a title, after the checkpoints that cannot be opened."""
    config, hubs = chosen.config, {entry.hub: name for name, entry in architectures().items()}  # planned without a hub
    alike: dict[Config, list[SuiteRun]] = {}
    planned: list[tuple[str, SuiteRun | SinkjaxError]] = []
    for one in runs(chosen):
        assert one.member is not None
        source = one.member.source if one.member.revision else hubs.get(one.member.source, one.member.source)
        member = dataclasses.replace(one.member, source=source)
        try:
            ignored = tuple(config.settings.get("ignore_keys", ()))
            architecture = open_checkpoint(source, member.revision, ignored, weights=False).config
            alike.setdefault(architecture, []).append(dataclasses.replace(one, choose=functools.partial(_on, chosen, member)))
        except SinkjaxError as error:
            planned.append((f"{config.study} on {one.name}", error))
    for first, *others in alike.values():
        title = f"{config.study} on {first.name}" + (f", as on {len(others)} more of its architecture" if others else "")
        planned.append((title, first))
    return planned


def build(chosen: Chosen, out: Location) -> Report:
    """Rebuild the pages of a suite or series, and of each finished run in it, from their stores; no model is needed."""
    return _write(chosen, out, *_gathered(chosen, out, build_results))


def gather(chosen: Chosen, out: Location) -> Report:
    """Return the sections of finished runs, and why the others have none. Nothing is written."""
    return _report(chosen, *_gathered(chosen, out, section_of))


def _gathered(
    chosen: Chosen, out: Location, section: Callable[[Chosen, Location], Section]
) -> tuple[dict[str, Section], dict[str, str]]:
    """Return the section of each finished run by its name, and why the others have none. section: makes one from its folder."""
    path = out / REFUSED
    refused = documents.parse(read_text(path), str(path)) if path.is_file() else {}
    sections, skipped = dict[str, Section](), dict[str, str]()
    for one in runs(chosen):
        folder = out / one.folder
        try:
            if not folder.is_dir():
                raise SinkjaxError("not started yet; rerun the command that began the whole to continue it")
            sections[one.name] = section(choose(str(folder), chosen.own), folder)
        except SinkjaxError as error:
            skipped[one.name] = refused.get(one.name, str(error))
    return sections, skipped


def _report(chosen: Chosen, sections: Mapping[str, Section], skipped: Mapping[str, str]) -> Report:
    config = chosen.config
    if chosen.experiment == SERIES:
        named = (dataclasses.replace(section, study=f"{config.study} on {name}") for name, section in sections.items())
        return Report(f"{config.study} on {len(sections)} models", tuple(named), skipped)
    title = f"{config.family or 'All papers'} on {config.model}" if isinstance(config, All) else ""
    return Report(title or f"{config.family or 'All labs'}: models trained from scratch", tuple(sections.values()), skipped)


def _write(chosen: Chosen, out: Location, sections: Mapping[str, Section], skipped: Mapping[str, str]) -> Report:
    report = _report(chosen, sections, skipped)
    shown, drawing = report.sections, None
    if chosen.experiment == SERIES:
        every = [one.member for one in runs(chosen) if one.member and one.name in sections]
        shown = tuple(dataclasses.replace(section, views=(), samples=()) for section in shown)  # these are on the page of each
        drawing = _along([member for member in every if sections[member.label].rows], sections)
        processes.by_first(lambda: write(out / TABLE, table(every, sections)))
    processes.by_first(lambda: write(out / PAGE, page(shown, report.title, skipped, drawing)))
    return report


def _along(members: Sequence[Member], sections: Mapping[str, Section]) -> Drawing | None:
    """Draw the first measures, without an edit and with each, against the step; None if there is nothing to compare."""
    if len(members) < 2:
        return None
    values = [{(row.measure, row.condition): row.value for row in sections[member.label].rows} for member in members]
    first = sections[members[0].label]
    common = [key for key in values[0] if all(key in one for one in values)]
    measures = list(dict.fromkeys(measure for measure, _ in common))[:MEASURES]
    conditions = list(dict.fromkeys([first.rows[0].condition, *first.featured]))[:EDITS]
    shown = {
        measure: {label: [one[measure, label] for one in values] for label in conditions if (measure, label) in common}
        for measure in measures
    }
    steps = [member.step for member in members if member.step is not None]
    if len(steps) == len(members) and len({member.run for member in members}) == 1:
        courses = {measure: [Line(label, steps, one) for label, one in of.items()] for measure, of in shown.items()}
        panels = []
        for name, drawn in courses.items():
            negative = any(one.mean is not None and one.mean < 0 for line in drawn for one in line.values)
            panels.append(Panel("", textwrap.fill(name, 30), drawn, signed=negative))
        figure = lines([panels], "step", "above", share="none")
    else:
        columns = {
            measure: [Mark(at.label, one, label) for label, ones in of.items() for at, one in zip(members, ones, strict=True)]
            for measure, of in shown.items()
        }
        figure = points(columns, "", shared=False)
    caption = f"{' and '.join(measures)}: means with 95% intervals over {first.over}, for each edit."
    return Drawing("along", figure, caption[0].upper() + caption[1:])


def table(members: Sequence[Member], sections: Mapping[str, Section]) -> str:
    """Return the summaries below each other as CSV, after the columns checkpoint and step (empty where a label states none)."""
    subject = next((section.subject for section in sections.values()), "edit")
    rows: list[list[Any]] = [["checkpoint", "step", subject, *COLUMNS]]
    for member in members:
        _, *summary = csv_rows(summary_csv(sections[member.label].rows))
        rows += [[member.label, "" if member.step is None else member.step, *row] for row in summary]
    return csv_text(rows)
