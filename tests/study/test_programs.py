"""A program runs only if its path was typed: no command and no field of data starts one, and `execute` decides alone."""

from __future__ import annotations

import ast
import contextlib
import json
import py_compile
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import sinkjax
from sinkjax.cli import main as cli
from sinkjax.config_files import documents, programs
from sinkjax.errors import SinkjaxError
from sinkjax.report.section import Drawing, Section
from sinkjax.study.folder import store_path, write_results
from sinkjax.study.registry import choose, config_type
from sinkjax.study.settings import Series
from tests.packaging.test_imports import MODULES
from tests.study.test_add_a_study import OPTIONS, example

__all__ = ["example"]

PROGRAM = "from pathlib import Path\nPath(__file__).with_name('PWNED').write_text('it ran')\n"
NAMES = ("study.py", "{folder}/evil.py", "{elsewhere}/evil.py", "evil", "results.evil")  # paths, modules, and what is in a zip
Values = Mapping[str, object]


def of_study(name: str) -> Values:
    return {"experiment": name, **documents.plain(documents.fields(config_type("kiya/mask")()))}


def of_model(name: str) -> Values:
    return {**of_study("kiya/mask"), "model": name}


def of_series(name: str) -> Values:
    return {"experiment": "series", **documents.plain(documents.fields(Series(study=name, models=("mini-softmax",))))}


def of_sweep(name: str) -> Values:
    return {"experiment": "sweep", "edits": [{name: {"key": 0}}], "model": "mini-softmax"}


def of_whole(name: str) -> Values:
    return {"study": name, "grids": {"a": {"grid": {"edit": {name: 0}}}}, "measures": [name]}


def of_training(name: str) -> Values:
    return {"training": name, "text": name}


def of_file(name: str) -> Values:
    """The facts that a run states about the file of its study."""
    return {**of_study("mine"), "study_file": {"name": name, "sha256": "0" * 64}}


FIELDS = (
    *(of_study, of_model, of_series, of_sweep, of_whole),
    *(of_training, of_file),
)


def folder_of(values: Values, folder: Path) -> Path:
    """A folder of results that states these values in its config and in the attributes of a store."""
    folder.mkdir()
    for name in ("study.py", "evil.py"):
        (folder / name).write_text(PROGRAM)
    (folder / "evil").mkdir()
    (folder / "evil" / "__init__.py").write_text(PROGRAM)
    (folder / "config.yaml").write_text(documents.dump(values))
    config = {name: value for name, value in values.items() if name != "experiment"}
    (folder / "sweep.zarr").mkdir()
    attributes = {"study": {"experiment": values.get("experiment"), "config": config}}
    (folder / "sweep.zarr" / ".zattrs").write_text(json.dumps(attributes))
    return folder


def zipped(folder: Path) -> Path:
    archive = folder.with_name("sent.zip")
    with zipfile.ZipFile(archive, "w") as packed:
        for file in folder.rglob("*"):
            packed.write(file, file.relative_to(folder))
    return archive


COMMANDS: dict[str, Callable[[Path], list[list[str]]]] = {
    "report folder": lambda at: [["report", str(at)]],
    "report config": lambda at: [["report", str(at / "config.yaml")]],
    "report store": lambda at: [["report", str(at / "sweep.zarr")]],
    "report program": lambda at: [["report", str(at / "study.py")]],
    "report zip": lambda at: [["report", str(zipped(at))]],
    "compare": lambda at: [["report", str(at / "sweep.zarr"), str(at / "sweep.zarr")]],
    "compare programs": lambda at: [["report", str(at / "study.py"), str(at / "study.py")]],
    "plan": lambda at: [
        ["plan", str(at)],
        ["plan", str(at / "config.yaml")],
        ["plan", str(shutil.copy(at / "config.yaml", at / "x.yaml"))],
    ],
    "plan over": lambda at: [["plan", str(at), "--models", "mini-softmax"]],
    "run help": lambda at: [["run", str(at), "--help"]],
    "run": lambda at: [
        ["run", str(at), "--platform", "cpu", "--out", str(at / "nothing" / "\0")],
        ["run", str(at / "x.yaml"), "-h"],
    ],
    "sweep": lambda at: [["sweep", str(at), "--help"], ["sweep", str(at / "config.yaml"), "--help"]],
    "train": lambda at: [["train", str(at), "--help"], ["train", str(at / "config.yaml"), "--help"]],
    "study": lambda at: [["study", str(at)], ["study", str(at / "config.yaml")]],
    "explore": lambda at: [["explore", str(at)], ["explore", str(at / "evil")]],
    "models": lambda at: [["models", str(at)], ["models", str(at / "study.py")]],
    "evaluate": lambda at: [["evaluate", "mini-softmax", str(at / "absent"), "--edits", str(at / "config.yaml")]],
}


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.__name__)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_a_program_that_a_field_names(command, field, tmp_path, monkeypatch, capsys):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "evil.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "results"))  # even where a module of that name could be imported
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    named = NAMES if field in (of_study, of_series) else NAMES[1:4:2]
    for name in named:
        at = tmp_path / "results"
        for left in (at, tmp_path / "sent"):
            shutil.rmtree(left, ignore_errors=True)
        folder_of(field(name.format(folder=at, elsewhere=tmp_path / "elsewhere")), at)
        for arguments in COMMANDS[command](at):
            with contextlib.suppress(SystemExit):  # after --help
                cli.main(arguments)
        assert not [*tmp_path.rglob("PWNED")], name


RUNS = {"exec", "eval", "compile", "__import__", "exec_module", "spec_from_file_location", "run_path", "run_module"}


def test_one_function_decides():
    """Nothing else in the package executes text or a file, and only what reads typed words permits a program."""
    called: dict[str, set[str]] = {"runs text": set(), "programs.typed": set(), "programs.execute": set()}
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                if name in RUNS or name.rpartition(".")[2] in RUNS - {"compile", "eval"}:
                    called["runs text"].add(module)
                elif name in called:
                    called[name].add(module)
    assert called == {
        "runs text": {
            "sinkjax.config_files.programs",
            "sinkjax.sweeps.functions",
        },  # the latter compiles a source to compare its code
        "programs.typed": {"sinkjax.cli.common", "sinkjax.study.run"},
        "programs.execute": {"sinkjax.study.registry"},
    }


def test_a_program_runs_if_its_path_is_typed_and_not_before(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(PROGRAM)
    with pytest.raises(programs.NotTyped, match=r"mine\.py is a program"):
        programs.execute(file)
    assert cli.main(["report", str(file)]) == 2
    assert not (tmp_path / "PWNED").exists()
    assert cli.main(["plan", str(file)]) == 2  # typed, and no study
    assert "defines no function `study`" in capsys.readouterr().err
    assert (tmp_path / "PWNED").exists()


@pytest.fixture(scope="module")
def made(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a study in Python."""
    out = tmp_path_factory.mktemp("made") / "lowered"
    model = ["--model", str(example / "model"), "--text", str(example / "text.txt")]
    assert cli.main(["run", str(example / "lowered.py"), *model, *OPTIONS, "--out", str(out)]) == 0
    return out


@pytest.fixture
def forgotten(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of that run on another machine, where nobody has typed the path of the study."""
    monkeypatch.setattr(programs, "_typed", set())
    monkeypatch.setattr("sinkjax.study.registry._registered", {})
    return Path(shutil.copytree(made, tmp_path / "sent"))


def test_results_of_a_program_are_shown_as_kept_to_the_byte(forgotten, capsys):
    files = {
        file: file.read_bytes() for file in forgotten.rglob("*") if file.suffix in (".html", ".csv", ".svg", ".png", ".json")
    }
    for name in ("report.html", "summary.csv"):
        (forgotten / name).write_bytes(b"<script>alert(1)</script>")
    assert cli.main(["report", str(forgotten)]) == 0
    shown = capsys.readouterr()
    assert "is a program" in " ".join(shown.err.split())
    assert shown.out.splitlines()[-1] == str(forgotten / "report.html")
    assert {file: file.read_bytes() for file in files} == files


def test_a_typed_study_rebuilds_them_and_a_changed_one_is_named(forgotten, capsys):
    kept = (forgotten / "report.html").read_bytes()
    assert cli.main(["report", str(forgotten), "--study", str(forgotten / "study.py")]) == 0
    assert "differs" not in capsys.readouterr().err
    assert (forgotten / "report.html").read_bytes() == kept
    with (forgotten / "study.py").open("a") as file:
        file.write("# changed\n")
    assert cli.main(["report", str(forgotten), "--study", str(forgotten / "study.py")]) == 0
    assert re.search(r"study\.py differs .*lowered\.py", " ".join(capsys.readouterr().err.split()))
    for command in ("plan", "run"):
        assert cli.main([command, str(forgotten), "--study", str(forgotten / "study.py")]) == 0
    stated = documents.parse((forgotten / "config.yaml").read_text(), "")
    assert (stated["experiment"], stated["study_file"]["name"]) == ("own/lowered", "study.py")


TABLE = """
study: mine/small
trainings: {one: {row: {changes: {layers: 1, width: 16, heads: 1, mlp_width: 16, context: 24, batch: 2, vocabulary: 260}}}}
measures: [first_share]
"""


def test_a_series_of_a_program_is_shown_as_kept_and_rebuilt_if_it_is_typed(example, tmp_path, monkeypatch, capsys):
    shutil.copy(example / "lowered.py", tmp_path / "mine.py")
    out = tmp_path / "out"
    models = ["--models", str(example / "model"), "mini-softmax", "--text", str(example / "text.txt"), "--bos", "none"]
    assert cli.main(["run", str(tmp_path / "mine.py"), *models, *OPTIONS, "--out", str(out)]) == 0
    assert documents.parse((out / "config.yaml").read_text(), "")["study"] == "own/mine"
    rows = (out / "series.csv").read_text()
    (tmp_path / "mine.py").unlink()
    monkeypatch.setattr(programs, "_typed", set())
    monkeypatch.setattr("sinkjax.study.registry._registered", {})
    pages = {page: page.read_bytes() for page in out.rglob("report.html")}
    assert len(pages) == 3
    for page in pages:
        page.write_text("<script>alert(1)</script>")
    capsys.readouterr()
    assert cli.main(["report", str(out)]) == 0
    assert "own/mine on 2 models" in capsys.readouterr().out
    assert {page: page.read_bytes() for page in pages if page.parent != out} == {
        page: made for page, made in pages.items() if page.parent != out
    }
    assert "<script>alert" not in (out / "report.html").read_text()
    assert cli.main(["run", str(out)]) == 2
    assert cli.main(["plan", str(out), f"--study={out / 'study.py'}"]) == 0
    assert cli.main(["report", str(out), "--study", str(out / "study.py")]) == 0
    assert (out / "series.csv").read_text() == rows
    assert {page: page.read_bytes() for page in pages} == pages


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.__name__)
def test_python_runs_no_program_that_a_field_names(field, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        at = tmp_path / "results"
        shutil.rmtree(at, ignore_errors=True)
        folder_of(field(name.format(folder=at, elsewhere=tmp_path)), at)
        for call in (choose, lambda path: sinkjax.run(path, tmp_path / "out", model="absent/absent")):
            for path in (at, at / "config.yaml", at / "sweep.zarr"):
                with contextlib.suppress(SinkjaxError):
                    call(str(path))
        assert not [*tmp_path.rglob("PWNED")], name


def test_a_typed_link_that_leads_elsewhere_later_is_refused(tmp_path):
    for name in ("good.py", "evil.py"):
        (tmp_path / name).write_text(PROGRAM)
    (tmp_path / "link.py").symlink_to("good.py")
    programs.typed(tmp_path / "link.py")
    (tmp_path / "link.py").unlink()
    (tmp_path / "link.py").symlink_to("evil.py")
    with pytest.raises(programs.NotTyped):
        programs.execute(tmp_path / "link.py")


def test_results_name_their_study_by_name_and_digest(made, example):
    stated = documents.parse((made / "config.yaml").read_text(), "config")
    assert stated["experiment"] == "own/lowered"
    assert stated["study_file"]["name"] == "lowered.py"
    assert len(stated["study_file"]["sha256"]) == 64
    assert (made / "study.py").read_bytes() == (example / "lowered.py").read_bytes()
    attributes = [json.loads(file.read_text()) for file in made.glob("*.zarr/.zattrs")]
    assert {stored["study"]["experiment"] for stored in attributes} == {"own/lowered"}
    assert str(example / "lowered.py") not in (made / "config.yaml").read_text()


def test_a_compiled_copy_beside_a_program_is_not_read(tmp_path):
    """It need not be what a reader of the program saw."""
    file = tmp_path / "mine.py"
    file.write_text(PROGRAM)
    py_compile.compile(str(file), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    file.write_text("STUDY = 1\n")
    programs.typed(file)
    module, content = programs.execute(file)
    assert (vars(module)["STUDY"], content) == (1, b"STUDY = 1\n")
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda values: values["drawings"][0].update(name="../../outside"), "name of a file"),
        (lambda values: values["drawings"][0].update(name="absent"), "absent.svg"),
        (lambda values: values.update(rows=3), "rows must be a list"),
        (lambda values: values["verdicts"][0]["judgement"].update(word="<script>"), "word must be"),
        (lambda values: values.pop("title"), "lacks the key 'title'"),
        (lambda values: values.update(more=1), "unknown key 'more'"),
    ],
)
def test_kept_sections_are_checked(forgotten, change, words, capsys):
    values = json.loads((forgotten / "section.json").read_text())
    change(values)
    (forgotten / "section.json").write_text(json.dumps(values))
    assert cli.main(["report", str(forgotten)]) == 2
    assert words in capsys.readouterr().err


def test_names_of_a_studys_parts_are_no_paths(tmp_path):
    """A store, a figure or a training lies in the folder of its run."""
    for name in ("../outside", "/outside", "..", "a/b", ""):
        with pytest.raises(SinkjaxError, match="name of a file"):
            store_path(tmp_path, name)
        drawing = Drawing(name, None, "a caption")
        vars(drawing).update(svg=b"", png=b"")
        with pytest.raises(SinkjaxError, match="name of a file"):
            write_results(Section("mine", "a title", "", (), (), (), (drawing,)), tmp_path / "out")
    assert [*tmp_path.rglob("*")] == []


def test_texts_of_a_kept_section_are_no_markup(forgotten):
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    values = json.loads((forgotten / "section.json").read_text())

    def poisoned(value: object) -> object:
        if isinstance(value, dict):
            return {key if key in whole else evil: poisoned(entry) for key, entry in value.items()}
        return [poisoned(entry) for entry in value] if isinstance(value, list) else evil if value in texts else value

    whole = {*json.dumps(values).replace(":", " ").split('"')}
    texts = {values["title"], values["question"], *values["notes"], *values["featured"], *values["findings"]}
    texts |= {row["condition"] for row in values["rows"]} | {one["statement"] for one in values["verdicts"]}
    (forgotten / "section.json").write_text(json.dumps(poisoned(values)))
    assert cli.main(["report", str(forgotten)]) == 0
    page = (forgotten / "report.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page
    assert "<img src=x" not in page
