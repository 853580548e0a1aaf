"""A table of pretraining, written in YAML: rows that are trainings, the measures of its columns, claims and figures."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis.intervals import Interval
from sinkjax.config_files import documents
from sinkjax.config_files.checks import check_keys
from sinkjax.errors import SinkjaxError, one_of, unknown
from sinkjax.papers.pretrain._outcomes import MEASURES, sinks, steps_to_loss
from sinkjax.papers.pretrain._task import Pretraining, SizeName, spec
from sinkjax.report.figures.dots import Mark, points
from sinkjax.report.figures.lines import Line, Panel, lines
from sinkjax.report.section import Drawing
from sinkjax.study import (
    Lab,
    Measure,
    Numbers,
    Prose,
    Study,
    TrainedModels,
    alone,
    attains,
    paired,
    read_measure,
    versus,
)

KEYS = ("study", "title", "question", "notes", "settings", "trainings", "measures", "claims", "figures")

Named = TypeVar("Named")
Trainings = Mapping[str, TrainedModels]


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """A row: a language model of the study's size, with a few fields changed.

    Attributes:
        label: Its title; "": its name.
        changes: Fields of the training that differ from the size's.
        times: Factors on numbers of the size; for a window that is not stated, on the context; for a width of heads that is not
            stated, none.
        paper: Measure -> the paper's number, or its words.
        sizes: The sizes with this row; by default all.
    """

    label: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    times: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)
    sizes: tuple[SizeName, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TableClaim:
    """A claim: a contrast of rows, or (`described`) steps to a row's last loss."""

    statement: str = ""
    source: str = ""
    paper: Any = ""
    contrast: Mapping[str, Any] | None = None
    described: Mapping[str, Any] | None = None
    sign: int = 1
    stays: bool = False
    given: Mapping[str, Any] | None = None
    beside: tuple[Mapping[str, Any], ...] = ()


Drawn = Callable[[Lab, Trainings], None]


def table(values: Mapping[str, Any], what: str) -> Study:
    """Read a table from a mapping.

    Args:
        values: The parsed document.
        what: The file, for errors.

    Returns:
        The study.

    Raises:
        SinkjaxError: A key, setting, measure, row or figure is unknown, or a value does not fit.
    """
    if "study" not in values:
        raise SinkjaxError(f"{what} lacks the key 'study', the name of the study")
    check_keys(values, KEYS, what)
    rows, papers = {}, {}
    for name, node in _mapping(values.get("trainings"), f"{what}: trainings").items():
        where = f"{what}: {name}"
        rows[name] = _build(TableRow, _call(node, ("row",), where)[1], where)
        papers[name] = {_measure(measure, where).name: said for measure, said in rows[name].paper.items()}
    stated = _mapping(values.get("claims") or {}, f"{what}: claims")
    claims = {name: _build(TableClaim, node, f"{what}: claims.{name}") for name, node in stated.items()}
    columns = tuple(_measure(name, what) for name in _listed(values.get("measures")))
    figures = [_figure(node, f"{what}: figures") for node in _listed(values.get("figures"))]

    def study(lab: Lab, s: Pretraining) -> None:
        made = {}
        for name, row in rows.items():
            planned = spec(s, name, row.changes, row.times, row.sizes)
            made[name] = lab.train(name, planned, row.label, paper=papers[name], compared=True)
        lab.summary(*columns)
        for name, claim in claims.items():
            _claim(lab, name, claim, made, f"{what}: claims.{name}")
        for draw in figures:
            draw(lab, made)

    texts = {name: {"statement": claim.statement, "paper": claim.paper} for name, claim in claims.items()}
    told = {"title": values.get("title"), "question": values.get("question", ""), "notes": _listed(values.get("notes"))}
    prose = Prose.read({**told, "claims": texts}, values["study"], what)
    digest = hashlib.sha256(documents.dump(dict(values)).encode()).hexdigest()
    return Study(str(values["study"]), study, _settings(values.get("settings") or {}, prose.title, what), prose, True, digest)


def _settings(given: Mapping[str, Any], title: str, what: str) -> type:
    """The settings of every table, with this one's defaults."""
    where = f"{what}: settings"
    stated = documents.build(Pretraining, _mapping(given, where), where)
    hints = get_type_hints(Pretraining, include_extras=True)
    old = Pretraining.__dataclass_fields__
    fields = [(name, hints[name], field(default=getattr(stated, name), metadata=old[name].metadata)) for name in given]
    namespace = {"__doc__": title, "__module__": __name__}
    return dataclasses.make_dataclass("Settings", fields, bases=(Pretraining,), namespace=namespace, frozen=True, kw_only=True)


def _claim(lab: Lab, name: str, claim: TableClaim, made: Trainings, what: str) -> None:
    """Add a claim. Errors: both or neither of its kinds; an unknown contrast, premise, measure or row."""
    if (claim.contrast is None) == (claim.described is None):
        raise SinkjaxError(f"{what} takes one of contrast, described, such as contrast: {{versus: {{measure: x, training: y}}}}")
    if claim.described is not None:
        first = _row(made, _call(claim.described, ("steps_to_loss",), what, "first")[1].get("first"), what)
        lab.describe(name, claim.source, lambda read: steps_to_loss(read, first))
        return

    given = None if claim.given is None else _made(attains, claim.given, made, what)
    contrast, *beside = (_made(versus, node, made, what) for node in (claim.contrast, *claim.beside))
    lab.claim(name, claim.source, contrast, given, beside, claim.sign, claim.stays)


def _made(make: Callable[..., Any], node: Any, made: Trainings, what: str) -> Any:
    """A contrast or premise (`sinkjax.study.trained`) of the table's measures and rows. Errors: an unknown or missing one."""
    name = make.__name__
    given = _call(node, (name,), what)[1]
    check_keys(given, [*inspect.signature(make).parameters], f"{what}: {name}")

    def argument(key: str) -> Any:
        value = given.get(key)
        if key == "measure":
            return _measure(value, what)
        number = key in ("least", "most") or (key == "minus" and not isinstance(value, str))
        return documents.convert(value, float, f"{what}: {name}: {key}") if number else _row(made, value, what)

    stated = [key for key in dict.fromkeys(("measure", "training", *given)) if key != "whole" or given[key]]  # "": no whole
    return make(**{key: argument(key) for key in stated})


def _figure(node: Any, what: str) -> Drawn:
    """A figure by its name. Errors: an unknown figure, argument or measure."""
    name, given = _call(node, [*FIGURES], what, "measure")
    draw, names = FIGURES[name]
    check_keys(given, names, f"{what}: {name}")
    read: dict[str, Callable[[Any], Any]] = {"measure": lambda one: _measure(one, what), "xlabel": lambda text: text or ""}
    read["measures"] = lambda listed: [_measure(one, what) for one in _listed(listed)]
    arguments = [read[key](given.get(key)) for key in names]
    return lambda lab, made: lab.draw(draw, [*made.values()], *arguments)


# Reading


def _build(cls: type[Any], node: Any, what: str) -> Any:
    return documents.build(cls, _mapping(node, what), what)


def _call(node: Any, allowed: Sequence[str], what: str, first: str = "") -> tuple[str, Mapping[str, Any]]:
    """A name with its arguments: `name`, {name: {argument: value}}, or {name: value} of its first argument."""
    if isinstance(node, str):
        node = {node: {}}
    if not isinstance(node, Mapping) or len(node) != 1:
        raise SinkjaxError(f"{what} takes one of {', '.join(allowed)}, with its arguments, not {str(node)[:60]!r}")
    ((name, given),) = node.items()
    one_of(f"name in {what}:", name, allowed)
    return name, given if isinstance(given, Mapping) else {first: given}


def _mapping(node: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(node, Mapping):
        raise SinkjaxError(f"{where} must be a mapping of names to values, not {documents.describe(node)}")
    return node


def _listed(node: Any) -> list[Any]:
    return node if isinstance(node, list) else [] if node is None else [node]


def _named(kind: str, table: Mapping[str, Named], name: object, what: str) -> Named:
    if not isinstance(name, str) or name not in table:
        raise SinkjaxError(f"{what}: {unknown(kind, name, table)}")
    return table[name]


_measure, _row = partial(_named, "measure", MEASURES), partial(_named, "training")


# Figures of a pretraining table: learning curves, and its rows next to the paper's.


TOGETHER = 5  # rows of a table in one row of panels, so that their colours can be distinguished
HERE, PAPER = "here", "paper"


def learning_curves(read: Numbers, rows: Sequence[TrainedModels]) -> Drawing | None:
    """Loss, sink and norm ratio against steps; the first row of the table is in every row of panels."""
    there = _trained(read, rows)
    if not there:
        return None
    first, *others = there
    groups = [[first, *group] for group in np.array_split(np.array(others, object), max(1, math.ceil(len(others) / TOGETHER)))]

    def courses(row: TrainedModels) -> list[Line]:
        data = read.data(row.name)
        values = data["loss"].values, sinks(data)[..., 0], data["norm_ratio"].values.max(axis=-1)
        return [_course(row.label, data["step"].values, each) for each in values]

    drawn = [[*zip(*map(courses, group), strict=True)] for group in groups]  # [group][loss, sink, norm][row]
    losses, sinking, _ = (list(itertools.chain(*column)) for column in zip(*drawn, strict=True))
    grid = []
    for loss, sink, norm in drawn:
        sinks_panel = Panel("", "heads that sink\non token 1 (%)", sink, limits=_percent(sinking))
        norms_panel = Panel("", "norm of token 1\nover others", norm, log=True)
        grid.append([Panel("", "valid loss\n(nats)", loss, limits=_losses(losses)), sinks_panel, norms_panel])
    counts = {read.data(row.name).sizes["run"] for row in there}
    seeds = f"{min(counts)} to {max(counts)} seeds" if len(counts) > 1 else f"{counts.pop()} seed(s) a row"
    caption = f"""At size {read.settings.size}: held-out loss, share of heads that sink on the first token, and its norm over
        the others'. Means over seeds, with the lowest and highest seed; {seeds}. A line that ends early is not finished, or
        diverged."""
    legend: Literal["above", "beside"] = "above" if len(grid) == 1 else "beside"
    return Drawing("learning", lines(grid, "step", legend, share="col", courses=True, height=2.5), caption)


def beside_the_paper(read: Numbers, rows: Sequence[TrainedModels], measures: Sequence[Measure], xlabel: str) -> Drawing | None:
    """Measures of the rows next to the paper's numbers, one panel per measure."""
    if not read.stores:
        return None
    columns: dict[str, list[Mark]] = {measure.name: [] for measure in measures}
    for measure, row in itertools.product(measures, _trained(read, rows)):
        columns[measure.name].append(Mark(row.label, read.interval(read_measure(measure, read.data(row.name))), HERE))
        if isinstance(number := row.paper.get(measure.name), int | float):
            columns[measure.name].append(Mark(row.label, alone(number), PAPER))
    caption = f"At size {read.settings.size}: means over seeds, with 95% intervals, and the paper's numbers, from one run each."
    return Drawing("rows", points(columns, xlabel), caption)


def losses_beside(read: Numbers, rows: Sequence[TrainedModels], measure: Measure) -> Drawing | None:
    """Excess of each row's loss over the first row's, here and in the paper; nothing with fewer than two rows."""
    first, *others = rows
    if first.name not in read:
        return None
    base, paper, found = read.data(first.name), first.paper.get(measure.name), []
    for row in _trained(read, others):
        number = row.paper.get(measure.name)
        found.append(Mark(row.label, paired(base, read.data(row.name), measure, read), HERE))
        if isinstance(number, int | float) and isinstance(paper, int | float):
            found.append(Mark(row.label, alone(number - paper), PAPER))
    if not any(point.kind == HERE and point.value.mean is not None for point in found):
        return None
    caption = f"""Held-out loss of each row less the first row's ({first.name}), next to the same difference in the paper: text
        and tokenizer differ, so losses cannot be compared. Here: paired by seed, bars: 95% intervals."""
    return Drawing("losses", points({f"against {first.name}": found}, "difference in valid loss (nats)"), caption)


def _trained(read: Numbers, rows: Sequence[TrainedModels]) -> list[TrainedModels]:
    """The rows that have been trained, in the order of their stores."""
    by_name = {row.name: row for row in rows}
    return [by_name[name] for name in read.trained if name in by_name]


def _course(name: str, steps: NDArray[Any], values: NDArray[Any]) -> Line:
    """Mean, lowest and highest over the runs that are still running at each evaluation. steps, values: float[run, point]."""
    there = np.isfinite(values).any(axis=0)
    values, steps = values[:, there].astype(float), steps[:, there]
    ends = (float(of(column)) for column in values.T for of in (np.nanmean, np.nanmin, np.nanmax))
    shown = [Interval(*three, len(values), 0, 1.0, "none") for three in zip(ends, ends, ends, strict=True)]
    return Line(name, np.nanmax(steps, axis=0).tolist(), shown)


def _losses(shown: Sequence[Line]) -> tuple[float, float]:
    """Limits that show where losses end, not where untrained models start."""
    low = min(one.low for line in shown for one in line.values if one.low is not None)
    ends = [one.mean for line in shown for one in line.values[-1:] if one.mean is not None]
    room = max(0.3, 1.5 * float(np.quantile(ends, 0.75) - low))
    return low - 0.05 * room, low + 1.5 * room


def _percent(shown: Sequence[Line]) -> tuple[float, float]:
    most = max(10.0, *(one.high for line in shown for one in line.values if one.high is not None))
    return -0.03 * most, 1.05 * most


FIGURES: dict[str, tuple[Callable[..., Drawing | None], tuple[str, ...]]] = {  # by name, with their further arguments
    "learning_curves": (learning_curves, ()),
    "beside_the_paper": (beside_the_paper, ("measures", "xlabel")),
    "losses_beside": (losses_beside, ("measure",)),
}
