"""SECURITY.md: the tests behind each of its points, and those of what no other file has."""

from __future__ import annotations

import ast
import base64
import dataclasses
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jinja2 import PackageLoader

import sinkjax
from sinkjax.errors import SinkjaxError
from sinkjax.report.page import page, template
from sinkjax.viewing.maps import KeptMaps
from tests.packaging.test_imports import MODULES
from tests.report.test_page import section
from tests.study.tiny import write_model

__all__ = ["section"]

ROOT = Path(__file__).parents[1]
PROGRAMS, STORES, ARCHIVES = "tests.study.test_programs", "tests.robustness.test_stores", "tests.config_files.test_archives"
HOSTILE, SERVER, HERE = "tests.robustness.test_hostile", "tests.explorer.test_server", "tests.test_security"
# A point of the page, by its first words -> (module, test)
BEHIND = {
    "Programs": (
        (PROGRAMS, "test_no_command_runs_a_program_that_a_field_names"),
        (PROGRAMS, "test_python_runs_no_program_that_a_field_names"),
        (PROGRAMS, "test_one_function_decides"),
        (PROGRAMS, "test_a_program_runs_if_its_path_is_typed_and_not_before"),
        (PROGRAMS, "test_a_typed_link_that_leads_elsewhere_later_is_refused"),
    ),
    "Results of other people": (
        (PROGRAMS, "test_results_name_their_study_by_name_and_digest"),
        (PROGRAMS, "test_results_of_a_program_are_shown_as_kept_to_the_byte"),
        (PROGRAMS, "test_a_typed_study_rebuilds_them_and_a_changed_one_is_named"),
    ),
    "What runs is what you read": (
        (PROGRAMS, "test_a_compiled_copy_beside_a_program_is_not_read"),
        (HERE, "test_the_module_takes_no_module_from_the_current_folder"),
    ),
    "Models": (
        ("tests.checkpoints.test_folder", "test_a_folder_without_weights"),
        (HERE, "test_a_tokenizers_own_code_is_not_imported_nor_asked_about"),
        (HERE, "test_nothing_that_unpickles_or_renders_templates_is_imported"),
    ),
    "Stores": (
        (STORES, "test_metadata_choose_no_code_no_file_and_no_memory"),
        (STORES, "test_other_metadata_beside_a_stores_own_are_not_read"),
    ),
    "Configs, tokenizers and studies in YAML or JSON": (
        ("tests.config_files.test_documents", "test_what_is_wrong_is_named"),
        ("tests.config_files.test_documents", "test_what_is_too_much_for_a_config_is_refused_at_once"),
        (HOSTILE, "test_a_tokenizer_of_3_million_pieces_is_refused"),
    ),
    "Zips": (
        (ARCHIVES, "test_no_name_leaves_the_folder"),
        (ARCHIVES, "test_links_and_devices_are_refused"),
        (ARCHIVES, "test_a_name_that_stands_twice_is_refused"),
        (ARCHIVES, "test_a_bomb_is_refused_before_it_is_unpacked"),
        (ARCHIVES, "test_a_bomb_that_lies_about_its_size_is_refused"),
        (ARCHIVES, "test_too_many_entries_are_refused"),
        (ARCHIVES, "test_a_damaged_zip_leaves_nothing_and_can_be_tried_again"),
        (ARCHIVES, "test_an_interruption_leaves_nothing"),
    ),
    "Names in data": (
        (PROGRAMS, "test_kept_sections_are_checked"),
        (PROGRAMS, "test_names_of_a_studys_parts_are_no_paths"),
        (STORES, "test_metadata_choose_no_code_no_file_and_no_memory"),
    ),
    "Devices, pipes and files above a size limit": (
        (HOSTILE, "test_a_pipe_a_folder_or_a_huge_file_in_a_model_is_refused"),
        (HOSTILE, "test_a_pipe_a_folder_or_a_huge_file_that_is_named_is_refused"),
        (STORES, "test_what_is_no_file_is_not_read_in_a_finished_store"),
        (STORES, "test_what_is_no_file_is_not_read_in_an_unfinished_store"),
    ),
    "Pages": (
        ("tests.report.test_page", "test_text_never_becomes_markup"),
        ("tests.report.test_page", "test_the_page_is_sound_and_self_contained"),
        (PROGRAMS, "test_texts_of_a_kept_section_are_no_markup"),
        (HERE, "test_the_policy_of_a_page_forbids_requests_and_other_scripts"),
    ),
    "`sinkjax explore`": (
        (SERVER, "test_the_page_and_its_files_come_from_here_alone"),
        (SERVER, "test_a_wrong_token_gets_403"),
        (SERVER, "test_another_host_or_origin_gets_403"),
    ),
}


def test_a_test_stands_behind_each_point():
    promised, _, _ = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("## What is not promised")
    points = re.findall(r"^- \*\*(.+?)\*\*", promised, re.MULTILINE)
    assert [point.removesuffix(".") for point in points] == [*BEHIND]
    assert promised.count("\n- ") == len(points)
    for module, test in {one for tests in BEHIND.values() for one in tests}:
        assert callable(getattr(importlib.import_module(module), test)), test


def test_nothing_that_unpickles_or_renders_templates_is_imported():
    """transformers alone is imported, for a tokenizer that has no other form and for its own models.

    A process begins in one place, for regular expressions of an adapter, which cannot be interrupted otherwise. Templates are
    rendered in one place, the page of a report: its template is packaged, escapes every value, and is never a text of a model.
    PyTorch is imported in one place, for a cache of transformers, whose tensors come from safetensors.
    """
    assert template().environment.autoescape is True
    assert isinstance(template().environment.loader, PackageLoader)
    alone = {"sinkjax.checkpoints.adapters": "subprocess", "sinkjax.report.page": "jinja2", "sinkjax.interop.caches": "torch"}
    never = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "jinja2", "torch", "runpy", "subprocess"}
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not (never - {alone.get(module)}) & {name.partition(".")[0] for name in names}, module


def test_the_module_takes_no_module_from_the_current_folder(tmp_path):
    """As in an unpacked zip."""
    for name in ("yaml", "numpy", "jax", "tyro", "pathlib", "zipfile", "ast", "typing"):
        (tmp_path / f"{name}.py").write_text("open('PWNED', 'w').write('it ran')\n")
    run = subprocess.run(
        [sys.executable, "-m", "sinkjax", "report", "absent"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "store absent" in run.stderr
    assert not (tmp_path / "PWNED").exists()


def test_a_tokenizers_own_code_is_not_imported_nor_asked_about(tmp_path, monkeypatch):
    folder = write_model(tmp_path / "model")
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'PWNED')!r}, 'w').write('it ran')\nclass Evil: pass\n")
    settings = {"auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}, "tokenizer_class": "Evil"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))

    questions = []
    monkeypatch.setattr("builtins.input", lambda question="": questions.append(question) or "y")
    with pytest.raises(SinkjaxError, match="transformers cannot build a tokenizer"):
        sinkjax.load(folder)
    assert not questions
    assert not (tmp_path / "PWNED").exists()


def test_the_policy_of_a_page_forbids_requests_and_other_scripts(section):
    """The one script is the viewer's, named by its digest; one that a text brought in would have another."""
    views = (KeptMaps("maps", "a caption", {}),)
    for shown, scripts in ((section, 0), (dataclasses.replace(section, views=views), 1)):
        text = page([shown], "All")
        (stated,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
        rules = dict(rule.strip().split(" ", 1) for rule in stated.split(";"))
        assert rules["default-src"] == "'none'"
        assert rules["img-src"] == "data: blob:"
        found = re.findall(r'<script type="module">(.*?)</script>', text, re.DOTALL)
        digests = [f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'" for code in found]
        assert len(found) == scripts
        assert rules["script-src"] == (" ".join(digests) or "'none'")
