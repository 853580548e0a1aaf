"""Every shipped config is whole and has its recipe; results lead back to the config that made them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sinkjax.config_files import documents
from sinkjax.config_files.files import shipped
from sinkjax.study.registry import Chosen, choose, config_type, declared, find, studies, title_of, trains
from sinkjax.study.settings import OnText

Mask = find("kiya/mask").settings

STATED = [name for name in shipped() if name in declared()]


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


def test_a_run_is_chosen_by_its_folder_its_config_or_its_store(tmp_path: Path):
    config = Mask(prompts=9)
    (tmp_path / "config.yaml").write_text(documents.write("kiya/mask", config))
    store = tmp_path / "sweep.zarr"
    store.mkdir()
    study = {"experiment": "kiya/mask", "config": documents.plain(documents.fields(config))}
    (store / ".zattrs").write_text(json.dumps({"study": study}))
    for name in (tmp_path, tmp_path / "config.yaml", store):
        assert choose(str(name)) == Chosen("kiya/mask", config, tmp_path)
