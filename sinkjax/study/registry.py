"""Which studies there are: modules of `papers`, and tables of trainings in `configs/`. This module imports no JAX.

`papers/kiya/after_softmax.py` is the study "kiya/after-softmax"; a module named with an underscore is a helper. A user's
own study is a file whose path the user types (`open_own`); from then on this process knows it by its name. What is read from
data is looked up among names only.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from sinkjax.config_files import documents, programs
from sinkjax.config_files.files import document, read_text
from sinkjax.config_files.places import Place
from sinkjax.errors import SinkjaxError, unknown
from sinkjax.runtime.resources import config_path, configs

if TYPE_CHECKING:
    from sinkjax.study.trace import Program

SERIES, TRAINED = "series", "all-trained"
# `experiment` of a config that runs all studies of a family (`study/suite.py`), or one study on many models
# (`study/series.py`) -> the name of its type
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


def config_type(study: object) -> type:
    """The dataclass of a study's config. Errors: an unknown study."""
    if isinstance(study, str) and study in SUITES:
        return cast(type, getattr(importlib.import_module("sinkjax.study.config"), SUITES[study]))
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
        listed = importlib.import_module("sinkjax.study.sweep_file")
        return _traceable(listed, name, listed.PROSE, name)
    text, what, _ = document(name)
    return _traceable(importlib.import_module(declared()[name]), name, documents.parse(text, what).get(PROSE, {}), what)


def _traceable(module: ModuleType, name: str, prose: Mapping[str, Any], what: str) -> Program:
    from sinkjax.study.trace import Program

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


def renamed(own: Own, name: str) -> Own:
    """The same study under another name, by which this process then knows it. Its random controls depend on the name."""
    _registered[name] = own.program.named(name)
    return dataclasses.replace(own, experiment=name, program=_registered[name])


def _program_of(module: object, path: Path) -> Program:
    """The study that a user's program defines. Errors: none, or one in the words of 0.3."""
    if not hasattr(module, "study") or not hasattr(module, "Settings"):
        former = " (its STUDY is of sinkjax 0.3)" if hasattr(module, "STUDY") else ""
        raise SinkjaxError(f"{path} defines no function `study` with a dataclass `Settings`{former}: a study {FUNCTION}")
    return _traceable(cast(ModuleType, module), f"{OWN}{path.stem}", {}, str(path))


def trains(study: str) -> bool:
    """Whether a study or suite trains models of its own instead of taking one. Errors: an unknown study."""
    return study == TRAINED if study in SUITES else find(study).trains
