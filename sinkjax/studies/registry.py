"""Which studies there are: modules of `papers`, and documents in `configs/` that hold a whole study. This module imports no JAX.

`papers/kiya/after_softmax.py` is the study "kiya/after-softmax"; a module named with an underscore is a helper. A user's
own study is named by the path of its file. Either holds a `STUDY`, and its settings may be in a YAML file.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sinkjax.config_files import documents
from sinkjax.config_files.files import CONFIG_FILE, MOST_BYTES, claim_folder, document, read_text, regular, user_place, write
from sinkjax.config_files.places import Place, reached, read_bytes
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.runtime.resources import config_path, configs
from sinkjax.studies.study import Study

if TYPE_CHECKING:
    from sinkjax.studies.declaration import Study as Value

STORE_SUFFIX = ".zarr"

SERIES = "series"
# `experiment` of a config that runs all studies of a family (`studies/suite.py`), or one study on many models
# (`studies/series.py`) -> the name of its type
SUITES = {"all": "All", "all-trained": "AllTrained", SERIES: "Series"}

STUDY_FILE, VALUE_FILES = ".py", (".yaml", ".yml")
HOME = "sinkjax.papers"
VALUE = "study"  # the key of a YAML file that holds a whole study
LISTED = "sweep"  # the study of a list of edits
PRETRAIN = f"{HOME}.pretrain"  # whose studies are all documents
COPY = "study"  # the name, without its suffix, of the copy of an own study's file in the folder of its run
PROSE = "prose"  # the key of a shipped study's title, question, statements and notes in its config file


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A study, or a suite of studies, and its config.

    folder: results of an earlier run, if it was chosen by them. store: one that `sinkjax.sweep` made from Python,
    whose page goes to `folder`.
    """

    experiment: str
    config: Any
    folder: Place | None = None
    store: Place | None = None

    @property
    def suite(self) -> bool:
        """Whether it is a suite of studies."""
        return self.experiment in SUITES

    @functools.cached_property
    def study(self) -> Study:
        """The study, found once; raises for a suite."""
        return find(self.experiment)


def config_type(study: object) -> type:
    """The dataclass of a study's config. Errors: an unknown study."""
    if isinstance(study, str) and study in SUITES:
        return cast(type, getattr(importlib.import_module("sinkjax.studies.config"), SUITES[study]))
    return find(study).config


def declared() -> dict[str, str]:
    """Name -> module of every study in `papers`."""
    folder = Path(__file__).parent.parent / "papers"
    files = sorted(file.relative_to(folder).with_suffix("") for file in folder.rglob("*.py"))
    modules = [".".join(file.parts) for file in files if not any(part.startswith("_") for part in file.parts)]
    return {module.replace(".", "/").replace("_", "-"): f"{HOME}.{module}" for module in modules}


@functools.cache
def documented() -> dict[str, str]:
    """Name -> document of every shipped config that holds a whole study."""
    texts = {name: config_path(name).read_text(encoding="utf-8") for name in configs()}
    return {name: text for name, text in texts.items() if f"\n{VALUE}:" in text and "\nexperiment:" not in text}


def studies() -> list[str]:
    """The names of all studies, sorted."""
    return sorted({*declared(), *documented(), LISTED, *_registered})


_registered: dict[str, Study] = {}


def register(study: Study | Value) -> None:
    """Make a study known by its name in this process, such as one that a notebook defines.

    Args:
        study: The study; it takes the place of an earlier one of its name.

    Raises:
        SinkjaxError: A study of this name ships with the package.
    """
    _refuse_shipped_name(study.name, "the study")
    _registered[study.name] = study if isinstance(study, Study) else _lowered(study)


def find(name: object) -> Study:
    """The study of a name, or the one in a Python file.

    Args:
        name: "paper/study", the name of a registered study, or the path of a .py file.

    Returns:
        The study.

    Raises:
        SinkjaxError: there is no study of that name, or none in the file.
    """
    if isinstance(name, str):
        if name in _registered:
            return _registered[name]
        value = as_value(name)
        return value if isinstance(value, Study) else _lowered(value)
    raise unknown("study", name, studies())


def as_value(name: str) -> Study | Value:
    """The study of a name or a file as it is declared: a value with its prose, or a declaration of functions.

    Args:
        name: "paper/study", or the path of a .py or .yaml file.

    Returns:
        A `declaration.Study`, or a `study.Study`.

    Raises:
        SinkjaxError: See `find`.
    """
    if name.endswith(VALUE_FILES):
        return _document(read_text(Path(name)), name)
    if name.endswith(STUDY_FILE):
        return _own(Path(name))
    if name in documented():
        return _document(documented()[name], name)
    if name == LISTED:
        return importlib.import_module("sinkjax.studies.listed").STUDY
    modules = declared()
    if name not in modules:
        raise unknown("study", name, studies())
    return _with_prose(name, importlib.import_module(modules[name]).STUDY)


@functools.cache
def _with_prose(name: str, study: Study | Value) -> Study | Value:
    """A shipped study with the prose of its config file."""
    from sinkjax.studies.as_yaml import with_prose

    if isinstance(study, Study) or name not in configs():
        return study
    text, what, _ = document(name)
    return with_prose(study, documents.parse(text, what).get(PROSE, {}), what)


def _lowered(study: Value) -> Study:
    from sinkjax.studies.lower import lower

    return lower(study)


@functools.cache
def _document(text: str, what: str) -> Value:
    """The study in a YAML document. what: file or name of the document, for errors."""
    from sinkjax.studies.as_yaml import from_yaml

    modules = declared().values()  # these and their packages define the words
    for module in ("sinkjax.studies.vocabulary", *{module.rpartition(".")[0] for module in modules}, *modules, PRETRAIN):
        importlib.import_module(module)
    return from_yaml(text, what)


@functools.cache
def _own(path: Path) -> Study | Value:
    """The study in a user's file."""
    regular(path, MOST_BYTES)
    name = f"sinkjax_study_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look the types of their fields up
    try:
        spec.loader.exec_module(module)
    except (ImportError, SyntaxError) as error:
        raise SinkjaxError(f"{path} cannot be imported: {error}") from None
    from sinkjax.studies.declaration import Study as Declared

    found = getattr(module, "STUDY", None)
    if not isinstance(found, Study | Declared):
        raise SinkjaxError(f"{path} defines no STUDY (sinkjax.studies.vocabulary.Study)")
    _refuse_shipped_name(found.name, str(path))
    return found


def _refuse_shipped_name(name: str, what: str) -> None:
    if name in declared() or name in documented() or name in SUITES:
        raise SinkjaxError(f"{what} is named {name!r}, as a study that ships with sinkjax is; give it another name")


def trains(study: str) -> bool:
    """Whether a study or suite trains models of its own instead of taking one. Errors: an unknown study."""
    shared = importlib.import_module("sinkjax.studies.config")
    return issubclass(config_type(study), (shared.Trains, shared.AllTrained))


def choose(name: str, own: str | None = None) -> Chosen:
    """The config that a user names: a shipped config ("kiya/mask"), a YAML file, or the results of a former run.

    Results are an output folder, its config.yaml, or a store. own: the file of the results' study, in place of the one that
    they name. Errors: nothing of that name; a document that is not a config.
    """
    path = user_place(name)
    with reached(path):
        if path.suffix == STORE_SUFFIX and path.is_dir():
            return _of_store(path)
    if path.suffix == STUDY_FILE:
        return _of_file(path)
    text, what, folder = document(name)
    if folder is None and name in documented():
        return Chosen(name, find(name).config())
    if folder is None and path.suffix in VALUE_FILES and VALUE in documents.parse(text, what):
        return _of_file(path)
    return read(text, what, folder, own)


def as_series(study: Chosen, checkpoints: Path | None, models: Sequence[str], revisions: Sequence[str]) -> Chosen:
    """A study with its settings, on every checkpoint of a series: a folder of them, models, or revisions of the study's model.

    Errors: a study that takes no model; what `Series` refuses.
    """
    values = documents.fields(study.config)
    if study.suite or "model" not in values:
        raise SinkjaxError(f"{study.experiment} is not a study of a given model, so it takes no checkpoints, models or revisions")
    dtype, model = values.pop("dtype"), values.pop("model")
    del values["revision"]
    listed = tuple(models) or ((model,) if revisions else ())
    folder = None if checkpoints is None else str(checkpoints)
    fields = {"checkpoints": folder, "models": listed, "revisions": tuple(revisions), "dtype": dtype}
    return Chosen(SERIES, config_type(SERIES)(study=study.experiment, settings=documents.plain(values), **fields))


def _of_file(path: Path) -> Chosen:
    """A user's study with the defaults of its config."""
    name = str(path.resolve())
    return Chosen(name, find(name).config())


def _of_store(path: Place) -> Chosen:
    """The run that a store belongs to, by its attributes; a store made from Python is a sweep with the summary's defaults."""
    try:
        study = json.loads(read_bytes(path / ".zattrs")).get("study")
        text = "" if study is None else json.dumps({"experiment": study["experiment"], **study["config"]})
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise SinkjaxError(f"{path} is not the store of a sweep") from None
    if study is None:
        return Chosen("sweep", config_type("sweep")(), path.with_name(f"{path.stem}-report"), path)
    return read(f"{text}\n", str(path), path.parent)


def read(text: str, what: str, folder: Place | None = None, own: str | None = None) -> Chosen:
    """A YAML document as a study's config.

    folder: the run that wrote it, if any; then every field must be in it. own: see `choose`. Errors: no `experiment`,
    an unknown one, or fields that do not fit it.
    """
    values = documents.parse(text, what)
    values.pop(PROSE, None)
    if "training" in values:
        raise SinkjaxError(f"{what} is a training; use: sinkjax train {what}")
    if "experiment" not in values:
        raise SinkjaxError(f"{what} lacks the key 'experiment', one of {', '.join(studies())}")
    experiment = values.pop("experiment")
    if own is not None:
        experiment = str(Path(own).resolve())
    elif folder is not None and isinstance(experiment, str):
        experiment = _at_hand(experiment, folder)
    try:
        cls = config_type(experiment)
    except SinkjaxError as error:
        raise SinkjaxError(f"{what}: {error}") from None
    config: object = documents.read_whole(cls, values, text, what) if folder else documents.build(cls, values, what)
    return Chosen(experiment, config, folder)


def _at_hand(experiment: str, folder: Place) -> str:
    """The study of results: where its own file is gone, as on another machine, the copy in their folder if that is data.

    Errors: the copy is a program, which is executed only if the user names it.
    """
    path = Path(experiment)
    if path.suffix not in (STUDY_FILE, *VALUE_FILES):
        return experiment
    copy = folder / f"{COPY}{path.suffix}"
    came_along = not path.is_absolute() or path.resolve().is_relative_to(Path(str(folder)).resolve())
    if path.is_file() and not (path.suffix == STUDY_FILE and came_along):
        return experiment
    if path.suffix == STUDY_FILE and (came_along or copy.is_file()):
        raise SinkjaxError(
            f"the study of these results, {experiment}, is a program and not a file of this machine: read {copy}, and then use"
            f" sinkjax report {folder} --study {copy}"
        )
    return str(copy) if copy.is_file() else experiment


def claim(folder: Place, chosen: Chosen) -> None:
    """Make `folder` the place of a run; one that an interrupted run of the same config left is taken up again.

    Errors: a file in its place; a folder with other content, or with another config (each field that differs); no permission.
    """

    def differences(text: str) -> list[str]:
        """The fields that differ between the run in the folder and this one, as text."""
        have = read(text, str(folder / CONFIG_FILE), folder)
        if have.experiment != chosen.experiment:
            return [f"experiment was {have.experiment}, now {chosen.experiment}"]
        return documents.differences(have.config, chosen.config)

    claim_folder(folder, documents.write(chosen.experiment, chosen.config), differences, "run")
    suffix = Path(chosen.experiment).suffix
    if suffix in (STUDY_FILE, *VALUE_FILES):
        original, copy = Path(chosen.experiment), folder / f"{COPY}{suffix}"
        if copy != original:
            write(copy, original.read_bytes())
