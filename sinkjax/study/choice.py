"""A name, file or folder that a user gives, as a study with its settings. This module imports no JAX."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinkjax.config_files import documents
from sinkjax.config_files.files import CONFIG_FILE, claim_folder, document, read_text, user_place, write
from sinkjax.config_files.places import Place, reached, read_bytes
from sinkjax.config_files.programs import NotTyped
from sinkjax.data.corpora import SOURCES
from sinkjax.errors import SinkjaxError
from sinkjax.runtime.progress import say
from sinkjax.runtime.resources import configs
from sinkjax.study.registry import (
    OWN,
    PROSE,
    SERIES,
    STUDY_FILE,
    SUITES,
    VALUE,
    VALUE_FILES,
    Own,
    config_type,
    documented,
    find,
    is_file,
    open_own,
    renamed,
    studies,
)

if TYPE_CHECKING:
    from sinkjax.study.trace import Program

STORE_SUFFIX = ".zarr"
COPY = "study"  # the name, without its suffix, of the copy of an own study's file in the folder of its run
SIZES = frozenset(("prompts", "length"))  # settings of prompts that may be fitted to a text
FILE = "study_file"  # the key of a run's config with the name and digest of an own study's file


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A study, or a suite of studies, and its config.

    folder: results of an earlier run, if it was chosen by them. store: one that `sinkjax.sweep` made from Python,
    whose page goes to `folder`. own: the study, or that of a series, if it is a user's. unstated: names in `SIZES` with
    values that the user has not stated; they may be fitted to a text of the user's.
    """

    experiment: str
    config: Any
    folder: Place | None = None
    store: Place | None = None
    own: Own | None = None
    unstated: frozenset[str] = frozenset()

    @property
    def suite(self) -> bool:
        """Whether it is a suite of studies."""
        return self.experiment in SUITES

    @functools.cached_property
    def program(self) -> Program:
        """The study, found once; raises for a suite."""
        return find(self.experiment)


def choose(name: str, own: Own | None = None) -> Chosen:
    """The config that a user names: a shipped config ("kiya/mask"), a study's file, a YAML file, or the results of a former run.

    Results are an output folder, its config.yaml, or a store. own: the study that a YAML file or results name, from its file.
    Errors: nothing of that name; a document that is not a config; see `open_own`.
    """
    path = user_place(name)
    with reached(path):
        if path.suffix == STORE_SUFFIX and path.is_dir():
            return _of_store(path, own)
    if path.suffix == STUDY_FILE:
        return _of_own(open_own(path))
    text, what, folder = document(name)
    if folder is None and name in documented():
        return Chosen(name, find(name).settings())
    if folder is None and path.suffix in VALUE_FILES and VALUE in documents.parse(text, what):
        return _of_own(open_own(path))
    found = read(text, what, folder, own)
    if folder is not None or found.suite:
        return found
    return dataclasses.replace(found, unstated=SIZES if name in configs() else SIZES - documents.parse(text, what).keys())


def by_name(name: str) -> Chosen:
    """The study that a config names, with its shipped settings. No file is looked up. Errors: an unknown study."""
    return choose(name) if name in configs() else Chosen(name, find(name).settings())


def as_series(study: Chosen, checkpoints: Path | None, models: Sequence[str], revisions: Sequence[str]) -> Chosen:
    """A study with its settings, on every checkpoint of a series: a folder of them, models, or revisions of the study's model.

    Errors: a study that takes no model; what `Series` refuses.
    """
    values = documents.fields(study.config)
    if study.suite or "model" not in values:
        raise SinkjaxError(f"{study.experiment} is not a study of a given model, so it takes no checkpoints, models or revisions")
    dtype, model = values.pop("dtype"), values.pop("model")
    del values["revision"]
    for name in study.unstated if uses_own_text(study.config) else ():
        values.pop(name, None)
    listed = tuple(models) or ((model,) if revisions else ())
    folder = None if checkpoints is None else str(checkpoints)
    fields = {"checkpoints": folder, "models": listed, "revisions": tuple(revisions), "dtype": dtype}
    series = config_type(SERIES)(study=study.experiment, settings=documents.plain(values), **fields)
    return Chosen(SERIES, series, own=study.own)


def _of_own(own: Own) -> Chosen:
    """A user's study with the defaults of its config."""
    return Chosen(own.experiment, find(own.experiment).settings(), own=own, unstated=SIZES)


def uses_own_text(config: Any) -> bool:
    """Whether a study's config names a text of the user's."""
    return getattr(config, "text", None) not in (None, *SOURCES)


def _of_store(path: Place, own: Own | None) -> Chosen:
    """The run that a store belongs to, by its attributes; a store made from Python is a sweep with the summary's defaults."""
    try:
        study = json.loads(read_bytes(path / ".zattrs")).get("study")
        text = "" if study is None else json.dumps({"experiment": study["experiment"], **study["config"]})
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise SinkjaxError(f"{path} is not the store of a sweep") from None
    if study is None:
        return Chosen("sweep", config_type("sweep")(), path.with_name(f"{path.stem}-report"), path)
    return read(f"{text}\n", str(path), path.parent, own)


def read(text: str, what: str, folder: Place | None = None, own: Own | None = None) -> Chosen:
    """A YAML document as a study's config.

    folder: the run that wrote it, if any; then every field must be in it. own: see `choose`. Errors: no `experiment`,
    an unknown one, or fields that do not fit it.
    """
    values = documents.parse(text, what)
    values.pop(PROSE, None)
    made = values.pop(FILE, None)
    if "training" in values:
        raise SinkjaxError(f"{what} is a training; use: sinkjax train {what}")
    if "experiment" not in values:
        raise SinkjaxError(f"{what} lacks the key 'experiment', one of {', '.join(studies())}")
    experiment = values.pop("experiment")
    named = values.get(VALUE) if experiment == SERIES else experiment
    if (own := _own_of(named, made, what, folder, own)) and experiment == SERIES:
        values[VALUE] = own.experiment
    elif own:
        experiment = own.experiment
    try:
        cls = config_type(experiment)
        if experiment == SERIES and VALUE in values and values[VALUE] not in studies():
            find(values[VALUE])  # which says what is wrong with it
    except SinkjaxError as error:
        raise SinkjaxError(f"{what}: {error}") from None
    config: object = documents.read_whole(cls, values, text, what) if folder else documents.build(cls, values, what)
    return Chosen(experiment, config, folder, own=own)


def _own_of(named: object, made: object, what: str, folder: Place | None, own: Own | None) -> Own | None:
    """The user's study that a document names: `own`, or the copy of its file in the folder of results. None if it ships.

    made: name and digest of the file that made the results, as far as they are stated. Paths that older versions wrote are not
    looked up. Errors: the file has another study; the copy is a program.
    """
    if not isinstance(named, str):
        return None
    if own is None:
        if folder is None or named in studies():
            return None
        copy = next((file for suffix in (*VALUE_FILES, STUDY_FILE) if (file := folder / f"{COPY}{suffix}").is_file()), None)
        if copy is None:
            return None
        try:
            own = open_own(copy)
        except NotTyped:
            raise NotTyped(
                f"the study of {what}, {named}, is a program, which runs only if you type its path: read {copy}, and then add"
                f" --study {copy}"
            ) from None
    if own.experiment.startswith(OWN) and named.startswith(OWN):  # named by its file, which is a copy here
        own = renamed(own, named)
    if own.experiment != named and not is_file(named):
        raise SinkjaxError(f"{what} holds the study {named!r}, not {own.experiment!r}, which is in {own.path}")
    if isinstance(made, Mapping) and made.get("sha256") not in (None, own.facts["sha256"]):
        say(f"{own.path} differs from the file that made these results, {made.get('name')}")
    return own


def claim(folder: Place, chosen: Chosen) -> None:
    """Make `folder` the place of a run; one that an interrupted run of the same config left is taken up again.

    Errors: a file in its place; a folder with other content, or with another config (each field that differs); no permission.
    """
    identity, own = folder / CONFIG_FILE, chosen.own

    def differences(text: str) -> list[str]:
        """The fields that differ between the run in the folder and this one, as text."""
        was = documents.parse(text, str(identity)).get("experiment")
        if was != chosen.experiment and not (own and is_file(str(was))):
            return [f"experiment was {was}, now {chosen.experiment}"]
        return documents.differences(read(text, str(identity), folder, own).config, chosen.config)

    facts = {FILE: own.facts} if own else {}
    values = documents.plain({"experiment": chosen.experiment, **facts, **documents.fields(chosen.config)})
    claim_folder(folder, documents.dump(values), differences, "run")
    if own:
        copy, stated = folder / f"{COPY}{own.path.suffix}", documents.parse(read_text(identity), str(identity))
        if own.path != copy:
            write(copy, own.content)
        if own.facts["sha256"] not in str(stated.get(FILE)):  # the file has changed since an earlier run
            write(identity, documents.dump({**stated, "experiment": chosen.experiment, **facts}))
