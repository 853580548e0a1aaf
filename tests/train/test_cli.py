"""`sinkjax train`: help, a training, the same one again, and one sentence for each mistake."""

from __future__ import annotations

import pytest

from sinkjax.cli import main as cli
from sinkjax.tasks import load_runs
from tests.train import linear

DOCUMENT = "training: linear\nseeds: 2\nsteps: 150\nlearning_rates: [0.1, 0.003]\nbatch: 32\neval_every: 50\n"


@pytest.fixture(scope="module", autouse=True)
def _registered():
    linear.register()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("config") / "mine.yaml"
    path.write_text(DOCUMENT)
    return path


@pytest.fixture(scope="module")
def finished(file, tmp_path_factory):
    out = tmp_path_factory.mktemp("cli") / "mine"
    assert cli.main(["train", str(file), "--out", str(out)]) == 0
    return out


def test_a_training_prints_how_its_runs_ended(finished, capsys):
    assert cli.main(["train", str(finished)]) == 0
    shown = capsys.readouterr()
    assert "converged" in shown.out
    assert [line.split()[2:4] for line in shown.out.splitlines() if line.strip().startswith("square ")] == [
        ["2", "2"],
        ["2", "0"],
    ]
    assert shown.out.splitlines()[-1] == str(finished / "report.html")
    assert "The last evaluation" in (finished / "report.html").read_text()
    assert shown.err.startswith("platform: cpu")


def test_options_override_the_config_they_follow(finished, tmp_path):
    changed = ["--seeds", "1", "--steps", "50"]
    assert cli.main(["train", str(finished), *changed, "--out", str(tmp_path / "out")]) == 0
    config = load_runs(tmp_path / "out").config
    assert (config.seeds, config.steps, config.learning_rates) == (1, 50, (0.1, 0.003))


def test_without_the_extra_of_pages_a_finished_training_is_not_lost(finished, capsys, monkeypatch):
    monkeypatch.setattr("sinkjax.runtime.extras.missing", lambda extra: ["jinja2"] * (extra == "report"))
    assert cli.main(["train", str(finished)]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == str(finished)
    assert "no page without jinja2: pip install 'sinkjax[report]'" in shown.err
