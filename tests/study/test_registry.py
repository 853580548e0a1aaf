"""Every shipped config is whole and has its recipe; results lead back to the config that made them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sinkjax.config_files import documents
from sinkjax.config_files.files import shipped
from sinkjax.errors import SinkjaxError
from sinkjax.runtime.resources import config_path
from sinkjax.study import sweep_file
from sinkjax.study.choice import Chosen, choose
from sinkjax.study.registry import config_type, declared, documented, find, program, studies, title_of, trains
from sinkjax.study.settings import OnText
from sinkjax.study.trained import specs

Mask = find("kiya/mask").settings

STATED = [name for name in shipped() if name in declared()]
TRAINING = {name: chosen for name in shipped() if trains((chosen := choose(name)).experiment) and not chosen.suite}


@pytest.mark.parametrize("name", TRAINING)
def test_a_study_that_trains_has_trainings_with_names_of_their_own(name):
    trained = specs(find(TRAINING[name].experiment).trace(TRAINING[name].config, None), TRAINING[name].config)
    assert len({spec.name for spec in trained}) == len(trained) > 0


@pytest.mark.parametrize("name", studies())
def test_a_study_is_found_by_its_place_and_has_a_config(name):
    study = find(name)
    assert study.name == name
    assert study.settings is config_type(name)
    assert trains(name) or issubclass(study.settings, OnText)


def test_a_list_of_the_studies_imports_no_jax():
    """So that help and errors are immediate."""
    code = "import sys; from sinkjax.study.registry import studies, title_of; [title_of(name) for name in studies()]"
    code = f"{code}; print('jax' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_titles_have_the_defaults_of_the_settings_that_they_name():
    assert title_of("kiya/mask") == "Masking the logits towards key 0"
    assert title_of("li/isolate") == f"Token {config_type('li/isolate')().position} attends only to itself"


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_config_reads_and_says_what_it_claims(name):
    chosen = choose(name)
    text = config_path(name).read_text(encoding="utf-8")
    assert chosen.folder is None
    if "prose:" in text or chosen.experiment in documented():  # tests/study/test_programs.py compares claims with it
        prose = program(chosen.experiment).prose
        assert prose.title
        assert prose.question
        assert all(claim.text for claim in prose.claims.values())
        return
    assert {"# Claim", "# Command"} <= {line[:9].strip() for line in text.splitlines()}
    assert f"sinkjax {'sweep' if chosen.experiment == 'sweep' else 'run'} {name}" in text


@pytest.mark.parametrize("name", STATED)
def test_the_config_of_a_study_states_only_what_differs_from_the_defaults(name):
    stated = yaml.safe_load(config_path(name).read_text(encoding="utf-8"))
    defaults = documents.plain(documents.fields(find(name).settings()))
    settings = {key: value for key, value in stated.items() if key not in ("experiment", "prose")}
    assert all(defaults[key] != value for key, value in settings.items())


def test_a_run_is_chosen_by_its_folder_its_config_or_its_store(tmp_path: Path):
    config = Mask(prompts=9)
    (tmp_path / "config.yaml").write_text(documents.write("kiya/mask", config))
    store = tmp_path / "sweep.zarr"
    store.mkdir()
    study = {"experiment": "kiya/mask", "config": documents.plain(documents.fields(config))}
    (store / ".zattrs").write_text(json.dumps({"study": study}))
    for name in (tmp_path, tmp_path / "config.yaml", store):
        assert choose(str(name)) == Chosen("kiya/mask", config, tmp_path)


def test_a_store_made_from_python_is_a_sweep_with_its_page_beside_it(tmp_path: Path):
    store = tmp_path / "mine.zarr"
    store.mkdir()
    (store / ".zattrs").write_text("{}")
    assert choose(str(store)) == Chosen("sweep", sweep_file.Settings(), tmp_path / "mine-report", store)


def test_a_file_elsewhere_is_a_config_without_results(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text("experiment: kiya/mask\nprompts: 9\n")
    assert choose(str(file)) == Chosen("kiya/mask", Mask(prompts=9), unstated=frozenset(("length",)))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"prompts: 3", "lacks the key 'experiment'"),
        (b"experiment: kiya/masc", "study 'kiya/masc' .*'kiya/mask'"),
        (b"experiment: [1]", "unknown study"),
        (b"experiment: kiya/mask\npromts: 3", "'promts' .*'prompts'"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_document_that_is_no_config_is_refused(tmp_path: Path, content: bytes, sentence: str):
    file = tmp_path / "mine.yaml"
    file.write_bytes(content)
    with pytest.raises(SinkjaxError, match=sentence):
        choose(str(file))


def test_a_name_that_is_nothing_is_refused_with_the_nearest(tmp_path: Path):
    with pytest.raises(SinkjaxError, match="did you mean 'kiya/mask'"):
        choose("kiya/musk")
    (tmp_path / "other.zarr").mkdir()
    with pytest.raises(SinkjaxError, match=r"other.zarr .*not the store"):
        choose(str(tmp_path / "other.zarr"))
