"""Which studies there are: the modules of `studies/papers`, found by their place. This module imports no JAX.

`papers/kiya/after_softmax.py` is the study "kiya/after-softmax"; a module whose name begins with an underscore is none. A user's
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
from typing import Any, cast

from sinkjax.config_files import documents
from sinkjax.config_files.files import document, user_place
from sinkjax.config_files.places import Place, reached, read_bytes
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.studies.study import Study

STORE_SUFFIX = ".zarr"

SERIES = "series"
# `experiment` of a config that runs all studies of a family (`studies/suite.py`), or one study on many models
# (`studies/series.py`) -> the name of its type
SUITES = {"all": "All", "all-trained": "AllTrained", SERIES: "Series"}

STUDY_FILE, HOME = ".py", "sinkjax.studies.papers"


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A study, or a suite of studies, and its config.

    folder: where the results of a former run lie, if it was chosen by them. store: one that `sinkjax.sweep` made from Python,
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


def config_type(study: Any) -> type:
    """The dataclass of a study's config. Errors: an unknown study."""
    if isinstance(study, str) and study in SUITES:
        return cast(type, getattr(importlib.import_module("sinkjax.studies.config"), SUITES[study]))
    return find(study).config


def declared() -> dict[str, str]:
    """Name -> module of every study in `papers`."""
    home = Path(__file__).parent / "papers"
    files = sorted(file.relative_to(home).with_suffix("") for file in home.rglob("*.py"))
    modules = [".".join(file.parts) for file in files if not any(part.startswith("_") for part in file.parts)]
    return {module.replace(".", "/").replace("_", "-"): f"{HOME}.{module}" for module in modules}


def studies() -> list[str]:
    """The names of all studies, sorted."""
    return sorted({*declared(), *_registered})


_registered: dict[str, Study] = {}


def register(study: Study) -> None:
    """Make a study known by its name in this process, such as one that a notebook defines.

    Args:
        study: The study; it takes the place of any other of its name.
    """
    _registered[study.name] = study


def find(name: Any) -> Study:
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
        if name in (modules := declared()):
            return cast(Study, importlib.import_module(modules[name]).STUDY)
        if name.endswith(STUDY_FILE):
            return _own(Path(name))
    raise unknown("study", name, studies())


@functools.cache
def _own(path: Path) -> Study:
    """The study in a user's file."""
    name = f"sinkjax_study_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise SinkjaxError(f"there is no study file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look the types of their fields up
    try:
        spec.loader.exec_module(module)
    except (ImportError, SyntaxError) as error:
        raise SinkjaxError(f"{path} cannot be imported: {error}") from None
    found = getattr(module, "STUDY", None)
    if not isinstance(found, Study):
        raise SinkjaxError(f"{path} defines no STUDY (sinkjax.studies.study.Study)")
    return found


def trains(study: str) -> bool:
    """Whether a study or suite trains models of its own instead of taking one. Errors: an unknown study."""
    shared = importlib.import_module("sinkjax.studies.config")
    return issubclass(config_type(study), (shared.Trains, shared.AllTrained))


def choose(name: str) -> Chosen:
    """The config behind what a user names: a shipped config ("kiya/mask"), a YAML file, or the results of a former run.

    Results are an output folder, its config.yaml, or a store. Errors: nothing of that name; a document that is not a config.
    """
    path = user_place(name)
    with reached(path):
        if path.suffix == STORE_SUFFIX and path.is_dir():
            return _of_store(path)
    if path.suffix == STUDY_FILE:
        return _of_file(path)
    text, what, folder = document(name)
    return read(text, what, folder)


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
        attributes = json.loads(read_bytes(path / ".zattrs"))
        study = attributes.get("study")
        text = "" if study is None else json.dumps({"experiment": study["experiment"], **study["config"]})
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise SinkjaxError(f"{path} is not the store of a sweep") from None
    if study is None:
        return Chosen("sweep", config_type("sweep")(), path.with_name(f"{path.stem}-report"), path)
    return read(f"{text}\n", str(path), path.parent)


def read(text: str, what: str, folder: Place | None = None) -> Chosen:
    """A YAML document as a study's config.

    folder: of the run that wrote it, if one did: then every field must be in it. Errors: no `experiment`, an unknown one, or
    fields that do not fit it.
    """
    values = documents.parse(text, what)
    if "training" in values:
        raise SinkjaxError(f"{what} is a training; use: sinkjax train {what}")
    if "experiment" not in values:
        raise SinkjaxError(f"{what} lacks the key 'experiment', one of {', '.join(studies())}")
    experiment = values.pop("experiment")
    try:
        cls = config_type(experiment)
    except SinkjaxError as error:
        raise SinkjaxError(f"{what}: {error}") from None
    config: Any = documents.read_whole(cls, values, text, what) if folder else documents.build(cls, values, what)
    return Chosen(experiment, config, folder)
