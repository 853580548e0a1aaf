"""Which studies there are: modules of `papers`, and tables of trainings in `configs/`. This module imports no JAX.

`papers/kiya/after_softmax.py` is the study "kiya/after-softmax"; a module named with an underscore is a helper. A user's
own study is a file whose path the user types (`open_own`); from then on this process knows it by its name. Its settings may be
in a YAML file. What is read from data is looked up among names only.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from sinkjax.config_files import documents, programs
from sinkjax.config_files.files import CONFIG_FILE, claim_folder, document, read_text, user_place, write
from sinkjax.config_files.places import Place, reached, read_bytes
from sinkjax.config_files.programs import NotTyped
from sinkjax.data.corpora import SOURCES
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.runtime.progress import say
from sinkjax.runtime.resources import config_path, configs

if TYPE_CHECKING:
    from sinkjax.lab.trace import Program

STORE_SUFFIX = ".zarr"

SERIES, TRAINED = "series", "all-trained"
# `experiment` of a config that runs all studies of a family (`studies/suite.py`), or one study on many models
# (`studies/series.py`) -> the name of its type
SUITES = {"all": "All", TRAINED: "AllTrained", SERIES: "Series"}

STUDY_FILE, VALUE_FILES = programs.SUFFIX, (".yaml", ".yml")
HOME = "sinkjax.papers"
VALUE = "study"  # the key of a YAML file that holds a whole study
LISTED = "sweep"  # the study of a list of edits
STARTER = "starter"  # a program to begin one's own study from; not a study of a list
LIST = "sinkjax run --help lists them"
TABLES = f"{HOME}.pretrain._table"  # reads the studies that are documents
TRAININGS = "trainings"  # the key of a document that is a table of trainings
FUNCTION = "is a function of a lab, as docs/add-a-study.md shows"
OWN = "own/"  # before the name of a user's program, which is the name of its file
COPY = "study"  # the name, without its suffix, of the copy of an own study's file in the folder of its run
SIZES = frozenset(("prompts", "length"))  # settings of prompts that may be fitted to a text
FILE = "study_file"  # the key of a run's config with the name and digest of an own study's file
PROSE = "prose"  # the key of a shipped study's title, question, statements and notes in its config file


@dataclasses.dataclass(frozen=True)
class Own:
    """A user's study. experiment: its name in configs and results. path, content: its file, and what that held."""

    experiment: str
    program: Program = dataclasses.field(repr=False)
    path: Place
    content: bytes = dataclasses.field(repr=False)

    @property
    def facts(self) -> dict[str, str]:
        """Name and digest of the file."""
        return {"name": self.path.name, "sha256": hashlib.sha256(self.content).hexdigest()}


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


def config_type(study: object) -> type:
    """The dataclass of a study's config. Errors: an unknown study."""
    if isinstance(study, str) and study in SUITES:
        return cast(type, getattr(importlib.import_module("sinkjax.studies.config"), SUITES[study]))
    return find(study).settings


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


_registered: dict[str, Program] = {}


def register(program: Program) -> None:
    """Make a study known by its name in this process, such as one that a notebook defines.

    Args:
        program: The study; it takes the place of an earlier one of its name.

    Raises:
        SinkjaxError: A study of this name ships with the package.
    """
    if program.name in studies() and program.name not in _registered:
        raise SinkjaxError(f"the study is named {program.name!r}, as one that ships with sinkjax; give it another name")
    _registered[program.name] = program


def find(name: object) -> Program:
    """The study of a name.

    Args:
        name: "paper/study", or the name of a study that was registered or opened in this process.

    Returns:
        The study.

    Raises:
        SinkjaxError: There is no study of that name; the path of a file is none.
    """
    if isinstance(name, str) and name in _registered:
        return _registered[name]
    if not isinstance(name, str) or name not in studies():
        hint = "type the path of its file after --study" if is_file(str(name)) else LIST
        raise unknown("study", name, studies(), f"; {hint}")
    return program(name)


@functools.cache
def program(name: str) -> Program:
    """A shipped study: a function with the prose of its config file, a table of trainings, or a list of edits."""
    if name in documented():
        return _table(documented()[name], name)
    if name == LISTED:
        listed = importlib.import_module("sinkjax.studies.sweep_file")
        return _traceable(listed, name, listed.PROSE, name)
    text, what, _ = document(name)
    return _traceable(importlib.import_module(declared()[name]), name, documents.parse(text, what).get(PROSE, {}), what)


def _traceable(module: ModuleType, name: str, prose: Mapping[str, Any], what: str) -> Program:
    from sinkjax.lab.trace import Program

    return Program.of(module, name, prose, what)


@functools.cache
def _table(text: str, what: str) -> Program:
    """Read a table of trainings. Errors: a document of another kind."""
    values = documents.parse(text, what)
    if TRAININGS not in values:
        raise SinkjaxError(f"{what} has no {TRAININGS}: in YAML a study is a table of trainings, and one of edits {FUNCTION}")
    return cast("Program", importlib.import_module(TABLES).table(values, what))


def title_of(name: str) -> str:
    """The title of a shipped study or list of edits, by its text alone; "" for a config of another name."""
    if name.startswith(f"{LISTED}/"):
        return "Any list or grid of edits, all compared with the first"
    if name not in {*declared(), *documented()}:
        return ""
    text, what, _ = document(name)
    values = documents.parse(text, what)
    title = " ".join(str((values if name in documented() else values.get(PROSE, {})).get("title", name)).split())
    return re.sub(r"\{(\w+)\}", lambda field: str(values.get(field[1], _default(name, field[1]))), title)


def _default(name: str, field: str) -> str:
    """The default of a setting, read from the program of a study, which is not imported; the setting's name if it states none."""
    spec = importlib.util.find_spec(declared()[name])
    program = ast.parse(read_text(Path(spec.origin))) if spec and spec.origin else ast.Module([], [])
    stated = (node for node in ast.walk(program) if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == field)
    return next((ast.unparse(node.value) for node in stated if node.value), field)


class Source(NamedTuple):
    """A shipped study as its files.

    begin: the program, or the table. suffix: of a file with this. text_file, text: the rest of it.
    """

    begin: str
    suffix: str
    text_file: str = ""
    text: str = ""


def source(name: str) -> Source | None:
    """A shipped study as its files, or the program to begin from; None for another name."""
    if name == STARTER:
        return Source(inspect.getsource(importlib.import_module(f"{HOME}._{STARTER}")), STUDY_FILE)
    if name in documented():
        return Source(documented()[name], VALUE_FILES[0])
    if name not in declared():
        return None
    text, _, _ = document(name)
    return Source(inspect.getsource(importlib.import_module(declared()[name])), STUDY_FILE, f"configs/{name}.yaml", text)


def is_file(name: str) -> bool:
    """Whether a name is the path of a study's file."""
    return name.endswith((STUDY_FILE, *VALUE_FILES))


def open_own(path: Place) -> Own:
    """Open a user's study, which this process then knows by its name.

    Args:
        path: A Python file whose path the user typed, or a YAML file.

    Returns:
        The study and its file.

    Raises:
        NotTyped: The file is a program whose path the user did not type.
        SinkjaxError: There is no study in the file, or a program's is named like one that ships with sinkjax.
    """
    if path.suffix in VALUE_FILES:
        text = read_text(path)
        found, content = _table(text, str(path)), text.encode()
        taken = found.name in {*declared(), *documented(), *SUITES, LISTED}
        name = f"{found.name} (own)" if taken else found.name
    else:
        module, content = programs.execute(path)
        found = _program_of(module, path)
        name = found.name
    _registered[name] = found
    return Own(name, found, path, content)


def _program_of(module: object, path: Path) -> Program:
    """The study that a user's program defines. Errors: none, or one in the words of 0.3."""
    if not hasattr(module, "study") or not hasattr(module, "Settings"):
        former = " (its STUDY is of sinkjax 0.3)" if hasattr(module, "STUDY") else ""
        raise SinkjaxError(f"{path} defines no function `study` with a dataclass `Settings`{former}: a study {FUNCTION}")
    return _traceable(cast(ModuleType, module), f"{OWN}{path.stem}", {}, str(path))


def trains(study: str) -> bool:
    """Whether a study or suite trains models of its own instead of taking one. Errors: an unknown study."""
    return study == TRAINED if study in SUITES else find(study).trains


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
        program = own.program.named(named)  # random controls depend on the name
        _registered[named] = program
        own = dataclasses.replace(own, experiment=named, program=program)
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
