"""An experiment from its config to its page: plan, sweep, and rebuild from what was stored."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sinkjax
from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.checkpoints.model import Model
from sinkjax.config_files import documents
from sinkjax.config_files.files import write
from sinkjax.errors import SinkjaxError
from sinkjax.experiments import results
from sinkjax.experiments.base import Batch, Calculation, Job, Lesson, Section
from sinkjax.experiments.calculation import calculate
from sinkjax.experiments.identity import checked
from sinkjax.experiments.illustrations import illustrated
from sinkjax.experiments.inputs import prompts
from sinkjax.experiments.lesson import stores_of, teach_all
from sinkjax.experiments.registry import Chosen, choose, config_type, course, recipe, trains
from sinkjax.experiments.summary import claims_csv, to_csv
from sinkjax.model.config import Config
from sinkjax.model.params import check_dtype
from sinkjax.sweeps.plan import Plan, plan
from sinkjax.sweeps.run import finished


def run(experiment: str, out: str | Path, **fields: Any) -> Section:
    """Run a shipped experiment from Python, e.g. `run("kiya/mask", "results/mask", prompts=8)`.

    fields: those of its config that differ from the shipped one. Returns what it found; the folder `out` holds the rest.
    Errors: an unknown experiment or field, a value that does not fit, a folder with other content, a config of many experiments
    (`suite.carry_out` runs those).
    """
    shipped = choose(experiment)
    if shipped.suite:
        raise SinkjaxError(f"{experiment} is many experiments; run one of them, or all with: sinkjax run {experiment}")
    values = {**documents.fields(shipped.config), **fields}
    config: Any = documents.build(config_type(shipped.experiment), values, experiment)
    return carry_out(Chosen(shipped.experiment, config), Path(out))


def carry_out(
    chosen: Chosen,
    out: Path,
    memory: int | None = None,
    say: Callable[[str], None] = lambda line: None,
    load: Callable[..., Model] | None = None,
) -> Section:
    """Run an experiment into the folder `out`, resuming what is unfinished there, and write its summary, figures and page.

    memory: bytes that a sweep may plan with, by default the device's. say: told in one line what happens next. load: gives
    the model of an experiment that takes one, by default `sinkjax.load`.
    """
    for _ in plans(chosen, memory, weights=True):  # every edit is checked against the model before anything is loaded or written
        pass
    results.claim(out, chosen)
    if trains(chosen.experiment):
        teach_all(course(chosen.experiment).lessons(chosen.config), chosen, out, say, functools.partial(build, chosen, out))
    else:
        _sweep(chosen, out, memory, say, load or sinkjax.load)
    say("summary, figures and page")
    return build(chosen, out)


def _sweep(chosen: Chosen, out: Path, memory: int | None, say: Callable[[str], None], load: Callable[..., Model]) -> None:
    """Carry out the jobs of an experiment on one model."""
    config: Any = chosen.config
    say(f"loading {config.model}")
    model = load(config.model, dtype=config.dtype, revision=config.revision)
    batches = functools.lru_cache(functools.partial(prompts, model, chosen))
    for job in recipe(chosen.experiment).jobs(config, model.config):
        batch, store = batches(job.inputs, job.prompts), results.store_path(out, job.name)
        edits = "" if isinstance(job, Calculation) else f"{len(job.arms)} edits x "
        say(f"{job.name}: {edits}{job.prompts} prompts of up to {batch.tokens.shape[1]} tokens ({batch.study['text']})")
        store_job(job, model, batch, store, memory)


def plans(chosen: Chosen, memory: int | None = None, weights: bool = False) -> Iterator[tuple[Job, Config, Plan]]:
    """What each sweep of an experiment, all else aside, will do and cost. Errors: edits that do not fit the model.

    No weights are read. weights: whether they must be there.
    """
    for job, architecture, planned in work(chosen, memory, weights):
        if isinstance(job, Job) and planned is not None:
            yield job, architecture, planned


def work(
    chosen: Chosen, memory: int | None = None, weights: bool = False
) -> Iterator[tuple[Job | Calculation | Lesson, Config, Plan | None]]:
    """Every job or lesson of an experiment in its order, its model, and the plan of each sweep. Arguments, errors: `plans`."""
    config = chosen.config
    check_dtype(config.dtype)
    if trains(chosen.experiment):
        for lesson in course(chosen.experiment).lessons(config):
            if lesson.wanted:
                yield lesson, lesson.architecture, None
        return
    architecture = open_checkpoint(config.model, config.revision, weights=weights).config
    if config.length > architecture.context:
        raise SinkjaxError(f"length {config.length} is beyond the context of {config.model}, {architecture.context} tokens")
    for job in recipe(chosen.experiment).jobs(config, architecture):
        if isinstance(job, Calculation):
            yield job, architecture, None
            continue
        T, lengths = config.length, [config.length] * job.prompts
        yield job, architecture, plan(architecture, job.edits, lengths, T, job.probe, memory=memory, dtype=config.dtype)


def store_job(job: Job | Calculation, model: Model, batch: Batch, store: Path, memory: int | None = None) -> None:
    """Carry out one job into its store, or what is left of it. Errors: the store of other numbers, in one sentence."""
    if isinstance(job, Calculation):
        calculate(job, model, batch, store)
        return
    attributes = {"study": dict(batch.study)}
    if job.prepare and finished(store, model, batch.tokens, job.edits, job.probe, batch.lengths, attributes):
        return
    arms = job.prepare(model, batch) if job.prepare else job.arms
    sinkjax.sweep(
        model,
        batch.tokens,
        [arm.edit for arm in arms],
        probe=job.probe,
        lengths=batch.lengths,
        out=store,
        memory=memory,
        attributes=attributes,
    )


def build(chosen: Chosen, folder: Path) -> Section:
    """Rebuild the summary, figures and page of a run from its stores; the model is not needed."""
    from sinkjax.report.page import page

    section = section_of(chosen, folder)
    for drawing in section.drawings:
        write(folder / results.FIGURES / f"{drawing.name}.svg", drawing.svg)
        write(folder / results.FIGURES / f"{drawing.name}.png", drawing.png)
    write(folder / results.SUMMARY, to_csv(section.rows, section.subject))
    if section.claims:
        write(folder / results.CLAIMS, claims_csv(section.claims))
    write(folder / results.PAGE, page([section], title=section.title))
    return section


def section_of(chosen: Chosen, folder: Path) -> Section:
    """What a run found, from its stores; nothing is written. Errors: a store that must be there and is not."""
    if trains(chosen.experiment):
        lab = course(chosen.experiment)
        return lab.section(chosen.config, stores_of(lab.lessons(chosen.config), folder))
    study = recipe(chosen.experiment)
    stores = {name: results.open_store(chosen.store or results.store_path(folder, name)) for name in study.STORES}
    extras = {name: results.store_path(folder, name) for name in getattr(study, "EXTRAS", ())}
    shown = {name: results.open_store(path) for name, path in extras.items() if path.exists()}
    return checked(illustrated(study.section(chosen.config, {**stores, **shown}), shown), shown)
