"""Each script runs on the smallest inputs and writes what the pages show, and pages are what the tables say."""

from __future__ import annotations

import csv
import importlib
import io
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray

from sinkjax.config_files import documents
from sinkjax.study import run as studies
from sinkjax.study.registry import choose
from tests.papers.pretrain.logs import curve, log

ROOT = Path(__file__).parents[2]
COPIED = ("docs", "scripts", "colab", "sinkjax", "README.md", "CITATION.cff", "pyproject.toml")
COMPARED = (".md", ".csv", ".json", ".txt", ".cff", ".ipynb")  # figures differ between versions of matplotlib


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what scripts read and write."""
    folder = tmp_path_factory.mktemp("checkout")
    for path in ROOT.iterdir():
        if path.name not in COPIED:
            (folder / path.name).symlink_to(path)
        elif path.is_dir():
            shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns("_build", "__pycache__"))
        else:
            shutil.copy(path, folder / path.name)
    return folder


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    """Import a script, or a module beside it, as Python does when it runs one."""
    monkeypatch.syspath_prepend(ROOT / "scripts" / "benchmarks")
    monkeypatch.syspath_prepend(ROOT / "scripts")
    return importlib.import_module


def ran(folder: Path, *command: object) -> str:
    """What a script prints."""
    line = [sys.executable, "-W", "ignore", *map(str, command)]
    done = subprocess.run(line, cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


# Pages.


@pytest.mark.parametrize(
    "command",
    [
        *("findings.py", "front_page.py", "cards.py page", "in_use.py page", "edges.py page", "sink_prefix.py page"),
        *("protocol.py publish", "findings_figures.py", "benchmarks_figure.py", "models.py", "scores.py", "retrofit.py page"),
    ],
)
def test_pages_and_tables_are_what_the_kept_numbers_say(checkout, command):
    name, *arguments = command.split()
    ran(checkout, f"scripts/{name}", *arguments)
    texts = [path.relative_to(checkout) for path in checkout.rglob("*") if path.suffix in COMPARED and not path.is_symlink()]
    changed = [path for path in texts if (checkout / path).read_bytes() != (ROOT / path).read_bytes()]
    assert len(texts) > 100
    assert changed == []


@pytest.mark.parametrize(
    "name",
    ["nothing", "340k/nothing", "in-use/mini-softmax/one key", "emergence/step 3/loss", "kiya/mask.all@gemma=replicates"],
)
def test_a_number_that_is_not_there_or_has_another_word_stops_a_page(script, name):
    with pytest.raises(SystemExit, match=r"no number|prose says"):
        script("named").Named()(name)


def test_a_tables_cell_has_its_format_and_a_share_its_interval(script):
    look = script("named").Named()
    assert 0 < float(look("while-it-learns; table hidden; never hidden; attention to token 1; .3f").split()[0]) < 1
    assert look("kiya/mask.all@smollm").endswith("]")


def test_a_card_that_somebody_sent_is_only_text_on_the_page(script):
    row = ["<script>", *["[here](x)"] * len(script("models").QUANTITIES), "<img src=x>", "2026"]
    shown = " ".join(script("models").shown(row))
    assert "<" not in shown
    assert "](" not in shown


# Finished runs.


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small run of a study of a model."""
    folder = tmp_path_factory.mktemp("results")
    studies.run("kiya/embedding", folder / "one", model="mini-softmax", bos="model", prompts=2, length=12)
    return folder


def test_a_runs_claims_and_first_figure_join_those_that_are_kept(results, tmp_path):
    (tmp_path / "results/data").mkdir(parents=True)
    shutil.copy(ROOT / "docs/results/data/claims.csv", tmp_path / "results/data")
    (tmp_path / "gallery.json").write_text('{"gu/norms": {"image": "images/old.png", "on": "m", "caption": "c"}}')
    kept = rows(tmp_path / "results/data/claims.csv")
    for _ in range(2):  # a run that is given again replaces itself
        command = ["scripts/gallery.py", results, "--docs", tmp_path]
        assert "2 studies have a figure" in ran(ROOT, *command)
        code = (
            "import sys; sys.path.insert(0, 'scripts'); import findings as f; from pathlib import Path; docs = Path(sys.argv[1]);"
            "(docs / f.CLAIMS).write_text(f.as_csv(f.collect(f.read(docs / f.CLAIMS), [Path(sys.argv[2])], docs)))"
        )
        ran(ROOT, "-c", code, tmp_path, results)
        found = rows(tmp_path / "results/data/claims.csv")
        assert [row for row in kept if row not in found] == []
        assert {row["study"] for row in found if row not in kept} == {"kiya/embedding"}
    card = json.loads((tmp_path / "gallery.json").read_text())["kiya/embedding"]
    assert (tmp_path / card["image"]).read_bytes().startswith(b"\x89PNG")


def test_an_adopted_run_is_published_in_place_of_the_kept_one(script, results, tmp_path, monkeypatch):
    protocol = script("protocol")
    monkeypatch.setattr(protocol, "DOCS", ROOT / "docs")
    monkeypatch.setattr(protocol, "MENDED", tmp_path / "mended")
    protocol.adopt(results / "one", {"seconds": 7, "commit": "0123"})
    kept = tmp_path / "mended" / "kiya-embedding-mini-softmax"
    assert json.loads((kept / "run.json").read_text()) == {"seconds": 7, "commit": "0123"}
    assert (kept / "claims.csv").read_bytes() == (results / "one" / "claims.csv").read_bytes()
    assert protocol.settings(kept)["text"] == "wikitext"
    written: dict[str, object] = {}
    monkeypatch.setattr(protocol, "write", lambda path, content: written.update({path.name: content}))
    protocol.publish()
    published = csv.DictReader(io.StringIO(str(written["claims.csv"])))
    condition = ("kiya/embedding", "mini-softmax", "model", "wikitext")
    new = {
        row["claim"]: row["d"] for row in published if tuple(row[name] for name in ("study", "model", "bos", "text")) == condition
    }
    assert new == {row["claim"]: row["d"] for row in rows(kept / "claims.csv")}


def test_equal_tables_are_equal_and_a_cell_that_differs_is_named(script, tmp_path, capsys):
    compare = script("compare_numbers")
    compare.run_small(tmp_path / "before", ["kiya/embedding"])
    shutil.copytree(tmp_path / "before", tmp_path / "after")
    assert compare.main([str(tmp_path / "before"), str(tmp_path / "after")]) == 0
    file = tmp_path / "after/kiya-embedding/summary.csv"
    cell = rows(file)[0]["mean"]
    file.write_text(file.read_text().replace(cell, f"{float(cell) + 1e-6}", 1))
    assert compare.main([str(tmp_path / "before"), str(tmp_path / "after")]) == 1
    assert f"{cell!r} ->" in capsys.readouterr().out
    assert [*compare.numbers({"a": [1, "text", None], "b": {"c": 0.5}}, "x")] == [("x/a/0", 1), ("x/a/2", None), ("x/b/c", 0.5)]


# Trainings.


def test_logs_of_a_study_become_its_table_and_stay_there(tmp_path):
    out, data = tmp_path / "out", tmp_path / "data"
    log(out / "decay-0", [*curve(0, [5.0, 4.0], 0.2, 3000), *curve(1, [5.0, 4.2], 0.4, 3000)], 3000)
    log(out / "decay-0.5", curve(0, [5.0, 4.0, 3.0], 0.2, 3000)[:2], 3000)  # not finished
    (out / "config.yaml").write_text(documents.write("pretrain/gu-weight-decay", choose("pretrain/gu-weight-decay").config))
    for folders in ([out], []):  # the second time from what is kept
        command = ["scripts/pretrain_tables.py", *folders, "--data", data, "--images", data, "--logs", data / "logs"]
        ran(ROOT, *command)
        found = {(row["row"], row["column"]): row for row in rows(data / "pretraining.csv")}
        assert float(found["decay 0", "Sink_1 (%)"]["mean"]) == pytest.approx(30)
        assert found["decay 0", "Sink_1 (%), paper"]["text"] == "15.2"
        assert found["decay 0.5", "seeds"]["text"] == "not run"


def test_a_kept_log_is_read_as_it_was_written(script, tmp_path):
    logs = script("kept_logs")
    lines = [{"loss": None, "step": 1, "kurtosis": [[0.1, 3.5], [None, 1e300]], "status": "running"}, {"step": 2, "loss": 1 / 3}]
    for number, line in enumerate(lines):
        logs.keep(f"search/a/{number}", {"config": {"seed": 3}}, [line, line], tmp_path)
    assert [logs.read(f"search/a/{number}", tmp_path)[1] for number in (0, 1)] == [[line, line] for line in lines]


def test_a_trigger_study_becomes_its_table(script, tmp_path):
    script("compare_numbers").run_small(tmp_path, ["trigger/bound"])
    ran(ROOT, "scripts/trigger_tables.py", tmp_path / "trigger-bound", "--data", tmp_path)
    assert {row["table"] for row in rows(tmp_path / "trigger.csv")} == {"bound"}


def test_a_run_of_a_training_becomes_a_packaged_model(tmp_path):
    import sinkjax
    from sinkjax.tasks import train
    from sinkjax.tasks.language_model.config import Pretrain

    tiny = {"layers": 1, "width": 16, "heads": 2, "mlp_width": 24, "context": 24, "vocabulary": 300}
    config = Pretrain(**tiny, batch=4, steps=4, eval_every=2, eval_batch=4, seeds=2, warmup=2)
    done = train(config, tmp_path / "training", progress=False)
    ran(ROOT, "scripts/package_models.py", done.folder, "1", "small", "--out", tmp_path)
    half = np.asarray(done.of(1)["layers"]["q"]).astype(np.float16)
    np.testing.assert_array_equal(sinkjax.load(tmp_path / "small").params["layers"]["q"], half)
    assert "As stored: loss 5." in (tmp_path / "small" / "README.md").read_text()


# Measurements.


def test_edges_of_a_model_are_measured(script, tmp_path, monkeypatch):
    edges = script("edges")
    for name, value in {"DATA": tmp_path / "e.json", "SIZES": {"mini-softmax": (2, 12)}, "GROUPS": ((4,),), "CHECKED": 2}.items():
        monkeypatch.setattr(edges, name, value)
    edges.run()
    found = json.loads((tmp_path / "e.json").read_text())["mini-softmax"]
    assert found["faithfulness"]["0"] == 0
    assert len(found["checked"]) == 2
    assert "| all | " in edges.tables()


def test_losses_in_use_and_with_a_prefix_are_kept_by_document(script, tmp_path, monkeypatch):
    use, prefix = script("in_use"), script("sink_prefix")
    for number in range(2):
        (tmp_path / f"novel {number}.txt").write_text("They sent for Ness at half past two to bring the doctor over. " * 120)
    window = "window of 64 keys"
    monkeypatch.setattr(use, "WAYS", {use.FULL: {}, window: use.CACHES[window]})
    monkeypatch.setattr(use, "DATA", tmp_path / "use.csv")
    use.run("mini-softmax", str(tmp_path))
    assert [row["way"] for row in rows(tmp_path / "use.csv")] == [*[use.FULL] * 4, *[window] * 4]
    monkeypatch.setattr(prefix, "RUNS", [("none", prefix.PLAIN, (prefix.FULL,)), ("bos", prefix.BARE, (prefix.FULL,))])
    monkeypatch.setattr(prefix, "DATA", tmp_path / "prefix.csv")
    prefix.run("mini-softmax", str(tmp_path))
    losses = [float(row["loss"]) for row in rows(tmp_path / "prefix.csv")]
    assert losses[2:] == pytest.approx(losses[:2], abs=1e-3)  # the prefix of a BOS is that BOS


def test_a_planted_answer_is_the_cards(script, tmp_path, monkeypatch):
    cards = script("cards")
    monkeypatch.setattr(cards, "DATA", tmp_path / "cards.csv")
    cards.run("planted key 1")
    (row,) = rows(tmp_path / "cards.csv")
    assert row["errors"] == ""
    assert cards.errors({"tokens": [0], "position": 2}, {"tokens": [0, 4], "position": 2}) == ["tokens"]


def test_the_rule_is_simulated(script, tmp_path):
    simulation = script("simulate_judgement")
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("results", "images", "_build"))
    kinds = {case.kind: case for case in simulation.cases((8,))}
    simulation.main(tmp_path / "docs", draws=8, chosen=kinds.values())
    assert "in 8 draws" in (tmp_path / "docs" / "judgements.md").read_text()


def test_scans_are_kept_as_counts(script):
    ratio = np.array([0.01, 1.0, 0.02, 0.03])
    data = {"largest": (("token", "layer"), np.stack([np.ones(4), 200 * ratio], 1)), "special": ("token", np.arange(4) == 0)}
    data |= {"cosine": (("token", "layer"), np.full((4, 2), 0.25)), "first_largest": ("layer", np.array([2.0, 200.0]))}
    data |= {"other_largest": ("layer", np.array([1.0, 4.0]))}
    data |= {name: (("token", "sink"), np.zeros((4, 0))) for name in ("score",)}
    data |= {name: ("sink", np.zeros(0)) for name in ("first_score", "other_score")}
    figures = script("findings_figures")
    found = figures.rows_of("m", xarray.Dataset(data, {"token": np.arange(4)}), 4)
    about = dict(zip(figures.COLUMNS["models"], found["models"][0], strict=True))
    assert (about["sinks"], about["none"], about["layer"]) == (1, 3, 1)


@pytest.mark.gemma3
def test_the_maps_of_the_readme_have_their_kept_numbers(checkout):
    ran(checkout, "scripts/first_column.py")
    old, new = (
        {row["row"]: row["mean"] for row in rows(place / "docs/results/data/first-column.csv")} for place in (ROOT, checkout)
    )
    assert {row: float(mean) for row, mean in new.items()} == pytest.approx(
        {row: float(mean) for row, mean in old.items()}, abs=0.1
    )


def test_mutated_files_are_counted(checkout):
    ran(checkout, "scripts/reliability.py", "--parts", "mutations", "--mutations", "2")
    assert "--mutations 2 --seed 0" in (checkout / "docs/results/reliability.md").read_text()


def test_differences_from_transformers_are_a_table(script, monkeypatch, tmp_path):
    parity = script("parity")
    monkeypatch.setattr(parity.small, "DRAWS", dict(itertools.islice(parity.small.DRAWS.items(), 1)))
    monkeypatch.setattr(parity.small, "seeds", lambda family: [0])
    first = parity.reference.kinds()[:1]
    monkeypatch.setattr(parity.reference, "kinds", lambda: first)
    monkeypatch.setattr(parity, "smollm2", lambda: ([], [], "none"))
    monkeypatch.setattr(parity, "TABLE", tmp_path / "parity.csv")
    parity.main()
    found = [float(row["mean"]) for row in rows(tmp_path / "parity.csv") if row["column"] == "largest of kinds"]
    assert 0 < min(found) < 1e-9


# Benchmarks.


SLOW = (
    "bfloat16",
    "context",
    "generate",
    "gpu",
    "overhead",
    "patching",
    "studies",
    "sweep",
    "train",
    "trigger",
)  # minutes of processor time


@pytest.mark.parametrize(
    "name",
    [
        *("accelerator", "devices", "load_rate", "loading", "products", "programs", "scan"),
        *(pytest.param(name, marks=pytest.mark.battery) for name in SLOW),
    ],
)
def test_a_benchmark_prints_its_section(name):
    more = {"sweep": ["--skip-transformerlens"], "patching": ["--skip-peers"]}.get(name, [])
    assert ran(ROOT, "scripts/benchmarks/run.py", name, "--quick", *more).startswith("### ")


def test_a_number_is_judged_before_it_is_rounded_and_replaces_its_own_section(script, tmp_path):
    measured = script("measured")
    found = measured.as_number("a ratio", [1.6, 1.499, 1.4], ".1f", (1.5, None), "3.0")
    assert measured.as_number("a ratio", [1.2], ".1f", (1.5, None), "1.4")[4:] == ("", "", "1.4")  # no goal beyond the bound
    assert found == ("a ratio", "1.5", "1.4", "1.6", "at least 1.5", "missed", "3.0")
    for section, value in (("two", 1.0), ("one", 3.0), ("two", 4.0)):
        measured.keep(tmp_path / "page.md", section, [measured.as_number("a", [value])], "a CPU", "2026-01-01", "x.py")
    assert [(row["section"], row["value"]) for row in rows(tmp_path / "data/benchmarks.csv")] == [("one", "3"), ("two", "4")]


@pytest.mark.parametrize(("statistic", "value"), [("resid_max", 2.003), ("resid_max", np.nan), ("resid_argmax", 6)])
def test_no_time_counts_for_other_numbers(script, statistic, value):
    reference = {"resid_max": np.full((3, 3), 2.0, np.float32), "resid_argmax": np.full((3, 3), 5)}
    changed = reference[statistic].copy()
    changed[1, 1] = value
    with pytest.raises(SystemExit, match=statistic):
        script("bench_sweep").compare("a side", reference | {statistic: changed}, reference)
