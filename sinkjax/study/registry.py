"""Which studies there are, and what a name, a file or a folder of results stands for. This module imports no JAX.

`papers/kiya/after_softmax.py` is the study "kiya/after-softmax"; a module named with an underscore is a helper. Tables of
trainings are documents in `configs/`. A user's own study is a file whose path the user types (`open_own`); from then on this
process knows it by its name. Names in data are looked up only among known studies, so no data starts a program.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from sinkjax.config_files import documents, programs
from sinkjax.config_files.files import CONFIG_FILE, claim_folder, config_path, configs, document, read_text, user_location, write
from sinkjax.config_files.locations import Location, reached, read_bytes
from sinkjax.data.corpora import SOURCES
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.runtime.progress import say
from sinkjax.study.prose import NAMED, filled, one_line

if TYPE_CHECKING:
    from sinkjax.study.lab import Study

SERIES, TRAINED = "series", "all-trained"
# `experiment` of a config that runs all studies of a family, or one study on many models -> the name of its type in `settings`
SUITES = {"all": "All", TRAINED: "AllTrained", SERIES: "Series"}
STUDY_FILE, VALUE_FILES, STORE_SUFFIX = programs.SUFFIX, (".yaml", ".yml"), ".zarr"
HOME = "sinkjax.papers"
TABLES = f"{HOME}.pretrain._table"  # reads tables of trainings
LISTED = "sweep"  # the study of a list of edits
STARTER = "starter"  # a program to begin one's own study from; it is not listed
LIST = "sinkjax run --help lists them"
OWN = "own/"  # before the name of a user's program, which is the name of its file
COPY = "study"  # the name, without its suffix, of the copy of an own study's file in the folder of its run
# Keys of YAML files: a whole study, the text of a shipped study, and the name and digest of an own study's file in a run.
VALUE, PROSE, FILE = "study", "prose", "study_file"
SIZES = frozenset(("prompts", "length"))  # settings of prompts that may be fitted to a text
FUNCTION = "is a function of a lab, as docs/add-a-study.md shows"


# Studies that ship.


def declared() -> dict[str, str]:
    """Return name -> module of every study in `papers`."""
    folder = Path(__file__).parent.parent / "papers"
    files = sorted(file.relative_to(folder).with_suffix("") for file in folder.rglob("*.py"))
    modules = [".".join(file.parts) for file in files if not any(part.startswith("_") for part in file.parts)]
    return {module.replace(".", "/").replace("_", "-"): f"{HOME}.{module}" for module in modules}


@functools.cache
def documented() -> dict[str, str]:
    """Return name -> document of every shipped config that is a whole study."""
    texts = {name: config_path(name).read_text(encoding="utf-8") for name in configs()}
    return {name: text for name, text in texts.items() if f"\n{VALUE}:" in text and "\nexperiment:" not in text}


_registered: dict[str, Study] = {}


def studies() -> list[str]:
    """Return the names of all studies, sorted."""
    return sorted({*declared(), *documented(), LISTED, *_registered})


def register(study: Study) -> None:
    """Make a study known by its name in this process, such as one that a notebook defines.

    Args:
        study: The study; it replaces an earlier one of its name.

    Raises:
        SinkjaxError: A study of this name ships with the package.
    """
    if study.name in studies() and study.name not in _registered:
        raise SinkjaxError(f"the study is named {study.name!r}, as one that ships with sinkjax; give it another name")
    _registered[study.name] = study


def find(name: object) -> Study:
    """Return the study of a name.

    Args:
        name: "paper/study", or the name of a study that was registered or opened in this process.

    Raises:
        SinkjaxError: No study has that name; the path of a file is not a name.
    """
    if isinstance(name, str) and name in _registered:
        return _registered[name]
    if not isinstance(name, str) or name not in studies():
        raise unknown("study", name, studies(), f"; {'type the path of its file after --study' if is_file(str(name)) else LIST}")
    return _shipped(name)


@functools.cache
def _shipped(name: str) -> Study:
    if name in documented():
        return _table(documented()[name], name)
    if name == LISTED:
        module = importlib.import_module("sinkjax.study.sweep_file")
        return _study(module, name, module.PROSE, name)
    text, what, _ = document(name)
    return _study(importlib.import_module(declared()[name]), name, documents.parse(text, what).get(PROSE, {}), what)


def _study(module: ModuleType, name: str, prose: Mapping[str, Any], what: str) -> Study:
    from sinkjax.study.lab import Study

    return Study.of(module, name, prose, what)


def _table(text: str, what: str) -> Study:
    """Read a table of trainings. Errors: a document of another kind."""
    values = documents.parse(text, what)
    if "trainings" not in values:
        raise SinkjaxError(f"{what} has no trainings: in YAML a study is a table of trainings, and one of edits {FUNCTION}")
    return cast("Study", importlib.import_module(TABLES).table(values, what))


def config_type(study: object) -> type:
    """Return the dataclass of a study's or suite's config. Errors: an unknown study."""
    if isinstance(study, str) and study in SUITES:
        return cast(type, getattr(importlib.import_module("sinkjax.study.settings"), SUITES[study]))
    return find(study).settings


def trains(study: str) -> bool:
    """Return whether a study or suite trains models of its own instead of taking one. Errors: an unknown study."""
    return study == TRAINED if study in SUITES else find(study).trains


class Source(NamedTuple):
    """The files of a shipped study: its program or table, that file's suffix, and its text with the name of the text's file."""

    begin: str
    suffix: str
    text_file: str = ""
    text: str = ""


def source(name: str) -> Source | None:
    """Return the files of a shipped study, or the program to begin from; None for another name."""
    if name in documented():
        return Source(documented()[name], VALUE_FILES[0])
    if name == STARTER:
        return Source(_program(f"{HOME}._{STARTER}"), STUDY_FILE)
    if name not in declared():
        return None
    return Source(_program(declared()[name]), STUDY_FILE, f"configs/{name}.yaml", document(name)[0])


def _program(module: str) -> str:
    """Return the text of a module, which is not imported."""
    spec = importlib.util.find_spec(module)
    return read_text(Path(spec.origin)) if spec and spec.origin else ""


def title_of(name: str) -> str:
    """Return the title of a shipped study or list of edits from its text; "" for a config of another name."""
    if name.startswith(f"{LISTED}/"):
        return "Any list or grid of edits, all compared with the first"
    if name not in {*declared(), *documented()}:
        return ""
    text, what, _ = document(name)
    values = documents.parse(text, what)
    title = one_line((values if name in documented() else values.get(PROSE, {})).get("title", name))
    defaults = dict(re.findall(r"^    (\w+): .* = (.*)$", _program(declared()[name]), re.M)) if NAMED.search(title) else {}
    return filled(title, {**defaults, **values})


# A user's own study.


@dataclass(frozen=True)
class Own:
    """A user's study. path, content: its file, and what that contained."""

    study: Study = field(repr=False)
    path: Location
    content: bytes = field(repr=False)

    @property
    def facts(self) -> dict[str, str]:
        """Name and digest of the file."""
        return {"name": self.path.name, "sha256": hashlib.sha256(self.content).hexdigest()}


def is_file(name: str) -> bool:
    """Return whether a name is the path of a study's file."""
    return name.endswith((STUDY_FILE, *VALUE_FILES))


def open_own(path: Location) -> Own:
    """Open a user's study, which this process then knows by its name.

    Args:
        path: A Python file whose path the user typed, or a YAML file.

    Returns:
        The study and its file.

    Raises:
        NotTyped: The file is a program whose path the user did not type.
        SinkjaxError: There is no study in the file.
    """
    if path.suffix in VALUE_FILES:
        text = read_text(path)
        study, content = _table(text, str(path)), text.encode()
        if study.name in {*declared(), *documented(), *SUITES, LISTED}:
            study = replace(study, name=f"{study.name} (own)")
    else:
        module, content = programs.execute(path)
        if not hasattr(module, "study") or not hasattr(module, "Settings"):
            raise SinkjaxError(f"{path} defines no function `study` with a dataclass `Settings`: a study {FUNCTION}")
        study = _study(module, f"{OWN}{path.stem}", {}, str(path))
    _registered[study.name] = study
    return Own(study, path, content)


# What a user names.


@dataclass(frozen=True)
class Chosen:
    """A study, or a suite of studies, and its config.

    folder: results of an earlier run, if it was chosen by them. store: one that `sinkjax.sweep` made from Python,
    whose page goes to `folder`. own: the study, or that of a series, if it is a user's. unstated: names in `SIZES` with
    values that the user has not stated; they may be fitted to a text of the user's.
    """

    experiment: str
    config: Any
    folder: Location | None = None
    store: Location | None = None
    own: Own | None = None
    unstated: frozenset[str] = frozenset()

    @property
    def suite(self) -> bool:
        """Whether it is a suite of studies."""
        return self.experiment in SUITES

    @property
    def own_text(self) -> bool:
        """Whether its config names a text of the user's."""
        return getattr(self.config, "text", None) not in (None, *SOURCES)

    @property
    def study(self) -> Study:
        """The study; raises for a suite."""
        return find(self.experiment)


def choose(name: str, own: Own | None = None) -> Chosen:
    """Return the study and config that a user names: a shipped config ("kiya/mask"), a file, or the results of an earlier run.

    A file is a program or YAML. Results are an output folder, its config.yaml, or a store. own: the study that a YAML file or
    results name, from its file. Errors: nothing of that name; a document that is not a config; see `open_own`.
    """
    path = user_location(name)
    with reached(path):
        if path.suffix == STORE_SUFFIX and path.is_dir():
            return _of_store(path, own)
    if path.suffix != STUDY_FILE:
        text, what, folder = document(name)
        if folder is None and name in documented():
            return by_name(name)
        values = {} if name in configs() else documents.parse(text, what)
        if folder is not None or path.suffix not in VALUE_FILES or VALUE not in values or "experiment" in values:
            chosen = read(text, what, folder, own)
            return chosen if folder is not None or chosen.suite else replace(chosen, unstated=SIZES - values.keys())
    own = open_own(path)
    return Chosen(own.study.name, own.study.settings(), own=own, unstated=SIZES)


def by_name(name: str) -> Chosen:
    """Return the study of a name with its shipped settings. No file is looked up. Errors: an unknown study."""
    return choose(name) if name in {*configs()} - {*documented()} else Chosen(name, find(name).settings())


def as_series(chosen: Chosen, checkpoints: Path | None, models: Sequence[str], revisions: Sequence[str]) -> Chosen:
    """Return a study with its settings on every checkpoint of a folder, on models, or on revisions of the study's model.

    Errors: a study that takes no model; whatever `Series` refuses.
    """
    values = documents.fields(chosen.config)
    if chosen.suite or "model" not in values:
        raise SinkjaxError(
            f"{chosen.experiment} is not a study of a given model, so it takes no checkpoints, models or revisions"
        )
    dtype, model, _ = (values.pop(name) for name in ("dtype", "model", "revision"))
    for name in chosen.unstated if chosen.own_text else ():
        values.pop(name, None)
    stated = {"models": tuple(models) or ((model,) if revisions else ()), "revisions": tuple(revisions), "dtype": dtype}
    stated |= {"checkpoints": None if checkpoints is None else str(checkpoints), "settings": documents.plain(values)}
    return Chosen(SERIES, config_type(SERIES)(study=chosen.experiment, **stated), own=chosen.own)


def _of_store(path: Location, own: Own | None) -> Chosen:
    """Return the run that a store belongs to, by its attributes; a store made from Python is a sweep with default settings."""
    try:
        study = json.loads(read_bytes(path / ".zattrs")).get("study")
        text = "" if study is None else json.dumps({"experiment": study["experiment"], **study["config"]})
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise SinkjaxError(f"{path} is not the store of a sweep") from None
    if study is None:
        return Chosen(LISTED, config_type(LISTED)(), path.with_name(f"{path.stem}-report"), path)
    return read(f"{text}\n", str(path), path.parent, own)


def read(text: str, what: str, folder: Location | None = None, own: Own | None = None) -> Chosen:
    """Read a YAML document as a study's config.

    folder: the run that wrote it, if any; then every field must be in it. own: see `choose`. Errors: no `experiment`,
    an unknown one, or fields that do not fit it.
    """
    values = documents.parse(text, what)
    values.pop(PROSE, None)
    facts = values.pop(FILE, None)
    if "training" in values:
        raise SinkjaxError(f"{what} is a training; use: sinkjax train {what}")
    if "experiment" not in values:
        raise SinkjaxError(f"{what} lacks the key 'experiment', one of {', '.join(studies())}")
    experiment = values.pop("experiment")
    named = values.get(VALUE) if experiment == SERIES else experiment
    if (own := _own_of(named, facts, what, folder, own)) and experiment == SERIES:
        values[VALUE] = own.study.name
    elif own:
        experiment = own.study.name
    try:
        cls = config_type(experiment)
        if experiment == SERIES and VALUE in values and values[VALUE] not in studies():
            find(values[VALUE])  # which says what is wrong with it
    except SinkjaxError as error:
        raise SinkjaxError(f"{what}: {error}") from None
    config: object = documents.read_whole(cls, values, text, what) if folder else documents.build(cls, values, what)
    return Chosen(experiment, config, folder, own=own)


def _own_of(named: object, facts: object, what: str, folder: Location | None, own: Own | None) -> Own | None:
    """Return the user's study that a document names: `own`, or the copy of its file in the folder of results.

    None if it ships. facts: name and digest of the file that made the results, as far as they are stated. Paths that older
    versions wrote are not looked up. Errors: the file has another study; the copy is a program.
    """
    if not isinstance(named, str):
        return None
    if own is None:
        if folder is None or named in studies():
            return None
        copies = (folder / f"{COPY}{suffix}" for suffix in (*VALUE_FILES, STUDY_FILE))
        copy = next((file for file in copies if file.is_file()), None)
        if copy is None:
            return None
        try:
            own = open_own(copy)
        except programs.NotTyped:
            raise programs.NotTyped(
                f"the study of {what}, {named}, is a program, which runs only if you type its path: read {copy}, and then add"
                f" --study {copy}"
            ) from None
    if own.study.name.startswith(OWN) and named.startswith(OWN):  # named by its file, which is a copy here
        own = replace(own, study=replace(own.study, name=named))  # its random controls depend on the name
        _registered[named] = own.study
    if own.study.name != named and not is_file(named):
        raise SinkjaxError(f"{what} holds the study {named!r}, not {own.study.name!r}, which is in {own.path}")
    if isinstance(facts, Mapping) and facts.get("sha256") not in (None, own.facts["sha256"]):
        say(f"{own.path} differs from the file that made these results, {facts.get('name')}")
    return own


def claim(folder: Location, chosen: Chosen) -> None:
    """Claim `folder` for a run; one that an interrupted run of the same config left is resumed.

    Errors: a file in its place; a folder with other content, or with another config (each field that differs); no permission.
    """
    identity, own = folder / CONFIG_FILE, chosen.own

    def differences(text: str) -> list[str]:
        """Return the fields that differ between the run in the folder and this one, as text."""
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
