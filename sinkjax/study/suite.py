"""Every study of a family, or of all families, on one model or on models of their own: run in turn, shown on one page."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax

import sinkjax
from sinkjax.checkpoints.load import check_dtype, open_checkpoint
from sinkjax.config_files import documents
from sinkjax.config_files.files import ends_all, read_text, write
from sinkjax.config_files.places import Place
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.report.page import page
from sinkjax.report.section import Report, Section
from sinkjax.runtime import processes
from sinkjax.runtime.hardware import Hardware
from sinkjax.runtime.progress import silent
from sinkjax.study import folder as results
from sinkjax.study import rebuild, run
from sinkjax.study.choice import SIZES, Chosen, by_name, choose, claim
from sinkjax.study.config import All, AllTrained
from sinkjax.study.registry import LISTED, config_type, documented, studies, trains

REFUSED = "refused.yaml"


def names(config: All | AllTrained) -> list[str]:
    """The studies of a suite, in order: all on one model, or all training their own. Errors: an unknown family or study."""
    trained = isinstance(config, AllTrained)
    alone = {*documented(), LISTED}  # tables of pretraining, which are run one by one, and lists of edits
    every = [name for name in studies() if name not in alone and trains(name) == trained]
    families = {name.partition("/")[0] for name in every}
    if config.family and config.family not in families:
        raise unknown("family", config.family, families)
    members = [name for name in every if config.family in ("", name.partition("/")[0])]
    first = config.order if isinstance(config, All) else ()
    if strange := [name for name in first if name not in members]:
        raise SinkjaxError(f"order: {unknown('study', strange[0], members)}")
    return [*first, *(name for name in members if name not in first)]


def member(config: All | AllTrained, name: str, layers: int = 0) -> Chosen:
    """One study of a suite: its shipped config, on the suite's model, with the fields that the suite states.

    layers: the model's number of layers; the config's `map_layers` are drawn as far as the model has them.
    Errors: a field that does not fit the study.
    """
    stated = {
        key: value for key, value in documents.fields(config).items() if key not in ("family", "order") and value is not None
    }
    values = {**documents.fields(by_name(name).config), **({"revision": None} if isinstance(config, All) else {}), **stated}
    if values.get("map_layers"):
        values["map_layers"] = [layer for layer in values["map_layers"] if layer < layers]
    return Chosen(name, documents.build(config_type(name), values, name), unstated=SIZES - stated.keys())


def place(config: All | AllTrained, name: str, out: Place) -> Place:
    """The folder of a study in its suite's folder."""
    return out / (name.removeprefix(f"{config.family}/") if config.family else name)


def carry_out(chosen: Chosen, out: Place, machine: run.Machine = run.HERE, log: Callable[[str], None] = silent) -> Report:
    """Run every study of a suite, each into a folder of its own below `out`, and write one page of them all.

    A study that refuses the model (a gate, a BOS, a second layer that is not there) is listed with its sentence, and the
    others run. Finished work is not repeated. Arguments and errors as for `run.carry_out`.
    """
    config = chosen.config
    run.require_extras(trains=isinstance(config, AllTrained))
    layers = _layers(config, weights=True)
    processes.by_first(functools.partial(claim, out, chosen))
    load = functools.cache(sinkjax.load)
    refused: dict[str, str] = {}
    sections = []
    for number, name in enumerate(members := names(config), 1):
        log(f"{name} ({number} of {len(members)})")
        try:
            sections.append(run.carry_out(member(config, name, layers), place(config, name, out), machine, log, load))
        except SinkjaxError as error:
            if ends_all(error) or processes.joined():  # with several processes, the others may be waiting for this one
                raise
            refused[name] = str(error)
            log(f"{name} does not run: {error}")
        jax.clear_caches()  # studies share few programs, and a compiled one keeps its memory
    processes.by_first(functools.partial(write, out / REFUSED, documents.dump(refused)))
    return _write(config, out, sections, refused)


def build(chosen: Chosen, out: Place) -> Report:
    """Rebuild the pages of a suite, and of each study in it that is finished, from their stores."""
    report = gather(chosen, out, rebuild.build)
    return _write(chosen.config, out, report.sections, report.skipped)


def gather(chosen: Chosen, out: Place, section: Callable[[Chosen, Place], Section] = rebuild.section_of) -> Report:
    """The sections of a suite's finished studies, and why the others have none. section: makes one from its folder."""
    config, sections, skipped, refused = chosen.config, [], dict[str, str](), refusals(out)
    for name in names(config):
        try:
            folder = place(config, name, out)
            if not folder.is_dir():
                raise SinkjaxError("not started yet; rerun the command that began the suite to continue it")
            sections.append(section(choose(str(folder)), folder))
        except SinkjaxError as error:
            skipped[name] = refused.get(name, str(error))
    return Report(title(config), tuple(sections), skipped)


def refusals(out: Place) -> dict[str, str]:
    """The members of a suite or series that its last run refused, and why; one may have finished since in its own folder."""
    path = out / REFUSED
    return dict(documents.parse(read_text(path), str(path))) if path.is_file() else {}


def title(config: All | AllTrained) -> str:
    """The title of a suite's page."""
    if isinstance(config, AllTrained):
        return f"{config.family or 'All labs'}: models trained from scratch"
    return f"{config.family or 'All papers'} on {config.model}"


def plans(
    chosen: Chosen, hardware: Hardware | None = None, attention_impl: str = "auto"
) -> Iterator[tuple[str, list[run.Work] | str]]:
    """(study, its `run.work`, or the sentence that refuses the model), for each one of a suite."""
    config = chosen.config
    layers = _layers(config, weights=False)
    for name in names(config):
        try:
            yield name, list(run.work(run.fitted(member(config, name, layers)), hardware, attention_impl=attention_impl))
        except SinkjaxError as error:
            yield name, str(error)


def _layers(config: All | AllTrained, weights: bool) -> int:
    """The model's number of layers. Errors: any fault outside a single study: the model, the dtype or the family."""
    names(config)
    check_dtype(config.dtype)
    if isinstance(config, AllTrained):
        return 0
    architecture = open_checkpoint(config.model, config.revision, config.ignore_keys, weights=weights).config
    run.check_inputs(config, architecture)
    return architecture.layers


def _write(config: All | AllTrained, out: Place, sections: Sequence[Section], skipped: Mapping[str, str]) -> Report:
    report = Report(title(config), tuple(sections), skipped)
    processes.by_first(lambda: write(out / results.PAGE, page(report.sections, report.title, skipped)))
    return report
