"""`sinkjax train`: help, a training, the same one again, and one sentence for each mistake."""

from __future__ import annotations

import re

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
    assert [line.split()[2:4] for line in shown.out.splitlines() if line.strip().startswith("square")] == [["2", "2"], ["2", "0"]]
    assert shown.out.splitlines()[-1] == str(finished)
    assert shown.err.startswith("platform: cpu")


def test_options_override_the_config_they_follow(finished, tmp_path):
    changed = ["--seeds", "1", "--steps", "50"]
    assert cli.main(["train", str(finished), *changed, "--out", str(tmp_path / "out")]) == 0
    config = load_runs(tmp_path / "out").config
    assert (config.seeds, config.steps, config.learning_rates) == (1, 50, (0.1, 0.003))


def test_help_lists_the_fields_of_a_training(file, capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", str(file), "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "--learning-rates [FLOAT" in shown
    assert "--stop-below FLOAT" in shown
    assert "--memory" not in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "kiya/mask"], "kiya/mask is a study, .*sinkjax run kiya/mask"),
        (["train", "nowhere"], "unknown training 'nowhere'"),
        (["train", "--seeds", "3"], "training before its options"),
        (["train", "FILE", "--seed", "x"], "--seed .*integer, not 'x'"),
        (["train", "FILE", "--step", "3"], "'--step' .*'--steps'"),
        (["train", "FILE", "--learning-rates", "0"], "learning_rates .*positive .*not 0.0"),
        (["train", "FILE", "--platform", "tpu"], "platform 'tpu' was asked for"),
        (["train", "DONE", "--seeds", "3"], r"another training \(seeds was 2, now 3\)"),
        (["run", "FILE"], "is a training; .*sinkjax train"),
        (["report", "DONE"], "is a training; .*sinkjax train"),
    ],
    ids=str,
)
def test_a_mistake_is_one_sentence(arguments, words, file, finished, capsys):
    names = {"FILE": str(file), "DONE": str(finished)}
    assert cli.main([names.get(argument, argument) for argument in arguments]) == 2
    shown = capsys.readouterr()
    *progress, sentence = shown.err.splitlines()
    assert all(line.startswith("platform") for line in progress)
    assert sentence.startswith("sinkjax: ")
    assert re.search(words, sentence)


def test_a_document_of_no_task_is_refused(tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    for text, words in (("training: liner", "'liner' .*'linear'"), ("seeds: 3", "lacks the key 'training'")):
        file.write_text(text)
        assert cli.main(["train", str(file)]) == 2
        assert re.search(words, capsys.readouterr().err)
